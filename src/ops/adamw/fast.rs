//! AdamW in f32, vectorised; every element by itself, in the order of operations of the plain loop.

use crate::device::simd::{Kernel, Lanes};

/// Constants of one step.
pub(super) struct Constants {
    pub lr: f32,
    pub decay: f32,
    pub beta1: f32,
    pub beta2: f32,
    pub bias1: f32,
    pub bias2: f32,
    pub eps: f32,
    pub grad_scale: f32,
}

/// One step on slices of equal length.
pub(super) struct Step<'a> {
    pub c: Constants,
    pub params: &'a mut [f32],
    pub grads: &'a [f32],
    pub m: &'a mut [f32],
    pub v: &'a mut [f32],
}

impl Kernel for Step<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (c, len) = (self.c, self.params.len());
        let one = |x: f32| l.splat(x);
        for i in (0..len).step_by(L::N) {
            let n = L::N.min(len - i);
            let g = l.mul(l.load_part(self.grads, i, n), one(c.grad_scale));
            let m = l.mul(l.load_part(self.m, i, n), one(c.beta1));
            let m = l.fma(one(1.0 - c.beta1), g, m);
            let v = l.mul(l.load_part(self.v, i, n), one(c.beta2));
            let v = l.fma(l.mul(one(1.0 - c.beta2), g), g, v);
            let root = l.add(l.sqrt(l.div(v, one(c.bias2))), one(c.eps));
            let p = l.load_part(self.params, i, n);
            let p = l.fnma(one(c.decay), p, p);
            let step = l.div(l.mul(one(c.lr), l.div(m, one(c.bias1))), root);
            l.store_part(l.sub(p, step), self.params, i, n);
            l.store_part(m, self.m, i, n);
            l.store_part(v, self.v, i, n);
        }
    }
}
