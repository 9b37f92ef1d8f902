//! Softplus and its slope in f32, vectorised.

use crate::device::simd::{Kernel, Lanes};

/// delta = softplus(delta + b), rows of b's length.
pub(super) struct Softplus<'a> {
    pub b: &'a [f32],
    pub delta: &'a mut [f32],
}

impl Kernel for Softplus<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.b.len();
        for row in self.delta.chunks_exact_mut(width.max(1)) {
            for i in (0..width).step_by(L::N) {
                let w = L::N.min(width - i);
                let s = l.add(l.load_part(row, i, w), l.load_part(self.b, i, w));
                l.store_part(l.softplus(s), row, i, w);
            }
        }
    }
}

/// g *= 1 − e^−delta.
pub(super) struct Slope<'a> {
    pub delta: &'a [f32],
    pub g: &'a mut [f32],
}

impl Kernel for Slope<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let len = self.g.len();
        for i in (0..len).step_by(L::N) {
            let w = L::N.min(len - i);
            let minus = l.sub(l.splat(0.0), l.load_part(self.delta, i, w));
            l.store_part(l.mul(l.load_part(self.g, i, w), l.one_minus_exp(minus)), self.g, i, w);
        }
    }
}
