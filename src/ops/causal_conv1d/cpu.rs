//! The convolution on the CPU, plain: step by step, tap by tap, oldest first.

use super::fast;
use super::{CausalConv1d, ConvGrad, ConvIn, ConvOut, ConvShape};
use crate::device::{Cpu, Real, host_mask, is_set};
use crate::error::Result;
use crate::ops::gate::cpu::{sigmoid, silu_slope};

/// Taps that step t of row b sees: all, or those since the last reset at or before t.
pub(crate) fn taps(s: ConvShape, reset: Option<&[u8]>, t: usize, b: usize) -> usize {
    for back in 0..s.d_conv.min(t + 1) {
        if is_set(reset, (t - back) * s.batch + b) {
            return back + 1;
        }
    }
    s.d_conv
}

/// Place of the input `back` steps before t: in x, or in the window of the row.
enum Place {
    X(usize),
    Window(usize),
}

fn place(s: ConvShape, t: usize, b: usize, i: usize, back: usize) -> Place {
    match t.checked_sub(back) {
        Some(t) => Place::X((t * s.batch + b) * s.stride + i),
        None => Place::Window((b * s.window() + s.window() + t - back) * s.d_inner + i),
    }
}

/// The window after the last step: what a next step may see, zeros before the last reset.
pub(crate) fn move_window<F: Real>(s: ConvShape, x: &[F], reset: Option<&[u8]>, window: &mut [F]) {
    let (k, e) = (s.window(), s.d_inner);
    for (b, window) in window.chunks_exact_mut((k * e).max(1)).enumerate() {
        // entries still seen: those since the last reset
        let kept = (0..s.time.min(k)).find(|&i| is_set(reset, (s.time - 1 - i) * s.batch + b)).map_or(k, |i| i + 1);
        for m in 0..k {
            let back = k - 1 - m; // steps before the last one
            if back >= kept {
                window[m * e..(m + 1) * e].fill(F::zero());
            } else if back < s.time {
                let at = ((s.time - 1 - back) * s.batch + b) * s.stride;
                window[m * e..(m + 1) * e].copy_from_slice(&x[at..at + e]);
            } else {
                window.copy_within((m + s.time) * e..(m + s.time + 1) * e, m * e);
            }
        }
    }
}

type Reset<'a> = Option<&'a [u8]>;

fn forward<F: Real>(
    s: ConvShape,
    x: ConvIn<'_, Vec<F>, Vec<u8>>,
    reset: Reset<'_>,
    out: ConvOut<'_, Vec<F>>,
) -> Result<()> {
    let (x, w, bias) = (x.x.host(), x.w.host(), x.b.map(|b| b.host()));
    let (u, mut pre, window) = (out.u.host(), out.pre.map(|p| p.host()), out.window.host());
    if let Some(tape) = out.window_tape {
        tape.host().copy_from_slice(window);
    }
    for t in 0..s.time {
        for b in 0..s.batch {
            let n = taps(s, reset, t, b);
            for i in 0..s.d_inner {
                let mut p = bias.map_or(F::zero(), |bias| bias[i]);
                for back in (0..n).rev() {
                    let v = match place(s, t, b, i, back) {
                        Place::X(at) => x[at],
                        Place::Window(at) => window[at],
                    };
                    p += w[i * s.d_conv + s.d_conv - 1 - back] * v;
                }
                let at = (t * s.batch + b) * s.d_inner + i;
                u[at] = p * sigmoid(p);
                if let Some(pre) = pre.as_mut() {
                    pre[at] = p;
                }
            }
        }
    }
    move_window(s, x, reset, window);
    Ok(())
}

