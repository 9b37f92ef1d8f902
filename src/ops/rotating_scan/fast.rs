//! The rotating scan in f32, vectorised as the selective scan is: channels across lanes, chunks of time outside, groups of
//! pairs next, blocks of channels inside, h of a group in registers over a chunk. cos θ and sin θ are computed once per
//! call, and a pair has one exp where two real states have two. The order of every sum is fixed by d_state alone: one
//! step at a time gives the bits of a whole sequence.

use std::f32::consts::LN_2;
use std::ops::Range;

use super::pairs;
use crate::device::is_set;
use crate::device::simd::{Kernel, Lanes, SLACK, aligned};
use crate::ops::selective_scan::fast::{PAD, SKEW, pack, scalars, transpose_a, unpack, vectors};
use crate::ops::selective_scan::{CHECKPOINT_EVERY as CHUNK, ScanShape};

/// Pairs of a group: five vectors each (h, A, cos θ, sin θ) stay in the registers of the forward, and a chunk of the
/// backward in the first cache. Eight in the forward made acting with 64 rows 14 % slower on AVX-512.
const GROUP: usize = 4;

/// Floats of scratch: A, cos θ, sin θ and a chunk's Δ, u, y; for the backward g_A, g_θ, g_h, g_D and a chunk's h,
/// exp(Δ A) cos θ and sin θ, g_B, g_C too.
pub(super) fn scratch(s: ScanShape, train: bool) -> usize {
    let (pad, pairs) = (s.d_inner.next_multiple_of(PAD), pairs(s));
    let chunk = (4 * CHUNK + 1) * 2 * GROUP * PAD + 4 * SKEW;
    SLACK + if train { 7 * pairs * pad + pad + chunk + 5 * CHUNK * pad } else { 3 * pairs * pad + 3 * CHUNK * pad }
}

/// Runs `$call` for groups of `NB` pairs from `m0` that add up to all of them, the widest first.
macro_rules! groups {
    ($pairs:expr, |$m0:ident, $nb:ident| $call:expr) => {
        let mut $m0 = 0;
        while $m0 < $pairs {
            if $pairs - $m0 >= GROUP {
                const $nb: usize = GROUP;
                $call;
                $m0 += GROUP;
            } else {
                const $nb: usize = 1;
                $call;
                $m0 += 1;
            }
        }
    };
}

/// Place of pair m of the block of channels c0.. in the scratch's [blocks, pairs, lanes].
#[inline(always)]
fn place<L: Lanes>(pairs: usize, c0: usize, m: usize) -> usize {
    (c0 / L::N * pairs + m) * L::N
}

/// Cuts the first `len` floats off.
#[inline(always)]
fn take<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (head, tail) = std::mem::take(rest).split_at_mut(len);
    *rest = tail;
    head
}

/// What stays the same over a call: A log₂ e, cos θ, sin θ, each [blocks, pairs, lanes].
struct Constants<'a> {
    a: &'a mut [f32],
    cos: &'a mut [f32],
    sin: &'a mut [f32],
}

impl<'a> Constants<'a> {
    #[inline(always)]
    fn new<L: Lanes>(l: L, s: ScanShape, a_log: &[f32], theta: &[f32], rest: &mut &'a mut [f32]) -> Self {
        let (e, pairs) = (s.d_inner, pairs(s));
        let len = pairs * e.next_multiple_of(PAD);
        let out = Constants { a: take(rest, len), cos: take(rest, len), sin: take(rest, len) };
        if pairs > 0 {
            transpose_a(l, ScanShape { d_state: pairs, ..s }, a_log, out.a);
        }
        for c0 in (0..e).step_by(L::N) {
            for m in 0..pairs {
                let (cos, sin) = l.cos_sin(l.load_part(theta, m * e + c0, L::N.min(e - c0)));
                l.store(cos, out.cos, place::<L>(pairs, c0, m));
                l.store(sin, out.sin, place::<L>(pairs, c0, m));
            }
        }
        out
    }

    /// Of pairs m0.. and channels c0..
    #[inline(always)]
    fn group<L: Lanes, const NB: usize>(&self, l: L, at: usize) -> [[L::V; NB]; 3] {
        [vectors::<L, NB>(l, self.a, at), vectors::<L, NB>(l, self.cos, at), vectors::<L, NB>(l, self.sin, at)]
    }
}

/// `NB` values of the real and of the imaginary row of a pair, which lie `pairs` apart.
#[inline(always)]
fn both<const NB: usize>(x: &[f32], at: usize, pairs: usize) -> [[f32; NB]; 2] {
    [scalars::<NB>(x, at), scalars::<NB>(x, at + pairs)]
}

