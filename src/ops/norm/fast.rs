//! RMSNorm and LayerNorm in f32, vectorised. Sums of a row run in lanes, then over the lanes in a fixed order.

use super::NormShape;
use crate::device::simd::{Kernel, Lanes};

/// Σ x² over the row that starts at `at`, and 1 / √(mean + ε).
#[inline(always)]
fn inverse_rms<L: Lanes>(l: L, s: NormShape, x: &[f32], at: usize) -> f32 {
    let mut sum = l.splat(0.0);
    for i in (0..s.width).step_by(L::N) {
        let x = l.load_part(x, at + i, L::N.min(s.width - i));
        sum = l.fma(x, x, sum);
    }
    1.0 / (l.sum(sum) / s.width as f32 + s.eps as f32).sqrt()
}

/// y = w x / rms.
pub(super) struct Forward<'a> {
    pub s: NormShape,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        for row in 0..self.s.rows {
            let at = row * self.s.width;
            let k = l.splat(inverse_rms(l, self.s, self.x, at));
            for i in (0..self.s.width).step_by(L::N) {
                let n = L::N.min(self.s.width - i);
                let hat = l.mul(l.load_part(self.x, at + i, n), k);
                l.store_part(l.mul(l.load_part(self.w, i, n), hat), self.y, at + i, n);
            }
        }
    }
}

/// g_x = (w g − x̂ mean(w g x̂)) / rms, added to where `add`; g_w += Σ_rows g x̂.
pub(super) struct Backward<'a> {
    pub s: NormShape,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub g_y: &'a [f32],
    pub g_x: &'a mut [f32],
    pub add: bool,
    pub g_w: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.s.width;
        for row in 0..self.s.rows {
            let at = row * width;
            let k = l.splat(inverse_rms(l, self.s, self.x, at));
            let mut sum = l.splat(0.0);
            for i in (0..width).step_by(L::N) {
                let n = L::N.min(width - i);
                let (g, hat) = (l.load_part(self.g_y, at + i, n), l.mul(l.load_part(self.x, at + i, n), k));
                sum = l.fma(l.mul(l.load_part(self.w, i, n), g), hat, sum);
                l.store_part(l.fma(g, hat, l.load_part(self.g_w, i, n)), self.g_w, i, n);
            }
            let mean = l.splat(l.sum(sum) / width as f32);
            for i in (0..width).step_by(L::N) {
                let n = L::N.min(width - i);
                let (g, hat) = (l.load_part(self.g_y, at + i, n), l.mul(l.load_part(self.x, at + i, n), k));
                let mut v = l.mul(l.fnma(hat, mean, l.mul(l.load_part(self.w, i, n), g)), k);
                if self.add {
                    v = l.add(v, l.load_part(self.g_x, at + i, n));
                }
                l.store_part(v, self.g_x, at + i, n);
            }
        }
    }
}

/// Mean and 1 / √(var + ε) of the row that starts at `at`.
#[inline(always)]
fn moments<L: Lanes>(l: L, s: NormShape, x: &[f32], at: usize) -> (f32, f32) {
    let (mut sum, mut squares, width) = (l.splat(0.0), 0.0, s.width as f32);
    for i in (0..s.width).step_by(L::N) {
        sum = l.add(sum, l.load_part(x, at + i, L::N.min(s.width - i)));
    }
    let mean = l.sum(sum) / width;
    let mut sum = l.splat(0.0);
    for i in (0..s.width).step_by(L::N) {
        if i + L::N <= s.width {
            let d = l.sub(l.load(x, at + i), l.splat(mean));
            sum = l.fma(d, d, sum);
        } else {
            // the padding of a part would count as 0 − mean
            squares = x[at + i..at + s.width].iter().map(|x| (x - mean) * (x - mean)).sum();
        }
    }
    (mean, 1.0 / ((l.sum(sum) + squares) / width + s.eps as f32).sqrt())
}

/// LayerNorm: y = w (x − mean) / √(var + ε) + b.
pub(super) struct LayerForward<'a> {
    pub s: NormShape,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub b: &'a [f32],
    pub y: &'a mut [f32],
}

impl Kernel for LayerForward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        for row in 0..self.s.rows {
            let at = row * self.s.width;
            let (mean, k) = moments(l, self.s, self.x, at);
            for i in (0..self.s.width).step_by(L::N) {
                let n = L::N.min(self.s.width - i);
                let hat = l.mul(l.sub(l.load_part(self.x, at + i, n), l.splat(mean)), l.splat(k));
                let y = l.fma(l.load_part(self.w, i, n), hat, l.load_part(self.b, i, n));
                l.store_part(y, self.y, at + i, n);
            }
        }
    }
}

/// g_x = (w g − mean(w g) − x̂ mean(w g x̂)) k; g_w += Σ_rows g x̂, g_b += Σ_rows g.
pub(super) struct LayerBackward<'a> {
    pub s: NormShape,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub g_y: &'a [f32],
    pub g_x: &'a mut [f32],
    pub g_params: &'a mut [f32],
    pub w_at: usize,
    pub b_at: usize,
}

impl Kernel for LayerBackward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.s.width;
        for row in 0..self.s.rows {
            let at = row * width;
            let (mean, k) = moments(l, self.s, self.x, at);
            let (mean, k) = (l.splat(mean), l.splat(k));
            let (mut first, mut second) = (l.splat(0.0), l.splat(0.0));
            for i in (0..width).step_by(L::N) {
                let n = L::N.min(width - i);
                let hat = l.mul(l.sub(l.load_part(self.x, at + i, n), mean), k);
                let g = l.load_part(self.g_y, at + i, n); // zeros in the padding, so its x̂ does not count
                let wg = l.mul(l.load_part(self.w, i, n), g);
                first = l.add(first, wg);
                second = l.fma(wg, hat, second);
                let g_w = l.fma(g, hat, l.load_part(self.g_params, self.w_at + i, n));
                l.store_part(g_w, self.g_params, self.w_at + i, n);
                let g_b = l.add(g, l.load_part(self.g_params, self.b_at + i, n));
                l.store_part(g_b, self.g_params, self.b_at + i, n);
            }
            let (first, second) = (l.splat(l.sum(first) / width as f32), l.splat(l.sum(second) / width as f32));
            for i in (0..width).step_by(L::N) {
                let n = L::N.min(width - i);
                let hat = l.mul(l.sub(l.load_part(self.x, at + i, n), mean), k);
                let wg = l.mul(l.load_part(self.w, i, n), l.load_part(self.g_y, at + i, n));
                l.store_part(l.mul(l.fnma(hat, second, l.sub(wg, first)), k), self.g_x, at + i, n);
            }
        }
    }
}
