//! The scan on the CPU, plain: one channel and state at a time, in the formula's order.

use super::fast;
use super::{CHECKPOINT_EVERY, ScanGrad, ScanIn, ScanOut, ScanShape, SelectiveScan};
use crate::device::{Cpu, Real, host_mask, is_set};
use crate::error::Result;

type Reset<'a> = Option<&'a [u8]>;

#[allow(clippy::needless_range_loop)] // i and n are the formula's
fn forward<F: Real>(
    s: ScanShape,
    x: ScanIn<'_, Vec<F>, Vec<u8>>,
    reset: Reset<'_>,
    out: ScanOut<'_, Vec<F>>,
) -> Result<()> {
    let (u, delta, q) = (x.u.host(), x.delta.host(), x.q.host());
    let (a_log, d_skip) = (x.a_log.host(), x.d_skip.host());
    let (y, h, mut tape) = (out.y.host(), out.h.host(), out.h_tape.map(|t| t.host()));
    let (e, n_state) = (s.d_inner, s.d_state);
    for t in 0..s.time {
        if let (Some(tape), true) = (tape.as_mut(), t % CHECKPOINT_EVERY == 0) {
            tape[t / CHECKPOINT_EVERY * h.len()..][..h.len()].copy_from_slice(h);
        }
        for b in 0..s.batch {
            let row = t * s.batch + b;
            let clear = is_set(reset, row);
            let bc = &q[row * s.width() + s.dt_rank..(row + 1) * s.width()];
            for i in 0..e {
                let (delta, u) = (delta[row * e + i], u[row * e + i]);
                let mut sum = d_skip[i] * u;
                for n in 0..n_state {
                    let h = &mut h[(b * n_state + n) * e + i];
                    let a_bar = (-delta * a_log[i * n_state + n].exp()).exp();
                    let before = if clear { F::zero() } else { *h }; // a branch: clears NaN and inf too
                    *h = a_bar * before + delta * bc[n] * u;
                    sum += bc[n_state + n] * *h;
                }
                y[row * e + i] = sum;
            }
        }
    }
    Ok(())
}

#[allow(clippy::needless_range_loop)] // as above
fn backward<F: Real>(
    s: ScanShape,
    x: ScanIn<'_, Vec<F>, Vec<u8>>,
    reset: Reset<'_>,
    g: ScanGrad<'_, Vec<F>>,
) -> Result<()> {
    let (u, delta, q) = (x.u.host(), x.delta.host(), x.q.host());
    let (a_log, d_skip) = (x.a_log.host(), x.d_skip.host());
    let (tape, g_y, g_h_out) = (g.h_tape.host(), g.g_y.host(), g.g_h_out.map(|g| g.host()));
    let (g_u, g_delta, g_q) = (g.g_u.host(), g.g_delta.host(), g.g_q.host());
    let mut g_h0 = g.g_h.map(|g| g.host());
    let (e, n_state, rows) = (s.d_inner, s.d_state, s.time * s.batch);
    for row in 0..rows {
        g_q[row * s.width() + s.dt_rank..(row + 1) * s.width()].fill(F::zero());
        for i in 0..e {
            let at = row * e + i;
            g_u[at] = d_skip[i] * g_y[at];
            g_delta[at] = F::zero();
            g.g_params[g.d_skip.at + i] += g_y[at] * u[at];
        }
    }
    let mut h = [F::zero(); CHECKPOINT_EVERY + 1]; // h[j]: before step j of the chunk
    for b in 0..s.batch {
        for i in 0..e {
            for n in 0..n_state {
                let a = -a_log[i * n_state + n].exp();
                let state = (b * n_state + n) * e + i;
                let mut g_a = F::zero();
                let mut g_h = g_h_out.map_or(F::zero(), |g| g[state]);
                for chunk in (0..s.checkpoints()).rev() {
                    let t0 = chunk * CHECKPOINT_EVERY;
                    let steps = CHECKPOINT_EVERY.min(s.time - t0);
                    h[0] = tape[chunk * s.batch * n_state * e + state];
                    for j in 0..steps {
                        let row = (t0 + j) * s.batch + b;
                        let before = if is_set(reset, row) { F::zero() } else { h[j] };
                        let at = row * e + i;
                        let drive = delta[at] * u[at] * q[row * s.width() + s.dt_rank + n];
                        h[j + 1] = (delta[at] * a).exp() * before + drive;
                    }
                    for j in (0..steps).rev() {
                        let row = (t0 + j) * s.batch + b;
                        let (at, b_at) = (row * e + i, row * s.width() + s.dt_rank + n);
                        let c_at = b_at + n_state;
                        let clear = is_set(reset, row);
                        let before = if clear { F::zero() } else { h[j] };
                        g_q[c_at] += g_y[at] * h[j + 1];
                        g_h += g_y[at] * q[c_at];
                        let a_bar = (delta[at] * a).exp();
                        g_q[b_at] += g_h * delta[at] * u[at];
                        g_u[at] += g_h * delta[at] * q[b_at];
                        g_delta[at] += g_h * (q[b_at] * u[at] + a_bar * before * a);
                        g_a += g_h * a_bar * before * delta[at];
                        g_h = if clear { F::zero() } else { g_h * a_bar };
                    }
                }
                g.g_params[g.a_log.at + i * n_state + n] += g_a * a; // dA / dA_log = A
                if let Some(g) = g_h0.as_mut() {
                    g[state] = g_h;
                }
            }
        }
    }
    Ok(())
}

impl<F: Real> SelectiveScan for Cpu<F> {
    fn scan_scratch(s: ScanShape, train: bool) -> usize {
        fast::scratch(s, train)
    }

    fn selective_scan(&self, s: ScanShape, x: ScanIn<'_, Vec<F>, Vec<u8>>, out: ScanOut<'_, Vec<F>>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_out(self, &out)?;
        let reset = host_mask("selective_scan", x.reset)?;
        if !F::SINGLE {
            return forward(s, x, reset, out);
        }
        self.isa().run(fast::Forward {
            s,
            u: x.u.f32s(),
            delta: x.delta.f32s(),
            q: x.q.f32s(),
            a_log: x.a_log.f32s(),
            d_skip: x.d_skip.f32s(),
            reset,
            y: out.y.f32s(),
            h: out.h.f32s(),
            h_tape: out.h_tape.map(|t| t.f32s()),
            scratch: out.scratch.f32s(),
        });
        Ok(())
    }

    fn selective_scan_bwd(&self, s: ScanShape, x: ScanIn<'_, Vec<F>, Vec<u8>>, g: ScanGrad<'_, Vec<F>>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_grad(self, &g)?;
        let reset = host_mask("selective_scan_bwd", x.reset)?;
        if !F::SINGLE {
            return backward(s, x, reset, g);
        }
        self.isa().run(fast::Backward {
            s,
            u: x.u.f32s(),
            delta: x.delta.f32s(),
            q: x.q.f32s(),
            a_log: x.a_log.f32s(),
            d_skip: x.d_skip.f32s(),
            reset,
            h_tape: g.h_tape.f32s(),
            g_y: g.g_y.f32s(),
            g_h_out: g.g_h_out.map(|h| h.f32s()),
            g_u: g.g_u.f32s(),
            g_delta: g.g_delta.f32s(),
            g_q: g.g_q.f32s(),
            g_h: g.g_h.map(|h| h.f32s()),
            g_params: F::as_f32_mut(g.g_params).unwrap_or_default(),
            a_at: g.a_log.at,
            d_at: g.d_skip.at,
            scratch: g.scratch.f32s(),
        });
        Ok(())
    }
}
