//! Gates of one step in f32, vectorised: units across lanes, rows one after another.

use super::cpu::field;
use super::{Cell, RecurrentShape};
use crate::device::simd::{Kernel, Lanes};

/// One step of all rows, as `cpu::step`.
pub(super) struct Step<'a> {
    pub s: RecurrentShape,
    pub t: usize,
    pub gx: &'a [f32],
    pub gh: &'a [f32],
    pub h: &'a mut [f32],
    pub c: Option<&'a mut [f32]>,
    pub tape: Option<&'a mut [f32]>,
}

impl Kernel for Step<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let n = self.s.hidden;
        for b in 0..self.s.batch {
            for j in (0..n).step_by(L::N) {
                match self.s.cell {
                    Cell::Lstm => self.lstm(l, b, j, L::N.min(n - j)),
                    Cell::Gru => self.gru(l, b, j, L::N.min(n - j)),
                }
            }
        }
    }
}

impl Step<'_> {
    /// The input's and the state's share of gate k.
    #[inline(always)]
    fn shares<L: Lanes>(&self, l: L, b: usize, j: usize, w: usize, k: usize) -> (L::V, L::V) {
        let at = b * self.s.width() + k * self.s.hidden + j;
        (l.load_part(self.gx, at, w), l.load_part(self.gh, at, w))
    }

    #[inline(always)]
    fn gate<L: Lanes>(&self, l: L, b: usize, j: usize, w: usize, k: usize) -> L::V {
        let (x, h) = self.shares(l, b, j, w, k);
        l.add(x, h)
    }

    #[inline(always)]
    fn save<L: Lanes>(&mut self, l: L, k: usize, at: usize, w: usize, v: L::V) {
        if let Some(tape) = self.tape.as_mut() {
            l.store_part(v, tape, field(self.s, k, self.t).start + at, w);
        }
    }

    #[inline(always)]
    fn lstm<L: Lanes>(&mut self, l: L, b: usize, j: usize, w: usize) {
        let at = b * self.s.hidden + j;
        let i = l.sigmoid(self.gate(l, b, j, w, 0));
        let f = l.sigmoid(self.gate(l, b, j, w, 1));
        let g = l.tanh(self.gate(l, b, j, w, 2));
        let o = l.sigmoid(self.gate(l, b, j, w, 3));
        let Some(c) = self.c.as_mut() else { return };
        let cell = l.fma(f, l.load_part(c, at, w), l.mul(i, g));
        l.store_part(cell, c, at, w);
        let tanh_c = l.tanh(cell);
        l.store_part(l.mul(o, tanh_c), self.h, at, w);
        self.save(l, 2, at, w, i);
        self.save(l, 3, at, w, f);
        self.save(l, 4, at, w, g);
        self.save(l, 5, at, w, o);
        self.save(l, 6, at, w, tanh_c);
    }

    #[inline(always)]
    fn gru<L: Lanes>(&mut self, l: L, b: usize, j: usize, w: usize) {
        let at = b * self.s.hidden + j;
        let r = l.sigmoid(self.gate(l, b, j, w, 0));
        let z = l.sigmoid(self.gate(l, b, j, w, 1));
        let (x, hn) = self.shares(l, b, j, w, 2);
        let new = l.tanh(l.fma(r, hn, x));
        let h = l.load_part(self.h, at, w);
        // (1 − z) n + z h
        let kept = l.mul(l.sub(l.splat(1.0), z), new);
        l.store_part(l.fma(z, h, kept), self.h, at, w);
        self.save(l, 1, at, w, r);
        self.save(l, 2, at, w, z);
        self.save(l, 3, at, w, new);
        self.save(l, 4, at, w, hn);
    }
}

/// Backward of one step of all rows, as `cpu::step_bwd`.
pub(super) struct StepBackward<'a> {
    pub s: RecurrentShape,
    pub t: usize,
    pub tape: &'a [f32],
    pub g_gx: &'a mut [f32],
    pub g_gh: &'a mut [f32],
    pub g_h: &'a mut [f32],
    pub g_c: &'a mut [f32],
}

impl Kernel for StepBackward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let n = self.s.hidden;
        for b in 0..self.s.batch {
            for j in (0..n).step_by(L::N) {
                match self.s.cell {
                    Cell::Lstm => self.lstm(l, b, j, L::N.min(n - j)),
                    Cell::Gru => self.gru(l, b, j, L::N.min(n - j)),
                }
            }
        }
    }
}

impl StepBackward<'_> {
    #[inline(always)]
    fn get<L: Lanes>(&self, l: L, k: usize, at: usize, w: usize) -> L::V {
        l.load_part(self.tape, field(self.s, k, self.t).start + at, w)
    }

    /// Gradients of gate k: of the input's share and of the state's.
    #[inline(always)]
    fn put<L: Lanes>(&mut self, l: L, (b, j, w): (usize, usize, usize), k: usize, x: L::V, h: L::V) {
        let at = b * self.s.width() + k * self.s.hidden + j;
        l.store_part(x, self.g_gx, at, w);
        l.store_part(h, self.g_gh, at, w);
    }

    #[inline(always)]
    fn lstm<L: Lanes>(&mut self, l: L, b: usize, j: usize, w: usize) {
        let (at, one) = (b * self.s.hidden + j, l.splat(1.0));
        let [c, i, f, g, o, tanh_c] = [1, 2, 3, 4, 5, 6].map(|k| self.get(l, k, at, w));
        let g_h = l.load_part(self.g_h, at, w);
        let through = l.mul(l.mul(g_h, o), l.fnma(tanh_c, tanh_c, one));
        let g_cell = l.add(l.load_part(self.g_c, at, w), through);
        let g_i = l.mul(l.mul(l.mul(g_cell, g), i), l.sub(one, i));
        let g_f = l.mul(l.mul(l.mul(g_cell, c), f), l.sub(one, f));
        let g_g = l.mul(l.mul(g_cell, i), l.fnma(g, g, one));
        let g_o = l.mul(l.mul(l.mul(g_h, tanh_c), o), l.sub(one, o));
        self.put(l, (b, j, w), 0, g_i, g_i);
        self.put(l, (b, j, w), 1, g_f, g_f);
        self.put(l, (b, j, w), 2, g_g, g_g);
        self.put(l, (b, j, w), 3, g_o, g_o);
        l.store_part(l.mul(g_cell, f), self.g_c, at, w);
        l.store_part(l.splat(0.0), self.g_h, at, w);
    }

    #[inline(always)]
    fn gru<L: Lanes>(&mut self, l: L, b: usize, j: usize, w: usize) {
        let (at, one) = (b * self.s.hidden + j, l.splat(1.0));
        let [h, r, z, new, hn] = [0, 1, 2, 3, 4].map(|k| self.get(l, k, at, w));
        let g_h = l.load_part(self.g_h, at, w);
        let g_n = l.mul(l.mul(g_h, l.sub(one, z)), l.fnma(new, new, one));
        let g_r = l.mul(l.mul(l.mul(g_n, hn), r), l.sub(one, r));
        let g_z = l.mul(l.mul(l.mul(g_h, l.sub(h, new)), z), l.sub(one, z));
        self.put(l, (b, j, w), 0, g_r, g_r);
        self.put(l, (b, j, w), 1, g_z, g_z);
        self.put(l, (b, j, w), 2, g_n, l.mul(g_n, r));
        l.store_part(l.mul(g_h, z), self.g_h, at, w);
    }
}
