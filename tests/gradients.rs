//! Every backward against central differences in f64, through the same code that runs in f32.

mod support;

use mamba_rl::backbone::{BackboneConfig, MambaConfig, MlpConfig, RnnConfig, Rotate, SeqShape, Sequence, build};
use mamba_rl::device::{Cpu, Slot, View};
use mamba_rl::network::{DuelingHead, QNetwork};
use mamba_rl::ops::dueling::Dueling;
use mamba_rl::ops::linear::{Linear, LinearGrad, LinearIn, LinearShape};
use mamba_rl::ops::norm::{Norm, NormShape};
use mamba_rl::params::Params;
use support::net::{Data, HostState, Net, close, mamba, random, rng, rotating};
use support::oracle::{Conv, Scan, all, all_mut, central, dot, resets};

#[test]
fn selective_scan() {
    for (time, d_state, reset) in [(1, 3, false), (8, 1, false), (19, 5, true), (17, 4, false)] {
        scan(Scan::random(time, 2, 3, d_state, 1), reset);
    }
}

#[test]
fn rotating_scan() {
    for (time, d_state, reset) in [(1, 4, false), (8, 2, false), (19, 6, true), (33, 4, true), (17, 4, false)] {
        scan(Scan::rotating(time, 2, 3, d_state, 1), reset);
    }
}

/// All gradients of a scan of either kind.
fn scan(mut scan: Scan, reset: bool) {
    scan.reset = reset.then(|| resets(2 * scan.s.time, 5, 2));
    let dev = Cpu::<f64>::default();
    let loss = |scan: &Scan| {
        let out = scan.run(&dev);
        dot(&out[0].1, &scan.g_y) + dot(&out[1].1, &scan.g_h)
    };
    let out = scan.run(&dev);
    let grad = |name: &str| out.iter().find(|o| o.0 == name).map(|o| o.1.clone()).unwrap();
    macro_rules! check {
        ($field:ident, $name:expr) => {
            central($name, &scan.$field, &grad($name), 1e-7, |x| loss(&Scan { $field: x.to_vec(), ..scan.clone() }))
        };
    }
    check!(u, "g_u");
    check!(delta, "g_delta");
    check!(q, "g_q");
    check!(a_log, "g_a_log");
    check!(d_skip, "g_d");
    check!(h, "g_h");
    if let Some(theta) = &scan.theta {
        central("g_theta", theta, &grad("g_theta"), 1e-7, |x| loss(&Scan { theta: Some(x.to_vec()), ..scan.clone() }));
    }
}

#[test]
fn causal_conv1d() {
    for (time, d_conv, reset) in [(1, 4, false), (9, 1, false), (11, 4, true), (5, 9, true), (12, 3, false)] {
        let mut conv = Conv::random(time, 2, 3, d_conv, 1);
        conv.reset = reset.then(|| resets(2 * time, 4, 2));
        let dev = Cpu::<f64>::default();
        let loss = |conv: &Conv| {
            let out = conv.run(&dev);
            dot(&out[0].1, &conv.g_u) + dot(&out[1].1, &conv.g_window)
        };
        let out = conv.run(&dev);
        let grad = |name: &str| out.iter().find(|o| o.0 == name).map(|o| o.1.clone()).unwrap();
        // columns of x beyond the channels belong to the gate: their gradient is not this op's
        let mut g_x = grad("g_x");
        g_x.chunks_mut(6).for_each(|row| {
            assert_eq!(row[3..], [5.0; 3]);
            row[3..].fill(0.0);
        });
        central("g_x", &conv.x, &g_x, 1e-7, |x| loss(&Conv { x: x.to_vec(), ..conv.clone() }));
        central("g_w", &conv.w, &grad("g_w"), 1e-7, |w| loss(&Conv { w: w.to_vec(), ..conv.clone() }));
        let bias = conv.bias.clone().unwrap();
        central("g_b", &bias, &grad("g_b"), 1e-7, |b| loss(&Conv { bias: Some(b.to_vec()), ..conv.clone() }));
        central("g_window", &conv.window, &grad("g_window"), 1e-7, |w| {
            loss(&Conv { window: w.to_vec(), ..conv.clone() })
        });
    }
}

