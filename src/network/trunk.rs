//! The trunk of a network, below its heads: features of a step → encoder (optional) → recurrent backbone.
//! One forward for acting, burn-in, target and training; training keeps a tape.

use super::Encoder;
use crate::backbone::{Backbone, Part, Parts, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use crate::device::{Kind, View, ViewMut};
use crate::error::{Error, Result};
use crate::ops::Backend;
use crate::params::{ParamLayout, ParamSpec, Params};

/// Encoder and backbone. Their parameters have the names that these give, behind a prefix where a network has two trunks.
pub(crate) struct Trunk<D: Backend> {
    prefix: &'static str,
    encoder: Option<Box<dyn Encoder<D>>>,
    backbone: Box<dyn Backbone<D>>,
    d_input: usize,
}

/// Buffers of one trunk over sequences up to a shape: the tape and gradients only where `train`.
pub(crate) struct TrunkMemory<D: Backend> {
    encoder_tape: Vec<D::Tensor>,
    /// Input of the backbone where there is an encoder, [T, B, d_code].
    code: D::Tensor,
    g_code: D::Tensor,
    /// What comes out, [T, B, d_output].
    pub features: D::Tensor,
    /// Gradient of the features, [T, B, d_output].
    pub g_features: D::Tensor,
    tape: Option<Tape<D>>,
    scratch: Scratch<D>,
}

impl<D: Backend> TrunkMemory<D> {
    /// Error unless a backward can follow.
    ///
    /// # Errors
    /// `Usage` when no tape is kept.
    pub fn check_tape(&self) -> Result<()> {
        if self.tape.is_some() {
            return Ok(());
        }
        Err(Error::Usage("backward needs a workspace that was made for training".into()))
    }
}

impl<D: Backend> Trunk<D> {
    /// Joins the two; `prefix` stands before every parameter's name.
    ///
    /// # Errors
    /// `Config` when the widths do not fit.
    pub fn new(
        prefix: &'static str,
        d_input: usize,
        encoder: Option<Box<dyn Encoder<D>>>,
        backbone: Box<dyn Backbone<D>>,
    ) -> Result<Self> {
        let code = encoder.as_ref().map_or(d_input, |e| e.d_output());
        if backbone.d_input() != code {
            let problem = format!("takes {} features a step, but gets {code}", backbone.d_input());
            return Err(Error::config("backbone", problem));
        }
        Ok(Trunk { prefix, encoder, backbone, d_input })
    }

    /// All parameters, named as in the checkpoint.
    pub fn parameters(&self) -> Vec<ParamSpec> {
        let mut specs = self.encoder.as_ref().map_or(Vec::new(), |e| e.parameters());
        specs.extend(self.backbone.parameters());
        specs.iter_mut().for_each(|s| s.name.insert_str(0, self.prefix));
        specs
    }

    /// Finds its parameters.
    ///
    /// # Errors
    /// `Config` naming one that is missing.
    pub fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        let own = layout.scoped(self.prefix);
        if let Some(e) = &mut self.encoder {
            e.bind(&own)?;
        }
        self.backbone.bind(&own)
    }

    /// Features a step that go in.
    pub fn d_input(&self) -> usize {
        self.d_input
    }

    /// Features a step that come out.
    pub fn d_output(&self) -> usize {
        self.backbone.d_output()
    }

    /// The recurrent body.
    pub fn backbone(&self) -> &dyn Backbone<D> {
        self.backbone.as_ref()
    }

    /// Parts of the recurrent state.
    pub fn state_layout(&self) -> &[Part] {
        self.backbone.state_layout()
    }

    /// Buffers for sequences up to `shape`.
    ///
    /// # Errors
    /// Device errors (out of memory).
    pub fn memory(&self, dev: &D, shape: SeqShape, train: bool) -> Result<TrunkMemory<D>> {
        let rows = shape.rows();
        let code = self.encoder.as_ref().map_or(0, |e| e.d_output());
        let back = if train { rows } else { 0 };
        let encoder = self.encoder.as_ref().map_or(Vec::new(), |e| e.tape_layout(rows));
        let zeros = |len: usize| dev.zeros(len.max(1), Kind::Full);
        let tape = if train { Some(Parts::zeros(dev, &self.backbone.tape_layout(shape), 1)?) } else { None };
        Ok(TrunkMemory {
            encoder_tape: Parts::<D>::zeros(dev, &encoder, 1)?.bufs,
            code: zeros(rows * code)?,
            g_code: zeros(back * code)?,
            features: zeros(rows * self.d_output())?,
            g_features: zeros(back * self.d_output())?,
            tape,
            scratch: Parts::zeros(dev, &self.backbone.scratch_layout(shape, train), 1)?,
        })
    }

    /// Elements of a memory's (tape, all else) for `shape`, for reports.
    pub fn memory_len(&self, shape: SeqShape, train: bool) -> (usize, usize) {
        let sum = |parts: Vec<Part>| parts.iter().map(|p| p.len).sum::<usize>();
        let (rows, pass) = (shape.rows(), if train { 2 } else { 1 });
        let code = self.encoder.as_ref().map_or(0, |e| e.d_output());
        let tape = if train { sum(self.backbone.tape_layout(shape)) } else { 0 };
        let outer =
            rows * pass * (code + self.d_output()) + self.encoder.as_ref().map_or(0, |e| sum(e.tape_layout(rows)));
        (tape, outer + sum(self.backbone.scratch_layout(shape, train)))
    }

    /// Features [T, B, d_output] into `memory.features`; `state` becomes the state after the last step; keeps a tape where
    /// `train`.
    ///
    /// # Errors
    /// Device errors.
    pub fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        memory: &mut TrunkMemory<D>,
        train: bool,
    ) -> Result<()> {
        let rows = seq.shape.rows();
        let y = ViewMut::new(&mut memory.features, 0, rows * self.d_output());
        let tape = if train { memory.tape.as_mut() } else { None };
        match &self.encoder {
            None => self.backbone.forward(dev, params, seq, state, &mut memory.scratch, y, tape),
            Some(e) => {
                let n = rows * e.d_output();
                e.forward(dev, params, rows, seq.x, &mut memory.encoder_tape, ViewMut::new(&mut memory.code, 0, n))?;
                let seq = Sequence { x: View::new(&memory.code, 0, n), ..seq };
                self.backbone.forward(dev, params, seq, state, &mut memory.scratch, y, tape)
            }
        }
    }

    /// Adds the parameter gradients of `memory.g_features` [T, B, d_output] to `g_params`, through the forward that kept
    /// the tape. No gradient leaves through the initial state: burn-in is a constant.
    ///
    /// # Errors
    /// `Usage` when `memory` keeps no tape; device errors.
    pub fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        memory: &mut TrunkMemory<D>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let Some(tape) = &memory.tape else { return memory.check_tape() };
        let rows = seq.shape.rows();
        let from = SeqGrad { g_y: View::new(&memory.g_features, 0, rows * self.d_output()), g_state: None };
        let Some(e) = &self.encoder else {
            let to = SeqGradOut { g_params, g_x: None, g_state: None };
            return self.backbone.backward(dev, params, seq, tape, &mut memory.scratch, from, to);
        };
        let m = rows * e.d_output();
        let inner = Sequence { x: View::new(&memory.code, 0, m), ..seq };
        let to = SeqGradOut { g_params, g_x: Some(ViewMut::new(&mut memory.g_code, 0, m)), g_state: None };
        self.backbone.backward(dev, params, inner, tape, &mut memory.scratch, from, to)?;
        let (code, g_code) = (View::new(&memory.code, 0, m), ViewMut::new(&mut memory.g_code, 0, m));
        e.backward(dev, params, rows, seq.x, &mut memory.encoder_tape, code, g_code, g_params)
    }
}
