//! Field cases that are about CUDA: BN-2 to BN-5 on the device, CU-4, CU-5, and how often a layer launches. CU-1 to CU-3 are
//! about the command: `cuda_cli.rs`. Nothing is learnt here from how the test device checks, so it runs unchecked.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod device;
mod support;

use std::sync::Arc;

use mamba_rl::backbone::{self, Backbone, Parts, SeqGrad, SeqGradOut, SeqShape, Sequence};
use mamba_rl::device::cuda::{Cuda, Launches};
use mamba_rl::device::{Device, Kind, Precision, Slot, View, ViewMut};
use mamba_rl::ops::adamw::{AdamW, Control, REPORT, UpdateBuffers, UpdateRule};
use mamba_rl::ops::reduce::Reduce;
use mamba_rl::ops::selective_scan::{ScanIn, ScanOut, ScanShape, SelectiveScan};
use mamba_rl::params::{ParamLayout, Params};

use support::device_net::{DeviceNet, Unrolled};
use support::net::{Data, HostState, Net, close, mamba, random, rng};
use support::oracle::{Scan, resets};

fn cuda(precision: Precision) -> Cuda {
    cuda_sim::set("CHECK", "0");
    device::cuda(precision)
}

fn tensor(dev: &Cuda, x: &[f32]) -> <Cuda as Device>::Tensor {
    let mut t = dev.zeros(x.len(), Kind::Full).unwrap();
    dev.upload(x, ViewMut::new(&mut t, 0, x.len())).unwrap();
    t
}

fn read(dev: &Cuda, t: &<Cuda as Device>::Tensor) -> Vec<f32> {
    let mut out = vec![0.0; dev.len(t)];
    dev.download(View::new(t, 0, out.len()), &mut out).unwrap();
    out
}

/// Differences are scaled by max(1, largest value), as the cases say.
#[track_caller]
fn near(what: &str, a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len(), "{what}");
    let scale = b.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{what}[{i}]: {a:e} and {b:e}");
    }
}

/// The scan equals the plain f64 loop for the case's lengths; gradients through the whole network at each of them.
#[test]
fn bn_2_the_scan_equals_the_plain_loop() {
    let dev = cuda(Precision::F32);
    let config = mamba(5, 6, 1, 16, 4);
    let (single, double) = (DeviceNet::new(dev.clone(), &config, 3), Net::<f64>::new(&config, 3));
    let lengths = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000];
    for (i, time) in lengths.into_iter().enumerate() {
        let mut scan = Scan::random(time, 2, 19, 16, 20 + i as u64);
        scan.reset = (i % 2 == 1).then(|| resets(2 * time, 6, 3));
        let (y, h) = scan.naive();
        let (got_y, got_h) = run_scan(&dev, &scan);
        close(&format!("y at length {time}"), &got_y, &y, 1e-5);
        close(&format!("h at length {time}"), &got_h, &h, 1e-5);
        let data = Data { reset: scan.reset.clone(), ..Data::random(time, 2, 5, 40 + i as u64) };
        let (start, g_y) = (single.zero_state(2), random(&mut rng(2), time * 2 * 6, 1.0));
        let (a, b) = (single.gradients(&data, &start, &g_y, None), double.gradients(&data, &start, &g_y, None));
        close(&format!("gradients at length {time}"), &a.params, &b.params, 1e-4);
        close(&format!("g_x at length {time}"), &a.x, &b.x, 1e-4);
    }
}

