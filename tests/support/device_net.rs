//! A backbone on any device, fed and read through uploads and downloads: what `net::Net` is for the CPU alone.

use std::sync::Arc;

use mamba_rl::backbone::{self, Backbone, BackboneConfig, Parts, SeqGrad, SeqGradOut, SeqShape, Sequence, State};
use mamba_rl::device::{Kind, Precision, Real, View, ViewMut};
use mamba_rl::ops::Backend;
use mamba_rl::params::{ParamLayout, Params};
use rand::RngExt;

use super::net::{Data, Grads, HostState, Net, rng};

/// What the golden files ask of a network.
pub trait Unrolled {
    fn names(&self) -> Vec<String>;
    fn set(&mut self, name: &str, values: &[f64]);
    /// A named range of a flat gradient.
    fn part<'a>(&self, flat: &'a [f64], name: &str) -> &'a [f64];
    fn zero_state(&self, batch: usize) -> HostState;
    /// Forward without a tape; the state moves on.
    fn unroll(&self, data: &Data, state: &mut HostState) -> Vec<f64>;
    /// Forward with a tape and backward.
    fn gradients(&self, data: &Data, state: &HostState, g_y: &[f64], g_state: Option<&HostState>) -> Grads;
}

impl<F: Real> Unrolled for Net<F> {
    fn names(&self) -> Vec<String> {
        Net::names(self)
    }
    fn set(&mut self, name: &str, values: &[f64]) {
        Net::set(self, name, values);
    }
    fn part<'a>(&self, flat: &'a [f64], name: &str) -> &'a [f64] {
        Net::part(self, flat, name)
    }
    fn zero_state(&self, batch: usize) -> HostState {
        Net::zero_state(self, batch)
    }
    fn unroll(&self, data: &Data, state: &mut HostState) -> Vec<f64> {
        Net::unroll(self, data, state)
    }
    fn gradients(&self, data: &Data, state: &HostState, g_y: &[f64], g_state: Option<&HostState>) -> Grads {
        Net::gradients(self, data, state, g_y, g_state)
    }
}

/// A backbone on a device.
pub struct DeviceNet<D: Backend> {
    pub dev: D,
    pub body: Box<dyn Backbone<D>>,
    pub params: Params<D>,
}

fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&x| x as f32).collect()
}

impl<D: Backend> DeviceNet<D> {
    /// The weights that `Net::new` draws from the same seed.
    pub fn new(dev: D, config: &BackboneConfig, seed: u64) -> Self {
        let mut body = backbone::build::<D>(config).unwrap();
        let layout = Arc::new(ParamLayout::new(body.parameters()).unwrap());
        body.bind(&layout).unwrap();
        let mut rng = rng(seed);
        let mut values = layout.initial(&mut rng);
        values.iter_mut().for_each(|v| *v += rng.random_range(-0.1f32..0.1));
        let params = Params::new(&dev, layout, &values).unwrap();
        DeviceNet { dev, body, params }
    }

    /// A buffer with these numbers.
    pub fn tensor(&self, x: &[f64], kind: Kind) -> D::Tensor {
        let mut t = self.dev.zeros(x.len(), kind).unwrap();
        self.dev.upload(&narrow(x), ViewMut::new(&mut t, 0, x.len())).unwrap();
        t
    }

    /// The first `len` numbers of a buffer.
    pub fn read(&self, t: &D::Tensor, len: usize) -> Vec<f64> {
        let mut out = vec![0.0; len];
        self.dev.download(View::new(t, 0, len), &mut out).unwrap();
        out.into_iter().map(f64::from).collect()
    }

    fn mask(&self, m: &Option<Vec<u8>>) -> Option<D::Mask> {
        m.as_ref().map(|m| {
            let mut out = self.dev.zero_mask(m.len()).unwrap();
            self.dev.upload_mask(m, &mut out).unwrap();
            out
        })
    }

    fn state(&self, state: &HostState, batch: usize) -> State<D> {
        let layout = self.body.state_layout();
        let parts = State::zeros(&self.dev, layout, batch).unwrap();
        let mut parts = parts;
        for (buf, x) in parts.bufs.iter_mut().zip(state) {
            self.dev.upload(&narrow(x), ViewMut::new(buf, 0, x.len())).unwrap();
        }
        parts
    }

    fn host(&self, parts: &State<D>, batch: usize) -> HostState {
        let layout = self.body.state_layout();
        layout.iter().zip(&parts.bufs).map(|(p, b)| self.read(b, p.len * batch)).collect()
    }

    /// Working memory holds rubbish between calls.
    fn spoil(&self, parts: &mut Parts<D>) {
        for buf in &mut parts.bufs {
            let len = self.dev.len(buf);
            self.dev.fill(ViewMut::new(buf, 0, len), f32::NAN).unwrap();
        }
    }

