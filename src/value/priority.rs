//! Priorities of sequences and the importance weights that undo their bias.
//!
//! p = η max|δ| + (1−η) mean|δ| over learnt steps; P(i) = pᵢᵅ / Σ pᵅ; w = (N P)^−β, divided by the largest w.
//! Sources: R2D2 (Kapturowski et al., 2019), Sec. 2.3; prioritised replay (Schaul et al., 2016), Sec. 3.

use super::{ValueError, check_len, number};
use num_traits::Float;

/// p = η max|δ| + (1−η) mean|δ| over learnt steps; 0 if there is none. `td_error` and `learnt` are `[T]`; steps that are
/// not learnt are not read. η = 0.9 in R2D2.
///
/// ```
/// use mamba_rl::value::priority::sequence_priority;
/// let p = sequence_priority(&[100.0, 1.0, -2.0, 3.0], &[false, true, true, true], 0.9);
/// assert!((p - 2.9f64).abs() < 1e-12);
/// ```
pub fn sequence_priority<F: Float>(td_error: &[F], learnt: &[bool], eta: F) -> F {
    let (mut max, mut sum, mut n) = (F::zero(), F::zero(), 0usize);
    for (e, _) in td_error.iter().zip(learnt).filter(|&(_, &l)| l) {
        max = max.max(e.abs()); // ignores NaN, but the mean beside it does not: a NaN error shows in p
        sum = sum + e.abs();
        n += 1;
    }
    if n == 0 { F::zero() } else { eta * max + (F::one() - eta) * sum / number(n as f64) }
}

/// P(i) = pᵢᵅ / Σ pᵅ into `probability`, both `[N]`.
///
/// # Errors
/// Lengths that differ.
pub fn probabilities<F: Float>(priority: &[F], alpha: F, probability: &mut [F]) -> Result<(), ValueError> {
    check_len("probability", probability.len(), priority.len())?;
    let mut total = F::zero();
    for (p, out) in priority.iter().zip(probability.iter_mut()) {
        *out = p.powf(alpha);
        total = total + *out;
    }
    for out in probability {
        *out = *out / total;
    }
    Ok(())
}

/// (N P)^−β of one item among `n`, before the division by a maximum.
pub fn importance_weight<F: Float>(probability: F, n: usize, beta: F) -> F {
    (number::<F>(n as f64) * probability).powf(-beta)
}

/// Divides all weights by their largest, so that they lie in (0, 1].
pub fn normalise_by_max<F: Float>(weight: &mut [F]) {
    let max = weight.iter().copied().fold(F::zero(), F::max);
    if max > F::zero() {
        weight.iter_mut().for_each(|w| *w = *w / max);
    }
}