/// Forward of all rows.
pub(super) struct Forward<'a> {
    pub s: ScanShape,
    pub u: &'a [f32],
    pub delta: &'a [f32],
    pub q: &'a [f32],
    pub a_log: &'a [f32],
    pub theta: &'a [f32],
    pub d_skip: &'a [f32],
    pub reset: Option<&'a [u8]>,
    pub y: &'a mut [f32],
    pub h: &'a mut [f32],
    pub h_tape: Option<&'a mut [f32]>,
    pub scratch: &'a mut [f32],
}

/// The forward's scratch: the constants, and a chunk's Δ, u, y [blocks, CHUNK, lanes].
struct Chunk<'a> {
    constants: Constants<'a>,
    delta: &'a mut [f32],
    u: &'a mut [f32],
    y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let (s, row_len) = (self.s, self.s.d_state * self.s.d_inner);
        let pad = s.d_inner.next_multiple_of(PAD);
        let rest = &mut aligned(std::mem::take(&mut self.scratch));
        let constants = Constants::new(l, s, self.a_log, self.theta, rest);
        let [delta, u, y] = [0; 3].map(|_| take(rest, CHUNK * pad));
        let mut w = Chunk { constants, delta, u, y };
        for b in 0..s.batch {
            for t0 in (0..s.time).step_by(CHUNK) {
                if let Some(tape) = self.h_tape.as_mut() {
                    let at = (t0 / CHUNK * s.batch + b) * row_len;
                    tape[at..at + row_len].copy_from_slice(&self.h[b * row_len..(b + 1) * row_len]);
                }
                let steps = t0..(t0 + CHUNK).min(s.time);
                pack(l, s, self.delta, b, &steps, w.delta);
                pack(l, s, self.u, b, &steps, w.u);
                groups!(pairs(s), |m0, NB| {
                    for c0 in (0..s.d_inner).step_by(L::N) {
                        self.block::<L, NB>(l, &mut w, b, steps.clone(), m0, c0);
                    }
                });
                unpack(l, s, w.y, b, &steps, self.y);
            }
        }
    }
}

impl Forward<'_> {
    /// Steps of row b for pairs m0.. and channels c0..
    #[inline(always)]
    fn block<L: Lanes, const NB: usize>(
        &mut self,
        l: L,
        w: &mut Chunk<'_>,
        b: usize,
        steps: Range<usize>,
        m0: usize,
        c0: usize,
    ) {
        let (s, e, pairs) = (self.s, self.s.d_inner, pairs(self.s));
        let width = L::N.min(e - c0);
        let h_at = |m: usize| (b * s.d_state + m0 + m) * e + c0;
        let [mut hr, mut hi] = [[l.splat(0.0); NB]; 2];
        for m in 0..NB {
            hr[m] = l.load_part(self.h, h_at(m), width);
            hi[m] = l.load_part(self.h, h_at(pairs + m), width);
        }
        let [a, cos, sin] = w.constants.group::<L, NB>(l, place::<L>(pairs, c0, m0));
        let d_skip = l.load_part(self.d_skip, c0, width);
        for (j, t) in steps.enumerate() {
            let (row, at) = (t * s.batch + b, c0 * CHUNK + j * L::N);
            if is_set(self.reset, row) {
                (hr, hi) = ([l.splat(0.0); NB], [l.splat(0.0); NB]); // clears NaN and inf too
            }
            let b_at = row * s.width() + s.dt_rank + m0;
            let [br, bi] = both::<NB>(self.q, b_at, pairs);
            let [cr, ci] = both::<NB>(self.q, b_at + 2 * pairs, pairs);
            let (delta, u) = (l.load(w.delta, at), l.load(w.u, at));
            let du = l.mul(delta, u);
            let first = if m0 == 0 { l.mul(d_skip, u) } else { l.load(w.y, at) };
            let mut y = [first, l.splat(0.0)];
            for m in 0..NB {
                let a_bar = l.exp2_neg(l.mul(delta, a[m]));
                let (c, s) = (l.mul(a_bar, cos[m]), l.mul(a_bar, sin[m]));
                let re = l.fma(c, hr[m], l.mul(du, l.splat(br[m])));
                let im = l.fma(c, hi[m], l.mul(du, l.splat(bi[m])));
                (hr[m], hi[m]) = (l.fnma(s, hi[m], re), l.fma(s, hr[m], im));
                y[0] = l.fma(hr[m], l.splat(cr[m]), y[0]);
                y[1] = l.fma(hi[m], l.splat(ci[m]), y[1]);
            }
            l.store(l.add(y[0], y[1]), w.y, at);
        }
        for m in 0..NB {
            l.store_part(hr[m], self.h, h_at(m), width);
            l.store_part(hi[m], self.h, h_at(pairs + m), width);
        }
    }
}

