//! Speed, memory and launches on a GPU. Times are the GPU's own, between two events around many repetitions, so that what
//! the host does meanwhile counts only where the GPU waits for it.
//! Floor of a pass = flops / matrix product + bytes / copy, both measured here in the precision of the pass.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::Shape;
use super::counts::{OpCount, forward, forward_backward};
use super::workload::{Learning, backbone, numbers};
use crate::backbone::{Backbone, Mamba, Part, Parts, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use crate::device::cuda::{Cuda, Launches, Store};
use crate::device::{Device, Kind, View, ViewMut};
use crate::error::Result;
use crate::ops::linear::{Linear, LinearIn, LinearShape};
use crate::params::{ParamLayout, Params};

/// What the GPU reaches, in the device's precision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ceiling {
    /// 10⁹ operations a second in a square matrix product.
    pub gemm_gflops: f64,
    /// 10⁹ bytes a second, read and written, in a copy.
    pub copy_gbs: f64,
}

/// How much is measured: the sizes that saturate a GPU, or small ones to see that all of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Rows and columns of the product of [`Ceiling`].
    pub square: usize,
    /// Floats of the copy of [`Ceiling`].
    pub floats: usize,
    /// Repetitions of every pass.
    pub repeats: usize,
}

impl Effort {
    /// For figures that mean something.
    pub const FULL: Effort = Effort { square: 8192, floats: 1 << 28, repeats: 20 };
    /// To see that it runs.
    pub const REHEARSAL: Effort = Effort { square: 32, floats: 1 << 12, repeats: 1 };
}

/// Milliseconds a repetition, beside the floor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pass {
    /// Mean of the repetitions.
    pub ms: f64,
    /// What the counted work needs at the ceilings.
    pub floor_ms: f64,
}

/// Launches of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Launched {
    /// Kernels and matrix products, before a graph is recorded.
    pub plain: usize,
    /// Graphs, once they are.
    pub graphs: usize,
    /// Kernels and products beside the graphs.
    pub beside: usize,
}

/// Bytes of one named group of buffers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Such as `tape h`.
    pub name: String,
    /// Bytes, all layers together.
    pub bytes: usize,
}

/// Figures of a shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuReport {
    /// Unroll without a tape.
    pub forward: Pass,
    /// With a tape, and backward.
    pub forward_backward: Pass,
    /// A whole update: burn-in of both networks, unroll, backward, AdamW, target.
    pub learner_step: Pass,
    /// One step of one row.
    pub act_1: Pass,
    /// One step of 64 rows.
    pub act_64: Pass,
    /// Launches of an update.
    pub launches: Launched,
    /// Device memory of an update.
    pub memory: Vec<Memory>,
}

/// A backbone unrolled over one batch.
struct Unrolled {
    dev: Cuda,
    net: Mamba,
    params: Params<Cuda>,
    shape: SeqShape,
    x: <Cuda as Device>::Tensor,
    reset: <Cuda as Device>::Mask,
    state: State<Cuda>,
    scratch: Scratch<Cuda>,
    tape: Option<Tape<Cuda>>,
    y: <Cuda as Device>::Tensor,
    g_y: <Cuda as Device>::Tensor,
    grads: <Cuda as Device>::Tensor,
}

