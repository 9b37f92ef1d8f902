//! The selective scan and the rotating scan, each in both forms.

use mamba_rl::Error;
use mamba_rl::device::{Kind, Precision};
use mamba_rl::ops::Backend;
use mamba_rl::ops::rotating_scan::{RotatingGrad, RotatingIn};
use mamba_rl::ops::selective_scan::{ScanGrad, ScanIn, ScanOut, SelectiveScan};

use super::net::{random, rng};
use super::oracle::{Named, Scan, resets};
use super::places::{Bench, F32, PRECISIONS, Place, bits, cuda, open, reference, same, stored};

/// What may be left out of a call.
#[derive(Clone, Copy)]
struct Ends {
    g_h_out: bool,
    g_h: bool,
    g_theta: bool,
    tape: bool,
}

const ALL: Ends = Ends { g_h_out: true, g_h: true, g_theta: true, tape: true };

/// A scan; one that rotates where there are angles [d_state / 2, d_inner].
#[derive(Clone)]
struct Case {
    scan: Scan,
    theta: Option<Vec<f64>>,
}

fn run<D: Backend>(bench: &Bench<D>, case: &Case, ends: Ends) -> Named {
    let (scan, s, dev) = (&case.scan, case.scan.s, &bench.0);
    let theta = case.theta.as_ref().map(|t| bench.full(t));
    let angles = |theta: &Option<Place<D>>| theta.as_ref().map_or(0, |t| t.len);
    let [delta, q, a_log, d_skip] = [&scan.delta, &scan.q, &scan.a_log, &scan.d_skip].map(|x| bench.full(x));
    let (u, saved) = (bench.full(&scan.u), bench.small(&scan.u));
    let mask = scan.reset.as_ref().map(|r| bench.mask(r));
    let x = |small: bool| ScanIn {
        u: if small { saved.view() } else { u.view() },
        delta: delta.view(),
        q: q.view(),
        a_log: a_log.view(),
        d_skip: d_skip.view(),
        reset: mask.as_ref().map(|m| bits(m, s.time * s.batch)),
    };
    let (mut y, mut h) = (bench.unset(u.len, Kind::Full), bench.full(&scan.h));
    let mut tape = bench.unset(s.tape_len(), Kind::Full);
    let room = |train| if theta.is_some() { D::rotating_scratch(s, train) } else { D::scan_scratch(s, train) };
    let mut scratch = bench.unset(room(ends.tape), Kind::Full);
    let out = ScanOut { y: y.out(), h: h.out(), h_tape: ends.tape.then(|| tape.out()), scratch: scratch.out() };
    let done = match &theta {
        Some(theta) => dev.rotating_scan(s, RotatingIn { scan: x(false), theta: theta.view() }, out),
        None => dev.selective_scan(s, x(false), out),
    };
    done.unwrap_or_else(|e| panic!("{e}"));
    let mut named = vec![("y", bench.get(&y)), ("h", bench.get(&h))];
    if !ends.tape {
        return named;
    }
    let mut scratch = bench.unset(room(true), Kind::Full);
    let (g_y, g_h_out) = (bench.full(&scan.g_y), bench.full(&scan.g_h));
    let [mut g_u, mut g_delta] = [u.len; 2].map(|n| bench.unset(n, Kind::Full));
    let mut g_h = bench.unset(h.len, Kind::Full);
    // the columns of the step size are not the scan's
    let mut g_q = bench.full(&vec![5.0; q.len]);
    let before: Vec<f64> = (0..a_log.len + d_skip.len + angles(&theta)).map(|i| (i % 7) as f64 * 0.25).collect();
    let mut g_params = bench.full(&before);
    let (a_at, d_at) = (g_params.slot(0, a_log.len), g_params.slot(a_log.len, d_skip.len));
    let theta_at = g_params.slot(a_log.len + d_skip.len, angles(&theta));
    let grad = ScanGrad {
        h_tape: tape.view(),
        g_y: g_y.view(),
        g_h_out: ends.g_h_out.then(|| g_h_out.view()),
        g_u: g_u.out(),
        g_delta: g_delta.out(),
        g_q: g_q.out(),
        g_h: ends.g_h.then(|| g_h.out()),
        g_params: &mut g_params.buf,
        a_log: a_at,
        d_skip: d_at,
        scratch: scratch.out(),
    };
    let done = match &theta {
        Some(theta) => {
            let grad = RotatingGrad { scan: grad, theta: ends.g_theta.then_some(theta_at) };
            dev.rotating_scan_bwd(s, RotatingIn { scan: x(true), theta: theta.view() }, grad)
        }
        None => dev.selective_scan_bwd(s, x(true), grad),
    };
    done.unwrap_or_else(|e| panic!("{e}"));
    let g_q = bench.get(&g_q);
    let own = g_q.chunks(s.width()).all(|row| row[..s.dt_rank].iter().all(|&x| x == 5.0));
    assert!(own, "columns of q that are not the scan's were written");
    named.extend([("g_u", bench.get(&g_u)), ("g_delta", bench.get(&g_delta)), ("g_q", g_q)]);
    if ends.g_h {
        named.push(("g_h", bench.get(&g_h)));
    }
    let all = bench.get(&g_params);
    let added = |range: std::ops::Range<usize>| range.map(|i| all[i] - before[i]).collect::<Vec<_>>();
    named.push(("g_a_log", added(0..a_log.len)));
    named.push(("g_d", added(a_log.len..a_log.len + d_skip.len)));
    named.push(("g_theta", added(a_log.len + d_skip.len..all.len())));
    named
}

