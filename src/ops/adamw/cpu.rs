//! AdamW on the CPU: one pass, element by element, so that the order cannot matter.

use super::fast::{Constants, Step};
use super::{AdamW, AdamWStep, Control, UpdateBuffers, UpdateRule, bias, check_update};
use crate::device::{Cpu, Real, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Check;
use crate::ops::reduce::Reduce;

impl<F: Real> AdamW for Cpu<F> {
    fn update(
        &self,
        rule: UpdateRule,
        control: Control,
        groups: [Slot; 4],
        b: UpdateBuffers<'_, Vec<F>>,
    ) -> Result<()> {
        check_update(self, &groups, &b)?;
        let n = groups.iter().map(|g| g.at + g.len).max().unwrap_or(0);
        let unscale = 1.0 / f64::from(control.loss_scale);
        let norm = self.sum_squares(View::new(b.grads, 0, n))?.sqrt() * unscale;
        let skip = !norm.is_finite();
        (b.report[0], b.report[1]) = (F::of(norm), if skip { F::one() } else { F::zero() });
        if skip {
            return Ok(());
        }
        let clip = rule.grad_clip.map(f64::from).map_or(1.0, |max| if norm > max { max / norm } else { 1.0 });
        for (i, range) in groups.into_iter().enumerate().filter(|(_, g)| g.len > 0) {
            let step = AdamWStep {
                lr: if i < 2 { control.lr_backbone } else { control.lr_heads },
                beta1: rule.beta1,
                beta2: rule.beta2,
                eps: rule.eps,
                weight_decay: if i % 2 == 0 { rule.weight_decay } else { 0.0 },
                t: control.t,
                grad_scale: (clip * unscale) as f32,
            };
            self.adamw(step, range, b.params, b.grads, b.m, b.v)?;
        }
        Ok(())
    }

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
        let bias = |beta: f32| bias(beta, step.t);
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