/// Backward of all rows. Gradients of A_log, D and θ are added to.
pub(super) struct Backward<'a> {
    pub s: ScanShape,
    pub u: &'a [f32],
    pub delta: &'a [f32],
    pub q: &'a [f32],
    pub a_log: &'a [f32],
    pub theta: &'a [f32],
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
    /// None: the angles have no gradient.
    pub theta_at: Option<usize>,
    pub scratch: &'a mut [f32],
}

/// Parts of the backward's scratch.
struct Work<'a> {
    constants: Constants<'a>,
    /// [blocks, pairs, lanes].
    g_a: &'a mut [f32],
    g_theta: &'a mut [f32],
    /// Gradient of h of the row at hand, real and imaginary, [blocks, pairs, lanes] each.
    g_h: [&'a mut [f32]; 2],
    /// `[pad]`.
    g_d: &'a mut [f32],
    /// h before each step of the chunk and after the last, [CHUNK + 1, 2 GROUP, lanes]: real ones, then imaginary ones.
    h: &'a mut [f32],
    /// exp(Δ A) cos θ, then exp(Δ A) sin θ, [CHUNK, 2 GROUP, lanes].
    turn: &'a mut [f32],
    /// Lanes of g_B and g_C, [CHUNK, 2 GROUP, lanes].
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
        let (s, pairs) = (self.s, pairs(self.s));
        let pad = s.d_inner.next_multiple_of(PAD);
        let rest = &mut aligned(std::mem::take(&mut self.scratch));
        let constants = Constants::new(l, s, self.a_log, self.theta, rest);
        let [g_a, g_theta, g_hr, g_hi] = [0; 4].map(|_| take(rest, pairs * pad));
        let (g_d, h) = (take(rest, pad), take(rest, (CHUNK + 1) * 2 * GROUP * PAD + SKEW));
        let [turn, g_b, g_c] = [0; 3].map(|_| take(rest, CHUNK * 2 * GROUP * PAD + SKEW));
        let [delta, u, g_y, g_u, g_delta] = [0; 5].map(|_| take(rest, CHUNK * pad));
        g_a.fill(0.0);
        g_theta.fill(0.0);
        g_d.fill(0.0);
        let g_h = [g_hr, g_hi];
        let mut w = Work { constants, g_a, g_theta, g_h, g_d, h, turn, g_b, g_c, delta, u, g_y, g_u, g_delta };
        for b in 0..s.batch {
            self.begin_row::<L>(&mut w, b);
            for chunk in (0..s.checkpoints()).rev() {
                let steps = chunk * CHUNK..((chunk + 1) * CHUNK).min(s.time);
                pack(l, s, self.delta, b, &steps, w.delta);
                pack(l, s, self.u, b, &steps, w.u);
                pack(l, s, self.g_y, b, &steps, w.g_y);
                groups!(pairs, |m0, NB| self.group::<L, NB>(l, &mut w, b, steps.clone(), m0));
                unpack(l, s, w.g_u, b, &steps, self.g_u);
                unpack(l, s, w.g_delta, b, &steps, self.g_delta);
            }
            self.end_row::<L>(&w, b);
        }
        self.add_parameters::<L>(&w);
    }
}

