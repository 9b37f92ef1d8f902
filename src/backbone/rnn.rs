//! Stacked recurrent layers around the op `recurrent`: GRU and LSTM differ in the cell alone.
//! Layer i: gx = x W_ihᵀ + b_ih for all steps at once, then the cell over time; its h is the next layer's x.
//! Starting values: everything uniform in ± hidden^−½, as `torch.nn.LSTM` and `torch.nn.GRU`.

use serde::{Deserialize, Serialize};

use super::mamba::{by_fan_in, size};
use super::{Part, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use super::{check_sequence, check_state, enough, slots, unbound};
use crate::device::{Kind, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::ops::recurrent::{Cell, RecurrentGrad, RecurrentIn, RecurrentOut, RecurrentShape};
use crate::params::{Group, ParamLayout, ParamSpec, Params};

/// Sizes of a GRU or LSTM. The input goes straight into the first layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RnnConfig {
    /// Features per step that go in. No useful default: 1.
    pub d_input: usize,
    /// Width of h. Default 64.
    pub d_model: usize,
    /// Layers. Default 1.
    pub n_layers: usize,
}

impl Default for RnnConfig {
    fn default() -> Self {
        RnnConfig { d_input: 1, d_model: 64, n_layers: 1 }
    }
}

impl RnnConfig {
    /// # Errors
    /// `Config` naming the field, its value and the limit.
    pub fn validate(&self) -> Result<()> {
        size("d_input", self.d_input, 1 << 20)?;
        size("d_model", self.d_model, 1 << 14)?;
        size("n_layers", self.n_layers, 256)
    }
}

/// Places of a layer's parameters.
#[derive(Debug, Clone, Copy)]
struct LayerSlots {
    w_ih: Slot,
    w_hh: Slot,
    b_ih: Slot,
    b_hh: Slot,
}

/// Stacked layers of one cell.
#[derive(Debug, Clone)]
pub(super) struct Rnn {
    pub config: RnnConfig,
    cell: Cell,
    pub state: Vec<Part>,
    slots: Vec<LayerSlots>,
}

impl Rnn {
    pub fn new(cell: Cell, config: RnnConfig) -> Result<Self> {
        config.validate()?;
        let names: &[&str] = if cell == Cell::Lstm { &["h", "c"] } else { &["h"] };
        let part = |i, name: &&str| Part::new(format!("layers.{i}.{name}"), config.d_model, Kind::Full);
        let state = (0..config.n_layers).flat_map(|i| names.iter().map(move |name| part(i, name))).collect();
        Ok(Rnn { cell, state, slots: Vec::new(), config })
    }

    fn width_in(&self, layer: usize) -> usize {
        if layer == 0 { self.config.d_input } else { self.config.d_model }
    }

    fn shapes(&self, s: SeqShape, layer: usize) -> (LinearShape, RecurrentShape) {
        let r = RecurrentShape { cell: self.cell, time: s.time, batch: s.batch, hidden: self.config.d_model };
        (LinearShape { rows: s.rows(), d_in: self.width_in(layer), d_out: r.width() }, r)
    }

    pub fn parameters(&self) -> Vec<ParamSpec> {
        let (n, width) = (self.config.d_model, self.cell.gates() * self.config.d_model);
        let spec = |name: String, shape: &[usize]| {
            let group = if shape.len() == 2 { Group::BackboneDecayed } else { Group::BackbonePlain };
            ParamSpec::new(format!("backbone.{name}"), shape, group, by_fan_in(n))
        };
        let layer = |i: usize| {
            [
                spec(format!("weight_ih_l{i}"), &[width, self.width_in(i)]),
                spec(format!("weight_hh_l{i}"), &[width, n]),
                spec(format!("bias_ih_l{i}"), &[width]),
                spec(format!("bias_hh_l{i}"), &[width]),
            ]
        };
        (0..self.config.n_layers).flat_map(layer).collect()
    }

    pub fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        let layer = |i: usize| {
            let names = ["weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"].map(|n| format!("{n}{i}"));
            let [w_ih, w_hh, b_ih, b_hh] = slots(layout, "backbone.", names.each_ref().map(String::as_str))?;
            Ok(LayerSlots { w_ih, w_hh, b_ih, b_hh })
        };
        self.slots = (0..self.config.n_layers).map(layer).collect::<Result<_>>()?;
        Ok(())
    }

    /// Tape: the clean input, then per layer the cell's fields and its output.
    pub fn tape_layout(&self, s: SeqShape) -> Vec<Part> {
        let mut parts = vec![Part::new("x", s.rows() * self.config.d_input, Kind::Small)];
        for i in 0..self.config.n_layers {
            parts.push(Part::new(format!("layers.{i}.cell"), self.shapes(s, i).1.tape_len(), Kind::Full));
            parts.push(Part::new(format!("layers.{i}.y"), s.rows() * self.config.d_model, Kind::Small));
        }
        parts
    }

    fn scratch_parts<D: Backend>(&self, s: SeqShape, train: bool) -> [(&'static str, usize); 5] {
        let (_, r) = self.shapes(s, 0);
        let (stream, input) = (s.rows() * self.config.d_model, s.rows() * self.config.d_input);
        let ops = D::recurrent_scratch(r, train);
        [("x", input), ("gx", s.rows() * r.width()), ("y", stream), ("g_y", stream), ("ops", ops)]
    }

    pub fn scratch_layout<D: Backend>(&self, s: SeqShape, train: bool) -> Vec<Part> {
        self.scratch_parts::<D>(s, train).into_iter().map(|(name, len)| Part::new(name, len, Kind::Full)).collect()
    }

    fn check<D: Backend>(&self, dev: &D, s: SeqShape, scratch: &Scratch<D>, tape: Option<&Tape<D>>) -> Result<()> {
        if self.slots.is_empty() {
            return Err(unbound());
        }
        enough(dev, "scratch", self.scratch_parts::<D>(s, tape.is_some()), scratch)?;
        let Some(tape) = tape else { return Ok(()) };
        let layer = |i| [("cell", self.shapes(s, i).1.tape_len()), ("y", s.rows() * self.config.d_model)];
        let layers = (0..self.config.n_layers).flat_map(layer);
        enough(dev, "tape", [("x", s.rows() * self.config.d_input)].into_iter().chain(layers), tape)
    }

    #[allow(clippy::too_many_arguments)] // as Backbone::forward
    pub fn forward<D: Backend>(
        &self,
        dev: &D,
        p: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        scratch: &mut Scratch<D>,
        y: ViewMut<'_, D::Tensor>,
        mut tape: Option<&mut Tape<D>>,
    ) -> Result<()> {
        let (s, rows) = (seq.shape, seq.shape.rows());
        check_sequence(dev, &seq, self.config.d_input, &y.read(), self.config.d_model)?;
        check_state(dev, &self.state, state, s.batch)?;
        self.check(dev, s, scratch, tape.as_deref())?;
        if rows == 0 {
            return Ok(());
        }
        let [x, gx, spare, out, ops] = &mut scratch.bufs[..] else { return Err(unbound()) };
        let input = ViewMut::new(tape.as_mut().map_or(&mut *x, |t| &mut t.bufs[0]), 0, rows * self.config.d_input);
        dev.keep_rows(self.config.d_input, seq.x, seq.valid, input)?;
        let parts = self.state.len() / self.config.n_layers;
        let stream = rows * self.config.d_model;
        for (i, k) in self.slots.iter().enumerate() {
            let (linear, cell) = self.shapes(s, i);
            let from = match (&tape, i) {
                (None, 0) => &*x,
                (None, _) => &*spare,
                (Some(tape), _) => &tape.bufs[2 * i],
            };
            let x = LinearIn { x: View::new(from, 0, rows * linear.d_in), w: p.view(k.w_ih), b: Some(p.view(k.b_ih)) };
            dev.linear(linear, x, ViewMut::new(gx, 0, rows * linear.d_out), false)?;
            let x = RecurrentIn {
                gx: View::new(gx, 0, rows * linear.d_out),
                w_hh: p.view(k.w_hh),
                b_hh: p.view(k.b_hh),
                reset: seq.reset,
            };
            let (fields, to) = match tape.as_mut() {
                Some(tape) => {
                    let [fields, to] = &mut tape.bufs[1 + 2 * i..3 + 2 * i] else { return Err(unbound()) };
                    (Some(ViewMut::new(fields, 0, cell.tape_len())), to)
                }
                None => (None, &mut *out),
            };
            let scratch = ViewMut::new(ops, 0, D::recurrent_scratch(cell, fields.is_some()));
            let mut rows_of = state.bufs[parts * i..parts * (i + 1)].iter_mut();
            let len = s.batch * self.config.d_model;
            let Some(h) = rows_of.next().map(|h| ViewMut::new(h, 0, len)) else { return Err(unbound()) };
            let c = rows_of.next().map(|c| ViewMut::new(c, 0, len));
            dev.recurrent(cell, x, RecurrentOut { y: ViewMut::new(to, 0, stream), h, c, tape: fields, scratch })?;
            if tape.is_none() {
                std::mem::swap(spare, out); // y of this layer is x of the next
            }
        }
        let last = tape.as_ref().map_or(&*spare, |t| &t.bufs[2 * self.config.n_layers]);
        dev.copy(View::new(last, 0, stream), y)
    }

    #[allow(clippy::too_many_arguments)] // as Backbone::backward
    pub fn backward<D: Backend>(
        &self,
        dev: &D,
        p: &Params<D>,
        seq: Sequence<'_, D>,
        tape: &Tape<D>,
        scratch: &mut Scratch<D>,
        from: SeqGrad<'_, D>,
        mut to: SeqGradOut<'_, D>,
    ) -> Result<()> {
        let (s, rows) = (seq.shape, seq.shape.rows());
        check_sequence(dev, &seq, self.config.d_input, &from.g_y, self.config.d_model)?;
        self.check(dev, s, scratch, Some(tape))?;
        for g in [from.g_state, to.g_state.as_deref()].into_iter().flatten() {
            check_state(dev, &self.state, g, s.batch)?;
        }
        if rows == 0 {
            return Ok(());
        }
        let [x, g_gx, g_y, _, ops] = &mut scratch.bufs[..] else { return Err(unbound()) };
        let parts = self.state.len() / self.config.n_layers;
        let (stream, len) = (rows * self.config.d_model, s.batch * self.config.d_model);
        dev.copy(from.g_y, ViewMut::new(g_y, 0, stream))?;
        for (i, k) in self.slots.iter().enumerate().rev() {
            let (linear, cell) = self.shapes(s, i);
            let g_out = |j: usize| from.g_state.and_then(|g| g.bufs.get(parts * i + j)).map(|g| View::new(g, 0, len));
            let mut g_in =
                to.g_state.as_mut().map(|g| g.bufs[parts * i..parts * (i + 1)].iter_mut()).into_iter().flatten();
            let grad = RecurrentGrad {
                tape: View::new(&tape.bufs[1 + 2 * i], 0, cell.tape_len()),
                g_y: View::new(g_y, 0, stream),
                g_h_out: g_out(0),
                g_c_out: (parts > 1).then(|| g_out(1)).flatten(),
                g_gx: ViewMut::new(g_gx, 0, rows * linear.d_out),
                g_h: g_in.next().map(|g| ViewMut::new(g, 0, len)),
                g_c: g_in.next().map(|g| ViewMut::new(g, 0, len)),
                g_params: to.g_params,
                w_hh: k.w_hh,
                b_hh: k.b_hh,
                scratch: ViewMut::new(ops, 0, D::recurrent_scratch(cell, true)),
            };
            let gx = View::new(&tape.bufs[0], 0, 0);
            let input = RecurrentIn { gx, w_hh: p.view(k.w_hh), b_hh: p.view(k.b_hh), reset: seq.reset };
            dev.recurrent_bwd(cell, input, grad)?;
            let g_gx = View::new(g_gx, 0, rows * linear.d_out);
            let input = LinearIn { x: View::new(&tape.bufs[2 * i], 0, rows * linear.d_in), w: p.view(k.w_ih), b: None };
            let grad = LinearGrad { g_y: g_gx, g_x: None, g_params: to.g_params, w: k.w_ih, b: Some(k.b_ih) };
            dev.linear_bwd(linear, input, grad)?;
            if i > 0 {
                dev.linear_bwd_x(linear, p.view(k.w_ih), g_gx, ViewMut::new(g_y, 0, stream), false)?;
            } else if let Some(g_x) = to.g_x.take() {
                let len = rows * linear.d_in;
                dev.linear_bwd_x(linear, p.view(k.w_ih), g_gx, ViewMut::new(x, 0, len), false)?;
                dev.keep_rows(linear.d_in, View::new(x, 0, len), seq.valid, g_x)?;
            }
        }
        Ok(())
    }
}

/// The trait, passed on to [`Rnn`].
macro_rules! passed_on {
    ($name:ident, $cell:expr) => {
        impl $name {
            /// A backbone of these sizes.
            ///
            /// # Errors
            /// `Config` naming the field, its value and the limit.
            pub fn new(config: RnnConfig) -> Result<Self> {
                Ok($name(Rnn::new($cell, config)?))
            }
        }

        impl<D: Backend> Backbone<D> for $name {
            fn d_input(&self) -> usize {
                self.0.config.d_input
            }
            fn d_output(&self) -> usize {
                self.0.config.d_model
            }
            fn parameters(&self) -> Vec<ParamSpec> {
                self.0.parameters()
            }
            fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
                self.0.bind(layout)
            }
            fn state_layout(&self) -> &[Part] {
                &self.0.state
            }
            fn tape_layout(&self, shape: SeqShape) -> Vec<Part> {
                self.0.tape_layout(shape)
            }
            fn scratch_layout(&self, shape: SeqShape, train: bool) -> Vec<Part> {
                self.0.scratch_layout::<D>(shape, train)
            }
            fn forward(
                &self,
                dev: &D,
                params: &Params<D>,
                seq: Sequence<'_, D>,
                state: &mut State<D>,
                scratch: &mut Scratch<D>,
                y: ViewMut<'_, D::Tensor>,
                tape: Option<&mut Tape<D>>,
            ) -> Result<()> {
                self.0.forward(dev, params, seq, state, scratch, y, tape)
            }
            fn backward(
                &self,
                dev: &D,
                params: &Params<D>,
                seq: Sequence<'_, D>,
                tape: &Tape<D>,
                scratch: &mut Scratch<D>,
                from: SeqGrad<'_, D>,
                to: SeqGradOut<'_, D>,
            ) -> Result<()> {
                self.0.backward(dev, params, seq, tape, scratch, from, to)
            }
        }
    };
}
pub(super) use passed_on;
