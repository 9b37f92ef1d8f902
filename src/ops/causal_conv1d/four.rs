//! Four taps, the usual number: rows are read as they lie, four steps at a time, so that a long batch streams through the
//! caches in place of walking down columns. Every sum runs in the order of `fast`, so both give the same bits.

use super::fast::{Backward, Forward, PAD, since_reset};
use crate::device::simd::Lanes;

/// Taps.
pub(super) const K: usize = 4;
/// Steps computed together.
const BLOCK: usize = 4;
/// Inputs, or gradients, that a block touches.
const SPAN: usize = BLOCK + K - 1;

/// Floats of scratch beside taps, g_w and g_b: the last K − 1 gradients of every channel.
pub(super) fn carry(d_inner: usize) -> usize {
    (K - 1) * d_inner.next_multiple_of(PAD)
}

/// One block of one row: steps t0.. of which `n` are real.
#[derive(Clone, Copy)]
struct At {
    b: usize,
    t0: usize,
    n: usize,
}

impl Forward<'_> {
    /// All rows; `taps` is [K, pad].
    #[inline(always)]
    pub(super) fn four<L: Lanes>(&mut self, l: L, taps: &[f32]) {
        let s = self.s;
        for b in 0..s.batch {
            for t0 in (0..s.time).step_by(BLOCK) {
                let at = At { b, t0, n: BLOCK.min(s.time - t0) };
                let mut seen = [K; BLOCK];
                for (m, seen) in seen.iter_mut().enumerate().take(at.n) {
                    *seen = since_reset(s, self.reset, b, t0 + m + 1);
                }
                if at.n == BLOCK && seen == [K; BLOCK] {
                    self.block::<L, true>(l, at, seen, taps);
                } else {
                    self.block::<L, false>(l, at, seen, taps);
                }
            }
        }
    }

    #[inline(always)]
    fn block<L: Lanes, const ALL: bool>(&mut self, l: L, at: At, seen: [usize; BLOCK], taps: &[f32]) {
        let s = self.s;
        let pad = s.d_inner.next_multiple_of(PAD);
        let real = if ALL { BLOCK } else { at.n };
        for c0 in (0..s.d_inner).step_by(L::N) {
            let w = L::N.min(s.d_inner - c0);
            let bias = self.bias.map_or(l.splat(0.0), |bias| l.load_part(bias, c0, w));
            let x = inputs(l, self.x, self.window, s.stride, s.batch, s.d_inner, at, real, c0);
            for m in 0..real {
                let mut p = bias;
                for k in 0..K {
                    if ALL || K - 1 - k < seen[m] {
                        p = l.fma(l.load(taps, k * pad + c0), x[m + k], p);
                    }
                }
                self.finish(l, p, ((at.t0 + m) * s.batch + at.b) * s.d_inner + c0, w);
            }
        }
    }
}

/// Inputs of steps t0 − K + 1 .. t0 + n − 1, from the window where t is negative.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // inner loop
fn inputs<L: Lanes>(
    l: L,
    x: &[f32],
    window: &[f32],
    stride: usize,
    batch: usize,
    d_inner: usize,
    at: At,
    n: usize,
    c0: usize,
) -> [L::V; SPAN] {
    let w = L::N.min(d_inner - c0);
    let mut out = [l.splat(0.0); SPAN];
    // the last blocks, without a step of their own, need none
    let used = if n == 0 { 0 } else { n + K - 1 };
    for (i, out) in out.iter_mut().enumerate().take(used) {
        *out = match (at.t0 + i).checked_sub(K - 1) {
            Some(t) => l.load_part(x, (t * batch + at.b) * stride + c0, w),
            None => l.load_part(window, (at.b * (K - 1) + i) * d_inner + c0, w),
        };
    }
    out
}

impl Backward<'_> {
    /// All rows; `taps` and `g_w` are [K, pad], `g_b` is `[pad]`, `carry` [K − 1, pad].
    #[inline(always)]
    pub(super) fn four<L: Lanes>(&mut self, l: L, taps: &[f32], g_w: &mut [f32], g_b: &mut [f32], carry: &mut [f32]) {
        let s = self.s;
        for b in 0..s.batch {
            carry.fill(0.0);
            // the last blocks have no step of their own: they finish the inputs that late steps saw
            for t0 in (0..s.time + K - 1).step_by(BLOCK) {
                let at = At { b, t0, n: BLOCK.min(s.time.saturating_sub(t0)) };
                let mut seen = [K; SPAN];
                for (i, seen) in seen.iter_mut().enumerate() {
                    if (K - 1..s.time + K - 1).contains(&(t0 + i)) {
                        *seen = since_reset(s, self.reset, b, t0 + i + 2 - K);
                    }
                }
                if at.n == BLOCK && seen == [K; SPAN] {
                    self.block::<L, true>(l, at, seen, taps, g_w, g_b, carry);
                } else {
                    self.block::<L, false>(l, at, seen, taps, g_w, g_b, carry);
                }
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // inner loop of `four`
    fn block<L: Lanes, const ALL: bool>(
        &mut self,
        l: L,
        at: At,
        seen: [usize; SPAN],
        taps: &[f32],
        g_w: &mut [f32],
        g_b: &mut [f32],
        carry: &mut [f32],
    ) {
        let s = self.s;
        let (pad, one) = (s.d_inner.next_multiple_of(PAD), l.splat(1.0));
        let real = if ALL { BLOCK } else { at.n };
        for c0 in (0..s.d_inner).step_by(L::N) {
            let w = L::N.min(s.d_inner - c0);
            // g_p = g_u silu'(p) of steps t0 − K + 1 .. t0 + BLOCK − 1
            let mut g = [l.splat(0.0); SPAN];
            for (r, g) in g.iter_mut().enumerate().take(K - 1) {
                *g = l.load(carry, r * pad + c0);
            }
            let mut sum = l.load(g_b, c0);
            for m in 0..real {
                let row = ((at.t0 + m) * s.batch + at.b) * s.d_inner + c0;
                let p = l.load_part(self.pre, row, w);
                let sigmoid = l.sigmoid(p);
                let slope = l.mul(sigmoid, l.fma(p, l.sub(one, sigmoid), one));
                g[K - 1 + m] = l.mul(l.load_part(self.g_u, row, w), slope);
                sum = l.add(sum, g[K - 1 + m]);
            }
            l.store(sum, g_b, c0);
            let x = inputs(l, self.x, self.window, s.stride, s.batch, s.d_inner, at, real, c0);
            for k in 0..K {
                let mut sum = l.load(g_w, k * pad + c0);
                for m in 0..real {
                    if ALL || K - 1 - k < seen[K - 1 + m] {
                        sum = l.fma(g[K - 1 + m], x[m + k], sum);
                    }
                }
                l.store(sum, g_w, k * pad + c0);
            }
            for m in 0..BLOCK {
                if !ALL && at.t0 + m >= s.time + K - 1 {
                    break;
                }
                let mut g_x = l.splat(0.0);
                for j in 0..K {
                    if ALL || j < seen[m + j] {
                        g_x = l.fma(l.load(taps, (K - 1 - j) * pad + c0), g[m + j], g_x);
                    }
                }
                self.finish(l, g_x, at.b, c0, at.t0 + m);
            }
            for r in 0..K - 1 {
                l.store(g[BLOCK + r], carry, r * pad + c0);
            }
        }
    }
}