fn run_scan(dev: &Cuda, s: &Scan) -> (Vec<f64>, Vec<f64>) {
    let shape: ScanShape = s.s;
    let up = |x: &[f64]| tensor(dev, &x.iter().map(|&x| x as f32).collect::<Vec<_>>());
    let [u, delta, q, a_log, d_skip, mut h] = [&s.u, &s.delta, &s.q, &s.a_log, &s.d_skip, &s.h].map(|x| up(x));
    let mut mask = dev.zero_mask(shape.time * shape.batch).unwrap();
    if let Some(reset) = &s.reset {
        dev.upload_mask(reset, &mut mask).unwrap();
    }
    let n = shape.time * shape.batch * shape.d_inner;
    let mut y = dev.zeros(n, Kind::Full).unwrap();
    let n_scratch = Cuda::scan_scratch(shape, false);
    let mut scratch = dev.zeros(n_scratch, Kind::Full).unwrap();
    let all = |t| View::new(t, 0, dev.len(t));
    let reset = s.reset.as_ref().map(|_| View::new(&mask, 0, shape.time * shape.batch));
    let x = ScanIn { u: all(&u), delta: all(&delta), q: all(&q), a_log: all(&a_log), d_skip: all(&d_skip), reset };
    let n_h = dev.len(&h);
    let out = ScanOut {
        y: ViewMut::new(&mut y, 0, n),
        h: ViewMut::new(&mut h, 0, n_h),
        h_tape: None,
        scratch: ViewMut::new(&mut scratch, 0, n_scratch),
    };
    dev.selective_scan(shape, x, out).unwrap();
    let wide = |t| read(dev, t).into_iter().map(f64::from).collect();
    (wide(&y), wide(&h))
}

/// Master weights are f32 whatever the precision: 100 small additions are not lost.
#[test]
fn bn_3_small_updates_are_not_lost() {
    for precision in [Precision::Bf16, Precision::F16] {
        let dev = cuda(precision);
        let (mut weight, step) = (tensor(&dev, &[1.0; 3]), tensor(&dev, &[1e-4; 3]));
        for _ in 0..100 {
            dev.add_assign(View::new(&step, 0, 3), ViewMut::new(&mut weight, 0, 3)).unwrap();
        }
        read(&dev, &weight).iter().for_each(|w| assert!((w - 1.01).abs() <= 1e-5, "{precision}: {w}"));
    }
}

/// Buffers of an update of `n` parameters, all in one group.
struct Updating {
    dev: Cuda,
    bufs: [<Cuda as Device>::Tensor; 5],
    report: <Cuda as Device>::Tensor,
    n: usize,
}

impl Updating {
    fn new(n: usize) -> Self {
        let dev = cuda(Precision::F16);
        let zeros = |n| dev.zeros(n, Kind::Full).unwrap();
        let weights: Vec<f32> = (0..n).map(|i| i as f32 - 2.0).collect();
        let bufs = [tensor(&dev, &weights), zeros(n), zeros(n), zeros(n), zeros(Control::LEN)];
        let report = zeros(REPORT);
        Updating { dev, bufs, report, n }
    }

    /// One update with this gradient; (norm, skipped).
    fn step(&mut self, t: u64, gradient: &[f32]) -> (f32, bool) {
        let rule = UpdateRule { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, grad_clip: Some(1.0) };
        let control = Control { lr_backbone: 0.1, lr_heads: 0.1, t, loss_scale: 1024.0 };
        let [params, grads, m, v, numbers] = &mut self.bufs;
        self.dev.upload(gradient, ViewMut::new(grads, 0, self.n)).unwrap();
        self.dev.upload(&control.numbers(&rule), ViewMut::new(numbers, 0, Control::LEN)).unwrap();
        let groups = [
            Slot { at: 0, len: self.n },
            Slot { at: self.n, len: 0 },
            Slot { at: self.n, len: 0 },
            Slot { at: self.n, len: 0 },
        ];
        let buffers = UpdateBuffers { params, grads, m, v, control: numbers, report: &mut self.report };
        self.dev.update(rule, control, groups, buffers).unwrap();
        let report = read(&self.dev, &self.report);
        (report[0], report[1] != 0.0)
    }

    fn state(&self) -> Vec<u32> {
        [0, 2, 3].iter().flat_map(|&i| read(&self.dev, &self.bufs[i])).map(f32::to_bits).collect()
    }
}

