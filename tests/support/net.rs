//! A backbone on the CPU in either precision, fed and read in f64, with names of parameters as in its layout.
#![allow(dead_code)] // each test binary uses its own part

use std::sync::Arc;

use mamba_rl::backbone::{self, Backbone, BackboneConfig, MambaConfig, Parts, Rotate};
use mamba_rl::backbone::{SeqGrad, SeqGradOut, SeqShape, Sequence};
use mamba_rl::device::{Cpu, Device, Kind, Real, View, ViewMut};
use mamba_rl::params::{ParamLayout, Params};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub struct Net<F: Real> {
    pub dev: Cpu<F>,
    pub body: Box<dyn Backbone<Cpu<F>>>,
    pub params: Params<Cpu<F>>,
}

/// A sequence on the host, time-major.
#[derive(Clone)]
pub struct Data {
    pub time: usize,
    pub batch: usize,
    /// [T, B, d_input].
    pub x: Vec<f64>,
    /// [T, B].
    pub reset: Option<Vec<u8>>,
    /// [T, B].
    pub valid: Option<Vec<u8>>,
}

/// One buffer [B, len] per part.
pub type HostState = Vec<Vec<f64>>;

pub struct Grads {
    pub y: Vec<f64>,
    pub state_out: HostState,
    /// Flat, as the layout.
    pub params: Vec<f64>,
    pub x: Vec<f64>,
    pub state: HostState,
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Uniform in ±scale, exactly representable in f32.
pub fn random(rng: &mut ChaCha8Rng, len: usize, scale: f32) -> Vec<f64> {
    (0..len).map(|_| f64::from(rng.random_range(-1.0f32..1.0) * scale)).collect()
}

pub fn to<F: Real>(x: &[f64]) -> Vec<F> {
    x.iter().map(|&x| F::of(x)).collect()
}

pub fn wide<F: Real>(x: &[F]) -> Vec<f64> {
    x.iter().map(|x| x.wide()).collect()
}

/// max |a − b| / max |b|.
pub fn error(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let diff = a.iter().zip(b).fold(0.0f64, |m, (a, b)| if (a - b).is_nan() { f64::NAN } else { m.max((a - b).abs()) });
    if scale == 0.0 { if diff == 0.0 { 0.0 } else { f64::INFINITY } } else { diff / scale }
}

#[track_caller]
pub fn close(what: &str, a: &[f64], b: &[f64], tolerance: f64) {
    let e = error(a, b);
    assert!(e <= tolerance, "{what}: error {e:.3e} is above {tolerance:.1e}");
}

/// A Mamba configuration for small tests.
pub fn mamba(d_input: usize, d_model: usize, n_layers: usize, d_state: usize, d_conv: usize) -> BackboneConfig {
    BackboneConfig::Mamba(MambaConfig { d_input, d_model, n_layers, d_state, d_conv, ..MambaConfig::default() })
}

/// The same with a rotating state.
pub fn rotating(config: BackboneConfig, rotate: Rotate) -> BackboneConfig {
    match config {
        BackboneConfig::Mamba(c) => BackboneConfig::Mamba(MambaConfig { rotate, ..c }),
        other => other,
    }
}

/// A Mamba configuration, and the same with angles that are learnt.
pub fn both(config: BackboneConfig) -> [BackboneConfig; 2] {
    [config.clone(), rotating(config, Rotate::Learned)]
}

impl<F: Real> Net<F> {
    /// Starting values drawn from `seed`; those that start at 0 or 1 are moved, so that every path carries numbers.
    pub fn new(config: &BackboneConfig, seed: u64) -> Self
    where
        Cpu<F>: Default,
    {
        Self::on(Cpu::default(), config, seed)
    }

    pub fn on(dev: Cpu<F>, config: &BackboneConfig, seed: u64) -> Self {
        let mut body = backbone::build::<Cpu<F>>(config).unwrap();
        let layout = Arc::new(ParamLayout::new(body.parameters()).unwrap());
        body.bind(&layout).unwrap();
        let mut rng = rng(seed);
        let mut values = layout.initial(&mut rng);
        for v in &mut values {
            *v += rng.random_range(-0.1f32..0.1);
        }
        let params = Params::new(&dev, layout, &values).unwrap();
        Net { dev, body, params }
    }

    pub fn names(&self) -> Vec<String> {
        self.params.layout.entries().iter().map(|e| e.spec.name.clone()).collect()
    }

    pub fn set(&mut self, name: &str, values: &[f64]) {
        let slot = self.params.layout.slot(name).unwrap();
        assert_eq!(slot.len, values.len(), "{name}");
        self.params.flat[slot.range()].copy_from_slice(&to::<F>(values));
    }