fn backward<F: Real>(
    s: ConvShape,
    x: ConvIn<'_, Vec<F>, Vec<u8>>,
    reset: Reset<'_>,
    g: ConvGrad<'_, Vec<F>>,
) -> Result<()> {
    let (x, w, k) = (x.x.host(), x.w.host(), s.window());
    let (pre, window, g_u) = (g.pre.host(), g.window.host(), g.g_u.host());
    let g_x = g.g_x.host();
    let mut g_window = g.g_window.map(|g| g.host());
    for row in g_x.chunks_exact_mut(s.stride) {
        row[..s.d_inner].fill(F::zero());
    }
    if let Some(g) = g_window.as_mut() {
        g.fill(F::zero());
    }
    let mut add = |at: Place, v: F| match (at, &mut g_window) {
        (Place::X(at), _) => g_x[at] += v,
        (Place::Window(at), Some(g)) => g[at] += v,
        (Place::Window(_), None) => {}
    };
    if let (Some(g_out), true) = (g.g_window_out, s.time > 0) {
        let g_out = g_out.host();
        for b in 0..s.batch {
            let seen = taps(s, reset, s.time - 1, b).min(k); // the others are zeros after a reset
            for back in 0..seen {
                for i in 0..s.d_inner {
                    add(place(s, s.time - 1, b, i, back), g_out[(b * k + k - 1 - back) * s.d_inner + i]);
                }
            }
        }
    }
    for t in 0..s.time {
        for b in 0..s.batch {
            let n = taps(s, reset, t, b);
            for i in 0..s.d_inner {
                let at = (t * s.batch + b) * s.d_inner + i;
                let g_p = g_u[at] * silu_slope(pre[at]);
                if let Some(slot) = g.b {
                    g.g_params[slot.at + i] += g_p;
                }
                for back in 0..n {
                    let tap = i * s.d_conv + s.d_conv - 1 - back;
                    let from = place(s, t, b, i, back);
                    let v = match from {
                        Place::X(at) => x[at],
                        Place::Window(at) => window[at],
                    };
                    g.g_params[g.w.at + tap] += g_p * v;
                    add(from, g_p * w[tap]);
                }
            }
        }
    }
    Ok(())
}

impl<F: Real> CausalConv1d for Cpu<F> {
    fn conv_scratch(s: ConvShape, train: bool) -> usize {
        fast::scratch(s, train)
    }

    fn causal_conv1d(&self, s: ConvShape, x: ConvIn<'_, Vec<F>, Vec<u8>>, out: ConvOut<'_, Vec<F>>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_out(self, &out)?;
        let reset = host_mask("causal_conv1d", x.reset)?;
        if !F::SINGLE {
            return forward(s, x, reset, out);
        }
        let window = out.window.f32s();
        if let Some(tape) = out.window_tape {
            tape.f32s().copy_from_slice(window);
        }
        self.isa().run(fast::Forward {
            s,
            x: x.x.f32s(),
            w: x.w.f32s(),
            bias: x.b.map(|b| b.f32s()),
            reset,
            window,
            u: out.u.f32s(),
            pre: out.pre.map(|p| p.f32s()),
            scratch: out.scratch.f32s(),
        });
        move_window(s, x.x.f32s(), reset, window);
        Ok(())
    }

    fn causal_conv1d_bwd(&self, s: ConvShape, x: ConvIn<'_, Vec<F>, Vec<u8>>, g: ConvGrad<'_, Vec<F>>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_grad(self, &g)?;
        let reset = host_mask("causal_conv1d_bwd", x.reset)?;
        if !F::SINGLE {
            return backward(s, x, reset, g);
        }
        self.isa().run(fast::Backward {
            s,
            x: x.x.f32s(),
            w: x.w.f32s(),
            reset,
            pre: g.pre.f32s(),
            window: g.window.f32s(),
            g_u: g.g_u.f32s(),
            g_window_out: g.g_window_out.map(|w| w.f32s()),
            g_x: g.g_x.f32s(),
            g_window: g.g_window.map(|w| w.f32s()),
            g_params: F::as_f32_mut(g.g_params).unwrap_or_default(),
            w_at: g.w.at,
            b_at: g.b.map(|b| b.at),
            scratch: g.scratch.f32s(),
        });
        Ok(())
    }
}
