//! The scan in f32, vectorised: channels across lanes, chunks of time outside, groups of states next, blocks of channels
//! inside, so that h of a group stays in registers over a chunk. The backward recomputes a chunk from its checkpoint and
//! sweeps it in reverse. The order of every sum is fixed by d_state alone: one step at a time gives the bits of a whole
//! sequence.

use std::f32::consts::{LN_2, LOG2_E};

use super::{CHECKPOINT_EVERY as CHUNK, ScanShape};
use crate::device::is_set;
use crate::device::simd::{Kernel, Lanes, SLACK, aligned};

/// Most lanes of a vector; rows of the scratch are padded to it.
pub(in crate::ops) const PAD: usize = 16;
/// Most states of a group in the backward, so that its chunk stays in the first cache.
const GROUP: usize = 8;

/// Floats between the backward's chunk buffers. Buffers of 4 KiB end to end would have every load share its low address
/// bits with the store just before it, and the processor would take one for the other.
pub(in crate::ops) const SKEW: usize = 17 * PAD;

/// Floats of scratch: A and a chunk's Δ, u, y; for the backward g_A, g_h, g_D and a chunk's h, exp(Δ A), g_B, g_C too.
pub(super) fn scratch(s: ScanShape, train: bool) -> usize {
    let pad = s.d_inner.next_multiple_of(PAD);
    let chunk = (4 * CHUNK + 1) * GROUP * PAD + 4 * SKEW;
    let forward = s.d_state * pad + 3 * CHUNK * pad;
    SLACK + if train { forward.max(3 * s.d_state * pad + pad + chunk + 5 * CHUNK * pad) } else { forward }
}

/// Runs `$call` for groups of `NB` states from `n0` that add up to all of them, of `$widest` at most, the widest first.
macro_rules! groups {
    ($l:ident, $n_state:expr, $widest:expr, |$n0:ident, $nb:ident| $call:expr) => {
        let mut $n0 = 0;
        while $n0 < $n_state {
            let left = $n_state - $n0;
            if left >= 16 && $widest >= 16 {
                const $nb: usize = 16;
                $call;
                $n0 += 16;
            } else if left >= 8 {
                const $nb: usize = 8;
                $call;
                $n0 += 8;
            } else if left >= 4 {
                const $nb: usize = 4;
                $call;
                $n0 += 4;
            } else {
                const $nb: usize = 1;
                $call;
                $n0 += 1;
            }
        }
    };
}

/// Place of state n of the block of channels c0.. in the scratch's [blocks, d_state, lanes].
#[inline(always)]
fn place<L: Lanes>(s: ScanShape, c0: usize, n: usize) -> usize {
    (c0 / L::N * s.d_state + n) * L::N
}

/// A log₂ e, A = −exp(A_log), as [blocks, d_state, lanes], zeros in the padding: exp(Δ A) is then a power of two, which
/// is cheaper. First the transposition, then e^x on whole vectors: this is a good part of a single step's time.
#[inline(always)]
pub(in crate::ops) fn transpose_a<L: Lanes>(l: L, s: ScanShape, a_log: &[f32], a: &mut [f32]) {
    let blocks = a_log.chunks(L::N * s.d_state).zip(a.chunks_exact_mut(L::N * s.d_state));
    for (rows, block) in blocks {
        let w = rows.len() / s.d_state;
        for (n, to) in block.chunks_exact_mut(L::N).enumerate() {
            for (to, row) in to.iter_mut().zip(rows.chunks_exact(s.d_state)) {
                *to = row[n];
            }
            to[w..].fill(0.0);
        }
        for n in 0..s.d_state {
            let v = l.mul(l.splat(-LOG2_E), l.exp(l.load(block, n * L::N)));
            l.store(v, block, n * L::N);
        }
        if w < L::N {
            block.chunks_exact_mut(L::N).for_each(|row| row[w..].fill(0.0));
        }
    }
}

/// A chunk of row b of x [T, B, d_inner] as [blocks, CHUNK, lanes]: the steps of a block of channels, which lie far apart
/// in x and often in the same cache set, come together. Zeros in the padding.
#[inline(always)]
pub(in crate::ops) fn pack<L: Lanes>(
    l: L,
    s: ScanShape,
    x: &[f32],
    b: usize,
    steps: &std::ops::Range<usize>,
    to: &mut [f32],
) {
    for (j, t) in steps.clone().enumerate() {
        let row = (t * s.batch + b) * s.d_inner;
        for c0 in (0..s.d_inner).step_by(L::N) {
            l.store(l.load_part(x, row + c0, L::N.min(s.d_inner - c0)), to, c0 * CHUNK + j * L::N);
        }
    }
}

