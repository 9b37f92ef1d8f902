//! One AdamW step on slices, the reference for the ops that run on flat parameter buffers.
//!
//! p −= lr·wd·p; m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; p −= lr·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε), t from 1.
//! Source: Loshchilov and Hutter (2019), Algorithm 2, with decay scaled by the learning rate as PyTorch does.

use super::{ValueError, check_len};
use num_traits::Float;

/// Numbers of the step.
#[derive(Debug, Clone, Copy)]
pub struct AdamW<F> {
    /// Learning rate.
    pub lr: F,
    /// Decay of the first moment.
    pub beta1: F,
    /// Decay of the second moment.
    pub beta2: F,
    /// Added to the root of the second moment.
    pub eps: F,
    /// Weight decay, times `lr`.
    pub weight_decay: F,
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
pub fn adamw_step<F: Float>(cfg: AdamW<F>, step: u32, g: &[F], state: AdamWState<'_, F>) -> Result<(), ValueError> {
    check_len("param", state.param.len(), g.len())?;
    check_len("m", state.m.len(), g.len())?;
    check_len("v", state.v.len(), g.len())?;
    if step == 0 {
        return Err(ValueError::Range { argument: "step", expected: "at least 1", found: 0.0 });
    }
    let one = F::one();
    let correction = |beta: F| one - beta.powi(i32::try_from(step).unwrap_or(i32::MAX));
    let (c1, c2) = (correction(cfg.beta1), correction(cfg.beta2));
    for (((p, m), v), &g) in state.param.iter_mut().zip(state.m).zip(state.v).zip(g) {
        *p = *p - cfg.lr * cfg.weight_decay * *p;
        *m = cfg.beta1 * *m + (one - cfg.beta1) * g;
        *v = cfg.beta2 * *v + (one - cfg.beta2) * g * g;
        *p = *p - cfg.lr * (*m / c1) / ((*v / c2).sqrt() + cfg.eps);
    }
    Ok(())
}
