//! The convolution in f32, vectorised, for any number of taps (`four` is for four): per row and block of channels the
//! inputs are gathered into one column (window first), then eight steps at a time share each tap. Steps near a reset take
//! fewer taps, one step at a time; an output's sum always runs from the oldest tap to the newest: the same bits.

use super::{ConvShape, four};
use crate::device::is_set;
use crate::device::simd::{Kernel, Lanes, SLACK, aligned};

pub(super) const PAD: usize = 16;
/// Steps, or taps, that are computed together.
const BLOCK: usize = 8;

/// Floats of scratch: taps [K, pad] and a column of inputs; for the backward also g_w, g_b and a column of gradients.
pub(super) fn scratch(s: ConvShape, train: bool) -> usize {
    let pad = s.d_inner.next_multiple_of(PAD);
    if s.d_conv == four::K {
        let backward = s.d_conv * pad + pad + four::carry(s.d_inner);
        return SLACK + s.d_conv * pad + if train { backward } else { 0 };
    }
    let column = (s.window() + s.time) * PAD;
    let backward = s.d_conv * pad + pad + column + s.window() * PAD;
    SLACK + s.d_conv * pad + column + if train { backward } else { 0 }
}

/// w [d_inner, K] as [K, pad].
fn transpose(s: ConvShape, w: &[f32], taps: &mut [f32]) {
    let pad = s.d_inner.next_multiple_of(PAD);
    taps.fill(0.0);
    for (i, w) in w.chunks_exact(s.d_conv).enumerate() {
        for (k, &w) in w.iter().enumerate() {
            taps[k * pad + i] = w;
        }
    }
}

/// The column of inputs of row b, channels c0..: the window, then x.
#[inline(always)]
fn gather<L: Lanes>(l: L, s: ConvShape, b: usize, c0: usize, window: &[f32], x: &[f32], column: &mut [f32]) {
    let w = L::N.min(s.d_inner - c0);
    for m in 0..s.window() {
        l.store(l.load_part(window, (b * s.window() + m) * s.d_inner + c0, w), column, m * L::N);
    }
    for t in 0..s.time {
        l.store(l.load_part(x, (t * s.batch + b) * s.stride + c0, w), column, (s.window() + t) * L::N);
    }
}

/// Last reset of row b in steps [0, to), as steps before `to`; d_conv or more where it does not matter.
#[inline(always)]
pub(super) fn since_reset(s: ConvShape, reset: Option<&[u8]>, b: usize, to: usize) -> usize {
    if reset.is_none() {
        return s.d_conv;
    }
    (1..=s.d_conv.min(to)).find(|&i| is_set(reset, (to - i) * s.batch + b)).unwrap_or(s.d_conv)
}

/// Steps from ext index i (step i − K + 1) to the next reset after it, at most K.
#[inline(always)]
fn until_reset(s: ConvShape, reset: Option<&[u8]>, b: usize, i: usize) -> usize {
    if reset.is_none() {
        return s.d_conv;
    }
    let hit = |j: &usize| {
        let t = (i + j).checked_sub(s.window());
        t.is_some_and(|t| t < s.time && is_set(reset, t * s.batch + b))
    };
    (1..s.d_conv).find(hit).unwrap_or(s.d_conv)
}

/// Forward of all rows, but for the new window.
pub(super) struct Forward<'a> {
    pub s: ConvShape,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub reset: Option<&'a [u8]>,
    pub window: &'a [f32],
    pub u: &'a mut [f32],
    pub pre: Option<&'a mut [f32]>,
    pub scratch: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let s = self.s;
        let scratch = aligned(std::mem::take(&mut self.scratch));
        let (taps, column) = scratch.split_at_mut(s.d_conv * s.d_inner.next_multiple_of(PAD));
        transpose(s, self.w, taps);
        if s.d_conv == four::K {
            return self.four(l, taps);
        }
        for b in 0..s.batch {
            for c0 in (0..s.d_inner).step_by(L::N) {
                gather(l, s, b, c0, self.window, self.x, column);
                self.column(l, b, c0, taps, column);
            }
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn column<L: Lanes>(&mut self, l: L, b: usize, c0: usize, taps: &[f32], column: &[f32]) {
        let s = self.s;
        let (pad, w) = (s.d_inner.next_multiple_of(PAD), L::N.min(s.d_inner - c0));
        let bias = self.bias.map_or(l.splat(0.0), |bias| l.load_part(bias, c0, w));
        let mut t = 0;
        while t < s.time {
            if t + BLOCK <= s.time && all_taps(s, self.reset, b, t) {
                let mut p = [bias; BLOCK];
                for k in 0..s.d_conv {
                    let tap = l.load(taps, k * pad + c0);
                    for (i, p) in p.iter_mut().enumerate() {
                        *p = l.fma(tap, l.load(column, (t + i + k) * L::N), *p);
                    }
                }
                for (i, p) in p.iter().enumerate() {
                    self.finish(l, *p, ((t + i) * s.batch + b) * s.d_inner + c0, w);
                }
                t += BLOCK;
            } else {
                let mut p = bias;
                for back in (0..since_reset(s, self.reset, b, t + 1)).rev() {
                    let k = s.d_conv - 1 - back;
                    p = l.fma(l.load(taps, k * pad + c0), l.load(column, (t + k) * L::N), p);
                }
                self.finish(l, p, (t * s.batch + b) * s.d_inner + c0, w);
                t += 1;
            }
        }
    }

    #[inline(always)]
    pub(super) fn finish<L: Lanes>(&mut self, l: L, p: L::V, at: usize, w: usize) {
        if let Some(pre) = self.pre.as_mut() {
            l.store_part(p, pre, at, w);
        }
        l.store_part(l.mul(p, l.sigmoid(p)), self.u, at, w);
    }
}