/// The way back of [`pack`].
#[inline(always)]
pub(in crate::ops) fn unpack<L: Lanes>(
    l: L,
    s: ScanShape,
    from: &[f32],
    b: usize,
    steps: &std::ops::Range<usize>,
    x: &mut [f32],
) {
    for (j, t) in steps.clone().enumerate() {
        let row = (t * s.batch + b) * s.d_inner;
        for c0 in (0..s.d_inner).step_by(L::N) {
            l.store_part(l.load(from, c0 * CHUNK + j * L::N), x, row + c0, L::N.min(s.d_inner - c0));
        }
    }
}

/// One array of `NB` scalars.
#[inline(always)]
pub(in crate::ops) fn scalars<const NB: usize>(x: &[f32], at: usize) -> [f32; NB] {
    let mut out = [0.0; NB];
    out.copy_from_slice(&x[at..at + NB]);
    out
}

/// `NB` vectors that lie one after another.
#[inline(always)]
pub(in crate::ops) fn vectors<L: Lanes, const NB: usize>(l: L, x: &[f32], at: usize) -> [L::V; NB] {
    let x = &x[at..at + NB * L::N];
    let mut out = [l.splat(0.0); NB];
    for (n, out) in out.iter_mut().enumerate() {
        *out = l.load(x, n * L::N);
    }
    out
}

/// Forward of all rows.
pub(super) struct Forward<'a> {
    pub s: ScanShape,
    pub u: &'a [f32],
    pub delta: &'a [f32],
    pub q: &'a [f32],
    pub a_log: &'a [f32],
    pub d_skip: &'a [f32],
    pub reset: Option<&'a [u8]>,
    pub y: &'a mut [f32],
    pub h: &'a mut [f32],
    pub h_tape: Option<&'a mut [f32]>,
    pub scratch: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let s = self.s;
        let pad = s.d_inner.next_multiple_of(PAD);
        let scratch = aligned(std::mem::take(&mut self.scratch));
        let (a, rest) = scratch.split_at_mut(s.d_state * pad);
        let (delta, rest) = rest.split_at_mut(CHUNK * pad);
        let (u, rest) = rest.split_at_mut(CHUNK * pad);
        let mut w = Chunk { a, delta, u, y: &mut rest[..CHUNK * pad] };
        transpose_a(l, s, self.a_log, w.a);
        let row_len = s.d_state * s.d_inner;
        for b in 0..s.batch {
            for t0 in (0..s.time).step_by(CHUNK) {
                if let Some(tape) = self.h_tape.as_mut() {
                    let at = (t0 / CHUNK * s.batch + b) * row_len;
                    tape[at..at + row_len].copy_from_slice(&self.h[b * row_len..(b + 1) * row_len]);
                }
                let steps = t0..(t0 + CHUNK).min(s.time);
                pack(l, s, self.delta, b, &steps, w.delta);
                pack(l, s, self.u, b, &steps, w.u);
                // as many vectors of h as the registers hold
                groups!(l, s.d_state, L::N, |n0, NB| {
                    for c0 in (0..s.d_inner).step_by(L::N) {
                        self.block::<L, NB>(l, &mut w, b, steps.clone(), n0, c0);
                    }
                });
                unpack(l, s, w.y, b, &steps, self.y);
            }
        }
    }
}

/// The forward's scratch: A log₂ e [blocks, d_state, lanes], and a chunk's Δ, u, y [blocks, CHUNK, lanes].
struct Chunk<'a> {
    a: &'a mut [f32],
    delta: &'a mut [f32],
    u: &'a mut [f32],
    y: &'a mut [f32],
}

