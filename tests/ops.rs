//! Ops by hand, fast twins against the plain loops on every code path, and the invariants of the recurrent bodies.

mod support;

use mamba_rl::Error;
use mamba_rl::backbone::{Backbone, BackboneConfig, Part, Parts, RnnConfig, Rotate, SeqShape, Sequence, build};
use mamba_rl::device::{Cpu, Device, Slot, View};
use mamba_rl::ops::adamw::{AdamW, AdamWStep};
use mamba_rl::ops::delta::{Delta, DeltaGrad, DeltaIn, DeltaShape};
use mamba_rl::ops::dueling::Dueling;
use mamba_rl::ops::elementwise::Elementwise;
use mamba_rl::ops::gate::{Gate, GateGrad, GateShape};
use mamba_rl::ops::linear::{Linear, LinearIn, LinearShape};
use mamba_rl::ops::norm::{Norm, NormShape};
use mamba_rl::ops::reduce::Reduce;
use mamba_rl::params::Group;
use support::cases_backbone::{self as cases, paths};
use support::net::{Data, Net, both, close, mamba, random, rng, rotating, to, wide};
use support::oracle::{Conv, Scan, all, all_mut, resets};

#[test]
fn bn_1_single_steps_equal_one_sequence() {
    cases::bn_1_single_steps_equal_one_sequence();
}

#[test]
fn bn_2_fast_scan_equals_the_plain_loop() {
    cases::bn_2_fast_scan_equals_the_plain_loop();
}

#[test]
fn bn_5_odd_sizes_run_or_are_refused() {
    cases::bn_5_odd_sizes_run_or_are_refused();
}

#[test]
fn bn_6_lengths_and_causality() {
    cases::bn_6_lengths_and_causality();
}

#[test]
fn bn_7_special_parameters_start_as_they_should() {
    cases::bn_7_special_parameters_start_as_they_should();
}

#[test]
fn sh_1_chunks_equal_the_whole() {
    cases::sh_1_chunks_equal_the_whole();
}

#[test]
fn sh_2_gradient_of_the_start_state() {
    cases::sh_2_gradient_of_the_start_state();
}

#[test]
fn sh_3_padding_never_matters() {
    cases::sh_3_padding_never_matters();
}

/// h = ½ · 2 + 1 · 3 · 1 = 4, y = 4 · 2 + 10 · 1, with Δ A = −ln 2.
#[test]
fn scan_by_hand() {
    let mut scan = Scan::random(1, 1, 1, 1, 1);
    scan.u = vec![1.0];
    scan.delta = vec![1.0];
    scan.q = vec![0.0, 0.0, 0.0, 3.0, 2.0];
    scan.a_log = vec![std::f64::consts::LN_2.ln()];
    scan.d_skip = vec![10.0];
    scan.h = vec![2.0];
    let out = scan.run(&Cpu::new());
    close("y", &out[0].1, &[18.0], 1e-6);
    close("h", &out[1].1, &[4.0], 1e-6);
}

/// One pair, θ = π/2, Δ A = −ln 2: (hr, hi) = ½ (−6, 2) + 1 · 3 (5, 7) = (12, 22), y = 2 · 12 + 4 · 22 + 10 · 3.
#[test]
fn rotating_scan_by_hand() {
    let mut scan = Scan::rotating(1, 1, 1, 2, 1);
    (scan.u, scan.delta) = (vec![3.0], vec![1.0]);
    scan.q = vec![0.0, 0.0, 0.0, 5.0, 7.0, 2.0, 4.0];
    scan.a_log = vec![std::f64::consts::LN_2.ln()];
    scan.d_skip = vec![10.0];
    scan.theta = Some(vec![std::f64::consts::FRAC_PI_2]);
    scan.h = vec![2.0, 6.0];
    for dev in paths() {
        let out = scan.run(&dev);
        close("h", &out[1].1, &[12.0, 22.0], 1e-6);
        close("y", &out[0].1, &[142.0], 1e-6);
    }
}