/// Do all outputs of the block from t on see all taps? A reset at the oldest tap's own step hides nothing from it.
#[inline(always)]
fn all_taps(s: ConvShape, reset: Option<&[u8]>, b: usize, t: usize) -> bool {
    reset.is_none() || ((t + 1).saturating_sub(s.window())..t + BLOCK).all(|t| !is_set(reset, t * s.batch + b))
}

/// Backward of all rows. Gradients of w and b are added to.
pub(super) struct Backward<'a> {
    pub s: ConvShape,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub reset: Option<&'a [u8]>,
    pub pre: &'a [f32],
    pub window: &'a [f32],
    pub g_u: &'a [f32],
    pub g_window_out: Option<&'a [f32]>,
    pub g_x: &'a mut [f32],
    pub g_window: Option<&'a mut [f32]>,
    pub g_params: &'a mut [f32],
    pub w_at: usize,
    pub b_at: Option<usize>,
    pub scratch: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let s = self.s;
        let pad = s.d_inner.next_multiple_of(PAD);
        let scratch = aligned(std::mem::take(&mut self.scratch));
        let (taps, rest) = scratch.split_at_mut(s.d_conv * pad);
        let (g_w, rest) = rest.split_at_mut(s.d_conv * pad);
        let (g_b, rest) = rest.split_at_mut(pad);
        transpose(s, self.w, taps);
        g_w.fill(0.0);
        g_b.fill(0.0);
        if s.d_conv == four::K {
            self.four(l, taps, g_w, g_b, &mut rest[..four::carry(s.d_inner)]);
        } else {
            let (column, g_p) = rest.split_at_mut((s.window() + s.time) * PAD);
            for b in 0..s.batch {
                for c0 in (0..s.d_inner).step_by(L::N) {
                    gather(l, s, b, c0, self.window, self.x, column);
                    self.gather_g(l, b, c0, g_p, g_b);
                    self.taps(l, b, c0, column, g_p, g_w);
                    self.inputs(l, b, c0, taps, g_p);
                }
            }
        }
        for i in 0..s.d_inner {
            for k in 0..s.d_conv {
                self.g_params[self.w_at + i * s.d_conv + k] += g_w[k * pad + i];
            }
            if let Some(at) = self.b_at {
                self.g_params[at + i] += g_b[i];
            }
        }
    }
}