impl Backward<'_> {
    /// Gradient of the last h of row b into the scratch.
    #[inline(always)]
    fn begin_row<L: Lanes>(&self, w: &mut Work<'_>, b: usize) {
        let (e, pairs) = (self.s.d_inner, pairs(self.s));
        for (part, g_h) in w.g_h.iter_mut().enumerate() {
            g_h.fill(0.0);
            let Some(from) = self.g_h_out else { continue };
            for m in 0..pairs {
                let row = &from[(b * self.s.d_state + part * pairs + m) * e..][..e];
                row.iter().enumerate().for_each(|(i, &g)| g_h[place::<L>(pairs, i, m) + i % L::N] = g);
            }
        }
    }

    /// Gradient of the first h of row b out of the scratch.
    #[inline(always)]
    fn end_row<L: Lanes>(&mut self, w: &Work<'_>, b: usize) {
        let (s, e, pairs) = (self.s, self.s.d_inner, pairs(self.s));
        let Some(to) = self.g_h.as_mut() else { return };
        for (part, g_h) in w.g_h.iter().enumerate() {
            for m in 0..pairs {
                let row = &mut to[(b * s.d_state + part * pairs + m) * e..][..e];
                row.iter_mut().enumerate().for_each(|(i, g)| *g = g_h[place::<L>(pairs, i, m) + i % L::N]);
            }
        }
    }

    #[inline(always)]
    fn add_parameters<L: Lanes>(&mut self, w: &Work<'_>) {
        let (e, pairs) = (self.s.d_inner, pairs(self.s));
        for i in 0..e {
            self.g_params[self.d_at + i] += w.g_d[i];
            for m in 0..pairs {
                let at = place::<L>(pairs, i, m) + i % L::N;
                // dA / dA_log = A
                self.g_params[self.a_at + i * pairs + m] += w.g_a[at] * (w.constants.a[at] * LN_2);
                if let Some(theta_at) = self.theta_at {
                    self.g_params[theta_at + m * e + i] += w.g_theta[at];
                }
            }
        }
    }

    /// One chunk of row b for pairs m0..: all channels, then the sums over lanes that make g_B and g_C.
    #[inline(always)]
    fn group<L: Lanes, const NB: usize>(&mut self, l: L, w: &mut Work<'_>, b: usize, steps: Range<usize>, m0: usize) {
        let (s, pairs, used) = (self.s, pairs(self.s), steps.len() * 2 * NB * L::N);
        w.g_b[..used].fill(0.0);
        w.g_c[..used].fill(0.0);
        for c0 in (0..s.d_inner).step_by(L::N) {
            self.recompute::<L, NB>(l, w, b, steps.clone(), m0, c0);
            self.sweep::<L, NB>(l, w, b, steps.clone(), m0, c0);
        }
        for (j, t) in steps.enumerate() {
            let at = (t * s.batch + b) * s.width() + s.dt_rank + m0;
            for part in 0..2 {
                for m in 0..NB {
                    let (lane, to) = (((2 * j + part) * NB + m) * L::N, at + part * pairs + m);
                    self.g_q[to] = l.sum(l.load(w.g_b, lane));
                    self.g_q[to + 2 * pairs] = l.sum(l.load(w.g_c, lane));
                }
            }
        }
    }

    /// h and exp(Δ A) Rot(θ) of the chunk from its checkpoint.
    #[inline(always)]
    fn recompute<L: Lanes, const NB: usize>(
        &self,
        l: L,
        w: &mut Work<'_>,
        b: usize,
        steps: Range<usize>,
        m0: usize,
        c0: usize,
    ) {
        let (s, e, pairs) = (self.s, self.s.d_inner, pairs(self.s));
        let (width, block) = (L::N.min(e - c0), 2 * NB * L::N);
        let [a, cos, sin] = w.constants.group::<L, NB>(l, place::<L>(pairs, c0, m0));
        let tape = (steps.start / CHUNK * s.batch + b) * s.d_state + m0;
        let [mut hr, mut hi] = [[l.splat(0.0); NB]; 2];
        for m in 0..NB {
            hr[m] = l.load_part(self.h_tape, (tape + m) * e + c0, width);
            hi[m] = l.load_part(self.h_tape, (tape + pairs + m) * e + c0, width);
            l.store(hr[m], w.h, m * L::N);
            l.store(hi[m], w.h, (NB + m) * L::N);
        }
        for (j, t) in steps.enumerate() {
            let (row, at) = (t * s.batch + b, c0 * CHUNK + j * L::N);
            if is_set(self.reset, row) {
                (hr, hi) = ([l.splat(0.0); NB], [l.splat(0.0); NB]);
            }
            let [br, bi] = both::<NB>(self.q, row * s.width() + s.dt_rank + m0, pairs);
            let delta = l.load(w.delta, at);
            let du = l.mul(delta, l.load(w.u, at));
            let turn = &mut w.turn[j * block..(j + 1) * block];
            let to_h = &mut w.h[(j + 1) * block..(j + 2) * block];
            for m in 0..NB {
                let a_bar = l.exp2_neg(l.mul(delta, a[m]));
                let (c, s) = (l.mul(a_bar, cos[m]), l.mul(a_bar, sin[m]));
                let re = l.fma(c, hr[m], l.mul(du, l.splat(br[m])));
                let im = l.fma(c, hi[m], l.mul(du, l.splat(bi[m])));
                (hr[m], hi[m]) = (l.fnma(s, hi[m], re), l.fma(s, hr[m], im));
                l.store(c, turn, m * L::N);
                l.store(s, turn, (NB + m) * L::N);
                l.store(hr[m], to_h, m * L::N);
                l.store(hi[m], to_h, (NB + m) * L::N);
            }
        }
    }

    /// The chunk in reverse. With w = exp(Δ A) Rot(−θ) g, the gradient of h before the step, those of Δ A and of θ are
    /// h · w and hr wi − hi wr.
    #[inline(always)]
    fn sweep<L: Lanes, const NB: usize>(
        &mut self,
        l: L,
        w: &mut Work<'_>,
        b: usize,
        steps: Range<usize>,
        m0: usize,
        c0: usize,
    ) {
        let (s, pairs) = (self.s, pairs(self.s));
        let (block, zero) = (2 * NB * L::N, l.splat(0.0));
        let d_skip = l.load_part(self.d_skip, c0, L::N.min(s.d_inner - c0));
        let state = place::<L>(pairs, c0, m0);
        let mut g_hr = vectors::<L, NB>(l, w.g_h[0], state);
        let mut g_hi = vectors::<L, NB>(l, w.g_h[1], state);
        let a = vectors::<L, NB>(l, w.constants.a, state);
        let mut g_a = vectors::<L, NB>(l, w.g_a, state);
        let mut g_theta = vectors::<L, NB>(l, w.g_theta, state);
        for (j, t) in steps.enumerate().rev() {
            let (row, at) = (t * s.batch + b, c0 * CHUNK + j * L::N);
            let b_at = row * s.width() + s.dt_rank + m0;
            let [br, bi] = both::<NB>(self.q, b_at, pairs);
            let [cr, ci] = both::<NB>(self.q, b_at + 2 * pairs, pairs);
            let (delta, u, g_y) = (l.load(w.delta, at), l.load(w.u, at), l.load(w.g_y, at));
            let du = l.mul(delta, u);
            let (before, after) = w.h[j * block..(j + 2) * block].split_at(block);
            let turn = &w.turn[j * block..(j + 1) * block];
            let g_b = &mut w.g_b[j * block..(j + 1) * block];
            let g_c = &mut w.g_c[j * block..(j + 1) * block];
            // gradients of Δ u and, through exp(Δ A), of Δ
            let (mut g_du, mut g_delta) = (zero, zero);
            for m in 0..NB {
                let (re, im) = (m * L::N, (NB + m) * L::N);
                let gr = l.fma(g_y, l.splat(cr[m]), g_hr[m]);
                let gi = l.fma(g_y, l.splat(ci[m]), g_hi[m]);
                l.store(l.fma(g_y, l.load(after, re), l.load(g_c, re)), g_c, re);
                l.store(l.fma(g_y, l.load(after, im), l.load(g_c, im)), g_c, im);
                l.store(l.fma(gr, du, l.load(g_b, re)), g_b, re);
                l.store(l.fma(gi, du, l.load(g_b, im)), g_b, im);
                g_du = l.fma(gr, l.splat(br[m]), g_du);
                g_du = l.fma(gi, l.splat(bi[m]), g_du);
                let (c, s) = (l.load(turn, re), l.load(turn, im));
                g_hr[m] = l.fma(c, gr, l.mul(s, gi));
                g_hi[m] = l.fnma(s, gr, l.mul(c, gi));
            }
            if is_set(self.reset, row) {
                (g_hr, g_hi) = ([zero; NB], [zero; NB]); // nothing passes a reset
            } else {
                for m in 0..NB {
                    let (hr, hi) = (l.load(before, m * L::N), l.load(before, (NB + m) * L::N));
                    let through = l.fma(hr, g_hr[m], l.mul(hi, g_hi[m]));
                    g_delta = l.fma(through, a[m], g_delta);
                    g_a[m] = l.fma(through, delta, g_a[m]);
                    g_theta[m] = l.fma(hr, g_hi[m], l.fnma(hi, g_hr[m], g_theta[m]));
                }
            }
            let (mut g_u, mut g_delta) = (l.mul(g_du, delta), l.fma(g_delta, l.splat(LN_2), l.mul(g_du, u)));
            if m0 == 0 {
                g_u = l.fma(d_skip, g_y, g_u);
                l.store(l.fma(g_y, u, l.load(w.g_d, c0)), w.g_d, c0);
            } else {
                g_u = l.add(g_u, l.load(w.g_u, at));
                g_delta = l.add(g_delta, l.load(w.g_delta, at));
            }
            l.store(g_u, w.g_u, at);
            l.store(g_delta, w.g_delta, at);
        }
        for m in 0..NB {
            l.store(g_hr[m], w.g_h[0], state + m * L::N);
            l.store(g_hi[m], w.g_h[1], state + m * L::N);
            l.store(g_a[m], w.g_a, state + m * L::N);
            l.store(g_theta[m], w.g_theta, state + m * L::N);
        }
    }
}
