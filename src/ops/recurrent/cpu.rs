//! LSTM and GRU on the CPU: per step one product with W_hh for all rows, then the gates. Few rows go without the packing
//! of a matrix product, over a transposed copy of W_hh that the steps share.

use super::fast;
use super::{Cell, Recurrent, RecurrentGrad, RecurrentIn, RecurrentOut, RecurrentShape};
use crate::device::{Cpu, Isa, Real, host_mask, is_set};
use crate::error::Result;
use crate::ops::gate::cpu::sigmoid;
use crate::ops::linear::cpu::{Matrix, MatrixMut, add_rows, add_transposed_times, times, times_transposed};
use crate::ops::linear::rows::{MANY, Rows};

/// Steps from which a transposed copy of W_hh pays.
const LONG: usize = 4;

/// Elements of that copy, [H, G H].
fn transposed(s: RecurrentShape) -> usize {
    if s.time >= LONG && s.batch <= MANY { s.width() * s.hidden } else { 0 }
}

/// w [rows, cols] as [cols, rows], by blocks that stay in the first cache.
fn transpose<F: Copy>(w: &[F], rows: usize, cols: usize, out: &mut [F]) {
    const SIDE: usize = 16;
    for i0 in (0..rows).step_by(SIDE) {
        for j0 in (0..cols).step_by(SIDE) {
            for j in j0..(j0 + SIDE).min(cols) {
                for i in i0..(i0 + SIDE).min(rows) {
                    out[j * rows + i] = w[i * cols + j];
                }
            }
        }
    }
}

/// Fields of the tape for step t, each [B, H].
pub(super) fn field(s: RecurrentShape, k: usize, t: usize) -> std::ops::Range<usize> {
    let step = s.batch * s.hidden;
    let at = (k * s.time + t) * step;
    at..at + step
}

/// Zeros the rows of a state [B, H] that are reset at step t: a branch, so NaN and inf too.
fn clear<F: Real>(s: RecurrentShape, reset: Option<&[u8]>, t: usize, state: &mut [F]) {
    for (b, row) in state.chunks_exact_mut(s.hidden).enumerate() {
        if is_set(reset, t * s.batch + b) {
            row.fill(F::zero());
        }
    }
}

/// One step of all rows. `gh` = W_hh h + b_hh. Writes h (and c), and the fields after the states when there is a tape.
#[allow(clippy::needless_range_loop)] // `at` names the same place in every buffer
fn step<F: Real>(
    s: RecurrentShape,
    gx: &[F],
    gh: &[F],
    h: &mut [F],
    c: Option<&mut [F]>,
    save: &mut dyn FnMut(usize, usize, F),
) {
    let (n, w) = (s.hidden, s.width());
    match (s.cell, c) {
        (Cell::Lstm, Some(c)) => {
            for at in 0..s.batch * n {
                let (b, j) = (at / n, at % n);
                let gate = |k: usize| gx[b * w + k * n + j] + gh[b * w + k * n + j];
                let (i, f, g, o) = (sigmoid(gate(0)), sigmoid(gate(1)), gate(2).tanh(), sigmoid(gate(3)));
                c[at] = f * c[at] + i * g;
                let tanh_c = c[at].tanh();
                h[at] = o * tanh_c;
                for (k, v) in [i, f, g, o, tanh_c].into_iter().enumerate() {
                    save(2 + k, at, v);
                }
            }
        }
        _ => {
            for at in 0..s.batch * n {
                let (b, j) = (at / n, at % n);
                let (x, r) = (|k: usize| gx[b * w + k * n + j], |k: usize| gh[b * w + k * n + j]);
                let (reset, z) = (sigmoid(x(0) + r(0)), sigmoid(x(1) + r(1)));
                let new = (x(2) + reset * r(2)).tanh();
                h[at] = (F::one() - z) * new + z * h[at];
                for (k, v) in [reset, z, new, r(2)].into_iter().enumerate() {
                    save(1 + k, at, v);
                }
            }
        }
    }
}