/// All gradients of a body: parameters, inputs, start state; with resets, padding and a loss on the last state.
fn body(config: &BackboneConfig, time: usize, d_input: usize) {
    let net = Net::<f64>::new(config, 3);
    let mut data = Data::random(time, 2, d_input, 4);
    data.reset = Some(resets(2 * time, 5, 5));
    data.valid = Some((0..2 * time).map(|row| u8::from(row != 3)).collect());
    let start = net.random_state(2, 6);
    let w = random(&mut rng(7), 2 * time * net.body.d_output(), 1.0);
    let w_state = net.random_state(2, 8);
    let loss = |net: &Net<f64>, data: &Data, start: &HostState| {
        let mut state = start.clone();
        let y = net.unroll(data, &mut state);
        dot(&y, &w) + state.iter().zip(&w_state).map(|(s, w)| dot(s, w)).sum::<f64>()
    };
    let g = net.gradients(&data, &start, &w, Some(&w_state));
    let mut moved = Net::<f64>::new(config, 3);
    for name in net.names() {
        let slot = net.params.layout.slot(&name).unwrap();
        let at = net.params.flat[slot.range()].to_vec();
        central(&name, &at, net.part(&g.params, &name), 1e-6, |x| {
            moved.set(&name, x);
            let l = loss(&moved, &data, &start);
            moved.set(&name, &at);
            l
        });
    }
    central("x", &data.x, &g.x, 1e-6, |x| loss(&net, &Data { x: x.to_vec(), ..data.clone() }, &start));
    for p in 0..start.len() {
        central("state", &start[p], &g.state[p], 1e-6, |x| {
            let mut other = start.clone();
            other[p] = x.to_vec();
            loss(&net, &data, &other)
        });
    }
    let single = Net::<f32>::new(config, 3).gradients(&data, &start, &w, Some(&w_state));
    close("parameters in f32", &single.params, &g.params, 1e-4);
    close("inputs in f32", &single.x, &g.x, 1e-4);
    single.state.iter().zip(&g.state).for_each(|(a, b)| close("state in f32", a, b, 1e-4));
}

/// θ too; angles that are fixed have no gradient, and all else has the one it has beside angles that are learnt.
#[test]
fn rotating_blocks() {
    let [learned, fixed] = [Rotate::Learned, Rotate::Fixed].map(|r| rotating(mamba(3, 6, 2, 4, 4), r));
    body(&learned, 9, 3);
    let [learned, fixed] = [learned, fixed].map(|c| {
        let net = Net::<f32>::new(&c, 3);
        let g = net.gradients(&Data::random(9, 2, 3, 4), &net.random_state(2, 6), &random(&mut rng(7), 108, 1.0), None);
        (net, g.params)
    });
    for name in learned.0.names() {
        let (with, without) = (learned.0.part(&learned.1, &name), fixed.0.part(&fixed.1, &name));
        if name.ends_with("theta") {
            assert!(with.iter().all(|&g| g != 0.0) && without.iter().all(|&g| g == 0.0), "{name}");
        } else {
            assert_eq!(with, without, "{name}");
        }
    }
}

#[test]
fn mamba_blocks() {
    body(&mamba(3, 6, 2, 4, 4), 9, 3);
    let config = MambaConfig {
        d_input: 5,
        d_model: 5,
        d_state: 3,
        d_conv: 1,
        expand: 1,
        proj_bias: true,
        conv_bias: false,
        input_proj: false,
        ..MambaConfig::default()
    };
    body(&BackboneConfig::Mamba(config), 10, 5);
}