impl Forward<'_> {
    /// Steps of row b for states n0.. and channels c0..
    #[inline(always)]
    fn block<L: Lanes, const NB: usize>(
        &mut self,
        l: L,
        w: &mut Chunk<'_>,
        b: usize,
        steps: std::ops::Range<usize>,
        n0: usize,
        c0: usize,
    ) {
        let (s, e) = (self.s, self.s.d_inner);
        let width = L::N.min(e - c0);
        let h_at = |n: usize| (b * s.d_state + n0 + n) * e + c0;
        let mut h = [l.splat(0.0); NB];
        for (n, h) in h.iter_mut().enumerate() {
            *h = l.load_part(self.h, h_at(n), width);
        }
        let a = vectors::<L, NB>(l, w.a, place::<L>(s, c0, n0));
        let d_skip = l.load_part(self.d_skip, c0, width);
        for (j, t) in steps.enumerate() {
            let (row, at) = (t * s.batch + b, c0 * CHUNK + j * L::N);
            if is_set(self.reset, row) {
                h = [l.splat(0.0); NB]; // clears NaN and inf too
            }
            let b_at = row * s.width() + s.dt_rank + n0;
            let (b_t, c_t) = (scalars::<NB>(self.q, b_at), scalars::<NB>(self.q, b_at + s.d_state));
            let (delta, u) = (l.load(w.delta, at), l.load(w.u, at));
            let du = l.mul(delta, u);
            let first = if n0 == 0 { l.mul(d_skip, u) } else { l.load(w.y, at) };
            let mut y = [first, l.splat(0.0)];
            for n in 0..NB {
                let a_bar = l.exp2_neg(l.mul(delta, a[n]));
                h[n] = l.fma(a_bar, h[n], l.mul(du, l.splat(b_t[n])));
                y[n % 2] = l.fma(h[n], l.splat(c_t[n]), y[n % 2]);
            }
            l.store(l.add(y[0], y[1]), w.y, at);
        }
        for (n, h) in h.iter().enumerate() {
            l.store_part(*h, self.h, h_at(n), width);
        }
    }
}

/// Backward of all rows. Gradients of A_log and D are added to.
pub(super) struct Backward<'a> {
    pub s: ScanShape,
    pub u: &'a [f32],
    pub delta: &'a [f32],
    pub q: &'a [f32],
    pub a_log: &'a [f32],
    pub d_skip: &'a [f32],
    pub reset: Option<&'a [u8]>,
    pub h_tape: &'a [f32],
    pub g_y: &'a [f32],
    pub g_h_out: Option<&'a [f32]>,
    pub g_u: &'a mut [f32],
    pub g_delta: &'a mut [f32],
    pub g_q: &'a mut [f32],
    pub g_h: Option<&'a mut [f32]>,
    pub g_params: &'a mut [f32],
    pub a_at: usize,
    pub d_at: usize,
    pub scratch: &'a mut [f32],
}

