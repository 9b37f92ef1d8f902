//! AdamW on the CPU: one pass, element by element, so that the order cannot matter.

use super::{AdamW, AdamWStep};
use crate::device::{Cpu, Real, Slot};
use crate::error::Result;
use crate::ops::Check;

impl<F: Real> AdamW for Cpu<F> {
    fn adamw(
        &self,
        step: AdamWStep,
        range: Slot,
        params: &mut Vec<F>,
        grads: &Vec<F>,
        m: &mut Vec<F>,
        v: &mut Vec<F>,
    ) -> Result<()> {
        let c = Check::new(self, "adamw");
        for (name, buf) in [("params", &*params), ("grads", grads), ("m", &*m), ("v", &*v)] {
            c.slot(name, range, buf, &[("range", range.len)])?;
        }
        let of = |x: f32| F::of(f64::from(x));
        let (b1, b2, scale, eps) = (of(step.beta1), of(step.beta2), of(step.grad_scale), of(step.eps));
        let (lr, decay) = (of(step.lr), of(step.lr) * of(step.weight_decay));
        // in f64: 1 − β₂ᵗ is 1e-3 at first, and the powers would lose digits in f32
        let bias = |beta: f32| F::of(1.0 - f64::from(beta).powf(step.t as f64));
        let (bias1, bias2) = (bias(step.beta1), bias(step.beta2));
        let ranges = params[range.range()].iter_mut().zip(&grads[range.range()]);
        for ((p, &g), (m, v)) in ranges.zip(m[range.range()].iter_mut().zip(&mut v[range.range()])) {
            let g = g * scale;
            *p -= decay * *p;
            *m = b1 * *m + (F::one() - b1) * g;
            *v = b2 * *v + (F::one() - b2) * g * g;
            *p -= lr * (*m / bias1) / ((*v / bias2).sqrt() + eps);
        }
        Ok(())
    }
}
