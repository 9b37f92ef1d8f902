//! Dueling head: q_a = v + adv_a − mean(adv), and its backward.
//! Source: Wang et al. (2016), Eq. 9.

use super::{ValueError, check_len, number};
use num_traits::Float;

/// Q-values of one observation; `advantage` and `q` are `[A]`.
///
/// # Errors
/// Lengths that differ.
pub fn dueling<F: Float>(value: F, advantage: &[F], q: &mut [F]) -> Result<(), ValueError> {
    check_len("q", q.len(), advantage.len())?;
    let mean = mean(advantage);
    for (q, &adv) in q.iter_mut().zip(advantage) {
        *q = value + (adv - mean);
    }
    Ok(())
}

/// Backward of [`dueling`]: returns g_value = Σ g_q and writes g_advantage = g_q − mean(g_q), `[A]`.
///
/// # Errors
/// Lengths that differ.
pub fn dueling_backward<F: Float>(g_q: &[F], g_advantage: &mut [F]) -> Result<F, ValueError> {
    check_len("g_advantage", g_advantage.len(), g_q.len())?;
    let mean = mean(g_q);
    for (out, &g) in g_advantage.iter_mut().zip(g_q) {
        *out = g - mean;
    }
    Ok(g_q.iter().fold(F::zero(), |sum, &g| sum + g))
}

fn mean<F: Float>(x: &[F]) -> F {
    if x.is_empty() { F::zero() } else { x.iter().fold(F::zero(), |sum, &x| sum + x) / number(x.len() as f64) }
}