/// Parts of the backward's scratch.
struct Work<'a> {
    /// A log₂ e, [blocks, d_state, lanes].
    a: &'a [f32],
    /// [blocks, d_state, lanes].
    g_a: &'a mut [f32],
    /// Gradient of h of the row at hand, [blocks, d_state, lanes].
    g_h: &'a mut [f32],
    /// `[pad]`.
    g_d: &'a mut [f32],
    /// h before each step of the chunk and after the last, [CHUNK + 1, GROUP, lanes].
    h: &'a mut [f32],
    /// exp(Δ A), [CHUNK, GROUP, lanes].
    a_bar: &'a mut [f32],
    /// Lanes of g_B and g_C, [CHUNK, GROUP, lanes].
    g_b: &'a mut [f32],
    g_c: &'a mut [f32],
    /// The chunk's Δ, u, g_y, g_u, g_Δ, [blocks, CHUNK, lanes].
    delta: &'a mut [f32],
    u: &'a mut [f32],
    g_y: &'a mut [f32],
    g_u: &'a mut [f32],
    g_delta: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let (s, e) = (self.s, self.s.d_inner);
        let pad = e.next_multiple_of(PAD);
        let scratch = aligned(std::mem::take(&mut self.scratch));
        let (a, rest) = scratch.split_at_mut(s.d_state * pad);
        let (g_a, rest) = rest.split_at_mut(s.d_state * pad);
        let (g_h, rest) = rest.split_at_mut(s.d_state * pad);
        let (g_d, rest) = rest.split_at_mut(pad);
        let (h, rest) = rest.split_at_mut((CHUNK + 1) * GROUP * PAD + SKEW);
        let (a_bar, rest) = rest.split_at_mut(CHUNK * GROUP * PAD + SKEW);
        let (g_b, rest) = rest.split_at_mut(CHUNK * GROUP * PAD + SKEW);
        let (g_c, rest) = rest.split_at_mut(CHUNK * GROUP * PAD + SKEW);
        let (delta, rest) = rest.split_at_mut(CHUNK * pad);
        let (u, rest) = rest.split_at_mut(CHUNK * pad);
        let (g_y, rest) = rest.split_at_mut(CHUNK * pad);
        let (g_u, rest) = rest.split_at_mut(CHUNK * pad);
        let g_delta = &mut rest[..CHUNK * pad];
        transpose_a(l, s, self.a_log, a);
        g_a.fill(0.0);
        g_d.fill(0.0);
        let mut w = Work { a, g_a, g_h, g_d, h, a_bar, g_b, g_c, delta, u, g_y, g_u, g_delta };
        for b in 0..s.batch {
            w.g_h.fill(0.0);
            if let Some(from) = self.g_h_out {
                for n in 0..s.d_state {
                    let row = &from[(b * s.d_state + n) * e..][..e];
                    row.iter().enumerate().for_each(|(i, &g)| w.g_h[place::<L>(s, i, n) + i % L::N] = g);
                }
            }
            for chunk in (0..s.checkpoints()).rev() {
                let steps = chunk * CHUNK..((chunk + 1) * CHUNK).min(s.time);
                pack(l, s, self.delta, b, &steps, w.delta);
                pack(l, s, self.u, b, &steps, w.u);
                pack(l, s, self.g_y, b, &steps, w.g_y);
                groups!(l, s.d_state, GROUP, |n0, NB| self.group::<L, NB>(l, &mut w, b, steps.clone(), n0));
                unpack(l, s, w.g_u, b, &steps, self.g_u);
                unpack(l, s, w.g_delta, b, &steps, self.g_delta);
            }
            if let Some(to) = self.g_h.as_mut() {
                for n in 0..s.d_state {
                    let row = &mut to[(b * s.d_state + n) * e..][..e];
                    row.iter_mut().enumerate().for_each(|(i, g)| *g = w.g_h[place::<L>(s, i, n) + i % L::N]);
                }
            }
        }
        for i in 0..e {
            self.g_params[self.d_at + i] += w.g_d[i];
            for n in 0..s.d_state {
                // dA / dA_log = A
                let at = place::<L>(s, i, n) + i % L::N;
                self.g_params[self.a_at + i * s.d_state + n] += w.g_a[at] * (w.a[at] * LN_2);
            }
        }
    }
}

