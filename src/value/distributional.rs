//! Distributional targets and losses: C51, quantile regression, two-hot.
//!
//! C51: the mass at atom z moves to r + γz, is clamped to the support and shared by its two neighbours there.
//! QR: Σᵢ meanⱼ |τᵢ − 1(u<0)| huber_κ(u)/κ with u = targetⱼ − quantileᵢ.
//! Sources: Bellemare et al. (2017), Algorithm 1; Dabney et al. (2018), Eq. 10.

use super::td_error::{huber, huber_grad};
use super::{ValueError, check_len, number};
use num_traits::Float;

/// Projects the distribution `next_prob` of one next observation onto the evenly spaced `atoms`; all `[M]`.
/// `discount` is γᵐ, 0 if terminated.
///
/// # Errors
/// Lengths that differ, or fewer than two atoms.
pub fn c51_project<F: Float>(
    atoms: &[F],
    reward: F,
    discount: F,
    next_prob: &[F],
    projected: &mut [F],
) -> Result<(), ValueError> {
    check_len("next_prob", next_prob.len(), atoms.len())?;
    check_len("projected", projected.len(), atoms.len())?;
    let (low, step) = support(atoms)?;
    projected.fill(F::zero());
    for (&z, &p) in atoms.iter().zip(next_prob) {
        share(atoms.len(), (reward + discount * z - low) / step, p, projected);
    }
    Ok(())
}

/// Writes `value` as the weights of its two neighbours among the evenly spaced `atoms`, both `[M]`.
///
/// # Errors
/// Lengths that differ, or fewer than two atoms.
pub fn two_hot<F: Float>(atoms: &[F], value: F, out: &mut [F]) -> Result<(), ValueError> {
    check_len("out", out.len(), atoms.len())?;
    let (low, step) = support(atoms)?;
    out.fill(F::zero());
    share(atoms.len(), (value - low) / step, F::one(), out);
    Ok(())
}

fn support<F: Float>(atoms: &[F]) -> Result<(F, F), ValueError> {
    let [low, .., high] = atoms else {
        return Err(ValueError::Range { argument: "atoms", expected: "at least 2 atoms", found: atoms.len() as f64 });
    };
    Ok((*low, (*high - *low) / number((atoms.len() - 1) as f64)))
}

/// Adds mass `p` at `position` (in atoms from the lowest) to the atoms left and right of it.
fn share<F: Float>(n_atoms: usize, position: F, p: F, out: &mut [F]) {
    let at = position.max(F::zero()).min(number((n_atoms - 1) as f64));
    let below = at.floor().to_usize().unwrap_or(0).min(n_atoms - 1);
    let right = at - number(below as f64);
    out[below] = out[below] + p * (F::one() - right);
    if below + 1 < n_atoms {
        out[below + 1] = out[below + 1] + p * right;
    }
}

/// Cross-entropy −Σ target·log softmax(logits), `[M]` each; `g_logits` gets `weight` times its gradient,
/// w (softmax(logits) Σ target − target).
///
/// # Errors
/// Lengths that differ.
pub fn cross_entropy<F: Float>(target: &[F], logits: &[F], weight: F, g_logits: &mut [F]) -> Result<F, ValueError> {
    check_len("logits", logits.len(), target.len())?;
    check_len("g_logits", g_logits.len(), target.len())?;
    let max = logits.iter().copied().fold(F::neg_infinity(), F::max);
    let log_sum = logits.iter().fold(F::zero(), |sum, &l| sum + (l - max).exp()).ln();
    let mass = target.iter().fold(F::zero(), |sum, &p| sum + p);
    let mut loss = F::zero();
    for ((&p, &l), g) in target.iter().zip(logits).zip(g_logits) {
        let log_prob = l - max - log_sum;
        loss = loss - p * log_prob;
        *g = weight * (log_prob.exp() * mass - p);
    }
    Ok(loss)
}

/// Inputs of the quantile loss of one row.
#[derive(Debug, Clone, Copy)]
pub struct QuantileRow<'a, F> {
    /// Predicted quantiles, `[N]`.
    pub quantiles: &'a [F],
    /// Midpoints τᵢ = (2i+1)/(2N), `[N]`.
    pub tau: &'a [F],
    /// Samples of the target distribution, `[M]`.
    pub target: &'a [F],
    /// Width of the Huber loss.
    pub kappa: F,
}

/// Quantile Huber loss of one row; `g_quantiles` `[N]` gets `weight` times its gradient.
///
/// # Errors
/// Lengths that differ, no target, or κ ≤ 0.
pub fn quantile_loss<F: Float>(row: QuantileRow<'_, F>, weight: F, g_quantiles: &mut [F]) -> Result<F, ValueError> {
    check_len("tau", row.tau.len(), row.quantiles.len())?;
    check_len("g_quantiles", g_quantiles.len(), row.quantiles.len())?;
    if row.target.is_empty() {
        return Err(ValueError::Length { argument: "target", expected: 1, found: 0 });
    }
    if row.kappa <= F::zero() {
        let found = row.kappa.to_f64().unwrap_or(f64::NAN);
        return Err(ValueError::Range { argument: "kappa", expected: "above 0", found });
    }
    let scale = F::one() / (row.kappa * number(row.target.len() as f64));
    let mut loss = F::zero();
    for ((&quantile, &tau), g) in row.quantiles.iter().zip(row.tau).zip(g_quantiles) {
        let (mut sum, mut slope) = (F::zero(), F::zero());
        for &target in row.target {
            let u = target - quantile;
            let side = if u < F::zero() { F::one() - tau } else { tau };
            sum = sum + side * huber(u, row.kappa);
            slope = slope - side * huber_grad(u, row.kappa);
        }
        loss = loss + scale * sum;
        *g = weight * scale * slope;
    }
    Ok(loss)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mass_is_kept_at_the_borders() {
        let mut out = [0.0; 3];
        two_hot(&[-1.0, 0.0, 1.0], 0.25, &mut out).unwrap();
        assert_eq!(out, [0.0, 0.75, 0.25]);
        two_hot(&[-1.0, 0.0, 1.0], 7.0, &mut out).unwrap();
        assert_eq!(out, [0.0, 0.0, 1.0]);
        assert!(two_hot(&[1.0], 7.0, &mut out[..1]).is_err());
    }
}