/// A scan whose small inputs are as the device stores them.
fn case(sizes: [usize; 4], precision: Precision) -> Case {
    let [time, batch, d_inner, d_state] = sizes;
    let mut scan = Scan::random(time, batch, d_inner, d_state, (time + d_state) as u64);
    scan.u = stored(&scan.u, precision);
    Case { scan, theta: None }
}

/// The same with angles all around, where d_state is even.
fn rotating(case: &Case) -> Option<Case> {
    let (mut scan, s) = (case.scan.clone(), case.scan.s);
    scan.a_log.truncate(s.d_inner * s.d_state / 2);
    let theta = random(&mut rng(s.d_inner as u64), s.d_inner * s.d_state / 2, std::f32::consts::PI);
    (s.d_state % 2 == 0).then_some(Case { scan, theta: Some(theta) })
}

/// The case, and the case that rotates.
fn both(case: Case) -> Vec<Case> {
    let turned = rotating(&case);
    [Some(case), turned].into_iter().flatten().collect()
}

fn check(sizes: [usize; 4], every: Option<u32>, precision: Precision, tolerance: [f64; 2], ends: Ends) {
    let mut plain = case(sizes, precision);
    plain.scan.reset = every.map(|every| resets(sizes[0] * sizes[1], every, 2));
    for case in both(plain) {
        let got = run(&Bench(cuda(precision)), &case, ends);
        let what = format!("{sizes:?} {precision}, resets {every:?}, rotating {}", case.theta.is_some());
        same(&what, &got, &run(&reference(), &case, ends), tolerance);
    }
}

#[test]
fn scan_at_awkward_sizes() {
    for sizes in [[1, 1, 1, 1], [2, 3, 31, 3], [9, 2, 33, 16], [8, 1, 255, 4], [3, 1, 257, 5], [7, 65, 1, 2]] {
        check(sizes, None, Precision::F32, F32, ALL);
        check(sizes, Some(4), Precision::F32, F32, ALL);
    }
}

#[test]
fn scan_with_many_states() {
    for sizes in [[10, 2, 5, 17], [9, 1, 33, 64], [17, 1, 9, 128], [11, 2, 37, 256]] {
        check(sizes, Some(5), Precision::F32, F32, ALL);
    }
}

#[test]
fn scan_in_16_bits() {
    for (precision, tolerance) in PRECISIONS {
        check([19, 2, 33, 16], Some(6), precision, tolerance, ALL);
        check([129, 1, 9, 20], Some(40), precision, tolerance, ALL);
    }
}

/// Chunks of T side by side: tails, resets in some chunks, and at the first step of one.
#[test]
fn scan_in_chunks() {
    for (sizes, every) in [([128, 1, 33, 3], None), ([161, 2, 5, 16], Some(50)), ([130, 1, 3, 70], Some(9))] {
        check(sizes, every, Precision::F32, F32, ALL);
    }
    let mut plain = case([160, 1, 4, 6], Precision::F32);
    plain.scan.reset = Some((0..160).map(|t| u8::from(t == 64 || t == 95)).collect());
    for case in both(plain) {
        same("resets at the ends", &run(&Bench(cuda(Precision::F32)), &case, ALL), &run(&reference(), &case, ALL), F32);
    }
}

#[test]
fn scan_of_4096_steps() {
    check([4096, 1, 1, 2], Some(900), Precision::F32, F32, ALL);
}