impl Backward<'_> {
    /// One chunk of row b for states n0..: all channels, then the sums over lanes that make g_B and g_C.
    #[inline(always)]
    fn group<L: Lanes, const NB: usize>(
        &mut self,
        l: L,
        w: &mut Work<'_>,
        b: usize,
        steps: std::ops::Range<usize>,
        n0: usize,
    ) {
        let (s, used) = (self.s, steps.len() * NB * L::N);
        w.g_b[..used].fill(0.0);
        w.g_c[..used].fill(0.0);
        for c0 in (0..s.d_inner).step_by(L::N) {
            self.recompute::<L, NB>(l, w, b, steps.clone(), n0, c0);
            self.sweep::<L, NB>(l, w, b, steps.clone(), n0, c0);
        }
        for (j, t) in steps.enumerate() {
            let at = (t * s.batch + b) * s.width() + s.dt_rank + n0;
            for n in 0..NB {
                let lane = (j * NB + n) * L::N;
                self.g_q[at + n] = l.sum(l.load(w.g_b, lane));
                self.g_q[at + s.d_state + n] = l.sum(l.load(w.g_c, lane));
            }
        }
    }

    /// h and exp(Δ A) of the chunk from its checkpoint.
    #[inline(always)]
    fn recompute<L: Lanes, const NB: usize>(
        &self,
        l: L,
        w: &mut Work<'_>,
        b: usize,
        steps: std::ops::Range<usize>,
        n0: usize,
        c0: usize,
    ) {
        let (s, e) = (self.s, self.s.d_inner);
        let width = L::N.min(e - c0);
        let a = vectors::<L, NB>(l, w.a, place::<L>(s, c0, n0));
        let tape = (steps.start / CHUNK * s.batch + b) * s.d_state + n0;
        let mut h = [l.splat(0.0); NB];
        for (n, h) in h.iter_mut().enumerate() {
            *h = l.load_part(self.h_tape, (tape + n) * e + c0, width);
            l.store(*h, w.h, n * L::N);
        }
        for (j, t) in steps.enumerate() {
            let (row, at) = (t * s.batch + b, c0 * CHUNK + j * L::N);
            if is_set(self.reset, row) {
                h = [l.splat(0.0); NB];
            }
            let b_t = scalars::<NB>(self.q, row * s.width() + s.dt_rank + n0);
            let delta = l.load(w.delta, at);
            let du = l.mul(delta, l.load(w.u, at));
            let now = j * NB * L::N;
            let to_a_bar = &mut w.a_bar[now..now + NB * L::N];
            let to_h = &mut w.h[now + NB * L::N..now + 2 * NB * L::N];
            for (n, h) in h.iter_mut().enumerate() {
                let a_bar = l.exp2_neg(l.mul(delta, a[n]));
                *h = l.fma(a_bar, *h, l.mul(du, l.splat(b_t[n])));
                l.store(a_bar, to_a_bar, n * L::N);
                l.store(*h, to_h, n * L::N);
            }
        }
    }

    /// The chunk in reverse.
    #[inline(always)]
    fn sweep<L: Lanes, const NB: usize>(
        &mut self,
        l: L,
        w: &mut Work<'_>,
        b: usize,
        steps: std::ops::Range<usize>,
        n0: usize,
        c0: usize,
    ) {
        let s = self.s;
        let (block, zero) = (NB * L::N, l.splat(0.0));
        let d_skip = l.load_part(self.d_skip, c0, L::N.min(s.d_inner - c0));
        let state = place::<L>(s, c0, n0);
        let mut g_h = vectors::<L, NB>(l, w.g_h, state);
        let a = vectors::<L, NB>(l, w.a, state);
        let mut g_a = vectors::<L, NB>(l, w.g_a, state);
        for (j, t) in steps.enumerate().rev() {
            let (row, at) = (t * s.batch + b, c0 * CHUNK + j * L::N);
            let b_at = row * s.width() + s.dt_rank + n0;
            let (b_t, c_t) = (scalars::<NB>(self.q, b_at), scalars::<NB>(self.q, b_at + s.d_state));
            let (delta, u, g_y) = (l.load(w.delta, at), l.load(w.u, at), l.load(w.g_y, at));
            let du = l.mul(delta, u);
            let now = j * block;
            let (before, after) = w.h[now..now + 2 * block].split_at(block);
            let a_bar = &w.a_bar[now..now + block];
            let (g_b, g_c) = (&mut w.g_b[now..now + block], &mut w.g_c[now..now + block]);
            // gradients of Δ u and, through exp(Δ A), of Δ
            let (mut g_du, mut g_delta) = (zero, zero);
            for (n, g_h) in g_h.iter_mut().enumerate() {
                let k = n * L::N;
                let g = l.fma(g_y, l.splat(c_t[n]), *g_h);
                l.store(l.fma(g_y, l.load(after, k), l.load(g_c, k)), g_c, k);
                l.store(l.fma(g, du, l.load(g_b, k)), g_b, k);
                g_du = l.fma(g, l.splat(b_t[n]), g_du);
                *g_h = l.mul(g, l.load(a_bar, k));
            }
            if is_set(self.reset, row) {
                g_h = [zero; NB]; // nothing passes a reset
            } else {
                for n in 0..NB {
                    let through = l.mul(g_h[n], l.load(before, n * L::N));
                    g_delta = l.fma(through, a[n], g_delta);
                    g_a[n] = l.fma(through, delta, g_a[n]);
                }
            }
            let (mut g_u, mut g_delta) = (l.mul(g_du, delta), l.fma(g_delta, l.splat(LN_2), l.mul(g_du, u)));
            if n0 == 0 {
                g_u = l.fma(d_skip, g_y, g_u);
                l.store(l.fma(g_y, u, l.load(w.g_d, c0)), w.g_d, c0);
            } else {
                g_u = l.add(g_u, l.load(w.g_u, at));
                g_delta = l.add(g_delta, l.load(w.g_delta, at));
            }
            l.store(g_u, w.g_u, at);
            l.store(g_delta, w.g_delta, at);
        }
        for n in 0..NB {
            l.store(g_h[n], w.g_h, state + n * L::N);
            l.store(g_a[n], w.g_a, state + n * L::N);
        }
    }
}