    /// A named range of a flat gradient.
    pub fn part<'a>(&self, flat: &'a [f64], name: &str) -> &'a [f64] {
        &flat[self.params.layout.slot(name).unwrap().range()]
    }

    pub fn zero_state(&self, batch: usize) -> HostState {
        self.body.state_layout().iter().map(|p| vec![0.0; p.len * batch]).collect()
    }

    pub fn random_state(&self, batch: usize, seed: u64) -> HostState {
        let mut rng = rng(seed);
        self.body.state_layout().iter().map(|p| random(&mut rng, p.len * batch, 1.0)).collect()
    }

    fn parts(&self, state: &HostState) -> Parts<Cpu<F>> {
        let bufs = state.iter().map(|s| if s.is_empty() { to(&[0.0]) } else { to(s) }).collect();
        Parts { bufs }
    }

    fn host(&self, parts: &Parts<Cpu<F>>, batch: usize) -> HostState {
        let layout = self.body.state_layout();
        layout.iter().zip(&parts.bufs).map(|(p, b)| wide(&b[..p.len * batch])).collect()
    }

    /// Forward without a tape; the state moves on.
    pub fn unroll(&self, data: &Data, state: &mut HostState) -> Vec<f64> {
        let (y, after) = self.run(data, state, None, |_, _| {});
        *state = after;
        y
    }

    /// Forward with a tape and backward.
    pub fn gradients(&self, data: &Data, state: &HostState, g_y: &[f64], g_state: Option<&HostState>) -> Grads {
        let mut grads = Grads { y: vec![], state_out: vec![], params: vec![], x: vec![], state: vec![] };
        let (y, after) = self.run(data, state, Some((g_y, g_state)), |flat, (x, state)| {
            grads.params = flat;
            grads.x = x;
            grads.state = state;
        });
        grads.y = y;
        grads.state_out = after;
        grads
    }

    fn run(
        &self,
        data: &Data,
        state: &HostState,
        backward: Option<(&[f64], Option<&HostState>)>,
        mut done: impl FnMut(Vec<f64>, (Vec<f64>, HostState)),
    ) -> (Vec<f64>, HostState) {
        let (dev, shape) = (&self.dev, SeqShape { time: data.time, batch: data.batch });
        let x: Vec<F> = to(&data.x);
        let seq = Sequence::<Cpu<F>> {
            shape,
            x: View::new(&x, 0, x.len()),
            reset: data.reset.as_ref().map(|m| View::new(m, 0, m.len())),
            valid: data.valid.as_ref().map(|m| View::new(m, 0, m.len())),
        };
        let mut state = self.parts(state);
        let train = backward.is_some();
        let mut scratch = Parts::zeros(dev, &self.body.scratch_layout(shape, train), 1).unwrap();
        // working memory holds rubbish between calls
        scratch.bufs.iter_mut().for_each(|b| b.fill(F::nan()));
        let mut tape = train.then(|| Parts::zeros(dev, &self.body.tape_layout(shape), 1).unwrap());
        let mut y = dev.zeros(shape.rows() * self.body.d_output(), Kind::Full).unwrap();
        let y_view = ViewMut::new(&mut y, 0, shape.rows() * self.body.d_output());
        self.body.forward(dev, &self.params, seq, &mut state, &mut scratch, y_view, tape.as_mut()).unwrap();
        if let (Some((g_y, g_state)), Some(tape)) = (backward, &tape) {
            scratch.bufs.iter_mut().for_each(|b| b.fill(F::nan()));
            let (g_y, g_after) = (to::<F>(g_y), g_state.map(|g| self.parts(g)));
            let mut g_params = vec![F::zero(); self.params.layout.len()];
            let (mut g_x, mut g_before) = (vec![F::nan(); x.len()], self.parts(&self.zero_state(data.batch)));
            g_before.bufs.iter_mut().for_each(|b| b.fill(F::nan()));
            let len = g_x.len();
            let from = SeqGrad { g_y: View::new(&g_y, 0, g_y.len()), g_state: g_after.as_ref() };
            let g_x_view = Some(ViewMut::new(&mut g_x, 0, len));
            let to = SeqGradOut { g_params: &mut g_params, g_x: g_x_view, g_state: Some(&mut g_before) };
            self.body.backward(dev, &self.params, seq, tape, &mut scratch, from, to).unwrap();
            done(wide(&g_params), (wide(&g_x), self.host(&g_before, data.batch)));
        }
        (wide(&y), self.host(&state, data.batch))
    }
}

impl Data {
    pub fn random(time: usize, batch: usize, d_input: usize, seed: u64) -> Self {
        Data { time, batch, x: random(&mut rng(seed), time * batch * d_input, 1.0), reset: None, valid: None }
    }

    /// Steps [from, to).
    pub fn steps(&self, from: usize, to: usize) -> Self {
        let d = self.x.len() / (self.time * self.batch);
        let mask = |m: &Option<Vec<u8>>| m.as_ref().map(|m| m[from * self.batch..to * self.batch].to_vec());
        Data {
            time: to - from,
            batch: self.batch,
            x: self.x[from * self.batch * d..to * self.batch * d].to_vec(),
            reset: mask(&self.reset),
            valid: mask(&self.valid),
        }
    }

    /// Row b alone.
    pub fn row(&self, b: usize) -> Self {
        let d = self.x.len() / (self.time * self.batch);
        let mask = |m: &Option<Vec<u8>>| m.as_ref().map(|m| m.iter().skip(b).step_by(self.batch).copied().collect());
        let x = (0..self.time).flat_map(|t| self.x[(t * self.batch + b) * d..][..d].to_vec()).collect();
        Data { time: self.time, batch: 1, x, reset: mask(&self.reset), valid: mask(&self.valid) }
    }
}
