//! LSTM and GRU over a sequence.

use mamba_rl::device::{Kind, Precision};
use mamba_rl::ops::Backend;
use mamba_rl::ops::recurrent::{Cell, RecurrentGrad, RecurrentIn, RecurrentOut, RecurrentShape};

use super::net::{random, rng};
use super::oracle::{Named, resets};
use super::places::{Bench, F32, PRECISIONS, bits, cuda, reference, same};

/// Inputs in the order gx, w_hh, b_hh, h, c, g_y, g_h, g_c.
struct Case {
    s: RecurrentShape,
    x: [Vec<f64>; 8],
    reset: Option<Vec<u8>>,
}

impl Case {
    fn random(cell: Cell, time: usize, batch: usize, hidden: usize) -> Self {
        let s = RecurrentShape { cell, time, batch, hidden };
        let (mut r, rows, state) = (rng((time * hidden) as u64), time * batch, batch * hidden);
        let w = (hidden as f32).sqrt().recip();
        let x = [
            random(&mut r, rows * s.width(), 2.0),
            random(&mut r, s.width() * hidden, w),
            random(&mut r, s.width(), w),
            random(&mut r, state, 1.0),
            random(&mut r, state, 1.0),
            random(&mut r, rows * hidden, 1.0),
            random(&mut r, state, 1.0),
            random(&mut r, state, 1.0),
        ];
        Case { s, x, reset: None }
    }
}

fn run<D: Backend>(bench: &Bench<D>, case: &Case) -> Named {
    let (s, dev, lstm) = (case.s, &bench.0, case.s.cell == Cell::Lstm);
    let [gx, w, b, mut h, mut c, g_y, g_h_out, g_c_out] = case.x.each_ref().map(|x| bench.full(x));
    let mask = case.reset.as_ref().map(|r| bench.mask(r));
    let x = || RecurrentIn {
        gx: gx.view(),
        w_hh: w.view(),
        b_hh: b.view(),
        reset: mask.as_ref().map(|m| bits(m, s.time * s.batch)),
    };
    let (mut y, mut tape) = (bench.unset(g_y.len, Kind::Small), bench.unset(s.tape_len(), Kind::Full));
    let mut scratch = bench.unset(D::recurrent_scratch(s, true), Kind::Full);
    let out = RecurrentOut {
        y: y.out(),
        h: h.out(),
        c: lstm.then(|| c.out()),
        tape: Some(tape.out()),
        scratch: scratch.out(),
    };
    dev.recurrent(s, x(), out).unwrap_or_else(|e| panic!("{e}"));
    let mut named = vec![("y", bench.get(&y)), ("h", bench.get(&h))];
    if lstm {
        named.push(("c", bench.get(&c)));
    }
    let mut scratch = bench.unset(D::recurrent_scratch(s, true), Kind::Full);
    let mut g_gx = bench.unset(gx.len, Kind::Full);
    let [mut g_h, mut g_c] = [h.len; 2].map(|n| bench.unset(n, Kind::Full));
    let mut g_params = bench.full(&vec![0.5; w.len + b.len]);
    let (w_at, b_at) = (g_params.slot(0, w.len), g_params.slot(w.len, b.len));
    let grad = RecurrentGrad {
        tape: tape.view(),
        g_y: g_y.view(),
        g_h_out: Some(g_h_out.view()),
        g_c_out: lstm.then(|| g_c_out.view()),
        g_gx: g_gx.out(),
        g_h: Some(g_h.out()),
        g_c: lstm.then(|| g_c.out()),
        g_params: &mut g_params.buf,
        w_hh: w_at,
        b_hh: b_at,
        scratch: scratch.out(),
    };
    dev.recurrent_bwd(s, x(), grad).unwrap_or_else(|e| panic!("{e}"));
    named.extend([("g_gx", bench.get(&g_gx)), ("g_h", bench.get(&g_h)), ("g_params", bench.get(&g_params))]);
    if lstm {
        named.push(("g_c", bench.get(&g_c)));
    }
    named
}

#[test]
fn cells_at_awkward_sizes() {
    for cell in [Cell::Lstm, Cell::Gru] {
        for (time, batch, hidden) in [(1, 1, 1), (5, 3, 31), (7, 1, 33), (2, 2, 65), (40, 2, 5)] {
            let mut case = Case::random(cell, time, batch, hidden);
            let bench = Bench(cuda(Precision::F32));
            same(&format!("{:?}", case.s), &run(&bench, &case), &run(&reference(), &case), F32);
            case.reset = Some(resets(time * batch, 4, 6));
            same(&format!("{:?}, resets", case.s), &run(&bench, &case), &run(&reference(), &case), F32);
        }
    }
}

#[test]
fn cells_in_16_bits() {
    for (precision, tolerance) in PRECISIONS {
        for cell in [Cell::Lstm, Cell::Gru] {
            let case = Case::random(cell, 6, 2, 35);
            same(&format!("{precision}"), &run(&Bench(cuda(precision)), &case), &run(&reference(), &case), tolerance);
        }
    }
}

/// NaN in the state does not pass a reset, and gates far out saturate.
#[test]
fn cells_clear_nan_and_saturate() {
    for cell in [Cell::Lstm, Cell::Gru] {
        let mut case = Case::random(cell, 4, 2, 9);
        case.x[3].fill(f64::NAN);
        case.x[4].fill(f64::INFINITY);
        case.x[0].iter_mut().for_each(|x| *x *= 60.0);
        case.reset = Some(vec![1, 1, 0, 0, 0, 0, 0, 0]);
        same(&format!("{cell:?}"), &run(&Bench(cuda(Precision::F32)), &case), &run(&reference(), &case), F32);
    }
}
