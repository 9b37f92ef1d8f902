//! The machine's ceilings by the very code that the network runs on: matrix product, 2^x, copy, selective scan. Each is
//! the best of many repetitions, all threads busy with a piece of their own.

use std::time::Duration;

use rayon::prelude::*;
use serde::Serialize;

use super::{counts::D_STATE, repeat};
use crate::device::simd::{Kernel, Lanes};
use crate::device::{Cpu, Device, Kind, View, ViewMut};
use crate::error::Result;
use crate::ops::linear::{Linear, LinearIn, LinearShape};
use crate::ops::selective_scan::{ScanIn, ScanOut, ScanShape, SelectiveScan};

/// Best rates of a number of threads together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ceilings {
    /// Matrix product [512, 512] [512, 512], 10⁹ additions and multiplications a second.
    pub gemm_gflops: f64,
    /// 2^x in the first cache, as the scan calls it, 10⁹ a second.
    pub exp_gops: f64,
    /// Copy of 32 MiB a thread, 10⁹ bytes read and written a second.
    pub copy_gbs: f64,
    /// Forward scan of T 64, B 1, d_inner 128, d_state 16: 10⁹ states a second.
    pub scan_gops: f64,
}

const SIDE: usize = 512;
const EXPS: usize = 4096;
const COPY: usize = 8 << 20;
const SCAN: ScanShape = ScanShape { time: 64, batch: 1, d_inner: 128, d_state: D_STATE, dt_rank: 8 };

struct Exp<'a>(&'a mut [f32]);

impl Kernel for Exp<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        for i in (0..self.0.len()).step_by(L::N) {
            // −2^x, so that the next call finds x ≤ 0 again
            l.store(l.sub(l.splat(0.0), l.exp2_neg(l.load(self.0, i))), self.0, i);
        }
    }
}

/// One thread's buffers.
struct Bench {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    exps: Vec<f32>,
    from: Vec<f32>,
    to: Vec<f32>,
    scan: [Vec<f32>; 8],
}

impl Bench {
    fn new(dev: &Cpu) -> Result<Self> {
        let small = |n: usize| (0..n).map(|i| (i % 17) as f32 * 0.01).collect::<Vec<f32>>();
        let rows = SCAN.time * SCAN.d_inner;
        let scratch = dev.zeros(Cpu::<f32>::scan_scratch(SCAN, false), Kind::Full)?;
        Ok(Bench {
            a: small(SIDE * SIDE),
            b: small(SIDE * SIDE),
            c: vec![0.0; SIDE * SIDE],
            exps: vec![-0.5; EXPS],
            from: vec![1.0; COPY],
            to: vec![0.0; COPY],
            scan: [
                small(rows),
                small(rows),
                small(SCAN.time * SCAN.width()),
                small(SCAN.d_inner * D_STATE),
                small(SCAN.d_inner),
                vec![0.0; rows],
                vec![0.0; SCAN.d_inner * D_STATE],
                scratch,
            ],
        })
    }

    fn product(&mut self, dev: &Cpu) -> Result<()> {
        let n = SIDE * SIDE;
        let x = LinearIn { x: View::new(&self.a, 0, n), w: View::new(&self.b, 0, n), b: None };
        dev.linear(LinearShape { rows: SIDE, d_in: SIDE, d_out: SIDE }, x, ViewMut::new(&mut self.c, 0, n), false)
    }

    fn exp(&mut self, dev: &Cpu) -> Result<()> {
        dev.isa().run(Exp(&mut self.exps));
        Ok(())
    }

    fn copy(&mut self) -> Result<()> {
        self.to.copy_from_slice(&self.from);
        Ok(())
    }

    fn scan(&mut self, dev: &Cpu) -> Result<()> {
        let [u, delta, q, a_log, d_skip, y, h, scratch] = &mut self.scan;
        let all = |v: &'_ Vec<f32>| v.len();
        let (n_y, n_h, n_s) = (all(y), all(h), all(scratch));
        let x = ScanIn {
            u: View::new(u, 0, n_y),
            delta: View::new(delta, 0, n_y),
            q: View::new(q, 0, SCAN.time * SCAN.width()),
            a_log: View::new(a_log, 0, SCAN.d_inner * D_STATE),
            d_skip: View::new(d_skip, 0, SCAN.d_inner),
            reset: None,
        };
        let out = ScanOut {
            y: ViewMut::new(y, 0, n_y),
            h: ViewMut::new(h, 0, n_h),
            h_tape: None,
            scratch: ViewMut::new(scratch, 0, n_s),
        };
        dev.selective_scan(SCAN, x, out)
    }
}

/// Measures the ceilings with the threads of `pool`.
///
/// # Errors
/// Device errors.
pub fn ceilings(dev: &Cpu, pool: &rayon::ThreadPool, budget: Duration) -> Result<Ceilings> {
    let threads = pool.current_num_threads();
    let mut all: Vec<Bench> = (0..threads).map(|_| Bench::new(dev)).collect::<Result<_>>()?;
    let mut best = |calls: usize, f: &(dyn Fn(&mut Bench) -> Result<()> + Sync)| -> Result<f64> {
        let t = pool.install(|| {
            repeat(budget, &mut || all.par_iter_mut().try_for_each(|b| (0..calls).try_for_each(|_| f(b))))
        })?;
        Ok((threads * calls) as f64 / t.min_s / 1e9)
    };
    let cube = 2.0 * (SIDE as f64).powi(3);
    Ok(Ceilings {
        gemm_gflops: best(1, &|b| b.product(dev))? * cube,
        exp_gops: best(64, &|b| b.exp(dev))? * EXPS as f64,
        copy_gbs: best(1, &|b| b.copy())? * 8.0 * COPY as f64,
        scan_gops: best(8, &|b| b.scan(dev))? * (SCAN.time * SCAN.d_inner * D_STATE) as f64,
    })
}