#[test]
fn gru_and_lstm_and_mlp() {
    let (d_input, d_model) = (3, 5);
    for n_layers in [1, 3] {
        body(&BackboneConfig::Gru(RnnConfig { d_input, d_model, n_layers }), 6, 3);
        body(&BackboneConfig::Lstm(RnnConfig { d_input, d_model, n_layers }), 6, 3);
        body(&BackboneConfig::Mlp(MlpConfig { d_input, d_model, n_layers }), 6, 3);
    }
}

#[test]
fn linear() {
    let (s, dev, mut r) = (LinearShape { rows: 5, d_in: 4, d_out: 3 }, Cpu::<f64>::default(), rng(1));
    let (x, p, g_y) = (random(&mut r, 20, 1.0), random(&mut r, 15, 1.0), random(&mut r, 15, 1.0));
    let (w_slot, b_slot) = (Slot { at: 0, len: 12 }, Slot { at: 12, len: 3 });
    let loss = |x: &[f64], p: &[f64]| {
        let (x, p, mut y) = (x.to_vec(), p.to_vec(), vec![0.0; 15]);
        let input = LinearIn { x: all(&x), w: w_slot.of(&p), b: Some(b_slot.of(&p)) };
        dev.linear(s, input, all_mut(&mut y), false).unwrap();
        dot(&y, &g_y)
    };
    let (mut g_x, mut g_p) = (vec![f64::NAN; 20], vec![0.0; 15]);
    let grad =
        LinearGrad { g_y: all(&g_y), g_x: Some(all_mut(&mut g_x)), g_params: &mut g_p, w: w_slot, b: Some(b_slot) };
    dev.linear_bwd(s, LinearIn { x: all(&x), w: w_slot.of(&p), b: None }, grad).unwrap();
    central("x", &x, &g_x, 1e-8, |x| loss(x, &p));
    central("w and b", &p, &g_p, 1e-8, |p| loss(&x, p));
}

#[test]
fn norms() {
    let (s, dev, mut r) = (NormShape { rows: 3, width: 7, eps: 1e-5 }, Cpu::<f64>::default(), rng(2));
    let (x, p, g_y) = (random(&mut r, 21, 2.0), random(&mut r, 14, 1.0), random(&mut r, 21, 1.0));
    let (w_slot, b_slot) = (Slot { at: 0, len: 7 }, Slot { at: 7, len: 7 });
    let layer = |x: &[f64], p: &[f64]| {
        let (x, p, mut y) = (x.to_vec(), p.to_vec(), vec![0.0; 21]);
        dev.layer_norm(s, all(&x), w_slot.of(&p), b_slot.of(&p), all_mut(&mut y)).unwrap();
        dot(&y, &g_y)
    };
    let (mut g_x, mut g_p) = (vec![f64::NAN; 21], vec![0.0; 14]);
    dev.layer_norm_bwd(s, all(&x), w_slot.of(&p), all(&g_y), all_mut(&mut g_x), &mut g_p, w_slot, b_slot).unwrap();
    central("layer_norm x", &x, &g_x, 1e-7, |x| layer(x, &p));
    central("layer_norm w and b", &p, &g_p, 1e-7, |p| layer(&x, p));

    let rms = |x: &[f64], p: &[f64]| {
        let (x, p, mut y) = (x.to_vec(), p.to_vec(), vec![0.0; 21]);
        dev.rms_norm(s, all(&x), w_slot.of(&p), all_mut(&mut y)).unwrap();
        dot(&y, &g_y)
    };
    let mut g_p = vec![0.0; 14];
    // added to the residual stream's gradient, here 1
    g_x.fill(1.0);
    dev.rms_norm_bwd(s, all(&x), w_slot.of(&p), all(&g_y), all_mut(&mut g_x), true, &mut g_p, w_slot).unwrap();
    g_x.iter_mut().for_each(|g| *g -= 1.0);
    central("rms_norm x", &x, &g_x, 1e-7, |x| rms(x, &p));
    central("rms_norm w", &p, &g_p, 1e-7, |p| rms(&x, p));
}

