//! Gate, step size, ReLU, row masks, dueling head, blends: one number in, one number out, or nearly.

use mamba_rl::device::{Device, Kind, Precision, View, ViewMut};
use mamba_rl::ops::Backend;
use mamba_rl::ops::delta::{DeltaGrad, DeltaIn, DeltaShape};
use mamba_rl::ops::elementwise::Elementwise;
use mamba_rl::ops::gate::{GateGrad, GateShape};
use mamba_rl::ops::reduce::Reduce;
use rand::RngExt;

use super::net::{random, rng};
use super::oracle::Named;
use super::places::{Bench, F32, PRECISIONS, bits, cuda, reference, same, stored};

/// Rows and widths whose products are no multiple of a block.
const SIZES: [[usize; 2]; 6] = [[1, 1], [1, 31], [33, 1], [5, 51], [257, 1], [3, 171]];

fn gate<D: Backend>(bench: &Bench<D>, [rows, width]: [usize; 2], y: &[f64], xz: &[f64], g: &[f64]) -> Named {
    let (s, n) = (GateShape { rows, width }, rows * width);
    let [y_full, xz_full, g] = [y, xz, g].map(|x| bench.full(x));
    let (y, xz) = (bench.small(y), bench.small(xz));
    let [mut out, mut g_y] = [n; 2].map(|n| bench.unset(n, Kind::Full));
    let [mut again, mut small] = [n; 2].map(|n| bench.unset(n, Kind::Small));
    let mut g_xz = bench.full(&vec![5.0; 2 * n]);
    bench.0.gate(s, y_full.view(), xz_full.view(), out.out()).unwrap();
    bench.0.copy(out.view(), small.out()).unwrap();
    let grad = GateGrad { g_out: g.view(), g_y: g_y.out(), g_xz: g_xz.out(), out: again.out() };
    bench.0.gate_bwd(s, y.view(), xz.view(), grad).unwrap();
    assert_eq!(bench.get(&again), bench.get(&small));
    let g_xz = bench.get(&g_xz);
    assert!(g_xz.chunks(2 * width).all(|row| row[..width].iter().all(|&x| x == 5.0)), "x's half was written");
    vec![("out", bench.get(&out)), ("g_y", bench.get(&g_y)), ("g_xz", g_xz)]
}

#[test]
fn gate_as_the_formula() {
    for (precision, tolerance) in PRECISIONS {
        for [rows, width] in SIZES {
            let (mut r, n) = (rng((rows + width) as u64), rows * width);
            let (y, g) = (stored(&random(&mut r, n, 2.0), precision), random(&mut r, n, 2.0));
            // a few in the tails, where e^-z overflows
            let mut xz = random(&mut r, 2 * n, 4.0);
            xz.iter_mut().step_by(7).for_each(|z| *z *= 25.0);
            let xz = stored(&xz, precision);
            let (bench, size) = (Bench(cuda(precision)), [rows, width]);
            same(
                &format!("{size:?} {precision}"),
                &gate(&bench, size, &y, &xz, &g),
                &gate(&reference(), size, &y, &xz, &g),
                tolerance,
            );
        }
    }
}

fn delta<D: Backend>(bench: &Bench<D>, s: DeltaShape, [q, w, b, g]: [&[f64]; 4]) -> Named {
    let ([q, w, b], n) = ([q, w, b].map(|x| bench.full(x)), s.rows * s.d_inner);
    let x = || DeltaIn { q: q.view(), w: w.view(), b: b.view() };
    let mut delta = bench.unset(n, Kind::Full);
    bench.0.delta(s, x(), delta.out()).unwrap();
    let (mut g_delta, mut g_q) = (bench.full(g), bench.full(&vec![5.0; q.len]));
    let mut g_params = bench.full(&vec![0.5; w.len + b.len]);
    let (w_at, b_at) = (g_params.slot(0, w.len), g_params.slot(w.len, b.len));
    let grad = DeltaGrad {
        delta: delta.view(),
        g_delta: g_delta.out(),
        g_q: g_q.out(),
        g_params: &mut g_params.buf,
        w: w_at,
        b: b_at,
    };
    bench.0.delta_bwd(s, x(), grad).unwrap();
    let g_q = bench.get(&g_q);
    assert!(g_q.chunks(s.width).all(|row| row[s.dt_rank..].iter().all(|&x| x == 5.0)), "B or C was written");
    vec![("delta", bench.get(&delta)), ("g_s", bench.get(&g_delta)), ("g_q", g_q), ("g_params", bench.get(&g_params))]
}

