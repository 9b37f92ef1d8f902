//! Distributional targets and losses: C51, quantile regression, two-hot.
//!
//! C51: the mass at atom z moves to r + γz, is clamped to the support and shared by its two neighbours there.
//! QR: Σᵢ meanⱼ |τᵢ − 1(u<0)| huber_κ(u)/κ with u = targetⱼ − quantileᵢ.
//! Two-hot: the scalar target r + γ E\[z\] as the weights of its two neighbours; cross-entropy as for C51.
//! Sources: Bellemare et al. (2017), Algorithm 1; Dabney et al. (2018), Eq. 10; two-hot as MuZero (Schrittwieser et al.,
//! 2020), App. F.

use super::rescaling::{rescale, rescale_inverse};
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

/// What a distributional critic predicts of the return, per action, and how it is learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Prediction<'a, F> {
    /// Quantiles at the midpoints τ `[N]`, with the quantile Huber loss of width κ.
    Quantiles {
        /// τᵢ.
        tau: &'a [F],
        /// κ.
        kappa: F,
    },
    /// Logits over evenly spaced atoms `[N]`; the target is a scalar, two-hot.
    TwoHot {
        /// z, ascending.
        atoms: &'a [F],
    },
    /// Logits over evenly spaced atoms `[N]`; the target is the projected distribution of the next observation.
    Categorical {
        /// z, ascending.
        atoms: &'a [F],
    },
}

impl<F: Float> Prediction<'_, F> {
    /// Expected return of one action's numbers, `[N]`.
    pub fn mean(&self, numbers: impl Iterator<Item = F> + Clone) -> F {
        match self {
            Prediction::Quantiles { .. } => {
                let (sum, n) = numbers.fold((F::zero(), 0usize), |(s, n), x| (s + x, n + 1));
                sum / number(n.max(1) as f64)
            }
            Prediction::TwoHot { atoms } | Prediction::Categorical { atoms } => {
                let max = numbers.clone().fold(F::neg_infinity(), F::max);
                let (mut mass, mut sum) = (F::zero(), F::zero());
                for (l, &z) in numbers.zip(*atoms) {
                    let p = (l - max).exp();
                    (mass, sum) = (mass + p, sum + p * z);
                }
                sum / mass
            }
        }
    }
}

/// One learnt step: the return up to a next observation, and what is predicted there of the action to be taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTarget<'a, F> {
    /// Σ γᵏ r over the window.
    pub reward: F,
    /// γᵐ; 0 where nothing comes after.
    pub discount: F,
    /// Numbers of the next action by the target network, `[M]`: quantiles, or logits.
    pub next: &'a [F],
    /// ε of value rescaling h; None: off. Not with `Categorical`, whose mass moves along a straight line.
    pub rescaling: Option<F>,
}

/// Loss of one step; `g` `[N]` gets `weight` times its gradient with respect to the `predicted` numbers `[N]`. `target` gets
/// what was predicted against: samples `[M]`, or probabilities of the atoms `[N]`. Returns the loss and the target's mean.
///
/// # Errors
/// Lengths that differ; a rescaled `Categorical`.
pub fn step_loss<F: Float>(
    prediction: Prediction<'_, F>,
    step: StepTarget<'_, F>,
    predicted: &[F],
    weight: F,
    target: &mut Vec<F>,
    g: &mut [F],
) -> Result<(F, F), ValueError> {
    let moved = |x: F| {
        let x = step.rescaling.map_or(x, |eps| rescale_inverse(x, eps));
        let y = step.reward + step.discount * x;
        step.rescaling.map_or(y, |eps| rescale(y, eps))
    };
    target.clear();
    match prediction {
        Prediction::Quantiles { tau, kappa } => {
            target.extend(step.next.iter().map(|&x| moved(x)));
            let row = QuantileRow { quantiles: predicted, tau, target, kappa };
            Ok((quantile_loss(row, weight, g)?, prediction.mean(target.iter().copied())))
        }
        Prediction::TwoHot { atoms } => {
            check_len("next", step.next.len(), atoms.len())?;
            let mean = moved(prediction.mean(step.next.iter().copied()));
            target.resize(atoms.len(), F::zero());
            two_hot(atoms, mean, target)?;
            Ok((cross_entropy(target, predicted, weight, g)?, mean))
        }
        Prediction::Categorical { atoms } => {
            if let Some(eps) = step.rescaling {
                let found = eps.to_f64().unwrap_or(f64::NAN);
                return Err(ValueError::Range {
                    argument: "rescaling",
                    expected: "off with categorical critics",
                    found,
                });
            }
            check_len("next", step.next.len(), atoms.len())?;
            // the numbers are logits: their softmax is what moves
            let max = step.next.iter().copied().fold(F::neg_infinity(), F::max);
            target.extend(step.next.iter().map(|&l| (l - max).exp()));
            let mass = target.iter().fold(F::zero(), |s, &p| s + p);
            target.iter_mut().for_each(|p| *p = *p / mass);
            target.resize(2 * atoms.len(), F::zero());
            let (next, projected) = target.split_at_mut(atoms.len());
            c51_project(atoms, step.reward, step.discount, next, projected)?;
            target.drain(..atoms.len());
            let mean = target.iter().zip(atoms).fold(F::zero(), |s, (&p, &z)| s + p * z);
            Ok((cross_entropy(target, predicted, weight, g)?, mean))
        }
    }
}

