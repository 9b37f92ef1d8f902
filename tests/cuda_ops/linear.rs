//! The linear map: products of cuBLAS, the bias and its gradient.

use mamba_rl::device::{Kind, Precision};
use mamba_rl::ops::Backend;
use mamba_rl::ops::linear::{LinearGrad, LinearIn, LinearShape};

use super::net::{close, random, rng};
use super::oracle::Named;
use super::places::{Bench, PRECISIONS, cuda, reference, same, stored};

fn run<D: Backend>(bench: &Bench<D>, s: LinearShape, [x, w, b, g]: [&[f64]; 4], kind: Kind) -> Named {
    let (dev, n) = (&bench.0, s.rows * s.d_out);
    let (x, w, b, g) = (bench.put(x, kind), bench.full(w), bench.full(b), bench.put(g, kind));
    let input = || LinearIn { x: x.view(), w: w.view(), b: Some(b.view()) };
    let (mut y, mut added) = (bench.unset(n, kind), bench.put(&vec![2.0; n], Kind::Full));
    dev.linear(s, input(), y.out(), false).unwrap();
    dev.linear(s, LinearIn { b: None, ..input() }, added.out(), true).unwrap();
    let (mut g_x, mut g_added) = (bench.unset(x.len, Kind::Full), bench.put(&vec![2.0; x.len], kind));
    let mut g_params = bench.full(&vec![0.5; w.len + b.len]);
    let (w_at, b_at) = (g_params.slot(0, w.len), g_params.slot(w.len, b.len));
    let g_params_buf = &mut g_params.buf;
    let grad = LinearGrad { g_y: g.view(), g_x: Some(g_x.out()), g_params: g_params_buf, w: w_at, b: Some(b_at) };
    dev.linear_bwd(s, input(), grad).unwrap();
    dev.linear_bwd_x(s, w.view(), g.view(), g_added.out(), true).unwrap();
    vec![
        ("y", bench.get(&y)),
        ("added", bench.get(&added)),
        ("g_x", bench.get(&g_x)),
        ("g_added", bench.get(&g_added)),
        ("g_params", bench.get(&g_params)),
    ]
}

#[test]
fn linear_at_awkward_sizes() {
    for (precision, tolerance) in PRECISIONS {
        for (rows, d_in, d_out) in [(1, 1, 1), (31, 3, 33), (257, 5, 2), (3, 33, 255)] {
            let (s, mut r) = (LinearShape { rows, d_in, d_out }, rng((rows + d_in) as u64));
            let [x, g] = [rows * d_in, rows * d_out].map(|n| stored(&random(&mut r, n, 1.0), precision));
            // the device narrows the weights for a product of small activations
            let w = stored(&random(&mut r, d_in * d_out, 1.0), precision);
            let b = random(&mut r, d_out, 1.0);
            let data = [&x[..], &w, &b, &g];
            for kind in [Kind::Full, Kind::Small] {
                let got = run(&Bench(cuda(precision)), s, data, kind);
                same(&format!("{s:?} {precision} {kind:?}"), &got, &run(&reference(), s, data, kind), tolerance);
            }
        }
    }
}

/// Factors that no 16-bit type holds, as two of them each: as good as 16 bits of fraction in bf16 and 22 in f16.
#[test]
fn wide_products_of_full_tensors() {
    for (precision, tolerance) in [(Precision::F32, 1e-6), (Precision::Bf16, 2e-5), (Precision::F16, 1e-6)] {
        for (rows, d_in, d_out) in [(1, 1, 1), (31, 3, 33), (257, 5, 2), (3, 33, 255)] {
            let (s, mut r) = (LinearShape { rows, d_in, d_out }, rng((rows + d_in) as u64));
            let [x, w, b, g] = [rows * d_in, d_in * d_out, d_out, rows * d_out].map(|n| random(&mut r, n, 1.0));
            let data = [&x[..], &w, &b, &g];
            let (got, want) = (wide(&Bench(cuda(precision)), s, data), wide(&reference(), s, data));
            let what = format!("{s:?} {precision}");
            for ((name, got), (_, want)) in got.iter().zip(&want) {
                close(&format!("{what}: {name}"), got, want, tolerance);
            }
        }
    }
}

fn wide<D: Backend>(bench: &Bench<D>, s: LinearShape, [x, w, b, g]: [&[f64]; 4]) -> Named {
    let ([x, w, b, g], dev, n) = ([x, w, b, g].map(|x| bench.full(x)), &bench.0, s.rows * s.d_out);
    let input = |b| LinearIn { x: x.view(), w: w.view(), b };
    let (mut y, mut added) = (bench.unset(n, Kind::Full), bench.full(&vec![2.0; n]));
    dev.linear_split(s, input(Some(b.view())), y.out(), false).unwrap();
    dev.linear_split(s, input(None), added.out(), true).unwrap();
    let mut g_x = bench.full(&vec![2.0; x.len]);
    dev.linear_split_bwd_x(s, w.view(), g.view(), g_x.out(), true).unwrap();
    vec![("y", bench.get(&y)), ("added", bench.get(&added)), ("g_x", bench.get(&g_x))]
}
