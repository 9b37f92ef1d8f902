//! Sums and blends in f32, vectorised; every element by itself.

use crate::device::simd::{Kernel, Lanes};

/// y += x.
pub(super) struct AddAssign<'a> {
    pub x: &'a [f32],
    pub y: &'a mut [f32],
}

impl Kernel for AddAssign<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let len = self.y.len();
        for i in (0..len).step_by(L::N) {
            let n = L::N.min(len - i);
            l.store_part(l.add(l.load_part(self.y, i, n), l.load_part(self.x, i, n)), self.y, i, n);
        }
    }
}

/// y += τ (x − y).
pub(super) struct Blend<'a> {
    pub tau: f32,
    pub x: &'a [f32],
    pub y: &'a mut [f32],
}

impl Kernel for Blend<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (len, tau) = (self.y.len(), l.splat(self.tau));
        for i in (0..len).step_by(L::N) {
            let n = L::N.min(len - i);
            let y = l.load_part(self.y, i, n);
            // a product and a sum, as the plain loop: a fused one would round elsewhere
            let step = l.mul(tau, l.sub(l.load_part(self.x, i, n), y));
            l.store_part(l.add(y, step), self.y, i, n);
        }
    }
}