impl Backward<'_> {
    /// The column of g_p = g_u silu'(p), with K − 1 zeros before and behind it.
    #[inline(always)]
    fn gather_g<L: Lanes>(&self, l: L, b: usize, c0: usize, g_p: &mut [f32], g_b: &mut [f32]) {
        let s = self.s;
        let (w, k, one) = (L::N.min(s.d_inner - c0), s.window(), l.splat(1.0));
        g_p[..k * L::N].fill(0.0);
        g_p[(k + s.time) * L::N..(2 * k + s.time) * L::N].fill(0.0);
        let mut sum = l.load(g_b, c0);
        for t in 0..s.time {
            let at = (t * s.batch + b) * s.d_inner + c0;
            let p = l.load_part(self.pre, at, w);
            let sigmoid = l.sigmoid(p);
            let slope = l.mul(sigmoid, l.fma(p, l.sub(one, sigmoid), one));
            let g = l.mul(l.load_part(self.g_u, at, w), slope);
            l.store(g, g_p, (k + t) * L::N);
            sum = l.add(sum, g);
        }
        l.store(sum, g_b, c0);
    }

    /// g_w[k] += Σ_t g_p[t] x[t − K + 1 + k], eight taps at a time.
    #[inline(always)]
    fn taps<L: Lanes>(&self, l: L, b: usize, c0: usize, column: &[f32], g_p: &[f32], g_w: &mut [f32]) {
        let s = self.s;
        let pad = s.d_inner.next_multiple_of(PAD);
        let mut k0 = 0;
        while k0 < s.d_conv {
            if s.d_conv - k0 >= BLOCK {
                self.tap_block::<L, BLOCK>(l, b, k0, column, g_p, &mut g_w[k0 * pad + c0..], pad);
                k0 += BLOCK;
            } else if s.d_conv - k0 >= 4 {
                self.tap_block::<L, 4>(l, b, k0, column, g_p, &mut g_w[k0 * pad + c0..], pad);
                k0 += 4;
            } else {
                self.tap_block::<L, 1>(l, b, k0, column, g_p, &mut g_w[k0 * pad + c0..], pad);
                k0 += 1;
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // inner loop of `taps`
    fn tap_block<L: Lanes, const NB: usize>(
        &self,
        l: L,
        b: usize,
        k0: usize,
        column: &[f32],
        g_p: &[f32],
        g_w: &mut [f32],
        pad: usize,
    ) {
        let s = self.s;
        let mut sum: [L::V; NB] = std::array::from_fn(|k| l.load(g_w, k * pad));
        for t in 0..s.time {
            let g = l.load(g_p, (s.window() + t) * L::N);
            // taps older than the last reset saw nothing
            let first = s.d_conv - since_reset(s, self.reset, b, t + 1);
            if first <= k0 {
                for (k, sum) in sum.iter_mut().enumerate() {
                    *sum = l.fma(g, l.load(column, (t + k0 + k) * L::N), *sum);
                }
            } else {
                for (k, sum) in sum.iter_mut().enumerate().skip(first - k0) {
                    *sum = l.fma(g, l.load(column, (t + k0 + k) * L::N), *sum);
                }
            }
        }
        for (k, sum) in sum.iter().enumerate() {
            l.store(*sum, g_w, k * pad);
        }
    }

    /// g_x[t] = Σ_j w[K − 1 − j] g_p[t + j] up to the next reset, for the window's entries too.
    #[inline(always)]
    fn inputs<L: Lanes>(&mut self, l: L, b: usize, c0: usize, taps: &[f32], g_p: &[f32]) {
        let s = self.s;
        let pad = s.d_inner.next_multiple_of(PAD);
        let last = s.d_conv - 1;
        let mut i = if self.g_window.is_some() { 0 } else { s.window() };
        let end = s.window() + s.time;
        while i < end {
            let near = |i: &usize| until_reset(s, self.reset, b, *i) < s.d_conv;
            let full = i + BLOCK <= end && (self.reset.is_none() || !(i..i + BLOCK).any(|i| near(&i)));
            if full {
                let mut g = [l.splat(0.0); BLOCK];
                for j in 0..s.d_conv {
                    let tap = l.load(taps, (last - j) * pad + c0);
                    for (n, g) in g.iter_mut().enumerate() {
                        *g = l.fma(tap, l.load(g_p, (i + n + j) * L::N), *g);
                    }
                }
                for (n, g) in g.iter().enumerate() {
                    self.finish(l, *g, b, c0, i + n);
                }
                i += BLOCK;
            } else {
                let mut g = l.splat(0.0);
                for j in 0..until_reset(s, self.reset, b, i) {
                    g = l.fma(l.load(taps, (last - j) * pad + c0), l.load(g_p, (i + j) * L::N), g);
                }
                self.finish(l, g, b, c0, i);
                i += 1;
            }
        }
    }

    /// Adds the gradient that comes from the window after the last step, and stores.
    #[inline(always)]
    pub(super) fn finish<L: Lanes>(&mut self, l: L, mut g: L::V, b: usize, c0: usize, i: usize) {
        let s = self.s;
        let (w, k) = (L::N.min(s.d_inner - c0), s.window());
        if let (Some(from), Some(m)) = (self.g_window_out, i.checked_sub(s.time)) {
            // entry m is k − 1 − m steps before the last; older than the last reset it is a constant zero
            if k - 1 - m < since_reset(s, self.reset, b, s.time) {
                g = l.add(g, l.load_part(from, (b * k + m) * s.d_inner + c0, w));
            }
        }
        match (i.checked_sub(k), self.g_window.as_mut()) {
            (Some(t), _) => l.store_part(g, self.g_x, (t * s.batch + b) * s.stride + c0, w),
            (None, Some(to)) => l.store_part(g, to, (b * k + i) * s.d_inner + c0, w),
            (None, None) => {}
        }
    }
}