    fn run(&self, data: &Data, state: &HostState, backward: Option<(&[f64], Option<&HostState>)>) -> Grads {
        let (dev, shape) = (&self.dev, SeqShape { time: data.time, batch: data.batch });
        let x = self.tensor(&data.x, Kind::Full);
        let (reset, valid) = (self.mask(&data.reset), self.mask(&data.valid));
        let rows = shape.rows();
        let seq = Sequence::<D> {
            shape,
            x: View::new(&x, 0, data.x.len()),
            reset: reset.as_ref().map(|m| View::new(m, 0, rows)),
            valid: valid.as_ref().map(|m| View::new(m, 0, rows)),
        };
        let mut state = self.state(state, data.batch);
        let train = backward.is_some();
        let mut scratch = Parts::zeros(dev, &self.body.scratch_layout(shape, train), 1).unwrap();
        self.spoil(&mut scratch);
        let mut tape = train.then(|| Parts::zeros(dev, &self.body.tape_layout(shape), 1).unwrap());
        if let Some(tape) = &mut tape {
            self.spoil(tape);
        }
        let n_y = rows * self.body.d_output();
        let mut y = dev.zeros(n_y, Kind::Full).unwrap();
        let y_view = ViewMut::new(&mut y, 0, n_y);
        self.body.forward(dev, &self.params, seq, &mut state, &mut scratch, y_view, tape.as_mut()).unwrap();
        let mut out = Grads {
            y: self.read(&y, n_y),
            state_out: self.host(&state, data.batch),
            params: vec![],
            x: vec![],
            state: vec![],
        };
        if let (Some((g_y, g_state)), Some(tape)) = (backward, &tape) {
            self.spoil(&mut scratch);
            let g_y = self.tensor(g_y, Kind::Full);
            let g_after = g_state.map(|g| self.state(g, data.batch));
            let n = self.params.layout.len();
            let mut g_params = dev.zeros(n, Kind::Full).unwrap();
            let mut g_x = self.tensor(&vec![f64::NAN; data.x.len()], Kind::Full);
            let mut g_before = self.state(&self.zero_state(data.batch), data.batch);
            self.spoil(&mut g_before);
            let from = SeqGrad { g_y: View::new(&g_y, 0, n_y), g_state: g_after.as_ref() };
            let g_x_view = Some(ViewMut::new(&mut g_x, 0, data.x.len()));
            let to = SeqGradOut { g_params: &mut g_params, g_x: g_x_view, g_state: Some(&mut g_before) };
            self.body.backward(dev, &self.params, seq, tape, &mut scratch, from, to).unwrap();
            out.params = self.read(&g_params, n);
            out.x = self.read(&g_x, data.x.len());
            out.state = self.host(&g_before, data.batch);
        }
        out
    }
}

impl<D: Backend> Unrolled for DeviceNet<D> {
    fn names(&self) -> Vec<String> {
        self.params.layout.entries().iter().map(|e| e.spec.name.clone()).collect()
    }

    fn set(&mut self, name: &str, values: &[f64]) {
        let slot = self.params.layout.slot(name).unwrap();
        self.dev.upload(&narrow(values), ViewMut::new(&mut self.params.flat, slot.at, slot.len)).unwrap();
    }

    fn part<'a>(&self, flat: &'a [f64], name: &str) -> &'a [f64] {
        &flat[self.params.layout.slot(name).unwrap().range()]
    }

    fn zero_state(&self, batch: usize) -> HostState {
        self.body.state_layout().iter().map(|p| vec![0.0; p.len * batch]).collect()
    }

    fn unroll(&self, data: &Data, state: &mut HostState) -> Vec<f64> {
        let out = self.run(data, state, None);
        *state = out.state_out;
        out.y
    }

    /// In f16 with the loss scaled down until nothing overflows, as the learner does.
    fn gradients(&self, data: &Data, state: &HostState, g_y: &[f64], g_state: Option<&HostState>) -> Grads {
        let mut scale = 1.0;
        loop {
            let scaled = |x: &[f64]| x.iter().map(|x| x * scale).collect::<Vec<_>>();
            let g_state = g_state.map(|g| g.iter().map(|part| scaled(part)).collect());
            let mut out = self.run(data, state, Some((&scaled(g_y), g_state.as_ref())));
            if self.dev.precision() == Precision::F16 && scale > 1e-6 && out.params.iter().any(|g| !g.is_finite()) {
                scale /= 2.0;
                continue;
            }
            for g in out.params.iter_mut().chain(&mut out.x).chain(out.state.iter_mut().flatten()) {
                *g /= scale;
            }
            return out;
        }
    }
}