/// The form follows the shape: chunks for 128 steps and more of at most 2048 channels.
#[test]
fn scan_chooses_its_form_by_shape() {
    let bench = Bench(open(Precision::F32));
    for (sizes, forward, backward) in
        [([127, 1, 3, 4], 1, 2), ([128, 1, 3, 4], 3, 4), ([128, 2, 1024, 1], 3, 4), ([128, 3, 683, 1], 1, 2)]
    {
        for case in both(case(sizes, Precision::F32)) {
            let kernels = |ends: Ends| {
                let before = bench.0.launches();
                run(&bench, &case, ends);
                bench.0.launches().since(before).kernels
            };
            let without_tape = kernels(Ends { tape: false, ..ALL });
            assert_eq!((without_tape, kernels(ALL) - without_tape), (forward, backward), "{sizes:?}");
        }
    }
}

#[test]
fn scan_without_what_may_be_left_out() {
    for sizes in [[9, 2, 5, 6], [140, 1, 5, 6]] {
        for ends in [
            Ends { g_h_out: false, ..ALL },
            Ends { g_h: false, ..ALL },
            Ends { g_h: false, g_h_out: false, ..ALL },
            Ends { g_theta: false, ..ALL },
            Ends { tape: false, ..ALL },
        ] {
            check(sizes, Some(7), Precision::F32, F32, ends);
        }
    }
}

/// Whatever the state before a reset held: NaN and inf do not pass it, forward or backward.
#[test]
fn scan_clears_nan_at_resets() {
    let (bench, plain) = (Bench(cuda(Precision::F32)), reference());
    for mut case in [[5, 2, 3, 4], [133, 2, 3, 4]].into_iter().flat_map(|sizes| both(case(sizes, Precision::F32))) {
        let (rows, start) = (case.scan.s.time * 2, case.scan.h.clone());
        for bad in [f64::NAN, f64::INFINITY] {
            case.scan.h.fill(bad);
            case.scan.reset = Some((0..rows).map(|row| u8::from(row < 2)).collect());
            same("after a reset", &run(&bench, &case, ALL), &run(&plain, &case, ALL), F32);
        }
        // and what came before a reset in the middle
        case.scan.h = start;
        case.scan.u[..2 * 2 * 3].fill(f64::NAN);
        case.scan.reset = Some((0..rows).map(|row| u8::from(row / 2 == 2)).collect());
        let (got, want) = (run(&bench, &case, ALL), run(&plain, &case, ALL));
        for k in [0, 2, 3] {
            super::net::close("after the reset", &got[k].1[2 * 2 * 3..], &want[k].1[2 * 2 * 3..], F32[1]);
        }
    }
}

/// Bit for bit: single steps and the whole in the sequential form; one call and the same call again in both.
#[test]
fn scan_repeats_its_bits() {
    let bench = Bench(cuda(Precision::F32));
    for whole in both(case([21, 2, 19, 14], Precision::F32)) {
        let results = run(&bench, &whole, ALL);
        let (mut h, mut y) = (whole.scan.h.clone(), vec![]);
        for t in 0..21 {
            let part = |x: &[f64]| x[t * x.len() / 21..(t + 1) * x.len() / 21].to_vec();
            let mut step = whole.clone();
            step.scan.s.time = 1;
            let (to, from) = (&mut step.scan, &whole.scan);
            (to.u, to.delta, to.q, to.h) = (part(&from.u), part(&from.delta), part(&from.q), h);
            let out = run(&bench, &step, Ends { tape: false, ..ALL });
            y.extend(&out[0].1);
            h = out[1].1.clone();
        }
        assert_eq!((&y, &h), (&results[0].1, &results[1].1));
        assert_eq!(run(&bench, &whole, ALL), results);
    }
    for long in both(case([140, 1, 40, 16], Precision::F32)) {
        assert_eq!(run(&bench, &long, ALL), run(&bench, &long, ALL));
    }
}

#[test]
fn scan_refuses_more_states_than_a_warp_holds() {
    let (bench, scan) = (Bench(cuda(Precision::F32)), case([1, 1, 1, 257], Precision::F32).scan);
    let input = [&scan.u, &scan.delta, &scan.q, &scan.a_log, &scan.d_skip].map(|x| bench.full(x));
    let [u, delta, q, a_log, d_skip] = input.each_ref().map(|p| p.view());
    let (mut y, mut h, mut scratch) = (bench.full(&[0.0]), bench.full(&scan.h), bench.full(&[]));
    let out = ScanOut { y: y.out(), h: h.out(), h_tape: None, scratch: scratch.out() };
    let e = bench.0.selective_scan(scan.s, ScanIn { u, delta, q, a_log, d_skip, reset: None }, out).unwrap_err();
    assert!(matches!(e, Error::Kernel { .. }) && e.to_string().contains("256") && e.to_string().contains("257"), "{e}");
}
