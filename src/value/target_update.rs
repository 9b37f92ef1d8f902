//! How a target network follows the online one: softly each update, or by a copy now and then.
//!
//! Soft: target += τ (online − target). Hard: a copy after updates `period`, 2 `period`, ...
//! Sources: DDPG (Lillicrap et al., 2016), Algorithm 1; DQN (Mnih et al., 2015), Algorithm 1.

use super::{ValueError, check_len};
use num_traits::Float;

/// target += τ (online − target), elementwise.
///
/// # Errors
/// Lengths that differ.
pub fn soft_update<F: Float>(online: &[F], target: &mut [F], tau: F) -> Result<(), ValueError> {
    check_len("target", target.len(), online.len())?;
    for (target, &online) in target.iter_mut().zip(online) {
        *target = *target + tau * (online - *target);
    }
    Ok(())
}

/// Whether the copy is due after update number `update` (from 1). A period of 0 means never.
pub fn hard_update_due(update: u64, period: u64) -> bool {
    period != 0 && update.is_multiple_of(period)
}
