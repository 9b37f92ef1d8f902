//! A few rows in f32: y = x Wᵀ straight from W, without the packing that a matrix product starts with. This is what
//! acting calls. Eight outputs at a time share the loads of x; each output's sum runs in lanes, then over the lanes.

use crate::device::simd::{Kernel, Lanes};

/// Most rows for which this beats the matrix product (measured: 1 to 4 rows, widths 32 to 1024).
pub(super) const FEW: usize = 4;
/// Outputs computed together.
const BLOCK: usize = 8;

/// y [rows, d_out] = or += x [rows, d_in] Wᵀ + b.
pub(super) struct FewRows<'a> {
    pub d_in: usize,
    pub d_out: usize,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub b: Option<&'a [f32]>,
    pub y: &'a mut [f32],
    pub add: bool,
}

impl Kernel for FewRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        for row in 0..self.y.len() / self.d_out.max(1) {
            let mut j = 0;
            while j + BLOCK <= self.d_out {
                self.outputs::<L, BLOCK>(l, row, j);
                j += BLOCK;
            }
            while j < self.d_out {
                self.outputs::<L, 1>(l, row, j);
                j += 1;
            }
        }
    }
}

impl FewRows<'_> {
    #[inline(always)]
    fn outputs<L: Lanes, const NB: usize>(&mut self, l: L, row: usize, j: usize) {
        let d = self.d_in;
        let x = &self.x[row * d..(row + 1) * d];
        let w = &self.w[j * d..(j + NB) * d];
        let mut sum = [l.splat(0.0); NB];
        let full = d / L::N * L::N;
        for k in (0..full).step_by(L::N) {
            let v = l.load(x, k);
            for (i, sum) in sum.iter_mut().enumerate() {
                *sum = l.fma(v, l.load(w, i * d + k), *sum);
            }
        }
        if full < d {
            let v = l.load_part(x, full, d - full);
            for (i, sum) in sum.iter_mut().enumerate() {
                *sum = l.fma(v, l.load_part(w, i * d + full, d - full), *sum);
            }
        }
        let y = &mut self.y[row * self.d_out + j..row * self.d_out + j + NB];
        for (i, y) in y.iter_mut().enumerate() {
            let v = l.sum(sum[i]) + self.b.map_or(0.0, |b| b[j + i]);
            *y = if self.add { *y + v } else { v };
        }
    }
}
