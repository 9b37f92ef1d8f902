//! Squashed Gaussian policy: u = mean + e^log_std·ξ, a = tanh u, and the log-density of a.
//!
//! log π(a) = Σ [−ξ²/2 − log_std − log(2π)/2 − log(1 − tanh²u)], where log(1 − tanh²u) is formed as
//! 2(log 2 − |u| − log1p(e^{−2|u|})), which is right for every u; 1 − tanh²u itself is 0 beyond |u| = 9 in f32.
//! Source: soft actor-critic (Haarnoja et al., 2018), App. C.

use super::{ValueError, check_len, number};
use num_traits::Float;
use std::f64::consts::{LN_2, PI};

/// One component of a sampled action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Squashed<F> {
    /// u, before tanh.
    pub pre_tanh: F,
    /// a = tanh u, in [−1, 1].
    pub action: F,
    /// This component's part of log π(a).
    pub log_prob: F,
}

/// The action and its log-density for standard normal `noise`.
pub fn squashed_sample<F: Float>(mean: F, log_std: F, noise: F) -> Squashed<F> {
    let u = mean + log_std.exp() * noise;
    Squashed { pre_tanh: u, action: u.tanh(), log_prob: log_density(u, log_std, noise) }
}

/// This component's part of log π(a) of a given action in [−1, 1]. Actions at ±1, where the density has no finite
/// value, are moved inside by one rounding step.
pub fn squashed_log_prob<F: Float>(mean: F, log_std: F, action: F) -> F {
    let edge = F::one() - F::epsilon();
    // atanh as a log1p: exact for small actions, where (1+a)/(1−a) would round.
    let a = action.max(-edge).min(edge);
    let u = number::<F>(0.5) * (number::<F>(2.0) * a / (F::one() - a)).ln_1p();
    log_density(u, log_std, (u - mean) / log_std.exp())
}

fn log_density<F: Float>(u: F, log_std: F, noise: F) -> F {
    -number::<F>(0.5) * noise * noise - log_std - number((2.0 * PI).ln() / 2.0) - log_one_minus_tanh2(u)
}

/// log(1 − tanh²u).
pub fn log_one_minus_tanh2<F: Float>(u: F) -> F {
    let two = number::<F>(2.0);
    two * (number::<F>(LN_2) - u.abs() - (-two * u.abs()).exp().ln_1p())
}

/// Gradients (g_mean, g_log_std) at fixed noise of `g_log_prob`·log π(a) + `g_action`·a for one component.
pub fn squashed_backward<F: Float>(mean: F, log_std: F, noise: F, g_log_prob: F, g_action: F) -> (F, F) {
    let spread = log_std.exp() * noise;
    let u = mean + spread;
    let g_u = g_log_prob * number::<F>(2.0) * u.tanh() + g_action * log_one_minus_tanh2(u).exp();
    (g_u, g_u * spread - g_log_prob)
}

/// Actions in [−1, 1] to [low, high]: low + (a+1)/2·(high − low). All `[A]`.
///
/// # Errors
/// Lengths that differ.
pub fn to_env_action<F: Float>(action: &[F], low: &[F], high: &[F], out: &mut [F]) -> Result<(), ValueError> {
    check_len("low", low.len(), action.len())?;
    check_len("high", high.len(), action.len())?;
    check_len("out", out.len(), action.len())?;
    for (((out, &a), &low), &high) in out.iter_mut().zip(action).zip(low).zip(high) {
        *out = low + number::<F>(0.5) * (a + F::one()) * (high - low);
    }
    Ok(())
}

/// log-density of the scaled action: `log_prob` − Σ log((high − low)/2).
pub fn env_log_prob<F: Float>(log_prob: F, low: &[F], high: &[F]) -> F {
    low.iter().zip(high).fold(log_prob, |sum, (&low, &high)| sum - (number::<F>(0.5) * (high - low)).ln())
}

