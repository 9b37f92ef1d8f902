//! Bodies of the field cases about the backbone: BN-1, BN-2, BN-5, BN-6, BN-7, SH-1, SH-2, SH-3.

use mamba_rl::backbone::{BackboneConfig, MambaConfig, RnnConfig, Rotate};
use mamba_rl::device::{Cpu, Isa, Simd};
use rand::RngExt;

use super::net::{Data, HostState, Net, both, close, mamba, random, rng, rotating};
use super::oracle::{Conv, Scan, central, dot, resets};

/// Every code path that this CPU has.
pub fn paths() -> Vec<Cpu> {
    [Simd::Avx512, Simd::Avx2, Simd::Portable]
        .into_iter()
        .filter(|s| Isa::choose(*s).is_some())
        .map(|s| Cpu::with_simd(s).unwrap())
        .collect()
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

#[track_caller]
fn near_states(what: &str, a: &HostState, b: &HostState, tolerance: f64) {
    a.iter().zip(b).for_each(|(a, b)| near(what, a, b, tolerance));
}

/// Outputs of the chunks of a plan, and the state after them.
fn in_chunks(net: &Net<f32>, data: &Data, start: &HostState, plan: &[usize]) -> (Vec<f64>, HostState) {
    let (mut at, mut y, mut state) = (0, vec![], start.clone());
    for &len in plan {
        y.extend(net.unroll(&data.steps(at, at + len), &mut state));
        at += len;
    }
    assert_eq!(at, data.time);
    (y, state)
}

/// 37 single steps and one call agree in outputs, window and h.
pub fn bn_1_single_steps_equal_one_sequence() {
    for config in both(mamba(8, 32, 1, 16, 4)) {
        let net = Net::<f32>::new(&config, 11);
        let (data, start) = (Data::random(37, 3, 8, 12), net.zero_state(3));
        let (steps, after_steps) = in_chunks(&net, &data, &start, &[1; 37]);
        let (whole, after) = in_chunks(&net, &data, &start, &[37]);
        near("y", &steps, &whole, 1e-5);
        near_states("state", &after_steps, &after, 1e-5);
    }
}

/// The fast scan equals the plain loop for the case's lengths, in outputs and gradients, on every code path.
pub fn bn_2_fast_scan_equals_the_plain_loop() {
    let lengths = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000];
    for (i, time) in lengths.into_iter().enumerate() {
        for (mut scan, reset) in Scan::either(time, 2, 19, 16, 20 + i as u64)
            .into_iter()
            .flat_map(|scan| [(scan.clone(), None), (scan, Some(resets(2 * time, 6, 3)))])
        {
            scan.reset = reset;
            let (y, h) = scan.naive();
            let plain = scan.run(&Cpu::<f64>::default());
            close("plain y", &plain[0].1, &y, 1e-12);
            close("plain h", &plain[1].1, &h, 1e-12);
            for dev in paths() {
                for ((name, fast), (_, plain)) in scan.run(&dev).iter().zip(&plain) {
                    let tolerance = if name.starts_with("g_") { 1e-4 } else { 1e-5 };
                    close(&format!("{name} at length {time}, {:?}", dev.isa()), fast, plain, tolerance);
                }
            }
        }
    }
}

/// Odd sizes run and agree with f64, outputs and gradients; sizes beyond the limits are refused by name.
pub fn bn_5_odd_sizes_run_or_are_refused() {
    for d_model in [1, 3, 7, 20, 33] {
        for (d_state, rotate) in [1, 5, 16, 64, 256, 257]
            .map(|n| (n, Rotate::Off))
            .into_iter()
            .chain([2, 10, 16, 64, 256, 258].map(|n| (n, Rotate::Learned)))
        {
            let config = rotating(mamba(2, d_model, 1, d_state, 4), rotate);
            let (single, double) = (Net::<f32>::new(&config, 5), Net::<f64>::new(&config, 5));
            for batch in [1, 2, 3] {
                for time in 1..=9 {
                    let data = Data::random(time, batch, 2, (d_model * d_state + 10 * batch + time) as u64);
                    let start = single.random_state(batch, 1);
                    let g_y = random(&mut rng(2), time * batch * d_model, 1.0);
                    let (a, b) = (
                        single.gradients(&data, &start, &g_y, Some(&start)),
                        double.gradients(&data, &start, &g_y, Some(&start)),
                    );
                    let what = format!("d_model {d_model} d_state {d_state} {rotate:?} batch {batch} length {time}");
                    near(&what, &a.y, &b.y, 1e-4);
                    near_states(&what, &a.state_out, &b.state_out, 1e-4);
                    near(&what, &a.x, &b.x, 1e-4);
                    near(&what, &a.params, &b.params, 1e-4);
                    near_states(&what, &a.state, &b.state, 1e-4);
                }
            }
        }
    }
    let refused = |change: fn(&mut MambaConfig)| {
        let mut c = MambaConfig::default();
        change(&mut c);
        c.validate().unwrap_err().to_string()
    };
    let text = refused(|c| c.d_state = 1025);
    assert!(text.contains("backbone.d_state") && text.contains("1025") && text.contains("1024"), "{text}");
    let text = refused(|c| c.d_conv = 129);
    assert!(text.contains("backbone.d_conv") && text.contains("129") && text.contains("128"), "{text}");
    let text = refused(|c| (c.d_state, c.rotate) = (15, Rotate::Fixed));
    assert!(text.contains("backbone.d_state") && text.contains("15") && text.contains("backbone.rotate"), "{text}");
    assert!(refused(|c| c.d_model = 0).contains("backbone.d_model"));
    assert!(refused(|c| c.dt_min = f32::NAN).contains("backbone.dt_min"));
    assert!(refused(|c| c.dt_max = 1e-4).contains("backbone.dt_max"));
    assert!(refused(|c| c.rms_eps = 0.0).contains("backbone.rms_eps"));
}