/// Midpoints τᵢ = (2i + 1)/(2N) of N quantiles.
pub fn midpoints<F: Float>(n: usize) -> Vec<F> {
    (0..n).map(|i| number((2 * i + 1) as f64 / (2 * n) as f64)).collect()
}

/// N evenly spaced atoms from `low` to `high`, both included.
pub fn support_atoms<F: Float>(low: F, high: F, n: usize) -> Vec<F> {
    let step = (high - low) / number((n.max(2) - 1) as f64);
    (0..n).map(|i| low + step * number(i as f64)).collect()
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

    /// Every loss against central differences in f64, with and without rescaling, and its mean against the scalar target.
    #[test]
    fn step_losses_match_differences() {
        let (tau, atoms) = (midpoints::<f64>(5), support_atoms(-2.0, 3.0, 5));
        let predictions = [
            (Prediction::Quantiles { tau: &tau, kappa: 1.0 }, Some(1e-2)),
            (Prediction::Quantiles { tau: &tau, kappa: 0.3 }, None),
            (Prediction::TwoHot { atoms: &atoms }, Some(1e-2)),
            (Prediction::TwoHot { atoms: &atoms }, None),
            (Prediction::Categorical { atoms: &atoms }, None),
        ];
        let next = [0.4, -1.3, 0.9, 2.2, -0.1];
        let (mut target, mut g) = (Vec::new(), [0.0; 5]);
        for (prediction, rescaling) in predictions {
            let step = StepTarget { reward: 0.2, discount: 0.9, next: &next, rescaling };
            let mut x = [0.31, -0.72, 1.45, 0.05, -1.13];
            let (_, mean) = step_loss(prediction, step, &x, 0.7, &mut target, &mut g).unwrap();
            let (mut unused, analytic) = ([0.0; 5], g);
            for i in 0..5 {
                let (at, d) = (x[i], 1e-6);
                let mut loss = |v: f64| {
                    x[i] = v;
                    step_loss(prediction, step, &x, 1.0, &mut target, &mut unused).unwrap().0
                };
                let slope = 0.7 * (loss(at + d) - loss(at - d)) / (2.0 * d);
                x[i] = at;
                assert!((analytic[i] - slope).abs() < 1e-7, "{prediction:?} {i}: {} and {slope}", analytic[i]);
            }
            if rescaling.is_none() {
                let scalar = 0.2 + 0.9 * prediction.mean(next.iter().copied());
                assert!((mean - scalar).abs() < 1e-12, "{prediction:?}: {mean} and {scalar}");
            }
        }
        let step = StepTarget { reward: 0.0, discount: 1.0, next: &next, rescaling: Some(1e-3) };
        let refused = step_loss(Prediction::Categorical { atoms: &atoms }, step, &next, 1.0, &mut target, &mut g);
        assert!(refused.unwrap_err().to_string().contains("rescaling"));
    }
}