/// Backward of one step. In: g_h, g_c after the step. Out: g_gx, g_gh [B, G H], and g_h, g_c before it but for W_hh's share.
fn step_bwd<F: Real>(
    s: RecurrentShape,
    tape: &[F],
    t: usize,
    g_gx: &mut [F],
    g_gh: &mut [F],
    g_h: &mut [F],
    g_c: &mut [F],
) {
    let (n, w, one) = (s.hidden, s.width(), F::one());
    let get = |k: usize, at: usize| tape[field(s, k, t).start + at];
    for at in 0..s.batch * n {
        let gate = |k: usize| at / n * w + k * n + at % n;
        match s.cell {
            Cell::Lstm => {
                let (c, i, f, g, o, tanh_c) = (get(1, at), get(2, at), get(3, at), get(4, at), get(5, at), get(6, at));
                let g_cell = g_c[at] + g_h[at] * o * (one - tanh_c * tanh_c);
                let grads = [
                    g_cell * g * i * (one - i),
                    g_cell * c * f * (one - f),
                    g_cell * i * (one - g * g),
                    g_h[at] * tanh_c * o * (one - o),
                ];
                for (k, v) in grads.into_iter().enumerate() {
                    g_gx[gate(k)] = v;
                    g_gh[gate(k)] = v;
                }
                g_c[at] = g_cell * f;
                g_h[at] = F::zero();
            }
            Cell::Gru => {
                let (h, r, z, new, hn) = (get(0, at), get(1, at), get(2, at), get(3, at), get(4, at));
                let g_n = g_h[at] * (one - z) * (one - new * new);
                let g_r = g_n * hn * r * (one - r);
                let g_z = g_h[at] * (h - new) * z * (one - z);
                for (k, (x, gh)) in [(g_r, g_r), (g_z, g_z), (g_n, g_n * r)].into_iter().enumerate() {
                    g_gx[gate(k)] = x;
                    g_gh[gate(k)] = gh;
                }
                g_h[at] *= z;
            }
        }
    }
}

/// c += a b.
fn add_product<F: Real>(isa: Isa, a: Matrix<'_, F>, b: Matrix<'_, F>, c: MatrixMut<'_, F>) {
    let few = c.rows <= MANY;
    match (F::as_f32(a.data), F::as_f32(b.data), few) {
        (Some(x), Some(y), true) => {
            let (a, b) = (Matrix::new(x, a.rows, a.cols), Matrix::new(y, b.rows, b.cols));
            let (rows, cols) = (c.rows, c.cols);
            let c = MatrixMut::new(F::as_f32_mut(c.data).unwrap_or_default(), rows, cols);
            isa.run(Rows { a, b, c, add: true });
        }
        _ => times(a, b, c, true),
    }
}

fn forward<F: Real>(
    isa: Isa,
    s: RecurrentShape,
    x: RecurrentIn<'_, Vec<F>, Vec<u8>>,
    out: RecurrentOut<'_, Vec<F>>,
) -> Result<()> {
    let reset = host_mask("recurrent", x.reset)?;
    let (gx, w_hh, b_hh) = (x.gx.host(), x.w_hh.host(), x.b_hh.host());
    let (y, h) = (out.y.host(), out.h.host());
    // scratch: gh [B, G H], then W_hh transposed
    let (gh, rest) = out.scratch.host().split_at_mut(s.batch * s.width());
    let w_t = &mut rest[..transposed(s)];
    if !w_t.is_empty() {
        transpose(w_hh, s.width(), s.hidden, w_t);
    }
    let (mut c, mut tape) = (out.c.map(|c| c.host()), out.tape.map(|t| t.host()));
    let (rows, w) = (s.batch * s.hidden, s.width());
    for t in 0..s.time {
        clear(s, reset, t, h);
        if let Some(c) = c.as_mut() {
            clear(s, reset, t, c);
        }
        if let Some(tape) = tape.as_mut() {
            tape[field(s, 0, t)].copy_from_slice(h);
            if let (Cell::Lstm, Some(c)) = (s.cell, c.as_ref()) {
                tape[field(s, 1, t)].copy_from_slice(c);
            }
        }
        for row in gh.chunks_exact_mut(w) {
            row.copy_from_slice(b_hh);
        }
        let state = Matrix::new(&*h, s.batch, s.hidden);
        if w_t.is_empty() {
            times_transposed(state, Matrix::new(w_hh, w, s.hidden), MatrixMut::new(gh, s.batch, w), true);
        } else {
            add_product(isa, state, Matrix::new(&*w_t, s.hidden, w), MatrixMut::new(gh, s.batch, w));
        }
        let gx = &gx[t * s.batch * w..][..s.batch * w];
        if let (Some(gx), Some(gh), Some(h)) = (F::as_f32(gx), F::as_f32(gh), F::as_f32_mut(h)) {
            let c = c.as_deref_mut().and_then(F::as_f32_mut);
            let tape = tape.as_deref_mut().and_then(F::as_f32_mut);
            isa.run(fast::Step { s, t, gx, gh, h, c, tape });
        } else {
            let mut save = |k: usize, at: usize, v: F| {
                if let Some(tape) = tape.as_mut() {
                    tape[field(s, k, t).start + at] = v;
                }
            };
            step(s, gx, gh, h, c.as_deref_mut(), &mut save);
        }
        y[t * rows..(t + 1) * rows].copy_from_slice(h);
    }
    Ok(())
}

