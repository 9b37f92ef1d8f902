//! The rotating scan on the CPU, plain: one channel and pair at a time, in the formula's order.

use super::{RotatingGrad, RotatingIn, RotatingScan, check_grad, check_in, check_out, fast, pairs};
use crate::device::{Cpu, Real, host_mask, is_set};
use crate::error::Result;
use crate::ops::selective_scan::{CHECKPOINT_EVERY, ScanOut, ScanShape};

type Reset<'a> = Option<&'a [u8]>;

/// x = (re, im) turned by the angle of this cosine and sine.
fn turned<F: Real>((re, im): (F, F), (cos, sin): (F, F)) -> (F, F) {
    (cos * re - sin * im, sin * re + cos * im)
}

#[allow(clippy::needless_range_loop)] // i and m are the formula's
fn forward<F: Real>(
    s: ScanShape,
    x: RotatingIn<'_, Vec<F>, Vec<u8>>,
    reset: Reset<'_>,
    out: ScanOut<'_, Vec<F>>,
) -> Result<()> {
    let (theta, x) = (x.theta.host(), x.scan);
    let (u, delta, q) = (x.u.host(), x.delta.host(), x.q.host());
    let (a_log, d_skip) = (x.a_log.host(), x.d_skip.host());
    let (y, h, mut tape) = (out.y.host(), out.h.host(), out.h_tape.map(|t| t.host()));
    let (e, pairs) = (s.d_inner, pairs(s));
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
                for m in 0..pairs {
                    let (re, im) = ((b * s.d_state + m) * e + i, (b * s.d_state + pairs + m) * e + i);
                    let a_bar = (-delta * a_log[i * pairs + m].exp()).exp();
                    let (sin, cos) = theta[m * e + i].sin_cos();
                    let before = if clear { (F::zero(), F::zero()) } else { (h[re], h[im]) };
                    let (hr, hi) = turned(before, (cos, sin));
                    h[re] = a_bar * hr + delta * bc[m] * u;
                    h[im] = a_bar * hi + delta * bc[pairs + m] * u;
                    sum += bc[2 * pairs + m] * h[re] + bc[3 * pairs + m] * h[im];
                }
                y[row * e + i] = sum;
            }
        }
    }
    Ok(())
}

/// What does not depend on the pair: g_u = D g_y, g_D += g_y u; g_Δ, g_B, g_C = 0.
#[allow(clippy::needless_range_loop)] // as above
fn begin_backward<F: Real>(s: ScanShape, x: &RotatingIn<'_, Vec<F>, Vec<u8>>, g: &mut RotatingGrad<'_, Vec<F>>) {
    let (u, d_skip, g_y, g) = (x.scan.u.host(), x.scan.d_skip.host(), g.scan.g_y.host(), &mut g.scan);
    let (g_u, g_delta) = (g.g_u.again().host(), g.g_delta.again().host());
    let g_q = g.g_q.again().host();
    for row in 0..s.time * s.batch {
        g_q[row * s.width() + s.dt_rank..(row + 1) * s.width()].fill(F::zero());
        for i in 0..s.d_inner {
            let at = row * s.d_inner + i;
            g_u[at] = d_skip[i] * g_y[at];
            g_delta[at] = F::zero();
            g.g_params[g.d_skip.at + i] += g_y[at] * u[at];
        }
    }
}

