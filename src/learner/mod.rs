//! Learners: from a batch of stored sequences to one update and new priorities. [`R2d2`] and [`Rsac`] read as the papers'
//! algorithms; `burn_in`, `target_network` and `shards` are their steps.

mod burn_in;
mod delta_q;
mod loss_scale;
mod parallel;
mod r2d2;
mod rows;
mod rsac;
mod shards;
mod slots;
mod soft_shard;
mod soft_td;
mod target_network;
mod td;
mod td_distribution;

pub use loss_scale::LossScale;
pub use parallel::Parallel;
pub use r2d2::{R2d2, R2d2Config};
pub use rsac::{Rsac, RsacConfig};
pub use target_network::{ActingWeights, TargetUpdate};

use crate::device::ViewMut;
use crate::error::Result;
use crate::ops::Backend;
use crate::params::ParamLayout;
use crate::replay::SequenceBatch;

/// What one update did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Update {
    /// Mean loss over learnt steps, importance weights included.
    pub loss: f64,
    /// Mean Q of the actions taken, over learnt steps.
    pub q_mean: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Steps that were learnt.
    pub learnt: usize,
    /// The gradient was not finite: nothing was changed.
    pub skipped: bool,
    /// The policy's part, for agents that learn one.
    pub policy: Option<PolicyUpdate>,
}

/// What one update did to a policy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PolicyUpdate {
    /// Mean of α log π(a) − min Q(a) over learnt steps, importance weights included.
    pub loss: f64,
    /// Mean of −log π(a) over learnt steps, in nats of an action in [−1, 1].
    pub entropy: f64,
    /// α before the update.
    pub temperature: f64,
}

/// Weights, target weights and moments on the host, `[parameters]` each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LearnerState {
    /// Online weights.
    pub params: Vec<f32>,
    /// Target weights.
    pub target: Vec<f32>,
    /// First moments.
    pub m: Vec<f32>,
    /// Second moments.
    pub v: Vec<f32>,
    /// Updates done.
    pub updates: u64,
    /// Updates that were skipped.
    pub skipped: u64,
    /// Where the device has one; the default where a run goes on with f16 that did not begin with it.
    pub loss_scale: Option<LossScale>,
}

impl LearnerState {
    /// Reads weights, target weights and moments, `[n]` each, from the device.
    fn read<D: Backend>(dev: &D, from: [&D::Tensor; 4], n: usize) -> Result<Self> {
        let [params, target, m, v] = from.map(|t| target_network::to_host(dev, t, n));
        Ok(LearnerState { params: params?, target: target?, m: m?, v: v?, ..LearnerState::default() })
    }

    /// Writes them back; nothing is changed where a length differs.
    fn write<D: Backend>(&self, dev: &D, to: [&mut D::Tensor; 4], n: usize) -> Result<()> {
        self.check(n)?;
        for (to, from) in to.into_iter().zip([&self.params, &self.target, &self.m, &self.v]) {
            dev.upload(from, ViewMut::new(to, 0, n))?;
        }
        Ok(())
    }

    /// Error unless all four have `n` numbers.
    fn check(&self, n: usize) -> Result<()> {
        let parts = [("params", &self.params), ("target", &self.target), ("m", &self.m), ("v", &self.v)];
        match parts.into_iter().find(|(_, part)| part.len() != n) {
            None => Ok(()),
            Some((arg, part)) => {
                let (shape, got) = ("[parameters]".into(), part.len());
                Err(crate::Error::Shape { op: "restore", arg, shape, want: n, got })
            }
        }
    }
}

/// What the training loop needs from an agent's learner.
pub trait Learner: Send {
    /// One update. Afterwards [`Learner::priorities`] holds the new priorities in the order of the batch's rows.
    ///
    /// # Errors
    /// Device and shape errors.
    fn update(&mut self, batch: &SequenceBatch) -> Result<Update>;
    /// Factor on all learning rates from the next update on, 1 at the start: what a schedule sets. Not part of
    /// [`Learner::save`], because it follows from how far the run is.
    fn set_rate(&mut self, factor: f32);
    /// Raw priorities of the last batch, `[B]`.
    fn priorities(&self) -> &[f32];
    /// δ and targets of the last batch, `[B, slots behind the burn-in]` each, 0 where nothing is learnt; empty where a
    /// learner has none to show.
    fn errors(&self) -> (Vec<f32>, Vec<f32>) {
        Default::default()
    }
    /// Updates done.
    fn updates(&self) -> u64;
    /// Updates skipped for a gradient that was not finite.
    fn skipped(&self) -> u64;
    /// Names and places of the parameters.
    fn layout(&self) -> &ParamLayout;
    /// The weights that act, `[parameters]`, on the host: the online ones unless the learner was made with
    /// [`ActingWeights::Target`].
    ///
    /// # Errors
    /// Device errors.
    fn weights(&self, out: &mut Vec<f32>) -> Result<()>;
    /// Everything that a resumed run needs.
    ///
    /// # Errors
    /// Device errors.
    fn save(&self) -> Result<LearnerState>;
    /// Puts it back.
    ///
    /// # Errors
    /// `Shape` when a length differs; nothing is changed then.
    fn restore(&mut self, state: &LearnerState) -> Result<()>;
    /// Normalised difference between Q from the stored state and Q from a replay of the whole prefix with today's
    /// weights, for a batch of windows and the batch of their prefixes; None where nothing can be compared.
    ///
    /// # Errors
    /// Device and shape errors.
    fn delta_q(&mut self, windows: &SequenceBatch, prefixes: &SequenceBatch) -> Result<Option<f64>>;
}