fn backward<F: Real>(
    isa: Isa,
    s: RecurrentShape,
    x: RecurrentIn<'_, Vec<F>, Vec<u8>>,
    g: RecurrentGrad<'_, Vec<F>>,
) -> Result<()> {
    let reset = host_mask("recurrent_bwd", x.reset)?;
    let (w_hh, tape, g_y, g_gx) = (x.w_hh.host(), g.tape.host(), g.g_y.host(), g.g_gx.host());
    let (rows, w) = (s.batch * s.hidden, s.width());
    // scratch: g_gh of all steps [T, B, G H], then g_h and g_c [B, H]
    let (g_gh, state) = g.scratch.host().split_at_mut(s.time * s.batch * w);
    let (g_h, g_c) = state[..2 * rows].split_at_mut(rows);
    for (to, from) in [(&mut *g_h, g.g_h_out), (&mut *g_c, g.g_c_out)] {
        match from {
            Some(from) => to.copy_from_slice(from.host()),
            None => to.fill(F::zero()),
        }
    }
    for t in (0..s.time).rev() {
        g_h.iter_mut().zip(&g_y[t * rows..(t + 1) * rows]).for_each(|(h, &y)| *h += y);
        let step = t * s.batch * w..(t + 1) * s.batch * w;
        let (now_gx, now_gh) = (&mut g_gx[step.clone()], &mut g_gh[step.clone()]);
        if F::SINGLE {
            let tape = F::as_f32(tape).unwrap_or_default();
            let [g_gx, g_gh, g_h, g_c] =
                [now_gx, now_gh, &mut *g_h, &mut *g_c].map(|x| F::as_f32_mut(x).unwrap_or_default());
            isa.run(fast::StepBackward { s, t, tape, g_gx, g_gh, g_h, g_c });
        } else {
            step_bwd(s, tape, t, now_gx, now_gh, g_h, g_c);
        }
        let weights = Matrix::new(w_hh, w, s.hidden);
        let to = MatrixMut::new(&mut *g_h, s.batch, s.hidden);
        add_product(isa, Matrix::new(&g_gh[step], s.batch, w), weights, to);
        clear(s, reset, t, g_h);
        clear(s, reset, t, g_c);
    }
    // h before each step is field 0 of the tape, zeroed where it was reset
    let before = Matrix::new(&tape[..s.time * rows], s.time * s.batch, s.hidden);
    let g_w = MatrixMut::new(&mut g.g_params[g.w_hh.range()], w, s.hidden);
    add_transposed_times(Matrix::new(&*g_gh, s.time * s.batch, w), before, g_w);
    add_rows(g_gh, &mut g.g_params[g.b_hh.range()]);
    for (to, from) in [(g.g_h, g_h), (g.g_c, g_c)] {
        if let Some(to) = to {
            to.host().copy_from_slice(from);
        }
    }
    Ok(())
}

impl<F: Real> Recurrent for Cpu<F> {
    fn recurrent_scratch(s: RecurrentShape, train: bool) -> usize {
        let step = s.batch * s.width();
        let forward = step + transposed(s);
        if train { forward.max(s.time * step + 2 * s.batch * s.hidden) } else { forward }
    }

    fn recurrent(
        &self,
        s: RecurrentShape,
        x: RecurrentIn<'_, Vec<F>, Vec<u8>>,
        out: RecurrentOut<'_, Vec<F>>,
    ) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_gx(self, &x.gx)?;
        s.check_out(self, &out)?;
        forward(self.isa(), s, x, out)
    }

    fn recurrent_bwd(
        &self,
        s: RecurrentShape,
        x: RecurrentIn<'_, Vec<F>, Vec<u8>>,
        g: RecurrentGrad<'_, Vec<F>>,
    ) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_grad(self, &g)?;
        backward(self.isa(), s, x, g)
    }
}