/// The convolution has the input's length; later inputs never change earlier outputs by a bit.
pub fn bn_6_lengths_and_causality() {
    for d_conv in [2, 4, 7] {
        for time in 1..=d_conv + 3 {
            let conv = Conv::random(time, 2, 5, d_conv, 1);
            assert_eq!(conv.run(&Cpu::new())[0].1.len(), time * 2 * 5);
            for cpu in paths() {
                let rotate = if time % 2 == 0 { Rotate::Learned } else { Rotate::Off };
                let net = Net::<f32>::on(cpu, &rotating(mamba(3, 20, 2, 6, d_conv), rotate), 7);
                let (data, start) = (Data::random(time, 2, 3, 8), net.random_state(2, 9));
                let whole = net.unroll(&data, &mut start.clone());
                for t in 0..time - 1 {
                    let mut other = data.clone();
                    let mut r = rng(t as u64);
                    other.x[(t + 1) * 2 * 3..].iter_mut().for_each(|x| *x = f64::from(r.random_range(-9.0f32..9.0)));
                    let y = net.unroll(&other, &mut start.clone());
                    let until = (t + 1) * 2 * 20;
                    let bits = |y: &[f64]| y[..until].iter().map(|y| y.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&y), bits(&whole), "d_conv {d_conv} length {time} step {t}");
                    assert_ne!(y[until..], whole[until..]);
                }
            }
        }
    }
}

/// softplus(dt bias) in [dt_min, dt_max], A = −1..−d_state in every row, D all ones.
pub fn bn_7_special_parameters_start_as_they_should() {
    use mamba_rl::params::ParamLayout;
    let config = MambaConfig { d_input: 4, d_model: 48, n_layers: 2, ..MambaConfig::default() };
    let body = mamba_rl::backbone::build::<Cpu>(&BackboneConfig::Mamba(config)).unwrap();
    let layout = ParamLayout::new(body.parameters()).unwrap();
    let values = layout.initial(&mut rng(3));
    for layer in 0..2 {
        let part = |name: &str| &values[layout.slot(&format!("backbone.layers.{layer}.mixer.{name}")).unwrap().range()];
        let steps: Vec<f64> = part("dt_proj.bias").iter().map(|&b| f64::from(b).exp().ln_1p()).collect();
        assert!(steps.iter().all(|d| (0.000_999..=0.1001).contains(d)), "{steps:?}");
        // spread over the whole range, not one value
        assert!(steps.iter().any(|d| *d < 0.005) && steps.iter().any(|d| *d > 0.02));
        for row in part("A_log").chunks(16) {
            row.iter()
                .zip(1..)
                .for_each(|(a, n)| assert!((f64::from(a.exp()) - f64::from(n)).abs() < 1e-5 * f64::from(n)));
        }
        assert!(part("D").iter().all(|&d| d == 1.0));
        let out = part("out_proj.weight");
        let bound = (96.0f32 * 2.0).sqrt().recip();
        assert!(out.iter().all(|w| w.abs() <= bound) && out.iter().any(|w| w.abs() > 0.9 * bound));
    }
    rotating_parameters_start_as_they_should();
}