/// One impulse rings: B = C = (1, 0), no decay to speak of, so y_t = Δ cos(θ t), for angles over many turns. After 400
/// steps it still has its size, and its phase to the rounding of θ itself.
#[test]
fn an_impulse_rings() {
    use std::f32::consts::{FRAC_PI_2, PI, TAU};
    let angles = [0.0, 1e-3, 0.5, 1.5, FRAC_PI_2, 2.0, 3.0, PI, 4.0, TAU, -2.5, 100.0, -1000.0].map(f64::from);
    let (time, e) = (400, angles.len());
    let mut scan = Scan::rotating(time, 1, e, 2, 1);
    scan.u = (0..time * e).map(|at| f64::from(u8::from(at < e))).collect();
    scan.delta = vec![0.5; time * e];
    scan.q = [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0].repeat(time);
    (scan.a_log, scan.d_skip) = (vec![-80.0; e], vec![0.0; e]);
    (scan.theta, scan.h) = (Some(angles.to_vec()), vec![0.0; 2 * e]);
    let want: Vec<f64> = (0..time * e).map(|at| 0.5 * (angles[at % e] * (at / e) as f64).cos()).collect();
    for dev in paths() {
        close(&format!("{:?}", dev.isa()), &scan.run(&dev)[0].1, &want, 1e-4);
    }
}

#[test]
fn a_rotating_scan_needs_pairs() {
    use mamba_rl::ops::rotating_scan::{RotatingIn, RotatingScan};
    use mamba_rl::ops::selective_scan::{ScanIn, ScanOut, ScanShape};
    let (dev, one) = (Cpu::new(), vec![0.0f32; 64]);
    let [mut y, mut h, mut scratch] = [0; 3].map(|_| vec![0.0f32; 4096]);
    let mut run = |d_state: usize, angles: usize| {
        let s = ScanShape { time: 1, batch: 1, d_inner: 2, d_state, dt_rank: 1 };
        let part = |len: usize| View::new(&one, 0, len);
        let (u, q, a_log) = (part(2), part(s.width()), part(d_state / 2 * 2));
        let scan = ScanIn { u, delta: part(2), q, a_log, d_skip: part(2), reset: None };
        let cut = |v, len| mamba_rl::device::ViewMut::new(v, 0, len);
        let n = Cpu::<f32>::rotating_scratch(s, false);
        let out =
            ScanOut { y: cut(&mut y, 2), h: cut(&mut h, 2 * d_state), h_tape: None, scratch: cut(&mut scratch, n) };
        dev.rotating_scan(s, RotatingIn { scan, theta: part(angles) }, out)
    };
    run(4, 4).unwrap();
    let e = run(3, 2).unwrap_err();
    assert!(matches!(&e, Error::Config { key, .. } if key == "backbone.d_state"), "{e}");
    let e = run(4, 3).unwrap_err();
    assert!(matches!(e, Error::Shape { op: "rotating_scan", arg: "theta", want: 4, got: 3, .. }), "{e}");
}

#[test]
fn scan_twins_at_odd_sizes() {
    let real = [(1, 1), (15, 2), (16, 3), (17, 7), (40, 15), (33, 64), (8, 256), (9, 257), (48, 31)];
    let turning = [(1, 2), (15, 4), (16, 6), (17, 14), (40, 30), (33, 64), (8, 256), (9, 258), (48, 62)];
    let scans = real.map(|(e, n)| Scan::random(13, 3, e, n, n as u64)).into_iter();
    for mut scan in scans.chain(turning.map(|(e, n)| Scan::rotating(13, 3, e, n, n as u64))) {
        let (d_inner, d_state) = (scan.s.d_inner, scan.s.d_state);
        scan.reset = Some(resets(39, 5, 2));
        let plain = scan.run(&Cpu::<f64>::default());
        close("y", &plain[0].1, &scan.naive().0, 1e-12);
        for dev in paths() {
            for ((name, fast), (_, plain)) in scan.run(&dev).iter().zip(&plain) {
                let tolerance = if name.starts_with("g_") { 1e-4 } else { 1e-5 };
                close(&format!("{name}, d_inner {d_inner} d_state {d_state} {:?}", dev.isa()), fast, plain, tolerance);
            }
        }
    }
}

