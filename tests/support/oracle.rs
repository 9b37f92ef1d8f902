//! The ops on the CPU in either precision, fed and read in f64, beside naive f64 forms of the formulas, written straight
//! from them: one row, one channel, one step at a time.

use mamba_rl::device::{Cpu, Real, Slot, View, ViewMut};
use mamba_rl::ops::causal_conv1d::{CausalConv1d, ConvGrad, ConvIn, ConvOut, ConvShape};
use mamba_rl::ops::rotating_scan::{RotatingGrad, RotatingIn, RotatingScan};
use mamba_rl::ops::selective_scan::{ScanGrad, ScanIn, ScanOut, ScanShape, SelectiveScan};
use rand::RngExt;

use super::net::{random, rng, to, wide};

pub fn all<T>(buf: &Vec<T>) -> View<'_, Vec<T>> {
    View::new(buf, 0, buf.len())
}

pub fn all_mut<T>(buf: &mut Vec<T>) -> ViewMut<'_, Vec<T>> {
    let len = buf.len();
    ViewMut::new(buf, 0, len)
}

/// Inputs of a scan and gradients of its outputs. With angles it is the rotating scan.
#[derive(Clone)]
pub struct Scan {
    pub s: ScanShape,
    pub u: Vec<f64>,
    pub delta: Vec<f64>,
    pub q: Vec<f64>,
    /// [d_inner, d_state], or [d_inner, d_state / 2] with angles.
    pub a_log: Vec<f64>,
    pub d_skip: Vec<f64>,
    /// [d_state / 2, d_inner].
    pub theta: Option<Vec<f64>>,
    pub reset: Option<Vec<u8>>,
    pub h: Vec<f64>,
    pub g_y: Vec<f64>,
    pub g_h: Vec<f64>,
}

