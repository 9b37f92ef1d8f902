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
/// let p = sequence_priority(&[100.0, 1.0, -2.0, 3.0], &[false, true, true, true], 0.9)?;
/// assert!((p - 2.9f64).abs() < 1e-12);
/// # Ok::<(), mamba_rl::value::ValueError>(())
/// ```
///
/// # Errors
/// Lengths that differ.
pub fn sequence_priority<F: Float>(td_error: &[F], learnt: &[bool], eta: F) -> Result<F, ValueError> {
    check_len("learnt", learnt.len(), td_error.len())?;
    let (mut max, mut sum, mut n) = (F::zero(), F::zero(), 0usize);
    for (e, _) in td_error.iter().zip(learnt).filter(|&(_, &l)| l) {
        max = max.max(e.abs()); // ignores NaN, but the mean beside it does not: a NaN error shows in p
        sum = sum + e.abs();
        n += 1;
    }
    Ok(if n == 0 { F::zero() } else { eta * max + (F::one() - eta) * sum / number(n as f64) })
}

/// P(i) = pᵢᵅ / Σ pᵅ into `probability`, both `[N]`.
///
/// # Errors
/// Lengths that differ; priorities whose powers do not add up to a number above 0.
pub fn probabilities<F: Float>(priority: &[F], alpha: F, probability: &mut [F]) -> Result<(), ValueError> {
    check_len("probability", probability.len(), priority.len())?;
    let mut total = F::zero();
    for (p, out) in priority.iter().zip(probability.iter_mut()) {
        *out = p.powf(alpha);
        total = total + *out;
    }
    let usable = total.is_finite() && total > F::zero();
    if !usable && !priority.is_empty() {
        let found = total.to_f64().unwrap_or(f64::NAN);
        return Err(ValueError::Range { argument: "sum of powers", expected: "finite and above 0", found });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lengths_and_empty_sums_are_errors() {
        assert!(matches!(sequence_priority(&[1.0, 2.0], &[true], 0.9), Err(ValueError::Length { found: 1, .. })));
        let mut p = [0.0; 2];
        for bad in [[0.0, 0.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
            assert!(matches!(probabilities(&bad, 0.9, &mut p), Err(ValueError::Range { .. })), "{bad:?}");
        }
        probabilities(&[0.0, 3.0], 1.0, &mut p).unwrap();
        assert_eq!(p, [0.0, 1.0]);
        probabilities(&[0.0, 0.0], 0.0, &mut p).unwrap(); // α = 0 is uniform
        assert_eq!(p, [0.5, 0.5]);
    }
}
