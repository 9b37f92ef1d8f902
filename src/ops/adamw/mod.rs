//! AdamW over one range of the flat buffer: decoupled decay first, then Adam with bias correction.
//! p −= lr·wd·p; m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; p −= lr · (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε).
//! Source: Loshchilov & Hutter, 2019; form of `torch.optim.AdamW`.
//!
//! [`AdamW::update`] is a whole update: global norm, clip, all groups. What changes from one update to the next lies in a
//! buffer of the device, [`Control`], so that the update can be recorded once and repeated.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

use super::Check;
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

/// What a whole update depends on and what does not change from one to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateRule {
    /// β₁.
    pub beta1: f32,
    /// β₂.
    pub beta2: f32,
    /// ε.
    pub eps: f32,
    /// Decoupled decay of the decayed groups, times the learning rate.
    pub weight_decay: f32,
    /// Largest global norm; larger gradients are scaled down to it. None: no clipping.
    pub grad_clip: Option<f32>,
}

/// What changes from one update to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Control {
    /// Learning rate of encoder and backbone.
    pub lr_backbone: f32,
    /// Learning rate of the heads.
    pub lr_heads: f32,
    /// Number of this update, from 1.
    pub t: u64,
    /// Factor that the loss was multiplied by; the gradient is divided by it. A power of two.
    pub loss_scale: f32,
}

impl Control {
    /// Numbers of a control buffer.
    pub const LEN: usize = 5;

    /// As the device reads it: lr_backbone, lr_heads, 1 − β₁ᵗ, 1 − β₂ᵗ, 1 / loss_scale.
    pub fn numbers(&self, rule: &UpdateRule) -> [f32; Self::LEN] {
        let bias = |beta: f32| bias(beta, self.t) as f32;
        [self.lr_backbone, self.lr_heads, bias(rule.beta1), bias(rule.beta2), 1.0 / self.loss_scale]
    }
}

/// 1 − βᵗ, in f64: 1 − β₂ᵗ is 1e-3 at first, and the powers would lose digits in f32.
fn bias(beta: f32, t: u64) -> f64 {
    1.0 - f64::from(beta).powf(t as f64)
}

/// Buffers of an update, each `[parameters]` unless said otherwise.
pub struct UpdateBuffers<'a, T> {
    /// Changed.
    pub params: &'a mut T,
    /// Times the loss scale.
    pub grads: &'a T,
    /// First moments, changed.
    pub m: &'a mut T,
    /// Second moments, changed.
    pub v: &'a mut T,
    /// [`Control::numbers`], `[Control::LEN]`.
    pub control: &'a T,
    /// Out: the global norm before clipping, and 1 where it was not finite and nothing was changed, else 0. `[REPORT]`.
    pub report: &'a mut T,
}

/// Numbers that an update reports.
pub const REPORT: usize = 2;

/// AdamW as an op.
pub trait AdamW: Device {
    /// A whole update: g = grads / loss_scale; norm = √Σ g²; where it is finite, g times min(1, clip / norm) and one step on
    /// each of the four groups (backbone decayed, backbone plain, heads decayed, heads plain), which lie one after the other.
    /// `control` says what the control buffer holds.
    ///
    /// # Errors
    /// `Shape` when a buffer is too short.
    fn update(
        &self,
        rule: UpdateRule,
        control: Control,
        groups: [Slot; 4],
        buffers: UpdateBuffers<'_, Self::Tensor>,
    ) -> Result<()>;

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

/// The buffers are as long as the groups ask for.
fn check_update<D: Device>(dev: &D, groups: &[Slot; 4], b: &UpdateBuffers<'_, D::Tensor>) -> Result<()> {
    let (c, n) = (Check::new(dev, "adamw update"), groups.iter().map(|g| g.at + g.len).max().unwrap_or(0));
    let all = Slot { at: 0, len: n };
    for (name, buf) in [("params", &*b.params), ("grads", b.grads), ("m", &*b.m), ("v", &*b.v)] {
        c.slot(name, all, buf, &[("parameters", n)])?;
    }
    c.slot("control", Slot { at: 0, len: Control::LEN }, b.control, &[("numbers", Control::LEN)])?;
    c.slot("report", Slot { at: 0, len: REPORT }, b.report, &[("numbers", REPORT)])
}