/// log σ from a number without limits: ½(high − low) tanh(raw) + ½(high + low).
pub fn bounded_log_std<F: Float>(raw: F, (low, high): (F, F)) -> F {
    number::<F>(0.5) * ((high - low) * raw.tanh() + high + low)
}

/// Derivative of [`bounded_log_std`] with respect to `raw`.
pub fn bounded_log_std_grad<F: Float>(raw: F, (low, high): (F, F)) -> F {
    number::<F>(0.5) * (high - low) * log_one_minus_tanh2(raw).exp()
}

/// The `raw` whose log σ is 0, for limits on both sides of 0.
pub fn bounded_log_std_start<F: Float>((low, high): (F, F)) -> F {
    (-(high + low) / (high - low)).atanh()
}

/// Actions in [low, high] to [−1, 1], the inverse of [`to_env_action`]; numbers outside go to the nearer end. All `[A]`.
///
/// # Errors
/// Lengths that differ.
pub fn from_env_action<F: Float>(action: &[F], low: &[F], high: &[F], out: &mut [F]) -> Result<(), ValueError> {
    check_len("low", low.len(), action.len())?;
    check_len("high", high.len(), action.len())?;
    check_len("out", out.len(), action.len())?;
    for (((out, &a), &low), &high) in out.iter_mut().zip(action).zip(low).zip(high) {
        *out = (((a - low) - (high - a)) / (high - low)).max(-F::one()).min(F::one());
    }
    Ok(())
}

/// Loss of log α and its derivative: −log α · m with m = mean(log π(a) + target), weights included. Its gradient −m pushes α
/// up while the entropy −log π is below `target`. Source: Haarnoja et al., 2018 (b), Sec. 5, in the form that is linear in log α.
pub fn temperature_loss<F: Float>(log_alpha: F, mean_log_prob: F, target: F) -> (F, F) {
    let m = mean_log_prob + target;
    (-log_alpha * m, -m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_std_keeps_its_limits_and_starts_at_nothing() {
        let limits = (-5.0f64, 2.0);
        assert!(
            (bounded_log_std(-50.0, limits) + 5.0).abs() < 1e-12 && (bounded_log_std(50.0, limits) - 2.0).abs() < 1e-12
        );
        assert!(bounded_log_std(bounded_log_std_start(limits), limits).abs() < 1e-12);
        for raw in [-3.0, -0.2, 0.0, 0.458, 2.5] {
            let d = 1e-6;
            let slope = (bounded_log_std(raw + d, limits) - bounded_log_std(raw - d, limits)) / (2.0 * d);
            assert!((bounded_log_std_grad(raw, limits) - slope).abs() < 1e-8);
        }
    }

    #[test]
    fn actions_there_and_back() {
        let (low, high) = ([-2.0, 0.0, 1.0], [2.0, 10.0, 1.5]);
        let (mut env, mut back) = ([0.0f32; 3], [0.0; 3]);
        to_env_action(&[-1.0, 0.25, 1.0], &low, &high, &mut env).unwrap();
        assert_eq!(env, [-2.0, 6.25, 1.5]);
        from_env_action(&env, &low, &high, &mut back).unwrap();
        assert_eq!(back, [-1.0, 0.25, 1.0]);
        from_env_action(&[-9.0, 11.0, 1.25], &low, &high, &mut back).unwrap();
        assert_eq!(back, [-1.0, 1.0, 0.0]);
        assert!(from_env_action(&[0.0], &low, &high, &mut back).is_err());
    }

    #[test]
    fn temperature_moves_towards_the_target_entropy() {
        // entropy 0.5 is below the target 1: the descent direction raises log α
        let (loss, slope) = temperature_loss(-1.0f64, -0.5, 1.0);
        assert_eq!((loss, slope), (0.5, -0.5));
        assert_eq!(temperature_loss(-1.0f64, -2.0, 1.0).1, 1.0);
    }
}
