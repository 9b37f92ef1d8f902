//! AdamW: one range, and a whole update with norm, clip, groups and the skip of what is not finite.

use mamba_rl::device::{Kind, Precision, Slot, View, ViewMut};
use mamba_rl::ops::Backend;
use mamba_rl::ops::adamw::{AdamWStep, Control, REPORT, UpdateBuffers, UpdateRule};

use super::net::{random, rng};
use super::oracle::Named;
use super::places::{Bench, F32, cuda, reference, same};

fn moments(n: usize, seed: u64) -> [Vec<f64>; 4] {
    let mut r = rng(seed);
    let [params, grads, m] = [2.0, 1.0, 0.5].map(|scale| random(&mut r, n, scale));
    [params, grads, m, random(&mut r, n, 0.1).iter().map(|x| x.abs()).collect()]
}

#[test]
fn a_step_on_one_range() {
    fn run<D: Backend>(bench: &Bench<D>, n: usize, x: &[Vec<f64>; 4], t: u64) -> Named {
        let [mut params, grads, mut m, mut v] = x.each_ref().map(|x| bench.full(x));
        let step = AdamWStep { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-5, weight_decay: 0.1, t, grad_scale: 0.5 };
        let range = params.slot(1, n - 2);
        bench.0.adamw(step, range, &mut params.buf, &grads.buf, &mut m.buf, &mut v.buf).unwrap();
        vec![("params", bench.get(&params)), ("m", bench.get(&m)), ("v", bench.get(&v))]
    }
    for n in [3, 33, 259] {
        let x = moments(n, n as u64);
        for t in [1, 1000] {
            same(
                &format!("{n}, t {t}"),
                &run(&Bench(cuda(Precision::F32)), n, &x, t),
                &run(&reference(), n, &x, t),
                F32,
            );
        }
    }
}

const RULE: UpdateRule = UpdateRule { beta1: 0.9, beta2: 0.999, eps: 1e-5, weight_decay: 0.1, grad_clip: Some(1.0) };

fn update<D: Backend>(
    bench: &Bench<D>,
    rule: UpdateRule,
    control: Control,
    lens: [usize; 4],
    x: &[Vec<f64>; 4],
) -> Named {
    // the groups lie at the front of the buffer, so no margins here
    let whole = |x: &[f64]| {
        let data: Vec<f32> = x.iter().map(|&x| x as f32).collect();
        let mut buf = bench.0.zeros(data.len(), Kind::Full).unwrap();
        bench.0.upload(&data, ViewMut::new(&mut buf, 0, data.len())).unwrap();
        buf
    };
    let [mut params, grads, mut m, mut v] = x.each_ref().map(|x| whole(x));
    let control_buf = whole(&control.numbers(&rule).map(f64::from));
    let mut report = whole(&[f64::NAN; REPORT]);
    let mut at = 0;
    let groups = lens.map(|len| {
        at += len;
        Slot { at: at - len, len }
    });
    let buffers = UpdateBuffers {
        params: &mut params,
        grads: &grads,
        m: &mut m,
        v: &mut v,
        control: &control_buf,
        report: &mut report,
    };
    bench.0.update(rule, control, groups, buffers).unwrap_or_else(|e| panic!("{e}"));
    let get = |buf: &D::Tensor| {
        let mut out = vec![0.0; bench.0.len(buf)];
        let n = out.len();
        bench.0.download(View::new(buf, 0, n), &mut out).unwrap();
        out.into_iter().map(f64::from).collect::<Vec<_>>()
    };
    vec![("params", get(&params)), ("m", get(&m)), ("v", get(&v)), ("report", get(&report))]
}

const CONTROL: Control = Control { lr_backbone: 3e-3, lr_heads: 2e-2, t: 3, loss_scale: 1.0 };

#[test]
fn a_whole_update() {
    for lens in [[5, 3, 4, 2], [0, 1, 0, 1], [300, 31, 257, 33], [0, 0, 7, 0]] {
        let x = moments(lens.iter().sum(), 9);
        for (grad_clip, loss_scale) in [(Some(1.0), 1.0), (Some(1e6), 1024.0), (None, 1.0), (Some(0.5), 65536.0)] {
            let (rule, control) = (UpdateRule { grad_clip, ..RULE }, Control { loss_scale, ..CONTROL });
            let got = update(&Bench(cuda(Precision::F32)), rule, control, lens, &x);
            same(&format!("{lens:?} {grad_clip:?}"), &got, &update(&reference(), rule, control, lens, &x), F32);
        }
    }
}

#[test]
fn what_is_not_finite_changes_nothing() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut x = moments(300, 4);
        x[1][277] = bad;
        let got = update(&Bench(cuda(Precision::F32)), RULE, CONTROL, [100, 100, 50, 50], &x);
        assert_eq!((&got[0].1, &got[1].1, &got[2].1), (&x[0], &x[2], &x[3]));
        assert_eq!(got[3].1[1], 1.0);
        assert!(!got[3].1[0].is_finite());
    }
}

/// The square of 1e30 is no number of f32; the norm is.
#[test]
fn a_large_gradient_is_clipped_not_skipped() {
    let mut x = moments(40, 5);
    x[1].fill(f64::from(1e30f32));
    let got = update(&Bench(cuda(Precision::F32)), RULE, CONTROL, [10; 4], &x);
    same("1e30", &got, &update(&reference(), RULE, CONTROL, [10; 4], &x), F32);
    assert_eq!(got[3].1[1], 0.0);
}