#[test]
fn conv_twins_at_all_sizes() {
    for d_conv in [1, 2, 3, 4, 5, 8, 9, 16, 31, 64, 128] {
        for (time, batch, d_inner) in [(1, 2, 5), (3, 1, 16), (8, 2, 17), (21, 2, 33), (70, 1, 16)] {
            for reset in [None, Some(resets(time * batch, 7, 4)), Some(resets(time * batch, 40, 5))] {
                let mut conv = Conv::random(time, batch, d_inner, d_conv, d_conv as u64);
                conv.reset = reset;
                if d_conv == 3 {
                    conv.bias = None;
                }
                let plain = conv.run(&Cpu::<f64>::default());
                let (u, window) = conv.naive();
                close("u", &plain[0].1, &u, 1e-12);
                close("window", &plain[1].1, &window, 1e-12);
                for dev in paths() {
                    for ((name, fast), (_, plain)) in conv.run(&dev).iter().zip(&plain) {
                        close(
                            &format!("{name}, d_conv {d_conv} T {time} E {d_inner} {:?}", dev.isa()),
                            fast,
                            plain,
                            1e-5,
                        );
                    }
                }
            }
        }
    }
}

/// Bit for bit: single steps, chunks, and the whole, in the ops that carry a state, on every path.
#[test]
fn single_steps_give_the_bits_of_the_whole() {
    for (dev, scan) in paths()
        .into_iter()
        .flat_map(|dev| [Scan::random(21, 2, 19, 13, 5), Scan::rotating(21, 2, 19, 26, 5)].map(|scan| (dev, scan)))
    {
        let whole = scan.run(&dev);
        let (mut h, mut y) = (scan.h.clone(), vec![]);
        let conv = Conv::random(21, 2, 19, 6, 6);
        let whole_conv = conv.run(&dev);
        let (mut window, mut u) = (conv.window.clone(), vec![]);
        for t in 0..21 {
            let part = |x: &[f64]| x[t * x.len() / 21..(t + 1) * x.len() / 21].to_vec();
            let mut step = scan.clone();
            step.s.time = 1;
            (step.u, step.delta, step.q) = (part(&scan.u), part(&scan.delta), part(&scan.q));
            (step.g_y, step.h) = (part(&scan.g_y), h);
            let out = step.run(&dev);
            y.extend(&out[0].1);
            h = out[1].1.clone();
            let mut step = conv.clone();
            step.s.time = 1;
            (step.x, step.g_u, step.window) = (part(&conv.x), part(&conv.g_u), window);
            let out = step.run(&dev);
            u.extend(&out[0].1);
            window = out[1].1.clone();
        }
        assert_eq!((y, h), (whole[0].1.clone(), whole[1].1.clone()), "{:?}", dev.isa());
        assert_eq!((u, window), (whole_conv[0].1.clone(), whole_conv[1].1.clone()), "{:?}", dev.isa());
    }
}