/// Results, each with its name.
pub type Named = Vec<(&'static str, Vec<f64>)>;

impl Scan {
    pub fn random(time: usize, batch: usize, d_inner: usize, d_state: usize, seed: u64) -> Self {
        let s = ScanShape { time, batch, d_inner, d_state, dt_rank: 3 };
        let mut r = rng(seed);
        let (n, h) = (time * batch * d_inner, batch * d_inner * d_state);
        Scan {
            s,
            u: random(&mut r, n, 1.0),
            delta: random(&mut r, n, 0.3).iter().map(|x| x.abs()).collect(),
            q: random(&mut r, time * batch * s.width(), 1.0),
            a_log: random(&mut r, d_inner * d_state, 1.5),
            d_skip: random(&mut r, d_inner, 1.0),
            theta: None,
            reset: None,
            h: random(&mut r, h, 1.0),
            g_y: random(&mut r, n, 1.0),
            g_h: random(&mut r, h, 1.0),
        }
    }

    /// As [`Scan::random`], rotating, with angles of either sign and beyond a turn.
    pub fn rotating(time: usize, batch: usize, d_inner: usize, d_state: usize, seed: u64) -> Self {
        let mut scan = Self::random(time, batch, d_inner, d_state, seed);
        scan.a_log.truncate(d_inner * d_state / 2);
        scan.theta = Some(random(&mut rng(seed + 1000), d_inner * d_state / 2, 9.0));
        scan
    }

    /// One of either kind.
    pub fn either(time: usize, batch: usize, d_inner: usize, d_state: usize, seed: u64) -> [Self; 2] {
        [Self::random, Self::rotating].map(|make| make(time, batch, d_inner, d_state, seed))
    }

    /// y, the last h, and all gradients, by the device.
    pub fn run<F: Real>(&self, dev: &Cpu<F>) -> Named {
        let s = self.s;
        let theta = self.theta.as_ref().map(|x| to::<F>(x));
        let [u, delta, q, a_log, d_skip] =
            [&self.u, &self.delta, &self.q, &self.a_log, &self.d_skip].map(|x| to::<F>(x));
        let x = || ScanIn {
            u: all(&u),
            delta: all(&delta),
            q: all(&q),
            a_log: all(&a_log),
            d_skip: all(&d_skip),
            reset: self.reset.as_ref().map(all),
        };
        let nan = |len: usize| vec![F::nan(); len];
        let (mut y, mut h, mut tape) = (nan(u.len()), to::<F>(&self.h), nan(s.tape_len()));
        let scratch = if theta.is_some() { Cpu::<F>::rotating_scratch } else { Cpu::<F>::scan_scratch };
        let mut scratch = nan(scratch(s, true));
        let out = ScanOut {
            y: all_mut(&mut y),
            h: all_mut(&mut h),
            h_tape: Some(all_mut(&mut tape)),
            scratch: all_mut(&mut scratch),
        };
        match &theta {
            None => dev.selective_scan(s, x(), out).unwrap(),
            Some(theta) => dev.rotating_scan(s, RotatingIn { scan: x(), theta: all(theta) }, out).unwrap(),
        }
        scratch.fill(F::nan());
        let (g_y, g_h_out) = (to::<F>(&self.g_y), to::<F>(&self.g_h));
        let (mut g_u, mut g_delta, mut g_h) = (nan(u.len()), nan(u.len()), nan(h.len()));
        let mut g_q = vec![F::zero(); q.len()];
        let angles = theta.as_ref().map_or(0, Vec::len);
        let mut g_params = vec![F::zero(); a_log.len() + d_skip.len() + angles];
        let slot = Slot { at: a_log.len() + d_skip.len(), len: angles };
        let grad = ScanGrad {
            h_tape: all(&tape),
            g_y: all(&g_y),
            g_h_out: Some(all(&g_h_out)),
            g_u: all_mut(&mut g_u),
            g_delta: all_mut(&mut g_delta),
            g_q: all_mut(&mut g_q),
            g_h: Some(all_mut(&mut g_h)),
            g_params: &mut g_params,
            a_log: Slot { at: 0, len: a_log.len() },
            d_skip: Slot { at: a_log.len(), len: d_skip.len() },
            scratch: all_mut(&mut scratch),
        };
        match &theta {
            None => dev.selective_scan_bwd(s, x(), grad).unwrap(),
            Some(theta) => {
                let x = RotatingIn { scan: x(), theta: all(theta) };
                dev.rotating_scan_bwd(s, x, RotatingGrad { scan: grad, theta: Some(slot) }).unwrap();
            }
        }
        let (g_a, rest) = g_params.split_at(a_log.len());
        let (g_d, g_theta) = rest.split_at(d_skip.len());
        let names = ["y", "h", "g_u", "g_delta", "g_q", "g_h", "g_a_log", "g_d", "g_theta"];
        let values = [&y[..], &h, &g_u, &g_delta, &g_q, &g_h, g_a, g_d, g_theta].map(wide);
        names.into_iter().zip(values).take(if angles > 0 { 9 } else { 8 }).collect()
    }

    /// y and the last h, from the formula.
    pub fn naive(&self) -> (Vec<f64>, Vec<f64>) {
        if let Some(theta) = &self.theta {
            return self.naive_rotating(theta);
        }
        let s = self.s;
        let (mut y, mut last) = (vec![0.0; self.u.len()], vec![0.0; self.h.len()]);
        for b in 0..s.batch {
            for i in 0..s.d_inner {
                for n in 0..s.d_state {
                    let a = -self.a_log[i * s.d_state + n].exp();
                    let mut h = self.h[(b * s.d_state + n) * s.d_inner + i];
                    for t in 0..s.time {
                        let row = t * s.batch + b;
                        let (delta, u) = (self.delta[row * s.d_inner + i], self.u[row * s.d_inner + i]);
                        let (bt, ct) = (self.q[row * s.width() + 3 + n], self.q[row * s.width() + 3 + s.d_state + n]);
                        if self.reset.as_ref().is_some_and(|r| r[row] == 1) {
                            h = 0.0;
                        }
                        h = (delta * a).exp() * h + delta * bt * u;
                        y[row * s.d_inner + i] += ct * h;
                    }
                    last[(b * s.d_state + n) * s.d_inner + i] = h;
                }
                for row in (0..s.time).map(|t| t * s.batch + b) {
                    y[row * s.d_inner + i] += self.d_skip[i] * self.u[row * s.d_inner + i];
                }
            }
        }
        (y, last)
    }

    /// The same with a pair as one complex number: z ← exp(Δ A + iθ) z + Δ u (Br + i Bi), and y gets Re(conj(C) z).
    fn naive_rotating(&self, theta: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (s, pairs) = (self.s, self.s.d_state / 2);
        let (mut y, mut last) = (vec![0.0; self.u.len()], vec![0.0; self.h.len()]);
        for b in 0..s.batch {
            for i in 0..s.d_inner {
                for m in 0..pairs {
                    let [re, im] = [m, pairs + m].map(|n| (b * s.d_state + n) * s.d_inner + i);
                    let mut z = (self.h[re], self.h[im]);
                    for t in 0..s.time {
                        let row = t * s.batch + b;
                        let (delta, u) = (self.delta[row * s.d_inner + i], self.u[row * s.d_inner + i]);
                        let q = |column: usize| self.q[row * s.width() + s.dt_rank + column];
                        if self.reset.as_ref().is_some_and(|r| r[row] == 1) {
                            z = (0.0, 0.0);
                        }
                        let size = (-delta * self.a_log[i * pairs + m].exp()).exp();
                        let turn = (size * theta[m * s.d_inner + i].cos(), size * theta[m * s.d_inner + i].sin());
                        let moved = (turn.0 * z.0 - turn.1 * z.1, turn.0 * z.1 + turn.1 * z.0);
                        z = (moved.0 + delta * u * q(m), moved.1 + delta * u * q(pairs + m));
                        y[row * s.d_inner + i] += q(2 * pairs + m) * z.0 + q(3 * pairs + m) * z.1;
                    }
                    (last[re], last[im]) = z;
                }
                for row in (0..s.time).map(|t| t * s.batch + b) {
                    y[row * s.d_inner + i] += self.d_skip[i] * self.u[row * s.d_inner + i];
                }
            }
        }
        (y, last)
    }
}

/// Inputs of a convolution and gradients of its outputs. Rows of x are twice as wide as the channels.
#[derive(Clone)]
pub struct Conv {
    pub s: ConvShape,
    pub x: Vec<f64>,
    pub w: Vec<f64>,
    pub bias: Option<Vec<f64>>,
    pub reset: Option<Vec<u8>>,
    pub window: Vec<f64>,
    pub g_u: Vec<f64>,
    pub g_window: Vec<f64>,
}

impl Conv {
    pub fn random(time: usize, batch: usize, d_inner: usize, d_conv: usize, seed: u64) -> Self {
        let s = ConvShape { time, batch, d_inner, d_conv, stride: 2 * d_inner };
        let mut r = rng(seed);
        let window = batch * s.window() * d_inner;
        Conv {
            s,
            x: random(&mut r, time * batch * s.stride, 1.0),
            w: random(&mut r, d_inner * d_conv, (d_conv as f32).sqrt().recip()),
            bias: Some(random(&mut r, d_inner, 1.0)),
            reset: None,
            window: random(&mut r, window, 1.0),
            g_u: random(&mut r, time * batch * d_inner, 1.0),
            g_window: random(&mut r, window, 1.0),
        }
    }

    /// u, the last window, and all gradients, by the device.
    pub fn run<F: Real>(&self, dev: &Cpu<F>) -> Named {
        let (s, n) = (self.s, self.g_u.len());
        let (x, w, bias) = (to::<F>(&self.x), to::<F>(&self.w), self.bias.as_ref().map(|b| to::<F>(b)));
        let input =
            || ConvIn { x: all(&x), w: all(&w), b: bias.as_ref().map(all), reset: self.reset.as_ref().map(all) };
        let nan = |len: usize| vec![F::nan(); len];
        let (mut u, mut pre, mut window) = (nan(n), nan(n), to::<F>(&self.window));
        let (mut kept, mut scratch) = (nan(window.len()), nan(Cpu::<F>::conv_scratch(s, true)));
        let out = ConvOut {
            u: all_mut(&mut u),
            pre: Some(all_mut(&mut pre)),
            window: all_mut(&mut window),
            window_tape: Some(all_mut(&mut kept)),
            scratch: all_mut(&mut scratch),
        };
        dev.causal_conv1d(s, input(), out).unwrap();
        scratch.fill(F::nan());
        let (g_u, g_window_out) = (to::<F>(&self.g_u), to::<F>(&self.g_window));
        // the second half of the rows is the gate's and must be left alone
        let (mut g_x, mut g_window) = (vec![F::of(5.0); x.len()], nan(window.len()));
        let mut g_params = vec![F::zero(); w.len() + s.d_inner];
        let grad = ConvGrad {
            pre: all(&pre),
            window: all(&kept),
            g_u: all(&g_u),
            g_window_out: Some(all(&g_window_out)),
            g_x: all_mut(&mut g_x),
            g_window: Some(all_mut(&mut g_window)),
            g_params: &mut g_params,
            w: Slot { at: 0, len: w.len() },
            b: bias.as_ref().map(|b| Slot { at: w.len(), len: b.len() }),
            scratch: all_mut(&mut scratch),
        };
        dev.causal_conv1d_bwd(s, input(), grad).unwrap();
        let (g_w, g_b) = g_params.split_at(w.len());
        let names = ["u", "window", "g_x", "g_window", "g_w", "g_b"];
        names.into_iter().zip([&u[..], &window, &g_x, &g_window, g_w, g_b].map(wide)).collect()
    }

    /// u and the last window, from the formula.
    pub fn naive(&self) -> (Vec<f64>, Vec<f64>) {
        let (s, k) = (self.s, self.s.window());
        let (mut u, mut last) = (vec![0.0; self.g_u.len()], vec![0.0; self.window.len()]);
        for b in 0..s.batch {
            for i in 0..s.d_inner {
                let mut seen: Vec<f64> = (0..k).map(|m| self.window[(b * k + m) * s.d_inner + i]).collect();
                for row in (0..s.time).map(|t| t * s.batch + b) {
                    if self.reset.as_ref().is_some_and(|r| r[row] == 1) {
                        seen.fill(0.0);
                    }
                    seen.push(self.x[row * s.stride + i]);
                    let bias = self.bias.as_ref().map_or(0.0, |b| b[i]);
                    let p: f64 =
                        bias + (0..=k).map(|j| self.w[i * s.d_conv + j] * seen[seen.len() - 1 - k + j]).sum::<f64>();
                    u[row * s.d_inner + i] = p / (1.0 + (-p).exp());
                }
                for m in 0..k {
                    last[(b * k + m) * s.d_inner + i] = seen[seen.len() - k + m];
                }
            }
        }
        (u, last)
    }
}

/// Resets in about one of `every` steps.
pub fn resets(len: usize, every: u32, seed: u64) -> Vec<u8> {
    let mut r = rng(seed);
    (0..len).map(|_| u8::from(r.random_range(0..every) == 0)).collect()
}

/// Compares a gradient with central differences of `f` at some of its places.
#[track_caller]
pub fn central(what: &str, x: &[f64], grad: &[f64], tolerance: f64, mut f: impl FnMut(&[f64]) -> f64) {
    assert_eq!(x.len(), grad.len(), "{what}");
    let scale = grad.iter().fold(1e-3f64, |m, g| m.max(g.abs()));
    let mut moved = x.to_vec();
    for i in (0..x.len()).step_by((x.len() / 12).max(1)) {
        let step = 1e-5;
        moved[i] = x[i] + step;
        let up = f(&moved);
        moved[i] = x[i] - step;
        let down = f(&moved);
        moved[i] = x[i];
        let slope = (up - down) / (2.0 * step);
        let e = (slope - grad[i]).abs() / scale;
        assert!(e <= tolerance, "{what}[{i}]: gradient {:e}, central difference {slope:e}", grad[i]);
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
