//! AdamW on the CPU: one pass, element by element, so that the order cannot matter.

use super::fast::{Constants, Step};
use super::{AdamW, AdamWStep};
use crate::device::{Cpu, Real, Slot, ViewMut};
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
        // in f64: 1 − β₂ᵗ is 1e-3 at first, and the powers would lose digits in f32
        let bias = |beta: f32| 1.0 - f64::from(beta).powf(step.t as f64);
        if F::SINGLE {
            let c = Constants {
                lr: step.lr,
                decay: step.lr * step.weight_decay,
                beta1: step.beta1,
                beta2: step.beta2,
                bias1: bias(step.beta1) as f32,
                bias2: bias(step.beta2) as f32,
                eps: step.eps,
                grad_scale: step.grad_scale,
            };
            let params = ViewMut::new(params, range.at, range.len).f32s();
            let m = ViewMut::new(m, range.at, range.len).f32s();
            let v = ViewMut::new(v, range.at, range.len).f32s();
            self.isa().run(Step { c, params, grads: range.of(grads).f32s(), m, v });
            return Ok(());
        }
        let of = |x: f32| F::of(f64::from(x));
        let (b1, b2, scale, eps) = (of(step.beta1), of(step.beta2), of(step.grad_scale), of(step.eps));
        let (lr, decay) = (of(step.lr), of(step.lr) * of(step.weight_decay));
        let (bias1, bias2) = (F::of(bias(step.beta1)), F::of(bias(step.beta2)));
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