impl Unrolled {
    fn new(dev: &Cuda, s: Shape, train: bool) -> Result<Self> {
        let (mut net, mut rng) = (backbone(s)?, ChaCha8Rng::seed_from_u64(7));
        let layout = Arc::new(ParamLayout::new(Backbone::<Cuda>::parameters(&net))?);
        Backbone::<Cuda>::bind(&mut net, &layout)?;
        let params = Params::new(dev, layout.clone(), &layout.initial(&mut rng))?;
        let shape = SeqShape { time: s.time, batch: s.batch };
        let body: &dyn Backbone<Cuda> = &net;
        let filled = |x: &[f32]| -> Result<<Cuda as Device>::Tensor> {
            let mut t = dev.zeros(x.len(), Kind::Full)?;
            dev.upload(x, ViewMut::new(&mut t, 0, x.len()))?;
            Ok(t)
        };
        let tape = if train { Some(Parts::zeros(dev, &body.tape_layout(shape), 1)?) } else { None };
        Ok(Unrolled {
            dev: dev.clone(),
            x: filled(&numbers(&mut rng, shape.rows() * s.d_input))?,
            reset: dev.zero_mask(shape.rows())?,
            state: Parts::zeros(dev, body.state_layout(), shape.batch)?,
            scratch: Parts::zeros(dev, &body.scratch_layout(shape, train), 1)?,
            tape,
            y: dev.zeros(shape.rows() * s.d_model, Kind::Full)?,
            g_y: filled(&numbers(&mut rng, shape.rows() * s.d_model))?,
            grads: dev.zeros(layout.len(), Kind::Full)?,
            net,
            params,
            shape,
        })
    }

    fn run(&mut self) -> Result<()> {
        let (dev, rows) = (&self.dev, self.shape.rows());
        let (n_x, n_y) = (dev.len(&self.x), dev.len(&self.y));
        let reset = Some(View::new(&self.reset, 0, rows));
        let seq = Sequence::<Cuda> { shape: self.shape, x: View::new(&self.x, 0, n_x), reset, valid: None };
        let y = ViewMut::new(&mut self.y, 0, n_y);
        self.net.forward(dev, &self.params, seq, &mut self.state, &mut self.scratch, y, self.tape.as_mut())?;
        let Some(tape) = &self.tape else { return Ok(()) };
        let n = dev.len(&self.grads);
        dev.fill(ViewMut::new(&mut self.grads, 0, n), 0.0)?;
        let from = SeqGrad { g_y: View::new(&self.g_y, 0, n_y), g_state: None };
        let to = SeqGradOut { g_params: &mut self.grads, g_x: None, g_state: None };
        self.net.backward(dev, &self.params, seq, tape, &mut self.scratch, from, to)
    }
}

/// Mean milliseconds of `work`, after two calls to warm up.
fn timed(dev: &Cuda, repeats: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..2 {
        work()?;
    }
    let ms = dev.time(|| (0..repeats).try_for_each(|_| work()))?;
    Ok(f64::from(ms) / repeats as f64)
}

/// What the GPU reaches.
///
/// # Errors
/// Device errors.
pub fn ceiling(dev: &Cuda, effort: Effort) -> Result<Ceiling> {
    let n = effort.square;
    let shape = LinearShape { rows: n, d_in: n, d_out: n };
    let [x, w] = [dev.zeros(n * n, Kind::Small)?, dev.zeros(n * n, Kind::Small)?];
    let mut y = dev.zeros(n * n, Kind::Small)?;
    let ms = timed(dev, effort.repeats, || {
        let x = LinearIn { x: View::new(&x, 0, n * n), w: View::new(&w, 0, n * n), b: None };
        dev.linear(shape, x, ViewMut::new(&mut y, 0, n * n), false)
    })?;
    let gemm_gflops = 2.0 * (n as f64).powi(3) / (ms * 1e6);
    drop((x, w, y));
    let n = effort.floats;
    let (from, mut to) = (dev.zeros(n, Kind::Full)?, dev.zeros(n, Kind::Full)?);
    let ms = timed(dev, effort.repeats, || dev.copy(View::new(&from, 0, n), ViewMut::new(&mut to, 0, n)))?;
    Ok(Ceiling { gemm_gflops, copy_gbs: 8.0 * n as f64 / (ms * 1e6) })
}

/// Milliseconds that counted work needs at the ceilings; `small` bytes a number of pointwise traffic, which is counted in
/// f32.
fn floor_ms(ops: &[OpCount], c: &Ceiling, small: usize) -> f64 {
    let share = small as f64 / 4.0;
    ops.iter().map(|o| o.flops / (c.gemm_gflops * 1e6) + share * o.bytes / (c.copy_gbs * 1e6)).sum()
}

