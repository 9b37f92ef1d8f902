//! The causal convolution.

use mamba_rl::Error;
use mamba_rl::device::{Kind, Precision};
use mamba_rl::ops::Backend;
use mamba_rl::ops::causal_conv1d::{CausalConv1d, ConvGrad, ConvIn, ConvOut};

use super::oracle::{Conv, Named, resets};
use super::places::{Bench, F32, PRECISIONS, bits, cuda, reference, same, stored};

/// What may be left out of a call.
#[derive(Clone, Copy)]
struct Ends {
    g_window_out: bool,
    g_window: bool,
}

const ALL: Ends = Ends { g_window_out: true, g_window: true };

fn run<D: Backend>(bench: &Bench<D>, conv: &Conv, ends: Ends) -> Named {
    let (s, dev, n) = (conv.s, &bench.0, conv.g_u.len());
    let (x, w, saved) = (bench.full(&conv.x), bench.full(&conv.w), bench.small(&conv.x));
    let bias = conv.bias.as_ref().map(|b| bench.full(b));
    let mask = conv.reset.as_ref().map(|r| bench.mask(r));
    let input = |small: bool| ConvIn {
        x: if small { saved.view() } else { x.view() },
        w: w.view(),
        b: bias.as_ref().map(|b| b.view()),
        reset: mask.as_ref().map(|m| bits(m, s.time * s.batch)),
    };
    let (mut u, mut pre) = (bench.unset(n, Kind::Full), bench.unset(n, Kind::Small));
    let (mut window, mut kept) = (bench.full(&conv.window), bench.unset(conv.window.len(), Kind::Full));
    let mut scratch = bench.unset(D::conv_scratch(s, true), Kind::Full);
    let out = ConvOut {
        u: u.out(),
        pre: Some(pre.out()),
        window: window.out(),
        window_tape: Some(kept.out()),
        scratch: scratch.out(),
    };
    dev.causal_conv1d(s, input(false), out).unwrap_or_else(|e| panic!("{e}"));
    let bits_of = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits_of(&bench.get(&kept)), bits_of(&conv.window));
    let mut named = vec![("u", bench.get(&u)), ("window", bench.get(&window))];
    // without a tape: the same
    let (mut again, mut moved) = (bench.unset(n, Kind::Full), bench.full(&conv.window));
    let mut few = bench.unset(D::conv_scratch(s, false), Kind::Full);
    let out = ConvOut { u: again.out(), pre: None, window: moved.out(), window_tape: None, scratch: few.out() };
    dev.causal_conv1d(s, input(false), out).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(bits_of(&bench.get(&again)), bits_of(&named[0].1));
    assert_eq!(bits_of(&bench.get(&moved)), bits_of(&named[1].1));

    let (g_u, g_window_out) = (bench.full(&conv.g_u), bench.full(&conv.g_window));
    // the second half of the rows is the gate's
    let mut g_x = bench.full(&vec![5.0; conv.x.len()]);
    let mut g_window = bench.unset(conv.window.len(), Kind::Full);
    let before: Vec<f64> = (0..w.len + s.d_inner).map(|i| (i % 5) as f64 * 0.5).collect();
    let mut g_params = bench.full(&before);
    let (w_at, b_at) = (g_params.slot(0, w.len), g_params.slot(w.len, s.d_inner));
    let grad = ConvGrad {
        pre: pre.view(),
        window: kept.view(),
        g_u: g_u.view(),
        g_window_out: ends.g_window_out.then(|| g_window_out.view()),
        g_x: g_x.out(),
        g_window: ends.g_window.then(|| g_window.out()),
        g_params: &mut g_params.buf,
        w: w_at,
        b: bias.as_ref().map(|_| b_at),
        scratch: scratch.out(),
    };
    dev.causal_conv1d_bwd(s, input(true), grad).unwrap_or_else(|e| panic!("{e}"));
    let g_x = bench.get(&g_x);
    assert!(g_x.chunks(s.stride).all(|row| row[s.d_inner..].iter().all(|&x| x == 5.0)), "the gate's half was written");
    let g_x = g_x.chunks(s.stride).flat_map(|row| row[..s.d_inner].to_vec()).collect();
    named.push(("g_x", g_x));
    if ends.g_window {
        named.push(("g_window", bench.get(&g_window)));
    }
    let all = bench.get(&g_params);
    let added = |range: std::ops::Range<usize>| range.map(|i| all[i] - before[i]).collect::<Vec<_>>();
    named.push(("g_w", added(0..w.len)));
    named.push(("g_b", added(w.len..all.len())));
    named
}