#[allow(clippy::needless_range_loop)] // as above
fn backward<F: Real>(
    s: ScanShape,
    x: RotatingIn<'_, Vec<F>, Vec<u8>>,
    reset: Reset<'_>,
    mut g: RotatingGrad<'_, Vec<F>>,
) -> Result<()> {
    begin_backward(s, &x, &mut g);
    let (theta, x, theta_slot, g) = (x.theta.host(), x.scan, g.theta, g.scan);
    let (u, delta, q, a_log) = (x.u.host(), x.delta.host(), x.q.host(), x.a_log.host());
    let (tape, g_y, g_h_out) = (g.h_tape.host(), g.g_y.host(), g.g_h_out.map(|g| g.host()));
    let (g_u, g_delta, g_q) = (g.g_u.host(), g.g_delta.host(), g.g_q.host());
    let mut g_h0 = g.g_h.map(|g| g.host());
    let (e, pairs, zero) = (s.d_inner, pairs(s), F::zero());
    let mut h = [(zero, zero); CHECKPOINT_EVERY + 1]; // h[j]: before step j of the chunk
    for (b, i, m) in (0..s.batch).flat_map(|b| (0..e).flat_map(move |i| (0..pairs).map(move |m| (b, i, m)))) {
        let a = -a_log[i * pairs + m].exp();
        let (sin, cos) = theta[m * e + i].sin_cos();
        let (re, im) = ((b * s.d_state + m) * e + i, (b * s.d_state + pairs + m) * e + i);
        let (mut g_a, mut g_theta) = (zero, zero);
        let (mut gr, mut gi) = g_h_out.map_or((zero, zero), |g| (g[re], g[im]));
        for chunk in (0..s.checkpoints()).rev() {
            let (t0, kept) = (chunk * CHECKPOINT_EVERY, chunk * s.batch * s.d_state * e);
            let steps = CHECKPOINT_EVERY.min(s.time - t0);
            h[0] = (tape[kept + re], tape[kept + im]);
            for j in 0..steps {
                let row = (t0 + j) * s.batch + b;
                let (at, b_at) = (row * e + i, row * s.width() + s.dt_rank + m);
                let before = if is_set(reset, row) { (zero, zero) } else { h[j] };
                let ((hr, hi), a_bar) = (turned(before, (cos, sin)), (delta[at] * a).exp());
                let du = delta[at] * u[at];
                h[j + 1] = (a_bar * hr + du * q[b_at], a_bar * hi + du * q[b_at + pairs]);
            }
            for j in (0..steps).rev() {
                let row = (t0 + j) * s.batch + b;
                let (at, b_at) = (row * e + i, row * s.width() + s.dt_rank + m);
                let (c_at, clear) = (b_at + 2 * pairs, is_set(reset, row));
                let before = if clear { (zero, zero) } else { h[j] };
                g_q[c_at] += g_y[at] * h[j + 1].0;
                g_q[c_at + pairs] += g_y[at] * h[j + 1].1;
                gr += g_y[at] * q[c_at];
                gi += g_y[at] * q[c_at + pairs];
                g_q[b_at] += gr * delta[at] * u[at];
                g_q[b_at + pairs] += gi * delta[at] * u[at];
                let along = gr * q[b_at] + gi * q[b_at + pairs];
                g_u[at] += along * delta[at];
                // z = exp(Δ A) Rot(θ) h: dz/dΔ = A z, dz/dA = Δ z, dz/dθ is z turned by a quarter
                let ((zr, zi), a_bar) = (turned(before, (cos, sin)), (delta[at] * a).exp());
                let through = a_bar * (gr * zr + gi * zi);
                g_delta[at] += along * u[at] + through * a;
                g_a += through * delta[at];
                g_theta += a_bar * (gi * zr - gr * zi);
                let back = turned((gr, gi), (cos, -sin));
                (gr, gi) = if clear { (zero, zero) } else { (a_bar * back.0, a_bar * back.1) };
            }
        }
        g.g_params[g.a_log.at + i * pairs + m] += g_a * a; // dA / dA_log = A
        if let Some(slot) = theta_slot {
            g.g_params[slot.at + m * e + i] += g_theta;
        }
        if let Some(g) = g_h0.as_mut() {
            (g[re], g[im]) = (gr, gi);
        }
    }
    Ok(())
}

impl<F: Real> RotatingScan for Cpu<F> {
    fn rotating_scratch(s: ScanShape, train: bool) -> usize {
        fast::scratch(s, train)
    }

    fn rotating_scan(&self, s: ScanShape, x: RotatingIn<'_, Vec<F>, Vec<u8>>, out: ScanOut<'_, Vec<F>>) -> Result<()> {
        check_in(s, self, &x)?;
        check_out(s, self, &out)?;
        let reset = host_mask("rotating_scan", x.scan.reset)?;
        if !F::SINGLE {
            return forward(s, x, reset, out);
        }
        self.isa().run(fast::Forward {
            s,
            u: x.scan.u.f32s(),
            delta: x.scan.delta.f32s(),
            q: x.scan.q.f32s(),
            a_log: x.scan.a_log.f32s(),
            theta: x.theta.f32s(),
            d_skip: x.scan.d_skip.f32s(),
            reset,
            y: out.y.f32s(),
            h: out.h.f32s(),
            h_tape: out.h_tape.map(|t| t.f32s()),
            scratch: out.scratch.f32s(),
        });
        Ok(())
    }

    fn rotating_scan_bwd(
        &self,
        s: ScanShape,
        x: RotatingIn<'_, Vec<F>, Vec<u8>>,
        g: RotatingGrad<'_, Vec<F>>,
    ) -> Result<()> {
        check_in(s, self, &x)?;
        check_grad(s, self, &g)?;
        let reset = host_mask("rotating_scan_bwd", x.scan.reset)?;
        if !F::SINGLE {
            return backward(s, x, reset, g);
        }
        let (x, theta, theta_at, g) = (x.scan, x.theta, g.theta.map(|t| t.at), g.scan);
        self.isa().run(fast::Backward {
            s,
            u: x.u.f32s(),
            delta: x.delta.f32s(),
            q: x.q.f32s(),
            a_log: x.a_log.f32s(),
            theta: theta.f32s(),
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
            theta_at,
            scratch: g.scratch.f32s(),
        });
        Ok(())
    }
}
