//! One AdamW step on slices, the reference for the ops that run on flat parameter buffers.
//!
//! p −= lr·wd·p; m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; p −= lr·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε), t from 1.
//!
//! The numbers of the step are f64 and 1 − β is formed in it: 1 − 0.999 in f32 is off by 5e-5, and v with it.
//! Source: Loshchilov and Hutter (2019), Algorithm 2, with decay scaled by the learning rate as PyTorch does.

use super::{ValueError, check_len, number};
use num_traits::Float;

/// Numbers of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay, times `lr`.
    pub weight_decay: f64,
}

/// As Adam's paper has it, without decay: lr 1e-3, β 0.9 and 0.999, ε 1e-8.
impl Default for AdamW {
    fn default() -> Self {
        AdamW { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 }
    }
}

/// Parameters and moments of one tensor, all of one length.
#[derive(Debug)]
pub struct AdamWState<'a, F> {
    /// Parameters, changed in place.
    pub param: &'a mut [F],
    /// First moments.
    pub m: &'a mut [F],
    /// Second moments.
    pub v: &'a mut [F],
}

/// Step number `step` (from 1) with gradient `g`.
///
/// # Errors
/// Lengths that differ, or step 0.
pub fn adamw_step<F: Float>(cfg: AdamW, step: u32, g: &[F], state: AdamWState<'_, F>) -> Result<(), ValueError> {
    check_len("param", state.param.len(), g.len())?;
    check_len("m", state.m.len(), g.len())?;
    check_len("v", state.v.len(), g.len())?;
    if step == 0 {
        return Err(ValueError::Range { argument: "step", expected: "at least 1", found: 0.0 });
    }
    let t = i32::try_from(step).unwrap_or(i32::MAX);
    let [beta1, beta2, eps] = [cfg.beta1, cfg.beta2, cfg.eps].map(number::<F>);
    let [new1, new2] = [1.0 - cfg.beta1, 1.0 - cfg.beta2].map(number::<F>);
    let [c1, c2] = [1.0 - cfg.beta1.powi(t), 1.0 - cfg.beta2.powi(t)].map(number::<F>);
    let [lr, decay] = [cfg.lr, cfg.lr * cfg.weight_decay].map(number::<F>);
    for (((p, m), v), &g) in state.param.iter_mut().zip(state.m).zip(state.v).zip(g) {
        *p = *p - decay * *p;
        *m = beta1 * *m + new1 * g;
        *v = beta2 * *v + new2 * g * g;
        *p = *p - lr * (*m / c1) / ((*v / c2).sqrt() + eps);
    }
    Ok(())
}