#[test]
fn dueling() {
    let (dev, mut r) = (Cpu::<f64>::default(), rng(3));
    let (v, a, g) = (random(&mut r, 4, 1.0), random(&mut r, 12, 1.0), random(&mut r, 12, 1.0));
    let loss = |v: &[f64], a: &[f64]| {
        let (v, a, mut q) = (v.to_vec(), a.to_vec(), vec![0.0; 12]);
        dev.dueling(4, 3, all(&v), all(&a), all_mut(&mut q)).unwrap();
        dot(&q, &g)
    };
    let (mut g_v, mut g_a) = (vec![0.0; 4], vec![0.0; 12]);
    dev.dueling_bwd(4, 3, all(&g), all_mut(&mut g_v), all_mut(&mut g_a)).unwrap();
    central("value", &v, &g_v, 1e-8, |v| loss(v, &a));
    central("advantage", &a, &g_a, 1e-8, |a| loss(&v, a));
}

/// A whole Q-network whose advantages also read the step's input: its gradients, and what the shortcut adds, V x less its mean.
#[test]
fn a_head_with_a_shortcut() {
    let (shape, d_input, actions) = (SeqShape { time: 5, batch: 2 }, 3, 4);
    let body = BackboneConfig::Gru(RnnConfig { d_input, d_model: 5, n_layers: 1 });
    for hidden in [0, 6] {
        let head = DuelingHead::new(5, hidden, actions).with_shortcut(d_input);
        let net = QNetwork::<Cpu<f64>>::new(d_input, None, build(&body).unwrap(), head).unwrap();
        let dev = Cpu::default();
        let mut params = Params::new(&dev, net.layout().clone(), &net.initial(&mut rng(3))).unwrap();
        let (rows, n) = (shape.rows(), shape.rows() * actions);
        let x = random(&mut rng(4), rows * d_input, 1.0);
        let w = random(&mut rng(5), n, 1.0);
        let seq = Sequence { shape, x: View::new(&x, 0, x.len()), reset: None, valid: None };
        let mut ws = net.workspace(&dev, shape, true).unwrap();
        let mut q = |params: &Params<Cpu<f64>>| {
            let mut state = net.zero_state(&dev, shape.batch).unwrap();
            net.forward(&dev, params, seq, &mut state, &mut ws, true).unwrap();
            ws.q[..n].to_vec()
        };
        let with = q(&params);
        let slot = net.layout().slot("head.shortcut.weight").unwrap();
        let v = params.flat[slot.range()].to_vec();
        params.flat[slot.range()].fill(0.0);
        let without = q(&params);
        params.flat[slot.range()].copy_from_slice(&v);
        for row in 0..rows {
            let own = &x[row * d_input..(row + 1) * d_input];
            let adds: Vec<f64> = v.chunks(d_input).map(|v| dot(v, own)).collect();
            let mean = adds.iter().sum::<f64>() / actions as f64;
            for (a, add) in adds.iter().enumerate() {
                let at = row * actions + a;
                assert!((with[at] - without[at] - (add - mean)).abs() < 1e-12, "row {row}, action {a}");
            }
        }
        let mut g = vec![0.0; net.layout().len()];
        q(&params);
        ws.g_q[..n].copy_from_slice(&w);
        net.backward(&dev, &params, seq, &mut ws, &mut g).unwrap();
        let mut state = net.zero_state(&dev, shape.batch).unwrap();
        for e in net.layout().entries() {
            let at = params.flat[e.slot.range()].to_vec();
            central(&e.spec.name, &at, &g[e.slot.range()], 1e-6, |to| {
                params.flat[e.slot.range()].copy_from_slice(to);
                state.bufs.iter_mut().for_each(|b| b.fill(0.0));
                net.forward(&dev, &params, seq, &mut state, &mut ws, true).unwrap();
                params.flat[e.slot.range()].copy_from_slice(&at);
                dot(&ws.q[..n], &w)
            });
        }
    }
}