#[test]
fn delta_as_the_formula() {
    for (rows, dt_rank, width, d_inner) in
        [(1, 1, 3, 1), (7, 2, 34, 31), (33, 4, 9, 33), (65, 17, 17, 5), (130, 3, 5, 257)]
    {
        let s = DeltaShape { rows, dt_rank, width, d_inner };
        let mut r = rng(rows as u64);
        let q = random(&mut r, rows * width, 2.0);
        let w = random(&mut r, d_inner * dt_rank, 1.0);
        let mut b = random(&mut r, d_inner, 1.0);
        b.iter_mut().step_by(5).for_each(|b| *b = *b * 40.0 - 20.0);
        let g = random(&mut r, rows * d_inner, 1.0);
        let x = [&q[..], &w, &b, &g];
        same(&format!("{s:?}"), &delta(&Bench(cuda(Precision::F32)), s, x), &delta(&reference(), s, x), F32);
    }
}

/// Tails of softplus: 60 and 1e-26 to the last digits, and so the slope.
#[test]
fn delta_in_the_tails() {
    let b: Vec<f64> =
        [-60.0, -87.0, -20.0, -1.0, -1e-3, 0.0, 0.5, 3.0, 17.0, 60.0, 80.0].map(|x| f64::from(x as f32)).to_vec();
    let s = DeltaShape { rows: 1, dt_rank: 1, width: 1, d_inner: b.len() };
    let ones = vec![1.0; b.len()];
    let x = [&[0.0][..], &ones, &b, &ones];
    let (got, want) = (delta(&Bench(cuda(Precision::F32)), s, x), delta(&reference(), s, x));
    for k in [0, 1] {
        for ((got, want), b) in got[k].1.iter().zip(&want[k].1).zip(&b) {
            assert!((got / want - 1.0).abs() < 2e-6, "at {b}: {got:e}, expected {want:e}");
        }
    }
}

fn heads<D: Backend>(bench: &Bench<D>, [rows, width]: [usize; 2], x: &[f64], g: &[f64], keep: &[u8]) -> Named {
    let (dev, n) = (&bench.0, rows * width);
    let mut y = bench.small(x);
    dev.relu(y.out()).unwrap();
    let mut g_x = bench.full(g);
    dev.relu_bwd(y.view(), g_x.out()).unwrap();
    let (from, mask) = (bench.full(g), bench.mask(keep));
    let [mut kept, mut all] = [n; 2].map(|n| bench.unset(n, Kind::Small));
    dev.keep_rows(width, from.view(), Some(bits(&mask, rows)), kept.out()).unwrap();
    dev.keep_rows(width, from.view(), None, all.out()).unwrap();
    let mut full = bench.unset(n, Kind::Full);
    dev.keep_rows(width, from.view(), Some(bits(&mask, rows)), full.out()).unwrap();
    let mut sum = bench.full(x);
    dev.add_assign(from.view(), sum.out()).unwrap();
    let mut blended = bench.full(x);
    dev.blend(0.125, from.view(), blended.out()).unwrap();
    vec![
        ("relu", bench.get(&y)),
        ("g_relu", bench.get(&g_x)),
        ("kept", bench.get(&kept)),
        ("all", bench.get(&all)),
        ("full", bench.get(&full)),
        ("sum", bench.get(&sum)),
        ("blended", bench.get(&blended)),
    ]
}

#[test]
fn functions_of_the_heads() {
    for (precision, tolerance) in PRECISIONS {
        for [rows, width] in SIZES {
            let (mut r, n) = (rng((rows * width) as u64), rows * width);
            let [x, g] = [0; 2].map(|_| stored(&random(&mut r, n, 2.0), precision));
            let keep: Vec<u8> = (0..rows).map(|_| r.random_range(0..2)).collect();
            let size = [rows, width];
            let got = heads(&Bench(cuda(precision)), size, &x, &g, &keep);
            same(&format!("{size:?} {precision}"), &got, &heads(&reference(), size, &x, &g, &keep), tolerance);
        }
    }
}

/// Margins of NaN do not show a ReLU that runs on: these neighbours would.
#[test]
fn relu_keeps_to_its_range() {
    let bench = Bench(cuda(Precision::F32));
    let (mut x, mut g) = (bench.full(&[-1.0, -2.0, -3.0]), bench.full(&[4.0, 5.0, 6.0]));
    let middle = x.slot(1, 1);
    bench.0.relu(ViewMut::new(&mut x.buf, middle.at, 1)).unwrap();
    assert_eq!(bench.get(&x), [-1.0, 0.0, -3.0]);
    let y = bench.full(&[0.0; 3]);
    bench.0.relu_bwd(middle.of(&y.buf), ViewMut::new(&mut g.buf, middle.at, 1)).unwrap();
    assert_eq!(bench.get(&g), [4.0, 0.0, 6.0]);
}

