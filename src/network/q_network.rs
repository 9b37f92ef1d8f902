//! The Q-network: features → encoder (optional) → recurrent backbone → dueling head.
//! One forward for acting, burn-in, target and training; training keeps a tape.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use super::{DuelingHead, Encoder};
use crate::backbone::{Backbone, Part, Parts, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use crate::device::{Kind, View, ViewMut};
use crate::error::{Error, Result};
use crate::ops::Backend;
use crate::params::{ParamLayout, Params};

/// Encoder, backbone and head with their parameters' layout.
pub struct QNetwork<D: Backend> {
    encoder: Option<Box<dyn Encoder<D>>>,
    backbone: Box<dyn Backbone<D>>,
    head: DuelingHead,
    layout: Arc<ParamLayout>,
    d_input: usize,
}

/// Buffers of one network over sequences up to a shape: the tape and gradients only where `train`.
pub struct Workspace<D: Backend> {
    shape: SeqShape,
    encoder_tape: Vec<D::Tensor>,
    /// Input of the backbone where there is an encoder, [T, B, d_code].
    code: D::Tensor,
    g_code: D::Tensor,
    /// Features, [T, B, d_output].
    features: D::Tensor,
    g_features: D::Tensor,
    head: Vec<D::Tensor>,
    /// Q-values, [T, B, actions].
    pub q: D::Tensor,
    /// Gradient of the Q-values, [T, B, actions].
    pub g_q: D::Tensor,
    tape: Option<Tape<D>>,
    scratch: Scratch<D>,
}

impl<D: Backend> Workspace<D> {
    /// The largest shape it serves.
    pub fn shape(&self) -> SeqShape {
        self.shape
    }
}

impl<D: Backend> QNetwork<D> {
    /// Joins the parts and lays out the parameters.
    ///
    /// # Errors
    /// `Config` when the widths do not fit or two parameters share a name.
    pub fn new(
        d_input: usize,
        mut encoder: Option<Box<dyn Encoder<D>>>,
        mut backbone: Box<dyn Backbone<D>>,
        mut head: DuelingHead,
    ) -> Result<Self> {
        let code = encoder.as_ref().map_or(d_input, |e| e.d_output());
        if backbone.d_input() != code {
            let problem = format!("takes {} features a step, but gets {code}", backbone.d_input());
            return Err(Error::config("backbone", problem));
        }
        let mut specs = encoder.as_ref().map_or(Vec::new(), |e| e.parameters());
        specs.extend(backbone.parameters());
        specs.extend(head.parameters());
        let layout = Arc::new(ParamLayout::new(specs)?);
        if let Some(e) = &mut encoder {
            e.bind(&layout)?;
        }
        backbone.bind(&layout)?;
        head.bind(&layout)?;
        Ok(QNetwork { encoder, backbone, head, layout, d_input })
    }

    /// Names, shapes and places of the parameters.
    pub fn layout(&self) -> &Arc<ParamLayout> {
        &self.layout
    }

    /// Start values, drawn from `rng`.
    pub fn initial(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        self.layout.initial(rng)
    }

    /// Features a step.
    pub fn d_input(&self) -> usize {
        self.d_input
    }

    /// Actions.
    pub fn actions(&self) -> usize {
        self.head.actions()
    }

    /// The recurrent body.
    pub fn backbone(&self) -> &dyn Backbone<D> {
        self.backbone.as_ref()
    }

    /// Parts of the recurrent state.
    pub fn state_layout(&self) -> &[Part] {
        self.backbone.state_layout()
    }

    /// A zero state for `batch` rows.
    ///
    /// # Errors
    /// Device errors.
    pub fn zero_state(&self, dev: &D, batch: usize) -> Result<State<D>> {
        Parts::zeros(dev, self.state_layout(), batch)
    }

    /// Buffers for sequences up to `shape`.
    ///
    /// # Errors
    /// Device errors (out of memory).
    pub fn workspace(&self, dev: &D, shape: SeqShape, train: bool) -> Result<Workspace<D>> {
        let rows = shape.rows();
        let code = self.encoder.as_ref().map_or(0, |e| e.d_output());
        let back = if train { rows } else { 0 };
        let d_features = self.backbone.d_output();
        let encoder = self.encoder.as_ref().map_or(Vec::new(), |e| e.tape_layout(rows));
        let zeros = |len: usize| dev.zeros(len.max(1), Kind::Full);
        let tape = if train { Some(Parts::zeros(dev, &self.backbone.tape_layout(shape), 1)?) } else { None };
        Ok(Workspace {
            shape,
            encoder_tape: Parts::<D>::zeros(dev, &encoder, 1)?.bufs,
            code: zeros(rows * code)?,
            g_code: zeros(back * code)?,
            features: zeros(rows * d_features)?,
            g_features: zeros(back * d_features)?,
            head: Parts::<D>::zeros(dev, &self.head.memory_layout(rows, train), 1)?.bufs,
            q: zeros(rows * self.actions())?,
            g_q: zeros(back * self.actions())?,
            tape,
            scratch: Parts::zeros(dev, &self.backbone.scratch_layout(shape, train), 1)?,
        })
    }

    /// Elements of a workspace's (tape, scratch) for `shape`, for reports.
    pub fn workspace_len(&self, shape: SeqShape, train: bool) -> (usize, usize) {
        let sum = |parts: Vec<Part>| parts.iter().map(|p| p.len).sum::<usize>();
        let tape = if train { sum(self.backbone.tape_layout(shape)) } else { 0 };
        let rows = shape.rows();
        let code = self.encoder.as_ref().map_or(0, |e| e.d_output());
        let pass = if train { 2 } else { 1 };
        let outer = rows * pass * (code + self.backbone.d_output() + self.actions())
            + sum(self.head.memory_layout(rows, train))
            + self.encoder.as_ref().map_or(0, |e| sum(e.tape_layout(rows)));
        (tape, outer + sum(self.backbone.scratch_layout(shape, train)))
    }

    /// Advances `state` over the sequence without heads and without a tape: burn-in.
    ///
    /// # Errors
    /// Device errors.
    pub fn burn_in(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        ws: &mut Workspace<D>,
    ) -> Result<()> {
        self.body(dev, params, seq, state, ws, false)
    }

    /// Q-values [T, B, actions] into `ws.q`; `state` becomes the state after the last step; keeps a tape where `train`.
    ///
    /// # Errors
    /// Device errors.
    pub fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        ws: &mut Workspace<D>,
        train: bool,
    ) -> Result<()> {
        self.body(dev, params, seq, state, ws, train)?;
        let rows = seq.shape.rows();
        let features = View::new(&ws.features, 0, rows * self.backbone.d_output());
        let q = ViewMut::new(&mut ws.q, 0, rows * self.actions());
        self.head.forward(dev, params, rows, features, &mut ws.head, q)
    }

    fn body(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        ws: &mut Workspace<D>,
        train: bool,
    ) -> Result<()> {
        let rows = seq.shape.rows();
        let y = ViewMut::new(&mut ws.features, 0, rows * self.backbone.d_output());
        let tape = if train { ws.tape.as_mut() } else { None };
        match &self.encoder {
            None => self.backbone.forward(dev, params, seq, state, &mut ws.scratch, y, tape),
            Some(e) => {
                let n = rows * e.d_output();
                e.forward(dev, params, rows, seq.x, &mut ws.encoder_tape, ViewMut::new(&mut ws.code, 0, n))?;
                let seq = Sequence { x: View::new(&ws.code, 0, n), ..seq };
                self.backbone.forward(dev, params, seq, state, &mut ws.scratch, y, tape)
            }
        }
    }

    /// Adds the parameter gradients of `ws.g_q` [T, B, actions] to `g_params`, through the forward that kept `ws`'s tape.
    /// No gradient leaves through the initial state: burn-in is a constant.
    ///
    /// # Errors
    /// `Usage` when `ws` keeps no tape; device errors.
    pub fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        ws: &mut Workspace<D>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let Some(tape) = &ws.tape else {
            return Err(Error::Usage("backward needs a workspace that was made for training".into()));
        };
        let rows = seq.shape.rows();
        let n = rows * self.backbone.d_output();
        let g_q = View::new(&ws.g_q, 0, rows * self.actions());
        let features = View::new(&ws.features, 0, n);
        let g_features = ViewMut::new(&mut ws.g_features, 0, n);
        self.head.backward(dev, params, rows, features, &mut ws.head, g_q, g_features, g_params)?;
        let from = SeqGrad { g_y: View::new(&ws.g_features, 0, n), g_state: None };
        let Some(e) = &self.encoder else {
            let to = SeqGradOut { g_params, g_x: None, g_state: None };
            return self.backbone.backward(dev, params, seq, tape, &mut ws.scratch, from, to);
        };
        let m = rows * e.d_output();
        let inner = Sequence { x: View::new(&ws.code, 0, m), ..seq };
        let to = SeqGradOut { g_params, g_x: Some(ViewMut::new(&mut ws.g_code, 0, m)), g_state: None };
        self.backbone.backward(dev, params, inner, tape, &mut ws.scratch, from, to)?;
        let (code, g_code) = (View::new(&ws.code, 0, m), ViewMut::new(&mut ws.g_code, 0, m));
        e.backward(dev, params, rows, seq.x, &mut ws.encoder_tape, code, g_code, g_params)
    }
}
