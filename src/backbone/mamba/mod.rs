//! The Mamba backbone: input projection, `n_layers` residual blocks, final norm.
//! r₀ = input_proj(x); r_{i+1} = r_i + block_i(rms_norm(r_i)); y = rms_norm(r_L).
//! Source: Gu & Dao, 2023; `MixerModel` of the official code. With [`Rotate`] on, pairs of states turn by constant angles:
//! no longer Mamba-1, see `ops/rotating_scan`.
//!
//! The tape keeps, per layer, r, xz, the convolution before its SiLU, u, q, Δ, the scan's y and sparse states; everything
//! else is computed again. Without a tape one scratch serves all layers. Where the device stores small, the tape does and
//! operands of the backward's products do; what a layer computes and its gradients lie in full in the scratch: an output
//! hangs on every step before it, so a rounding on the way forward grows, one on the tape does not.

mod block;
mod config;
mod init;

pub(crate) use config::size;
pub use config::{MambaConfig, Rotate};
pub(crate) use init::by_fan_in;

use block::{Activations, BlockGrad, BlockIo, BlockTape, BlockWork, Sizes};
use init::MambaSlots;

use super::{Backbone, Part, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use super::{check_sequence, check_state, enough, unbound};
use crate::device::{Kind, Precision, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::params::{ParamLayout, ParamSpec, Params};

/// Parts of the tape per layer.
const TAPE: usize = 9;
/// Parts of the scratch for forward and backward.
const SCRATCH: usize = 12;
/// The first of them serve a forward without tape.
const SCRATCH_FORWARD: usize = 9;

/// A Mamba backbone.
#[derive(Debug, Clone)]
pub struct Mamba {
    config: MambaConfig,
    state: Vec<Part>,
    slots: Option<MambaSlots>,
}

impl Mamba {
    /// A backbone of these sizes.
    ///
    /// # Errors
    /// `Config` naming the field, its value and the limit.
    pub fn new(config: MambaConfig) -> Result<Self> {
        config.validate()?;
        let e = config.d_inner();
        let state = (0..config.n_layers)
            .flat_map(|i| {
                [
                    Part::new(format!("layers.{i}.conv"), (config.d_conv - 1) * e, Kind::Full),
                    Part::new(format!("layers.{i}.ssm"), config.d_state * e, Kind::Full),
                ]
            })
            .collect();
        Ok(Mamba { config, state, slots: None })
    }

    /// Its sizes.
    pub fn config(&self) -> &MambaConfig {
        &self.config
    }

    /// Sizes of its ops for sequences of this shape.
    fn sizes(&self, shape: SeqShape) -> Sizes {
        Sizes::new(&self.config, shape)
    }

    fn input_shape(&self, rows: usize) -> LinearShape {
        LinearShape { rows, d_in: self.config.d_input, d_out: self.config.d_model }
    }

    fn slots(&self) -> Result<&MambaSlots> {
        self.slots.as_ref().ok_or_else(unbound)
    }

    /// Name, length and storage of a layer's tape. Δ, B and C feed exponents and sums: full precision, as the states.
    fn tape_parts(&self, s: &Sizes) -> [(&'static str, usize, Kind); TAPE] {
        let n = s.inner();
        [
            ("res", s.stream(), Kind::Full),
            ("xz", 2 * n, Kind::Small),
            ("pre", n, Kind::Small),
            ("u", n, Kind::Small),
            ("q", s.q(), Kind::Full),
            ("delta", n, Kind::Full),
            ("y", n, Kind::Small),
            ("h", s.scan.tape_len(), Kind::Full),
            ("window", s.window(), Kind::Full),
        ]
    }

    fn scratch_parts<D: Backend>(&self, s: &Sizes, train: bool) -> [(&'static str, usize, Kind); SCRATCH] {
        let (n, input) = (s.inner(), s.gate.rows * self.config.d_input);
        let ops = D::conv_scratch(s.conv, train).max(s.scan_scratch::<D>(train));
        [
            ("x", input, Kind::Full),
            ("norm", s.stream(), Kind::Full),
            ("ops", ops, Kind::Full),
            ("res", s.stream(), Kind::Full),
            ("xz", 2 * n, Kind::Full),
            ("u", n, Kind::Full),
            ("q", s.q(), Kind::Full),
            ("delta", n, Kind::Full),
            ("y", n, Kind::Full),
            ("gated", n, Kind::Small),
            ("g_norm", s.stream(), Kind::Full),
            ("g_x", input, Kind::Full),
        ]
    }

    fn check_scratch<D: Backend>(&self, dev: &D, s: &Sizes, train: bool, scratch: &Scratch<D>) -> Result<()> {
        let parts = self.scratch_parts::<D>(s, train);
        let used = if train { SCRATCH } else { SCRATCH_FORWARD };
        enough(dev, "scratch", parts.into_iter().take(used).map(|p| (p.0, p.1)), scratch)
    }

    fn check_tape<D: Backend>(&self, dev: &D, s: &Sizes, tape: &Tape<D>) -> Result<()> {
        let layers = (0..self.config.n_layers).flat_map(|_| self.tape_parts(s));
        enough(dev, "tape", layers.map(|p| (p.0, p.1)).chain([("res", s.stream())]), tape)
    }

    /// F0  r₀ = input_proj(x), padding zeroed                [T,B,d_model]
    fn enter<D: Backend>(
        &self,
        dev: &D,
        p: &Params<D>,
        seq: &Sequence<'_, D>,
        clean: &mut D::Tensor,
        res: &mut D::Tensor,
    ) -> Result<()> {
        let rows = seq.shape.rows();
        let res = ViewMut::new(res, 0, rows * self.config.d_model);
        let Some([w, b]) = self.slots()?.input else {
            return dev.keep_rows(self.config.d_model, seq.x, seq.valid, res);
        };
        let x = self.clean_input(dev, seq, clean)?;
        dev.linear(self.input_shape(rows), LinearIn { x, w: p.view(w), b: Some(p.view(b)) }, res, false)
    }

    /// The inputs with zeros at padding: themselves where there is none.
    fn clean_input<'a, D: Backend>(
        &self,
        dev: &D,
        seq: &Sequence<'a, D>,
        clean: &'a mut D::Tensor,
    ) -> Result<View<'a, D::Tensor>> {
        if seq.valid.is_none() {
            return Ok(seq.x);
        }
        let len = seq.shape.rows() * self.config.d_input;
        dev.keep_rows(self.config.d_input, seq.x, seq.valid, ViewMut::new(clean, 0, len))?;
        Ok(View::new(clean, 0, len))
    }

    /// Gradient of the inputs from that of r₀; none at padding.
    fn enter_bwd<D: Backend>(
        &self,
        dev: &D,
        p: &Params<D>,
        seq: &Sequence<'_, D>,
        [clean, spare]: [&mut D::Tensor; 2],
        g_res: &D::Tensor,
        to: SeqGradOut<'_, D>,
    ) -> Result<()> {
        let rows = seq.shape.rows();
        let g_y = View::new(g_res, 0, rows * self.config.d_model);
        let Some([w, b]) = self.slots()?.input else {
            return match to.g_x {
                Some(g_x) => dev.keep_rows(self.config.d_model, g_y, seq.valid, g_x),
                None => Ok(()),
            };
        };
        let shape = self.input_shape(rows);
        let x = self.clean_input(dev, seq, clean)?;
        let x = LinearIn { x, w: p.view(w), b: None };
        dev.linear_bwd(shape, x, LinearGrad { g_y, g_x: None, g_params: to.g_params, w, b: Some(b) })?;
        match (to.g_x, seq.valid) {
            (None, _) => Ok(()),
            (Some(g_x), None) => dev.linear_bwd_x(shape, p.view(w), g_y, g_x, false),
            (Some(g_x), valid) => {
                let len = rows * self.config.d_input;
                dev.linear_bwd_x(shape, p.view(w), g_y, ViewMut::new(spare, 0, len), false)?;
                dev.keep_rows(self.config.d_input, View::new(spare, 0, len), valid, g_x)
            }
        }
    }
}

impl<D: Backend> Backbone<D> for Mamba {
    fn d_input(&self) -> usize {
        self.config.d_input
    }

    fn d_output(&self) -> usize {
        self.config.d_model
    }

    fn parameters(&self) -> Vec<ParamSpec> {
        init::specs(&self.config)
    }

    fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        self.slots = Some(MambaSlots::find(&self.config, layout)?);
        Ok(())
    }

    fn state_layout(&self) -> &[Part] {
        &self.state
    }

    fn tape_layout(&self, shape: SeqShape) -> Vec<Part> {
        let (s, mut parts) = (self.sizes(shape), Vec::new());
        for i in 0..self.config.n_layers {
            let part = |(name, len, kind)| Part::new(format!("layers.{i}.{name}"), len, kind);
            parts.extend(self.tape_parts(&s).map(part));
        }
        parts.push(Part::new("res", s.stream(), Kind::Full));
        parts
    }

    fn scratch_layout(&self, shape: SeqShape, train: bool) -> Vec<Part> {
        let parts = self.scratch_parts::<D>(&self.sizes(shape), train);
        parts
            .into_iter()
            .take(if train { SCRATCH } else { SCRATCH_FORWARD })
            .map(|(n, l, k)| Part::new(n, l, k))
            .collect()
    }

    fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        scratch: &mut Scratch<D>,
        y: ViewMut<'_, D::Tensor>,
        mut tape: Option<&mut Tape<D>>,
    ) -> Result<()> {
        let (slots, s, shape) = (self.slots()?, self.sizes(seq.shape), seq.shape);
        check_sequence(dev, &seq, self.config.d_input, &y.read(), self.config.d_model)?;
        check_state(dev, &self.state, state, shape.batch)?;
        self.check_scratch(dev, &s, tape.is_some(), scratch)?;
        if let Some(tape) = tape.as_ref() {
            self.check_tape(dev, &s, tape)?;
        }
        if shape.rows() == 0 {
            return Ok(());
        }
        let (stream, apart) = (s.stream(), dev.precision() != Precision::F32);
        let [clean, norm, ops, res, xz, u, q, delta, out, ..] = &mut scratch.bufs[..] else { return Err(unbound()) };
        let first = tape.as_mut().map_or(&mut *res, |tape| &mut tape.bufs[0]);
        self.enter(dev, params, &seq, clean, first)?;
        for (i, k) in slots.blocks.iter().enumerate() {
            let [window, h] = &mut state.bufs[2 * i..2 * i + 2] else { return Err(unbound()) };
            match tape.as_mut() {
                None => {
                    // F1  n = rms_norm(r)
                    dev.rms_norm(
                        s.norm,
                        View::new(res, 0, stream),
                        params.view(k.norm),
                        ViewMut::new(norm, 0, stream),
                    )?;
                    let act = Activations { xz, pre: None, u, q, delta, y: out, h: None, window: None };
                    let io = BlockIo { reset: seq.reset, norm, act, kept: None, gated: None, window, h, ops, res };
                    block::forward(dev, params, k, &s, io)?;
                }
                Some(tape) => {
                    let [r, xz_tape, pre, u_tape, q, delta, y_tape, h_tape, window_tape, next, ..] =
                        &mut tape.bufs[TAPE * i..]
                    else {
                        return Err(unbound());
                    };
                    dev.rms_norm(s.norm, View::new(r, 0, stream), params.view(k.norm), ViewMut::new(norm, 0, stream))?;
                    dev.copy(View::new(r, 0, stream), ViewMut::new(next, 0, stream))?;
                    let (pre, h_tape, window_tape) = (Some(pre), Some(h_tape), Some(window_tape));
                    let ([xz, u, y], kept, gated) = match apart {
                        true => ([&mut *xz, &mut *u, &mut *out], Some([xz_tape, u_tape, y_tape]), None),
                        false => ([xz_tape, u_tape, y_tape], None, Some(&mut *u)),
                    };
                    let act = Activations { xz, pre, u, q, delta, y, h: h_tape, window: window_tape };
                    let io = BlockIo { reset: seq.reset, norm, act, kept, gated, window, h, ops, res: next };
                    block::forward(dev, params, k, &s, io)?;
                }
            }
        }
        // F8  y = rms_norm(r)                             [T,B,d_model]
        let last = tape.as_ref().map_or(&*res, |tape| &tape.bufs[TAPE * self.config.n_layers]);
        dev.rms_norm(s.norm, View::new(last, 0, stream), params.view(slots.norm_f), y)
    }

    fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        tape: &Tape<D>,
        scratch: &mut Scratch<D>,
        from: SeqGrad<'_, D>,
        mut to: SeqGradOut<'_, D>,
    ) -> Result<()> {
        let (slots, s, shape) = (self.slots()?, self.sizes(seq.shape), seq.shape);
        check_sequence(dev, &seq, self.config.d_input, &from.g_y, self.config.d_model)?;
        self.check_scratch(dev, &s, true, scratch)?;
        self.check_tape(dev, &s, tape)?;
        for g in [from.g_state, to.g_state.as_deref()].into_iter().flatten() {
            check_state(dev, &self.state, g, shape.batch)?;
        }
        if shape.rows() == 0 {
            return Ok(());
        }
        let stream = s.stream();
        let [clean, _, ops, g_res, g_xz, g_u, g_q, g_delta, g_y, gated, g_norm, g_x] = &mut scratch.bufs[..] else {
            return Err(unbound());
        };
        // B8  y = rms_norm(r)
        let last = View::new(&tape.bufs[TAPE * self.config.n_layers], 0, stream);
        let (w, g_last) = (params.view(slots.norm_f), ViewMut::new(g_res, 0, stream));
        dev.rms_norm_bwd(s.norm, last, w, from.g_y, g_last, false, to.g_params, slots.norm_f)?;
        for (i, k) in slots.blocks.iter().enumerate().rev() {
            let [res, xz, pre, u, q, delta, y, h, window, ..] = &tape.bufs[TAPE * i..] else { return Err(unbound()) };
            let state_in = match to.g_state.as_mut().map(|g| &mut g.bufs[2 * i..2 * i + 2]) {
                Some([window, h]) => Some([window, h]),
                _ => None,
            };
            let grad = BlockGrad {
                reset: seq.reset,
                state_out: from.g_state.map(|g| [&g.bufs[2 * i], &g.bufs[2 * i + 1]]),
                state_in,
                g_res,
                g_params: to.g_params,
            };
            let tape = BlockTape { res, xz, pre, u, q, delta, y, h, window };
            let work = BlockWork { g_norm, g_xz, g_u, g_q, g_delta, g_y, gated, ops };
            block::backward(dev, params, k, &s, tape, work, grad)?;
        }
        // B0  r₀ = input_proj(x)
        self.enter_bwd(dev, params, &seq, [clean, g_x], g_res, to)
    }
}