/// A = −½; θ[m, e] = π (m + perm(e) / d_inner) / pairs: all different, each pair its own band of (0, π), every run the same.
fn rotating_parameters_start_as_they_should() {
    use mamba_rl::params::ParamLayout;
    let angles = |rotate, seed| {
        let config = rotating(mamba(4, 48, 2, 16, 4), rotate);
        let body = mamba_rl::backbone::build::<Cpu>(&config).unwrap();
        let layout = ParamLayout::new(body.parameters()).unwrap();
        let values = layout.initial(&mut rng(seed));
        let part = |layer: usize, name: &str| {
            let name = format!("backbone.layers.{layer}.mixer.{name}");
            let entry = layout.entry(&name).unwrap();
            let shape: &[usize] = if name.ends_with("theta") { &[8, 96] } else { &[96, 8] };
            assert_eq!(entry.spec.shape, shape);
            values[entry.slot.range()].to_vec()
        };
        for layer in 0..2 {
            assert!(part(layer, "A_log").iter().all(|&a| (a.exp() - 0.5).abs() < 1e-7));
        }
        [part(0, "theta"), part(1, "theta")]
    };
    let first = angles(Rotate::Learned, 1);
    assert_eq!(first, angles(Rotate::Fixed, 2), "another run has other angles");
    assert_ne!(first[0], first[1], "both layers have one permutation");
    for theta in first {
        for (m, row) in theta.chunks(96).enumerate() {
            let place = |t: f32| (f64::from(t) / std::f64::consts::PI * 8.0 - m as f64) * 96.0;
            let perm: Vec<f64> = row.iter().map(|&t| place(t)).collect();
            assert!(perm.iter().all(|p| (p - p.round()).abs() < 1e-3), "{perm:?}");
            let mut sorted: Vec<i64> = perm.iter().map(|p| p.round() as i64).collect();
            assert_ne!(sorted, (0..96).collect::<Vec<_>>(), "the channels stand in order");
            sorted.sort_unstable();
            assert_eq!(sorted, (0..96).collect::<Vec<_>>());
            // one permutation for all pairs
            assert!(theta[..96].iter().zip(row).all(|(a, b)| (b - a - row_start(m)).abs() < 1e-6));
        }
    }
    fn row_start(m: usize) -> f32 {
        (std::f64::consts::PI * m as f64 / 8.0) as f32
    }
}

/// Chunks with the state carried equal the whole; other rows' states are not touched.
pub fn sh_1_chunks_equal_the_whole() {
    for config in [
        mamba(5, 24, 2, 16, 4),
        rotating(mamba(5, 24, 2, 16, 4), Rotate::Learned),
        BackboneConfig::Gru(RnnConfig { d_input: 5, d_model: 16, n_layers: 2 }),
        BackboneConfig::Lstm(RnnConfig { d_input: 5, d_model: 16, n_layers: 2 }),
    ] {
        let net = Net::<f32>::new(&config, 21);
        let (mut data, start) = (Data::random(50, 3, 5, 22), net.random_state(3, 23));
        for reset in [None, Some(resets(150, 9, 24))] {
            data.reset = reset;
            let (whole, after) = in_chunks(&net, &data, &start, &[50]);
            let mut plans = vec![vec![1, 1, 1, 2, 3, 42]];
            let mut r = rng(25);
            for _ in 0..10 {
                let mut plan = vec![];
                while plan.iter().sum::<usize>() < 50 {
                    let left = 50 - plan.iter().sum::<usize>();
                    plan.push(r.random_range(1..=left.min(12)));
                }
                plans.push(plan);
            }
            for plan in plans {
                let (y, state) = in_chunks(&net, &data, &start, &plan);
                close(&format!("y of {plan:?}"), &y, &whole, 1e-5);
                state.iter().zip(&after).for_each(|(a, b)| close(&format!("state of {plan:?}"), a, b, 1e-5));
            }
        }
    }
    both(mamba(5, 24, 1, 16, 4)).iter().for_each(three_steps);
}

fn three_steps(config: &BackboneConfig) {
    let net = Net::<f32>::new(config, 26);
    let (data, start) = (Data::random(3, 2, 5, 27), net.random_state(2, 28));
    let ((a, a_state), (b, b_state)) =
        (in_chunks(&net, &data, &start, &[1, 1, 1]), in_chunks(&net, &data, &start, &[3]));
    close("three of one", &a, &b, 1e-5);
    a_state.iter().zip(&b_state).for_each(|(a, b)| close("state of three of one", a, b, 1e-5));
    // a row's numbers do not depend on what the others hold
    let mut other = start.clone();
    for part in &mut other {
        let row = part.len() / 2;
        part[..row].iter_mut().for_each(|x| *x = 7.5);
    }
    let (y, state) = in_chunks(&net, &data, &other, &[3]);
    let second = |y: &[f64]| y.chunks(24).skip(1).step_by(2).flatten().copied().collect::<Vec<_>>();
    assert_eq!(second(&y), second(&b));
    state.iter().zip(&b_state).for_each(|(a, b)| assert_eq!(a[a.len() / 2..], b[b.len() / 2..]));
}