/// Zero gradients move nothing; what is not finite is skipped and said; the next update is an ordinary one.
#[test]
fn bn_4_zero_and_infinite_gradients() {
    for n in [1, 5, 257, 1000] {
        let mut u = Updating::new(n);
        let begun = u.state();
        for t in 1..=3 {
            assert_eq!(u.step(t, &vec![0.0; n]), (0.0, false));
        }
        assert_eq!(u.state(), begun);
        for bad in [f32::INFINITY, f32::NAN] {
            let mut gradient = vec![1.0; n];
            gradient[n - 1] = bad;
            let (norm, skipped) = u.step(4, &gradient);
            assert!(skipped && !norm.is_finite(), "{norm}");
            assert_eq!(u.state(), begun);
        }
        let (norm, skipped) = u.step(4, &vec![1024.0; n]);
        assert!(!skipped && (norm - (n as f32).sqrt()).abs() <= 1e-5 * norm, "{norm}");
        assert_ne!(u.state(), begun);
        // against the gradient, from where the first weight began
        assert!(read(&u.dev, &u.bufs[0])[0] < -2.0);
    }
}

/// Odd sizes run and agree with f64; what the kernels do not hold is refused by name.
#[test]
fn bn_5_odd_sizes_run_or_are_refused() {
    for d_model in [1, 3, 7, 20, 33] {
        for (d_state, batch, lengths) in [(1, 1, 1..=4), (5, 3, 3..=6), (16, 2, 7..=9), (64, 2, 9..=9), (256, 1, 2..=2)]
        {
            odd_sizes(d_model, d_state, &[batch], lengths);
        }
    }
    let refused = backbone::build::<Cuda>(&mamba(2, 3, 1, 257, 4)).err().map(|e| e.to_string()).unwrap();
    for word in ["backbone.d_state", "257", "256"] {
        assert!(refused.contains(word), "{refused}");
    }
}

#[test]
#[ignore = "all 675 sizes of the case take minutes on the test device"]
fn bn_5_all_sizes() {
    for d_model in [1, 3, 7, 20, 33] {
        for d_state in [1, 5, 16, 64, 256] {
            odd_sizes(d_model, d_state, &[1, 2, 3], 1..=9);
        }
    }
}

fn odd_sizes(d_model: usize, d_state: usize, batches: &[usize], lengths: std::ops::RangeInclusive<usize>) {
    let config = mamba(2, d_model, 1, d_state, 4);
    let (single, double) = (DeviceNet::new(cuda(Precision::F32), &config, 5), Net::<f64>::new(&config, 5));
    for (&batch, time) in batches.iter().flat_map(|b| lengths.clone().map(move |t| (b, t))) {
        let data = Data::random(time, batch, 2, (d_model * d_state + 10 * batch + time) as u64);
        let start = double.random_state(batch, 1);
        let g_y = random(&mut rng(2), time * batch * d_model, 1.0);
        let (a, b) =
            (single.gradients(&data, &start, &g_y, Some(&start)), double.gradients(&data, &start, &g_y, Some(&start)));
        let what = format!("d_model {d_model} d_state {d_state} batch {batch} length {time}");
        let states = |a: &HostState, b: &HostState| a.iter().zip(b).for_each(|(a, b)| near(&what, a, b, 1e-4));
        near(&what, &a.y, &b.y, 1e-4);
        states(&a.state_out, &b.state_out);
        near(&what, &a.x, &b.x, 1e-4);
        near(&what, &a.params, &b.params, 1e-4);
        states(&a.state, &b.state);
    }
}

/// Buffers made by one thread, used and dropped by eight.
#[test]
fn cu_4_buffers_move_between_threads() {
    let dev = cuda(Precision::F32);
    let work = |seed: usize, mut t: <Cuda as Device>::Tensor, other: &<Cuda as Device>::Tensor| {
        for i in 0..1_000 {
            let n = dev.len(&t);
            match i % 3 {
                0 => dev.add_assign(View::new(other, 0, n), ViewMut::new(&mut t, 0, n)).unwrap(),
                1 => dev.blend(0.25, View::new(other, 0, n), ViewMut::new(&mut t, 0, n)).unwrap(),
                _ => assert!(dev.sum_squares(View::new(&t, 0, n)).unwrap() >= 0.0, "{seed}"),
            }
        }
        read(&dev, &t)
    };
    let make = |seed: usize| {
        let x: Vec<f32> = (0..40 + seed).map(|i| (i * seed) as f32).collect();
        (tensor(&dev, &x), tensor(&dev, &vec![0.5; x.len()]))
    };
    let alone: Vec<Vec<f32>> = (0..8)
        .map(|seed| {
            let (t, o) = make(seed);
            work(seed, t, &o)
        })
        .collect();
    let made: Vec<_> = (0..8).map(make).collect();
    let together: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let started: Vec<_> =
            made.into_iter().enumerate().map(|(seed, (t, other))| scope.spawn(move || work(seed, t, &other))).collect();
        started.into_iter().map(|s| s.join().unwrap()).collect()
    });
    assert!(alone == together);
}

