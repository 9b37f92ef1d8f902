//! AdamW over one range of the flat buffer: decoupled decay first, then Adam with bias correction.
//! p −= lr·wd·p; m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; p −= lr · (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε).
//! Source: Loshchilov & Hutter, 2019; form of `torch.optim.AdamW`.

mod cpu;
mod fast;

use crate::device::{Device, Slot};
use crate::error::Result;

/// Step sizes of one group at one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWStep {
    /// Learning rate of the group (after warm-up).
    pub lr: f32,
    /// β₁.
    pub beta1: f32,
    /// β₂.
    pub beta2: f32,
    /// ε.
    pub eps: f32,
    /// Decoupled decay; 0 for the groups that do not decay.
    pub weight_decay: f32,
    /// Number of this update, from 1.
    pub t: u64,
    /// Factor on the gradient (global-norm clip).
    pub grad_scale: f32,
}

/// AdamW as an op.
pub trait AdamW: Device {
    /// One step on `range` of the flat buffers.
    ///
    /// # Errors
    /// `Shape` when the range is outside one of the buffers.
    fn adamw(
        &self,
        step: AdamWStep,
        range: Slot,
        params: &mut Self::Tensor,
        grads: &Self::Tensor,
        m: &mut Self::Tensor,
        v: &mut Self::Tensor,
    ) -> Result<()>;
}