/// ReLU passes NaN on; a mask clears it; -0 counts as 0.
#[test]
fn nan_is_passed_on_or_cleared() {
    let bench = Bench(cuda(Precision::Bf16));
    let mut x = bench.small(&[f64::NAN, -1.0, -0.0, 2.0]);
    bench.0.relu(x.out()).unwrap();
    let y = bench.get(&x);
    assert!(y[0].is_nan() && y[1..] == [0.0, 0.0, 2.0], "{y:?}");
    let mut g = bench.full(&[1.0, 1.0, 1.0, f64::NAN]);
    bench.0.relu_bwd(x.view(), g.out()).unwrap();
    let g = bench.get(&g);
    assert!(g[..3] == [1.0, 0.0, 0.0] && g[3].is_nan(), "{g:?}");
    let (from, mask) = (bench.full(&[f64::NAN, f64::INFINITY, 1.0, 2.0]), bench.mask(&[0, 1]));
    let mut to = bench.unset(4, Kind::Small);
    bench.0.keep_rows(2, from.view(), Some(bits(&mask, 2)), to.out()).unwrap();
    assert_eq!(bench.get(&to), [0.0, 0.0, 1.0, 2.0]);
}

#[test]
fn dueling_as_the_formula() {
    fn run<D: Backend>(bench: &Bench<D>, rows: usize, actions: usize, [v, a, g]: [&[f64]; 3]) -> Named {
        let ([v, a, g], n) = ([v, a, g].map(|x| bench.full(x)), rows * actions);
        let [mut q, mut g_v, mut g_a] = [n, rows, n].map(|n| bench.unset(n, Kind::Full));
        bench.0.dueling(rows, actions, v.view(), a.view(), q.out()).unwrap();
        bench.0.dueling_bwd(rows, actions, g.view(), g_v.out(), g_a.out()).unwrap();
        vec![("q", bench.get(&q)), ("g_value", bench.get(&g_v)), ("g_advantage", bench.get(&g_a))]
    }
    for (rows, actions) in [(1, 1), (31, 2), (257, 5), (33, 31)] {
        let mut r = rng(rows as u64);
        let [v, a, g] = [rows, rows * actions, rows * actions].map(|n| random(&mut r, n, 3.0));
        let x = [&v[..], &a, &g];
        let got = run(&Bench(cuda(Precision::F32)), rows, actions, x);
        // one action: the advantage is its own mean, and its gradient is 0
        same(&format!("[{rows}, {actions}]"), &got, &run(&reference(), rows, actions, x), F32);
    }
}

#[test]
fn squares_are_summed_in_f64() {
    let bench = Bench(cuda(Precision::F32));
    for n in [0, 1, 255, 257, 70_000] {
        let x = random(&mut rng(n as u64), n, 2.0);
        let place = bench.full(&x);
        let want: f64 = x.iter().map(|x| x * x).sum();
        let got = bench.0.sum_squares(place.view()).unwrap();
        assert!((got - want).abs() <= 1e-12 * want, "{n}: {got}, expected {want}");
    }
    // a part of a buffer
    let place = bench.full(&[3.0, 4.0, 12.0]);
    assert_eq!(bench.0.sum_squares(place.view().part(1, 2)).unwrap(), 160.0);
}

/// What the ops of every storage rest on: all 65536 numbers of f16 and bf16 widened, and numbers near every rounding
/// boundary narrowed, as the crate `half` does it.
#[test]
fn storage_types_are_exact() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for precision in [Precision::Bf16, Precision::F16] {
        let dev = cuda(precision);
        let wide = |b: u16| match precision {
            Precision::Bf16 => half::bf16::from_bits(b).to_f32(),
            _ => half::f16::from_bits(b).to_f32(),
        };
        let narrow = |x: f32| match precision {
            Precision::Bf16 => half::bf16::from_f32(x).to_f32(),
            _ => half::f16::from_f32(x).to_f32(),
        };
        let mut numbers: Vec<f32> = all.iter().map(|&b| wide(b)).collect();
        let between: Vec<f32> = numbers
            .iter()
            .step_by(3)
            .flat_map(|x| {
                let middle = 0.5 * (x + f32::from_bits(x.to_bits().wrapping_add(1 << 16)));
                [middle, f32::from_bits(middle.to_bits() + 1), f32::from_bits(middle.to_bits().wrapping_sub(1))]
            })
            .collect();
        numbers.extend(between);
        numbers.extend([65519.99, 65520.0, 65536.0, 1e30, f32::MAX, f32::MIN_POSITIVE, 1e-45, 2.0f32.powi(-25)]);
        let n = numbers.len();
        let (mut full, mut small, mut back) =
            (dev.zeros(n, Kind::Full).unwrap(), dev.zeros(n, Kind::Small).unwrap(), dev.zeros(n, Kind::Full).unwrap());
        dev.upload(&numbers, ViewMut::new(&mut full, 0, n)).unwrap();
        dev.copy(View::new(&full, 0, n), ViewMut::new(&mut small, 0, n)).unwrap();
        dev.copy(View::new(&small, 0, n), ViewMut::new(&mut back, 0, n)).unwrap();
        let mut got = vec![0.0; n];
        dev.download(View::new(&back, 0, n), &mut got).unwrap();
        for (x, got) in numbers.iter().zip(got) {
            let want = narrow(*x);
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{precision}: {x:e} became {got:e}, not {want:e}"
            );
        }
    }
}