/// A step without a tape and one with backward, of `n_layers` layers: their launches.
fn launches(precision: Precision, n_layers: usize) -> [Launches; 2] {
    let dev = cuda(precision);
    let mut body = backbone::build::<Cuda>(&mamba(5, 8, n_layers, 4, 4)).unwrap();
    let layout = Arc::new(ParamLayout::new(body.parameters()).unwrap());
    body.bind(&layout).unwrap();
    let params = Params::new(&dev, layout.clone(), &layout.initial(&mut rng(1))).unwrap();
    let (body, shape): (&dyn Backbone<Cuda>, _) = (&*body, SeqShape { time: 6, batch: 2 });
    let (x, reset) = (tensor(&dev, &[0.5; 60]), dev.zero_mask(12).unwrap());
    let reset = Some(View::new(&reset, 0, 12));
    let seq = Sequence::<Cuda> { shape, x: View::new(&x, 0, 60), reset, valid: None };
    let mut state = Parts::zeros(&dev, body.state_layout(), 2).unwrap();
    let mut scratch = Parts::zeros(&dev, &body.scratch_layout(shape, true), 1).unwrap();
    let mut tape = Parts::zeros(&dev, &body.tape_layout(shape), 1).unwrap();
    let (mut y, g_y) = (tensor(&dev, &[0.0; 96]), tensor(&dev, &[1.0; 96]));
    let mut grads = dev.zeros(layout.len(), Kind::Full).unwrap();
    let begun = dev.launches();
    let y_view = ViewMut::new(&mut y, 0, 96);
    body.forward(&dev, &params, seq, &mut state, &mut scratch, y_view, Some(&mut tape)).unwrap();
    let forward = dev.launches();
    let from = SeqGrad { g_y: View::new(&g_y, 0, 96), g_state: None };
    let to = SeqGradOut { g_params: &mut grads, g_x: None, g_state: None };
    body.backward(&dev, &params, seq, &tape, &mut scratch, from, to).unwrap();
    [forward.since(begun), dev.launches().since(forward)]
}

/// In 16 bits operands are narrowed, and what the backward reads is copied.
#[test]
fn a_layer_is_at_most_14_launches_forward_and_22_backward() {
    for (precision, limits) in [(Precision::F32, [14, 22]), (Precision::Bf16, [18, 26]), (Precision::F16, [18, 26])] {
        let (two, three) = (launches(precision, 2), launches(precision, 3));
        for (i, what) in ["forward", "backward"].into_iter().enumerate() {
            let l = three[i].since(two[i]);
            let all = l.work() + l.moves;
            println!("{precision} {what}: {} kernels, {} products, {} moves a layer", l.kernels, l.products, l.moves);
            assert!(l.work() > 0 && all <= limits[i], "{precision} {what}: {l:?}");
        }
    }
}

/// The target's working memory: one for all layers, without the states of every step.
#[test]
fn the_target_s_scratch_does_not_grow() {
    let len = |n_layers, time| {
        let body = backbone::build::<Cuda>(&mamba(5, 8, n_layers, 64, 4)).unwrap();
        let parts = body.scratch_layout(SeqShape { time, batch: 2 }, false);
        parts.iter().map(|p| p.len).sum::<usize>()
    };
    assert_eq!(len(1, 30), len(6, 30));
    // rows of activations only: no d_state for each of 2 · 16 channels and step
    assert!(len(1, 60) - len(1, 30) < 30 * 2 * 16 * 64);
}
