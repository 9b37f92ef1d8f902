//! What acts: one step of features and a carried state in, one row of numbers per row out. Q-values for discrete actions,
//! mean and log σ of each component for continuous ones; [`Actions`](super::Actions) turns them into actions.

use std::sync::Arc;

use super::trunk::TrunkMemory;
use crate::backbone::{Part, Parts, Sequence, State};
use crate::error::Result;
use crate::ops::Backend;
use crate::params::{ParamLayout, Params};

/// A network that can be driven one step at a time. Object-safe: actors, sessions and evaluations hold a `Box<dyn Policy>`.
pub trait Policy<D: Backend>: Send + Sync {
    /// Names, shapes and places of the parameters.
    fn layout(&self) -> &Arc<ParamLayout>;
    /// Features a step.
    fn d_input(&self) -> usize;
    /// Numbers per row that come out.
    fn d_output(&self) -> usize;
    /// Numbers per row as the device gives them, before [`Policy::read`].
    fn d_raw(&self) -> usize {
        self.d_output()
    }
    /// Parts of the recurrent state of everything that learns from stored states.
    fn state_layout(&self) -> &[Part];
    /// Buffers for steps of `rows` rows. `storing`: the states are stored for a learner, so all of them move on; else those
    /// that acting does not need may stand still.
    ///
    /// # Errors
    /// Device errors.
    fn step_memory(&self, dev: &D, rows: usize, storing: bool) -> Result<StepMemory<D>>;
    /// One step (`seq` has T = 1); `state` moves on, `memory` holds what came out.
    ///
    /// # Errors
    /// Device errors.
    fn step(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        memory: &mut StepMemory<D>,
    ) -> Result<()>;
    /// The last part on the host: one raw row `[d_raw]` to what is wanted `[d_output]`.
    fn read(&self, raw: &[f32], out: &mut [f32]) {
        out.copy_from_slice(raw);
    }
}

/// Buffers of [`Policy::step`].
pub struct StepMemory<D: Backend> {
    /// The trunk whose features decide.
    pub(super) trunk: TrunkMemory<D>,
    /// Another trunk that moves on beside it.
    pub(super) beside: Option<TrunkMemory<D>>,
    /// Where that one's parts of the state lie during a step.
    pub(super) state: Parts<D>,
    pub(super) head: Vec<D::Tensor>,
    /// [rows, d_raw].
    pub(super) out: D::Tensor,
}

impl<D: Backend> StepMemory<D> {
    /// What came out, [rows, d_raw].
    pub fn out(&self) -> &D::Tensor {
        &self.out
    }
}
