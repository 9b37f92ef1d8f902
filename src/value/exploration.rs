//! How ε of ε-greedy acting is set: a ladder over actors, or a line over time.
//!
//! Ladder: εᵢ = base^(1 + α i/(N−1)). Line: ε = start + (end − start) min(1, step/duration).
//! Sources: Ape-X (Horgan et al., 2018), Sec. 4 (base 0.4, α 7); DQN (Mnih et al., 2015).

use super::number;
use num_traits::Float;

/// ε of actor `i` among `n`; `base` if there is one actor.
pub fn epsilon_ladder<F: Float>(base: F, alpha: F, i: usize, n: usize) -> F {
    if n <= 1 {
        return base;
    }
    base.powf(F::one() + alpha * number(i as f64) / number((n - 1) as f64))
}

/// ε at environment step `step`, constant from `duration` on; `end` at once if `duration` is 0.
pub fn epsilon_linear<F: Float>(start: F, end: F, duration: u64, step: u64) -> F {
    if step >= duration {
        return end;
    }
    start + (end - start) * number::<F>(step as f64) / number(duration as f64)
}