/// A reset in the middle is a fresh start, whatever the state held: NaN and inf too. Forward and backward.
#[test]
fn a_reset_clears_anything() {
    let rnn = RnnConfig { d_input: 3, d_model: 6, n_layers: 2 };
    let turning = rotating(mamba(3, 10, 2, 6, 4), Rotate::Learned);
    for config in [mamba(3, 10, 2, 5, 4), turning, BackboneConfig::Gru(rnn.clone()), BackboneConfig::Lstm(rnn)] {
        let net = Net::<f32>::new(&config, 51);
        let mut data = Data::random(6, 2, 3, 52);
        data.reset = Some(vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let d = net.body.d_output();
        let w = random(&mut rng(53), 12 * d, 1.0);
        let fresh = net.gradients(&Data { reset: None, ..data.clone() }, &net.zero_state(2), &w, None);
        for bad in [f64::NAN, f64::INFINITY, 3.0] {
            let mut state = net.zero_state(2);
            state.iter_mut().flatten().for_each(|x| *x = bad);
            let g = net.gradients(&data, &state, &w, None);
            assert_eq!((&g.y, &g.params, &g.x, &g.state_out), (&fresh.y, &fresh.params, &fresh.x, &fresh.state_out));
            assert!(g.state.iter().flatten().all(|&g| g == 0.0), "a gradient passed a reset");
        }
        // in the middle, with what came before poisoned
        let mut middle = Data::random(9, 2, 3, 54);
        middle.x[3 * 2 * 3..].copy_from_slice(&data.x);
        middle.x[..3].fill(f64::INFINITY);
        middle.reset = Some((0..18).map(|row| u8::from(row / 2 == 3)).collect());
        let y = net.unroll(&middle, &mut net.zero_state(2));
        close("after the reset", &y[3 * 2 * d..], &fresh.y, 1e-6);
    }
}

/// Tails of softplus: Δ = 60 and 1e-26, and its slope to the last digits.
#[test]
fn delta_and_its_slope_in_the_tails() {
    let s: Vec<f64> = vec![-60.0, -87.0, -20.0, -1.0, -1e-3, 0.0, 0.5, 3.0, 17.0, 60.0, 80.0];
    let shape = DeltaShape { rows: 1, dt_rank: 1, width: 1, d_inner: s.len() };
    let want: Vec<f64> = s.iter().map(|s| s.max(0.0) + (-s.abs()).exp().ln_1p()).collect();
    for dev in paths() {
        let (q, w, b) = (vec![0.0f32], vec![1.0f32; s.len()], to::<f32>(&s));
        let x = || DeltaIn { q: all(&q), w: all(&w), b: all(&b) };
        let mut delta = vec![0.0f32; s.len()];
        dev.delta(shape, x(), all_mut(&mut delta)).unwrap();
        let (mut g, mut g_q, mut g_p) = (vec![1.0f32; s.len()], vec![0.0], vec![0.0; 2 * s.len()]);
        let grad = DeltaGrad {
            delta: all(&delta),
            g_delta: all_mut(&mut g),
            g_q: all_mut(&mut g_q),
            g_params: &mut g_p,
            w: Slot { at: 0, len: s.len() },
            b: Slot { at: s.len(), len: s.len() },
        };
        dev.delta_bwd(shape, x(), grad).unwrap();
        for i in 0..s.len() {
            let slope = 1.0 / (1.0 + (-s[i]).exp());
            close("softplus", &wide(&delta[i..=i]), &want[i..=i], 4e-7);
            close("slope", &wide(&g[i..=i]), &[slope], 6e-7);
        }
    }
}

#[test]
fn gate_twins() {
    let (s, mut r) = (GateShape { rows: 3, width: 21 }, rng(1));
    let (y, xz, g_out) = (random(&mut r, 63, 1.0), random(&mut r, 126, 20.0), random(&mut r, 63, 1.0));
    fn run<F: mamba_rl::device::Real>(
        dev: &Cpu<F>,
        s: GateShape,
        y: &[f64],
        xz: &[f64],
        g_out: &[f64],
    ) -> Vec<Vec<f64>> {
        let (y, xz, g_out) = (to::<F>(y), to::<F>(xz), to::<F>(g_out));
        let (mut out, mut g_y, mut g_xz, mut again) = (y.clone(), y.clone(), xz.clone(), y.clone());
        dev.gate(s, all(&y), all(&xz), all_mut(&mut out)).unwrap();
        let (g_y_v, g_xz_v) = (all_mut(&mut g_y), all_mut(&mut g_xz));
        let grad = GateGrad { g_out: all(&g_out), g_y: g_y_v, g_xz: g_xz_v, out: all_mut(&mut again) };
        dev.gate_bwd(s, all(&y), all(&xz), grad).unwrap();
        assert_eq!(wide(&out), wide(&again));
        [out, g_y, g_xz].map(|x| wide(&x)).to_vec()
    }
    let plain = run(&Cpu::<f64>::default(), s, &y, &xz, &g_out);
    for dev in paths() {
        let fast = run(&dev, s, &y, &xz, &g_out);
        fast.iter().zip(&plain).for_each(|(a, b)| close("gate", a, b, 1e-6));
    }
}

#[test]
fn rms_norm_twins_and_zero_rows() {
    let (s, mut r) = (NormShape { rows: 4, width: 37, eps: 1e-5 }, rng(1));
    let (mut x, w, g) = (random(&mut r, 148, 3.0), random(&mut r, 37, 1.0), random(&mut r, 148, 1.0));
    x[..37].fill(0.0);
    fn run<F: mamba_rl::device::Real>(dev: &Cpu<F>, s: NormShape, x: &[f64], w: &[f64], g: &[f64]) -> Vec<Vec<f64>> {
        let (x, w, g) = (to::<F>(x), to::<F>(w), to::<F>(g));
        let (mut y, mut g_x, mut g_w) = (x.clone(), x.clone(), vec![F::zero(); 37]);
        dev.rms_norm(s, all(&x), all(&w), all_mut(&mut y)).unwrap();
        let slot = Slot { at: 0, len: 37 };
        dev.rms_norm_bwd(s, all(&x), all(&w), all(&g), all_mut(&mut g_x), false, &mut g_w, slot).unwrap();
        [y, g_x, g_w].map(|x| wide(&x)).to_vec()
    }
    let plain = run(&Cpu::<f64>::default(), s, &x, &w, &g);
    assert!(plain[0][..37].iter().all(|&y| y == 0.0));
    for dev in paths() {
        let fast = run(&dev, s, &x, &w, &g);
        fast.iter().zip(&plain).for_each(|(a, b)| close("rms_norm", a, b, 2e-6));
    }
}

/// One step by hand, and the twins against the plain loop over many.
#[test]
fn adamw_by_hand_and_twins() {
    let step = AdamWStep { lr: 0.1, beta1: 0.5, beta2: 0.75, eps: 0.0, weight_decay: 0.5, t: 1, grad_scale: 0.5 };
    let range = Slot { at: 1, len: 1 };
    for dev in paths() {
        let (mut p, g, mut m, mut v) = (vec![9.0, 2.0f32, 9.0], vec![9.0, 4.0, 9.0], vec![0.0; 3], vec![0.0; 3]);
        dev.adamw(step, range, &mut p, &g, &mut m, &mut v).unwrap();
        // g = 2; p = 2 − 0.1·0.5·2 = 1.9; m/(1−β₁) = 2, √(v/(1−β₂)) = 2, so p −= 0.1
        close("p", &wide(&p), &[9.0, 1.8, 9.0], 1e-6);
        assert_eq!((m, v), (vec![0.0, 1.0, 0.0], vec![0.0, 1.0, 0.0]));
    }
    fn many<F: mamba_rl::device::Real>(dev: &Cpu<F>) -> Vec<f64> {
        let mut r = rng(4);
        let mut p = to::<F>(&random(&mut r, 45, 1.0));
        let (mut m, mut v) = (vec![F::zero(); 45], vec![F::zero(); 45]);
        for t in 1..=20 {
            let g = to::<F>(&random(&mut r, 45, 1.0));
            let step =
                AdamWStep { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, t, grad_scale: 0.7 };
            dev.adamw(step, Slot { at: 0, len: 45 }, &mut p, &g, &mut m, &mut v).unwrap();
        }
        wide(&p)
    }
    let plain = many(&Cpu::<f64>::default());
    paths().iter().for_each(|dev| close("20 steps", &many(dev), &plain, 1e-5));
}

#[test]
fn linear_with_few_and_many_rows() {
    for (rows, d_in, d_out) in
        [(1, 5, 3), (1, 64, 256), (2, 100, 7), (3, 16, 33), (4, 128, 40), (5, 7, 9), (64, 31, 17), (200, 64, 48)]
    {
        let (s, mut r) = (LinearShape { rows, d_in, d_out }, rng(rows as u64));
        let (x, w, b) =
            (random(&mut r, rows * d_in, 1.0), random(&mut r, d_in * d_out, 1.0), random(&mut r, d_out, 1.0));
        let want: Vec<f64> = (0..rows * d_out)
            .map(|i| b[i % d_out] + (0..d_in).map(|k| x[i / d_out * d_in + k] * w[i % d_out * d_in + k]).sum::<f64>())
            .collect();
        for dev in paths() {
            let ([x, w, b], mut y) = ([&x, &w, &b].map(|v| to::<f32>(v)), vec![f32::NAN; rows * d_out]);
            let input = || LinearIn { x: all(&x), w: all(&w), b: Some(all(&b)) };
            dev.linear(s, input(), all_mut(&mut y), false).unwrap();
            close("linear", &wide(&y), &want, 2e-6);
            dev.linear(s, input(), all_mut(&mut y), true).unwrap();
            close("linear, added", &wide(&y), &want.iter().map(|y| 2.0 * y).collect::<Vec<_>>(), 2e-6);
        }
    }
}

#[test]
fn small_ops_by_hand() {
    let dev = Cpu::new();
    let mut x = vec![-1.0f32, 0.0, 2.0, f32::NAN];
    dev.relu(all_mut(&mut x)).unwrap();
    assert_eq!(x[..3], [0.0, 0.0, 2.0]);
    assert!(x[3].is_nan(), "NaN must not be hidden");
    let mut g = vec![1.0f32, 2.0, 3.0, 4.0];
    dev.relu_bwd(all(&vec![0.0, 0.0, 2.0, 1.0]), all_mut(&mut g)).unwrap();
    assert_eq!(g, [0.0, 0.0, 3.0, 4.0]);
    let (x, keep, mut y) = (vec![1.0f32, 2.0, f32::NAN, f32::INFINITY], vec![1u8, 0], vec![9.0f32; 4]);
    dev.keep_rows(2, all(&x), Some(all(&keep)), all_mut(&mut y)).unwrap();
    assert_eq!(y, [1.0, 2.0, 0.0, 0.0]);
    let mut q = vec![0.0f32; 3];
    dev.dueling(1, 3, all(&vec![10.0]), all(&vec![1.0, 2.0, 6.0]), all_mut(&mut q)).unwrap();
    assert_eq!(q, [8.0, 9.0, 13.0]);
    assert_eq!(dev.sum_squares(all(&vec![1.0, 2.0, 3.0])).unwrap(), 14.0);
    let mut y = vec![1.0f32, 2.0];
    dev.add_assign(all(&vec![10.0, 20.0]), all_mut(&mut y)).unwrap();
    assert_eq!(y, [11.0, 22.0]);
    dev.blend(0.25, all(&vec![15.0, 18.0]), all_mut(&mut y)).unwrap();
    assert_eq!(y, [12.0, 21.0]);
}

/// A wrong length names the op and the argument; nothing panics.
#[test]
fn wrong_lengths_are_shape_errors() {
    let dev = Cpu::new();
    let (x, w, mut y) = (vec![0.0f32; 6], vec![0.0f32; 6], vec![0.0f32; 4]);
    let s = LinearShape { rows: 2, d_in: 3, d_out: 2 };
    let named = |e: Error| match e {
        Error::Shape { op, arg, want, got, .. } => (op, arg, want, got),
        other => panic!("{other}"),
    };
    let e =
        dev.linear(s, LinearIn { x: View::new(&x, 0, 5), w: all(&w), b: None }, all_mut(&mut y), false).unwrap_err();
    assert_eq!(named(e), ("linear", "x", 6, 5));
    let e =
        dev.linear(s, LinearIn { x: View::new(&x, 3, 6), w: all(&w), b: None }, all_mut(&mut y), false).unwrap_err();
    assert_eq!(named(e), ("linear", "x", 6, 3));
    let e = dev.copy(all(&x), all_mut(&mut y)).unwrap_err();
    assert_eq!(named(e).1, "to");
    let e = dev.download(View::new(&x, 4, 4), &mut [0.0; 4]).unwrap_err();
    assert_eq!(named(e).0, "download");
}

/// Matrices decay; A_log, θ, D, biases and norm scales do not.
#[test]
fn groups_of_parameters() {
    let proj = |c: BackboneConfig| Net::<f32>::new(&c, 1).params.layout;
    let BackboneConfig::Mamba(config) = mamba(3, 8, 2, 4, 4) else { panic!("a Mamba") };
    let config = mamba_rl::backbone::MambaConfig { proj_bias: true, ..config };
    let turning = rotating(BackboneConfig::Mamba(config.clone()), Rotate::Learned);
    assert!(proj(turning.clone()).entry("backbone.layers.1.mixer.theta").is_some());
    let rnn = RnnConfig { d_input: 3, d_model: 4, n_layers: 2 };
    for layout in [proj(BackboneConfig::Mamba(config)), proj(turning), proj(BackboneConfig::Lstm(rnn))] {
        for e in layout.entries() {
            let name = e.spec.name.as_str();
            let matrix = name.ends_with("proj.weight") || name.ends_with("conv1d.weight") || name.contains("weight_");
            let want = if matrix { Group::BackboneDecayed } else { Group::BackbonePlain };
            assert_eq!(e.spec.group, want, "{name}");
        }
        let [decayed, plain] = [Group::BackboneDecayed, Group::BackbonePlain].map(|g| layout.group(g));
        assert_eq!((decayed.at, plain.at, decayed.len + plain.len), (0, decayed.len, layout.len()));
    }
}

/// The tape stays under 40 bytes per channel and step; a forward without one uses the same scratch for any depth, and
/// never holds h for all steps.
#[test]
fn memory_of_tape_and_scratch() {
    let shape = SeqShape { time: 60, batch: 32 };
    let body = |n_layers: usize, d_state: usize| build::<Cpu>(&mamba(64, 128, n_layers, d_state, 4)).unwrap();
    let sum = |parts: Vec<Part>| parts.iter().map(|p| p.len).sum::<usize>();
    let bytes = 4 * sum(body(2, 16).tape_layout(shape));
    assert!(bytes <= 40 * 60 * 32 * 256 * 2, "{bytes}");
    let scratch = |n_layers, d_state| sum(body(n_layers, d_state).scratch_layout(shape, false));
    assert_eq!(scratch(1, 16), scratch(4, 16));
    // a state more costs its columns of B and C and one row of A, not T · d_inner
    assert!(scratch(1, 17) - scratch(1, 16) <= 2 * 60 * 32 + 256);
    let train = |time| sum(body(1, 16).scratch_layout(SeqShape { time, batch: 32 }, true));
    assert!(train(120) < 2 * train(60) + 1);
    // turning states are as many, so are numbers in the network; working memory grows by their constants alone
    let turning = build::<Cpu>(&rotating(mamba(64, 128, 2, 16, 4), Rotate::Learned)).unwrap();
    assert_eq!(4 * sum(turning.tape_layout(shape)), bytes);
    assert_eq!(turning.state_layout(), body(2, 16).state_layout());
    let numbers =
        |b: &dyn Backbone<Cpu>| b.parameters().iter().map(|p| p.shape.iter().product::<usize>()).sum::<usize>();
    assert_eq!(numbers(&*turning), numbers(&*body(2, 16)));
    assert!(sum(turning.scratch_layout(shape, true)) - sum(body(2, 16).scratch_layout(shape, true)) <= 4 * 16 * 256);
}

/// Misuse is an error that says what to do, not a panic.
#[test]
fn unbound_bodies_and_small_buffers_are_refused() {
    let dev = Cpu::new();
    let rnn = RnnConfig { d_input: 3, d_model: 8, n_layers: 1 };
    for config in [mamba(3, 8, 1, 4, 4), BackboneConfig::Gru(rnn)] {
        let bound = Net::<f32>::new(&config, 1);
        let unbound = build::<Cpu>(&config).unwrap();
        let shape = SeqShape { time: 2, batch: 2 };
        let (x, mut y) = (vec![0.0f32; 12], vec![0.0f32; 32]);
        let seq = Sequence::<Cpu> { shape, x: all(&x), reset: None, valid: None };
        let mut state = Parts::zeros(&dev, bound.body.state_layout(), 2).unwrap();
        let mut scratch = Parts::zeros(&dev, &bound.body.scratch_layout(shape, false), 1).unwrap();
        let e = unbound.forward(&dev, &bound.params, seq, &mut state, &mut scratch, all_mut(&mut y), None).unwrap_err();
        assert!(e.to_string().contains("bind"), "{e}");
        let mut small = Parts::zeros(&dev, bound.body.state_layout(), 1).unwrap();
        let e =
            bound.body.forward(&dev, &bound.params, seq, &mut small, &mut scratch, all_mut(&mut y), None).unwrap_err();
        assert!(matches!(e, Error::Shape { arg: "state", .. }), "{e}");
        scratch.bufs.pop();
        let e =
            bound.body.forward(&dev, &bound.params, seq, &mut state, &mut scratch, all_mut(&mut y), None).unwrap_err();
        assert!(matches!(e, Error::Shape { arg: "scratch", .. }), "{e}");
    }
}

/// The pinned path is the one that runs, and the paths agree through a whole body.
#[test]
fn pinned_paths_agree() {
    for config in both(mamba(4, 20, 2, 16, 4)) {
        let data = Data::random(30, 2, 4, 1);
        let double = Net::<f64>::new(&config, 2);
        let want = double.unroll(&data, &mut double.zero_state(2));
        for dev in paths() {
            assert!(Cpu::with_simd(dev.isa().simd()).unwrap().isa() == dev.isa());
            let net = Net::on(dev, &config, 2);
            close(&format!("{:?}", dev.isa()), &net.unroll(&data, &mut net.zero_state(2)), &want, 1e-5);
        }
    }
}

#[test]
fn layer_norm_twins() {
    for width in [1, 7, 16, 21, 64] {
        let (s, mut r) = (NormShape { rows: 3, width, eps: 1e-5 }, rng(width as u64));
        let [x, p, g] = [3 * width, 2 * width, 3 * width].map(|n| random(&mut r, n, 2.0));
        fn run<F: mamba_rl::device::Real>(
            dev: &Cpu<F>,
            s: NormShape,
            x: &[f64],
            p: &[f64],
            g: &[f64],
        ) -> Vec<Vec<f64>> {
            let (x, p, g, w) = (to::<F>(x), to::<F>(p), to::<F>(g), s.width);
            let (w_slot, b_slot) = (Slot { at: 0, len: w }, Slot { at: w, len: w });
            let (mut y, mut g_x, mut g_p) = (x.clone(), x.clone(), vec![F::zero(); 2 * w]);
            dev.layer_norm(s, all(&x), w_slot.of(&p), b_slot.of(&p), all_mut(&mut y)).unwrap();
            dev.layer_norm_bwd(s, all(&x), w_slot.of(&p), all(&g), all_mut(&mut g_x), &mut g_p, w_slot, b_slot)
                .unwrap();
            [y, g_x, g_p].map(|x| wide(&x)).to_vec()
        }
        let plain = run(&Cpu::<f64>::default(), s, &x, &p, &g);
        for dev in paths() {
            run(&dev, s, &x, &p, &g).iter().zip(&plain).for_each(|(a, b)| close("layer_norm", a, b, 5e-6));
        }
    }
}

/// GRU and LSTM gates at odd widths on every path, with states large enough to saturate them.
#[test]
fn recurrent_twins() {
    for d_model in [1, 7, 16, 19] {
        let rnn = RnnConfig { d_input: 3, d_model, n_layers: 2 };
        for config in [BackboneConfig::Gru(rnn.clone()), BackboneConfig::Lstm(rnn)] {
            let double = Net::<f64>::new(&config, 3);
            let mut data = Data::random(8, 2, 3, 4);
            data.x.iter_mut().for_each(|x| *x *= 30.0);
            data.reset = Some(resets(16, 5, 5));
            let (start, w) = (double.random_state(2, 6), random(&mut rng(7), 16 * d_model, 1.0));
            let want = double.gradients(&data, &start, &w, Some(&start));
            for dev in paths() {
                let got = Net::on(dev, &config, 3).gradients(&data, &start, &w, Some(&start));
                close("y", &got.y, &want.y, 1e-5);
                close("parameters", &got.params, &want.params, 1e-4);
                close("x", &got.x, &want.x, 1e-4);
            }
        }
    }
}

/// A configuration survives its file form; a key that does not exist is named.
#[test]
fn configurations_as_text() {
    let read = |text: &str| toml::from_str::<BackboneConfig>(text);
    let config = read("name = \"mamba\"\nd_input = 3\nd_state = 8\ndt_rank = 2\n").unwrap();
    let BackboneConfig::Mamba(c) = &config else { panic!("a Mamba") };
    assert_eq!((c.d_input, c.d_state, c.d_conv, c.rank(), c.d_inner()), (3, 8, 4, 2, 128));
    assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
    assert!(matches!(read("name = \"gru\"\nd_model = 5\n").unwrap(), BackboneConfig::Gru(c) if c.d_model == 5));
    let text = read("name = \"lstm\"\nd_modle = 5\n").unwrap_err().to_string();
    assert!(text.contains("d_modle"), "{text}");
}
