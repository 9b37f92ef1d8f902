//! The gate in f32, vectorised.

use super::GateShape;
use crate::device::simd::{Kernel, Lanes};

/// out = y silu(z).
pub(super) struct Forward<'a> {
    pub s: GateShape,
    pub y: &'a [f32],
    pub xz: &'a [f32],
    pub out: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.s.width;
        for row in 0..self.s.rows {
            for i in (0..width).step_by(L::N) {
                let (at, w) = (row * width + i, L::N.min(width - i));
                let z = l.load_part(self.xz, at + (row + 1) * width, w);
                let y = l.load_part(self.y, at, w);
                l.store_part(l.mul(y, l.mul(z, l.sigmoid(z))), self.out, at, w);
            }
        }
    }
}

/// Gradients of y and z, and out once more.
pub(super) struct Backward<'a> {
    pub s: GateShape,
    pub y: &'a [f32],
    pub xz: &'a [f32],
    pub g_out: &'a [f32],
    pub g_y: &'a mut [f32],
    pub g_xz: &'a mut [f32],
    pub out: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (width, one) = (self.s.width, l.splat(1.0));
        for row in 0..self.s.rows {
            for i in (0..width).step_by(L::N) {
                let (at, w) = (row * width + i, L::N.min(width - i));
                let z_at = at + (row + 1) * width;
                let z = l.load_part(self.xz, z_at, w);
                let (y, g) = (l.load_part(self.y, at, w), l.load_part(self.g_out, at, w));
                let sigmoid = l.sigmoid(z);
                let silu = l.mul(z, sigmoid);
                let slope = l.mul(sigmoid, l.fma(z, l.sub(one, sigmoid), one));
                l.store_part(l.mul(g, silu), self.g_y, at, w);
                l.store_part(l.mul(l.mul(g, y), slope), self.g_xz, z_at, w);
                l.store_part(l.mul(y, silu), self.out, at, w);
            }
        }
    }
}