/// All figures of a shape.
///
/// # Errors
/// `Config`, device errors: out of memory among them.
pub fn measure(dev: &Cuda, s: Shape, c: &Ceiling, effort: Effort) -> Result<GpuReport> {
    let small = Store::from(dev.precision()).bytes();
    let floor = |ops: &[OpCount]| floor_ms(ops, c, small);
    let pass = |s: Shape, train: bool, floor_ms: f64| -> Result<Pass> {
        let mut u = Unrolled::new(dev, s, train)?;
        Ok(Pass { ms: timed(dev, effort.repeats, || u.run())?, floor_ms })
    };
    let act = |rows: usize| {
        let one = Shape { batch: rows, time: 1, ..s };
        pass(one, false, floor(&forward(one, 1)))
    };
    let burn_in = s.time / 3;
    let step = 2.0 * floor(&forward(s, burn_in)) + floor(&forward(s, s.time - burn_in));
    let learnt = Shape { time: s.time - burn_in, ..s };
    let (learner_step, launches, memory) =
        learner(dev, s, step + floor(&forward_backward(learnt, learnt.time)), effort)?;
    Ok(GpuReport {
        forward: pass(s, false, floor(&forward(s, s.time)))?,
        forward_backward: pass(s, true, floor(&forward_backward(s, s.time)))?,
        learner_step,
        act_1: act(1)?,
        act_64: act(64)?,
        launches,
        memory,
    })
}

fn learner(dev: &Cuda, s: Shape, floor_ms: f64, effort: Effort) -> Result<(Pass, Launched, Vec<Memory>)> {
    let before = dev.bytes();
    let mut learning = Learning::on(dev.clone(), s)?;
    let launched = |learning: &mut Learning<Cuda>| -> Result<Launches> {
        let before = dev.launches();
        learning.step()?;
        Ok(dev.launches().since(before))
    };
    let plain = launched(&mut learning)?.work();
    launched(&mut learning)?;
    let recorded = launched(&mut learning)?;
    let launches = Launched { plain, graphs: recorded.graphs, beside: recorded.work() };
    let ms = timed(dev, effort.repeats, || learning.step())?;
    Ok((Pass { ms, floor_ms }, launches, memory(dev, &learning, s, dev.bytes().saturating_sub(before))))
}

/// Bytes by buffer of a learner with one shard; `all` is what the device holds for it.
fn memory(dev: &Cuda, learning: &Learning<Cuda>, s: Shape, all: usize) -> Vec<Memory> {
    let (net, small) = (learning.network(), Store::from(dev.precision()).bytes());
    let shape = SeqShape { time: s.time + 1, batch: s.batch };
    let bytes = |p: &Part| p.len * if p.kind == Kind::Small { small } else { 4 };
    let mut out: Vec<Memory> = Vec::new();
    let mut add = |name: String, bytes: usize| match out.iter_mut().find(|m| m.name == name) {
        Some(m) => m.bytes += bytes,
        None => out.push(Memory { name, bytes }),
    };
    for name in ["weights", "target weights", "gradient", "first moments", "second moments"] {
        add(name.into(), 4 * net.layout().len());
    }
    let body = net.backbone();
    let groups = [
        ("tape", body.tape_layout(shape)),
        ("scratch", body.scratch_layout(shape, true)),
        ("target scratch", body.scratch_layout(shape, false)),
    ];
    for (group, parts) in &groups {
        for p in parts {
            let name = p.name.rsplit('.').next().unwrap_or(&p.name);
            add(format!("{group} {name}"), bytes(p));
        }
    }
    for p in body.state_layout() {
        let name = p.name.rsplit('.').next().unwrap_or(&p.name);
        add(format!("states {name}"), 2 * s.batch * bytes(p));
    }
    let named: usize = out.iter().map(|m| m.bytes).sum();
    out.push(Memory { name: "inputs, heads, working memory".into(), bytes: all.saturating_sub(named) });
    out
}
