//! The target network's weights follow the online ones, softly by τ at every update or by a hard copy every so many.
//! Its forward keeps no tape: one scratch for all layers.

use crate::device::{View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::params::Params;

/// How the target follows. One of the two, never both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetUpdate {
    /// target += τ (online − target) at every update.
    Soft(f32),
    /// target = online at every multiple of this number of updates.
    Hard(u64),
}

/// Which weights act, are evaluated and are saved as the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActingWeights {
    /// Those that the gradient moves.
    #[default]
    Online,
    /// The target network's: with a soft target an average over the last 1 / τ updates, whose policy wavers less where
    /// small differences between actions decide (Schwarzer et al., 2023, act so).
    Target,
}

/// L8  after update number `update` (from 1).
pub(super) fn follow<D: Backend>(
    dev: &D,
    rule: TargetUpdate,
    update: u64,
    online: &Params<D>,
    target: &mut Params<D>,
) -> Result<()> {
    let n = online.layout.len();
    let (from, to) = (View::new(&online.flat, 0, n), ViewMut::new(&mut target.flat, 0, n));
    match rule {
        TargetUpdate::Soft(tau) => dev.blend(tau, from, to),
        TargetUpdate::Hard(period) if crate::value::target_update::hard_update_due(update, period) => {
            dev.copy(from, to)
        }
        TargetUpdate::Hard(_) => Ok(()),
    }
}

/// A flat buffer of `n` numbers on the host.
pub(super) fn to_host<D: Backend>(dev: &D, from: &D::Tensor, n: usize) -> Result<Vec<f32>> {
    let mut out = vec![0.0; n];
    dev.download(View::new(from, 0, n), &mut out)?;
    Ok(out)
}