/// time, batch, d_inner, d_conv.
fn conv(sizes: [usize; 4], precision: Precision) -> Conv {
    let [time, batch, d_inner, d_conv] = sizes;
    let mut conv = Conv::random(time, batch, d_inner, d_conv, (time + d_conv) as u64);
    conv.x = stored(&conv.x, precision);
    conv
}

fn check(sizes: [usize; 4], every: Option<u32>, precision: Precision, tolerance: [f64; 2], ends: Ends) {
    let mut conv = conv(sizes, precision);
    conv.reset = every.map(|every| resets(sizes[0] * sizes[1], every, 3));
    if sizes[3] == 3 {
        conv.bias = None;
    }
    let what = format!("{sizes:?} {precision}, resets {every:?}");
    same(&what, &run(&Bench(cuda(precision)), &conv, ends), &run(&reference(), &conv, ends), tolerance);
}

#[test]
fn conv_at_awkward_sizes() {
    for d_conv in [1, 2, 3, 4, 64, 128] {
        for sizes in [[1, 2, 5], [31, 1, 33], [33, 2, 31], [66, 1, 3]] {
            let sizes = [sizes[0], sizes[1], sizes[2], d_conv];
            check(sizes, None, Precision::F32, F32, ALL);
            check(sizes, Some(9), Precision::F32, F32, ALL);
        }
    }
}

/// More items than shares: a block walks several tiles and rows.
#[test]
fn conv_with_many_rows() {
    check([3, 70, 31, 4], Some(5), Precision::F32, F32, ALL);
    check([40, 40, 1, 2], None, Precision::F32, F32, ALL);
    check([2, 1, 257, 4], None, Precision::F32, F32, ALL);
}

#[test]
fn conv_in_16_bits() {
    for (precision, tolerance) in PRECISIONS {
        for d_conv in [4, 31] {
            check([37, 2, 33, d_conv], Some(12), precision, tolerance, ALL);
        }
    }
}

#[test]
fn conv_without_what_may_be_left_out() {
    for ends in [
        Ends { g_window_out: false, ..ALL },
        Ends { g_window: false, ..ALL },
        Ends { g_window_out: false, g_window: false },
    ] {
        check([5, 2, 4, 7], Some(6), Precision::F32, F32, ends);
    }
}

/// NaN in the window does not pass a reset at step 0, nor inf in the inputs one in the middle.
#[test]
fn conv_clears_nan_at_resets() {
    let (bench, plain) = (Bench(cuda(Precision::F32)), reference());
    for d_conv in [2, 4, 40] {
        let mut poisoned = conv([6, 2, 3, d_conv], Precision::F32);
        let mut early = poisoned.clone();
        poisoned.window.fill(f64::NAN);
        poisoned.reset = Some((0..12).map(|row| u8::from(row < 2)).collect());
        same("after a reset", &run(&bench, &poisoned, ALL), &run(&plain, &poisoned, ALL), F32);
        early.x[..2 * early.s.stride].fill(f64::INFINITY);
        early.reset = Some((0..12).map(|row| u8::from(row / 2 == 2)).collect());
        let (got, want) = (run(&bench, &early, ALL), run(&plain, &early, ALL));
        let after = |x: &[f64]| x[2 * 2 * 3..].to_vec();
        super::net::close("u after the reset", &after(&got[0].1), &after(&want[0].1), F32[0]);
        super::net::close("window", &got[1].1, &want[1].1, F32[0]);
        super::net::close("g_x after the reset", &after(&got[2].1), &after(&want[2].1), F32[1]);
    }
}

#[test]
fn conv_refuses_more_taps_than_a_block_holds() {
    let (bench, conv) = (Bench(cuda(Precision::F32)), conv([1, 1, 1, 129], Precision::F32));
    let (x, w) = (bench.small(&conv.x), bench.full(&conv.w));
    let (mut u, mut window, mut scratch) = (bench.full(&[0.0]), bench.full(&conv.window), bench.full(&[]));
    let out = ConvOut { u: u.out(), pre: None, window: window.out(), window_tape: None, scratch: scratch.out() };
    let e = bench.0.causal_conv1d(conv.s, ConvIn { x: x.view(), w: w.view(), b: None, reset: None }, out).unwrap_err();
    assert!(matches!(e, Error::Kernel { .. }) && e.to_string().contains("128") && e.to_string().contains("129"), "{e}");
}
