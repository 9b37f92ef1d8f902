//! c = a b or c += a b in f32 for a few rows of a, with b as it lies: columns of c across lanes, no packing and no sums
//! over lanes. Up to 8 rows share each load of b. This is the step of a recurrent cell.

use super::cpu::{Matrix, MatrixMut};
use crate::device::simd::{Kernel, Lanes};

/// Most rows for which this beats the packed product.
pub(crate) const MANY: usize = 16;

/// c [m, n] = or += a [m, k] b [k, n].
pub(crate) struct Rows<'a> {
    pub a: Matrix<'a, f32>,
    pub b: Matrix<'a, f32>,
    pub c: MatrixMut<'a, f32>,
    pub add: bool,
}

impl Kernel for Rows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let mut row = 0;
        while row < self.c.rows {
            let left = self.c.rows - row;
            row += if left >= 8 && L::N == 16 {
                self.strip::<L, 8, 2>(l, row)
            } else if left >= 4 {
                // 16 vectors of sums need the 32 registers of AVX-512
                if L::N == 16 { self.strip::<L, 4, 4>(l, row) } else { self.strip::<L, 4, 2>(l, row) }
            } else if left >= 2 {
                self.strip::<L, 2, 4>(l, row)
            } else {
                self.strip::<L, 1, 4>(l, row)
            };
        }
    }
}

impl Rows<'_> {
    /// `R` rows of c; returns `R`.
    #[inline(always)]
    fn strip<L: Lanes, const R: usize, const V: usize>(&mut self, l: L, row: usize) -> usize {
        let mut j = 0;
        while j + V * L::N <= self.c.cols {
            self.tile::<L, R, V>(l, row, j, L::N);
            j += V * L::N;
        }
        while j < self.c.cols {
            self.tile::<L, R, 1>(l, row, j, L::N.min(self.c.cols - j));
            j += L::N;
        }
        R
    }

    /// `R` rows of `V` vectors of c, the last `w` lanes wide.
    #[inline(always)]
    fn tile<L: Lanes, const R: usize, const V: usize>(&mut self, l: L, row: usize, j: usize, w: usize) {
        let mut sum = [[l.splat(0.0); V]; R];
        for k in 0..self.a.cols {
            let mut b = [l.splat(0.0); V];
            for (v, b) in b.iter_mut().enumerate() {
                *b = l.load_part(self.b.data, k * self.b.stride + j + v * L::N, w);
            }
            for (r, sum) in sum.iter_mut().enumerate() {
                let a = l.splat(self.a.data[(row + r) * self.a.stride + k]);
                for (sum, b) in sum.iter_mut().zip(b) {
                    *sum = l.fma(a, b, *sum);
                }
            }
        }
        for (r, sum) in sum.iter().enumerate() {
            for (v, &sum) in sum.iter().enumerate() {
                let at = (row + r) * self.c.stride + j + v * L::N;
                let out = if self.add { l.add(l.load_part(self.c.data, at, w), sum) } else { sum };
                l.store_part(out, self.c.data, at, w);
            }
        }
    }
}
