//! RMSNorm and LayerNorm.

use mamba_rl::device::{Kind, Precision};
use mamba_rl::ops::Backend;
use mamba_rl::ops::norm::NormShape;

use super::net::{random, rng};
use super::oracle::Named;
use super::places::{Bench, F32, PRECISIONS, cuda, reference, same};

fn run<D: Backend>(bench: &Bench<D>, s: NormShape, [x, p, g]: [&[f64]; 3]) -> Named {
    let (dev, n, width) = (&bench.0, s.rows * s.width, s.width);
    let [x, p, g] = [x, p, g].map(|x| bench.full(x));
    let (w, b) = (p.view().part(0, width), p.view().part(width, width));
    let [mut rms, mut layer] = [n; 2].map(|n| bench.unset(n, Kind::Small));
    dev.rms_norm(s, x.view(), w, rms.out()).unwrap();
    dev.layer_norm(s, x.view(), w, b, layer.out()).unwrap();
    let mut in_full = bench.unset(n, Kind::Full);
    dev.rms_norm(s, x.view(), w, in_full.out()).unwrap();
    let mut g_params = bench.full(&vec![0.25; 3 * width]);
    let slots = [0, 1, 2].map(|i| g_params.slot(i * width, width));
    let (mut added, mut g_x, mut g_layer) =
        (bench.full(&vec![2.0; n]), bench.unset(n, Kind::Full), bench.unset(n, Kind::Full));
    dev.rms_norm_bwd(s, x.view(), w, g.view(), added.out(), true, &mut g_params.buf, slots[0]).unwrap();
    dev.rms_norm_bwd(s, x.view(), w, g.view(), g_x.out(), false, &mut g_params.buf, slots[0]).unwrap();
    dev.layer_norm_bwd(s, x.view(), w, g.view(), g_layer.out(), &mut g_params.buf, slots[1], slots[2]).unwrap();
    vec![
        ("rms", bench.get(&rms)),
        ("layer", bench.get(&layer)),
        ("in full", bench.get(&in_full)),
        ("g_added", bench.get(&added)),
        ("g_x", bench.get(&g_x)),
        ("g_layer", bench.get(&g_layer)),
        ("g_params", bench.get(&g_params)),
    ]
}

fn check(rows: usize, width: usize, precision: Precision, tolerance: [f64; 2]) {
    let (s, mut r) = (NormShape { rows, width, eps: 1e-5 }, rng((rows + width) as u64));
    let [x, p, g] = [rows * width, 2 * width, rows * width].map(|n| random(&mut r, n, 2.0));
    let data = [&x[..], &p, &g];
    let got = run(&Bench(cuda(precision)), s, data);
    same(&format!("[{rows}, {width}] {precision}"), &got, &run(&reference(), s, data), tolerance);
}

#[test]
fn norms_at_awkward_sizes() {
    // in a row of 1 or 2 LayerNorm's gradient is a difference of equal numbers
    for (rows, width) in [(1, 5), (7, 31), (9, 33), (65, 16), (3, 255), (130, 9), (17, 257)] {
        check(rows, width, Precision::F32, F32);
    }
}

#[test]
fn norms_in_16_bits() {
    for (precision, tolerance) in PRECISIONS {
        check(19, 65, precision, tolerance);
    }
}

#[test]
fn a_width_of_one() {
    fn rms<D: Backend>(bench: &Bench<D>) -> Named {
        let s = NormShape { rows: 3, width: 1, eps: 1e-5 };
        let (x, w, g) = (bench.full(&[0.0, 1e-3, -2.0]), bench.full(&[1.5]), bench.full(&[1.0, 2.0, 3.0]));
        let (mut y, mut g_x, mut g_w) = (bench.unset(3, Kind::Full), bench.unset(3, Kind::Full), bench.full(&[1.0]));
        let slot = g_w.slot(0, 1);
        bench.0.rms_norm(s, x.view(), w.view(), y.out()).unwrap();
        bench.0.rms_norm_bwd(s, x.view(), w.view(), g.view(), g_x.out(), false, &mut g_w.buf, slot).unwrap();
        vec![("y", bench.get(&y)), ("g_x", bench.get(&g_x)), ("g_w", bench.get(&g_w))]
    }
    same("width 1", &rms(&Bench(cuda(Precision::F32))), &rms(&reference()), F32);
}