/// Central differences confirm the gradients of start state and inputs, in f64 and f32; burn-in passes none.
pub fn sh_2_gradient_of_the_start_state() {
    both(mamba(3, 6, 2, 4, 4)).iter().for_each(start_state);
}

fn start_state(config: &BackboneConfig) {
    let (net, single) = (Net::<f64>::new(config, 31), Net::<f32>::new(config, 31));
    let (data, start) = (Data::random(7, 2, 3, 32), net.random_state(2, 33));
    let w = random(&mut rng(34), 7 * 2 * 6, 1.0);
    let w_state = net.random_state(2, 35);
    let loss = |data: &Data, start: &HostState| {
        let mut state = start.clone();
        let y = net.unroll(data, &mut state);
        dot(&w, &y) + state.iter().zip(&w_state).map(|(s, w)| dot(s, w)).sum::<f64>()
    };
    let g = net.gradients(&data, &start, &w, Some(&w_state));
    let s = single.gradients(&data, &start, &w, Some(&w_state));
    for p in 0..start.len() {
        central("start state", &start[p], &g.state[p], 1e-6, |x| {
            let mut moved = start.clone();
            moved[p] = x.to_vec();
            loss(&data, &moved)
        });
        close("start state in f32", &s.state[p], &g.state[p], 1e-3);
    }
    central("inputs", &data.x, &g.x, 1e-6, |x| loss(&Data { x: x.to_vec(), ..data.clone() }, &start));
    close("inputs in f32", &s.x, &g.x, 1e-3);
    // burn-in of 3: its end state is that of a plain pass, and the learnt part starts from it as a constant
    let mut burnt = start.clone();
    single.unroll(&data.steps(0, 3), &mut burnt);
    let (_, plain) = in_chunks(&single, &data.steps(0, 3), &start, &[3]);
    assert_eq!(burnt, plain);
    let (whole, _) = in_chunks(&single, &data, &start, &[7]);
    let learnt = single.gradients(&data.steps(3, 7), &burnt, &w[3 * 12..], None);
    close("outputs after burn-in", &learnt.y, &whole[3 * 12..], 1e-5);
}

/// Rows of true length 3, 9, 17 together equal the rows alone, whatever the padding holds.
pub fn sh_3_padding_never_matters() {
    let (lengths, time, d) = ([3usize, 9, 17], 17, 4);
    let gru = BackboneConfig::Gru(RnnConfig { d_input: d, d_model: 12, n_layers: 2 });
    for config in [mamba(d, 12, 2, 5, 4), rotating(mamba(d, 12, 2, 6, 4), Rotate::Learned), gru] {
        let net = Net::<f32>::new(&config, 41);
        let mut data = Data::random(time, 3, d, 42);
        let real = |t: usize, b: usize| t < lengths[b];
        data.valid = Some((0..time * 3).map(|row| u8::from(real(row / 3, row % 3))).collect());
        let mut w = random(&mut rng(43), time * 3 * 12, 1.0);
        w.chunks_mut(12).enumerate().filter(|(row, _)| !real(row / 3, row % 3)).for_each(|(_, w)| w.fill(0.0));
        let start = net.random_state(3, 44);
        let with_padding = |fill: f64| {
            let mut data = data.clone();
            let pads = data.x.chunks_mut(d).enumerate().filter(|(row, _)| !real(row / 3, row % 3));
            pads.for_each(|(_, x)| x.fill(fill));
            net.gradients(&data, &start, &w, None)
        };
        let zero = with_padding(0.0);
        for fill in [1e6, f64::NAN] {
            let other = with_padding(fill);
            assert_eq!((&other.y, &other.params, &other.x), (&zero.y, &zero.params, &zero.x));
        }
        let mut params = vec![0.0; zero.params.len()];
        for (b, &length) in lengths.iter().enumerate() {
            let alone = Data { valid: None, ..data.row(b).steps(0, length) };
            let state = start.iter().map(|s| s[b * s.len() / 3..(b + 1) * s.len() / 3].to_vec()).collect();
            let pick = |x: &[f64], width: usize| {
                (0..length).flat_map(|t| x[(t * 3 + b) * width..][..width].to_vec()).collect::<Vec<_>>()
            };
            let g = net.gradients(&alone, &state, &pick(&w, 12), None);
            close("outputs", &pick(&zero.y, 12), &g.y, 1e-5);
            close("input gradients", &pick(&zero.x, d), &g.x, 1e-5);
            for (to, from) in zero.state.iter().zip(&g.state) {
                close("state gradients", &to[b * from.len()..(b + 1) * from.len()], from, 1e-5);
            }
            params.iter_mut().zip(&g.params).for_each(|(sum, g)| *sum += g);
        }
        close("parameter gradients", &zero.params, &params, 1e-5);
    }
}
