//! No memory: each layer y = max(x Wᵀ + b, 0), every step by itself. The control that shows what memory is worth.

use serde::{Deserialize, Serialize};

use super::mamba::{by_fan_in, size};
use super::{Backbone, Part, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use super::{check_sequence, enough, slots, unbound};
use crate::device::{Kind, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::params::{Group, ParamLayout, ParamSpec, Params};

/// Sizes of an MLP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MlpConfig {
    /// Features per step that go in. No useful default: 1.
    pub d_input: usize,
    /// Width of every layer. Default 64.
    pub d_model: usize,
    /// Layers. Default 1.
    pub n_layers: usize,
}

impl Default for MlpConfig {
    fn default() -> Self {
        MlpConfig { d_input: 1, d_model: 64, n_layers: 1 }
    }
}

impl MlpConfig {
    /// # Errors
    /// `Config` naming the field, its value and the limit.
    pub fn validate(&self) -> Result<()> {
        size("d_input", self.d_input, 1 << 20)?;
        size("d_model", self.d_model, 1 << 14)?;
        size("n_layers", self.n_layers, 256)
    }
}

/// An MLP.
#[derive(Debug, Clone)]
pub struct Mlp {
    config: MlpConfig,
    /// Weight and bias of each layer.
    slots: Vec<[Slot; 2]>,
}

impl Mlp {
    /// A body of these sizes.
    ///
    /// # Errors
    /// `Config` naming the field, its value and the limit.
    pub fn new(config: MlpConfig) -> Result<Self> {
        config.validate()?;
        Ok(Mlp { config, slots: Vec::new() })
    }

    fn shape(&self, rows: usize, layer: usize) -> LinearShape {
        let d_in = if layer == 0 { self.config.d_input } else { self.config.d_model };
        LinearShape { rows, d_in, d_out: self.config.d_model }
    }

    fn scratch_parts(&self, s: SeqShape) -> [(&'static str, usize); 3] {
        let stream = s.rows() * self.config.d_model;
        [("x", s.rows() * self.config.d_input), ("a", stream), ("b", stream)]
    }

    fn check<D: Backend>(&self, dev: &D, s: SeqShape, scratch: &Scratch<D>, tape: Option<&Tape<D>>) -> Result<()> {
        if self.slots.is_empty() {
            return Err(unbound());
        }
        enough(dev, "scratch", self.scratch_parts(s), scratch)?;
        let layers = (0..self.config.n_layers).map(|_| ("y", s.rows() * self.config.d_model));
        let all = [("x", s.rows() * self.config.d_input)].into_iter().chain(layers);
        tape.map_or(Ok(()), |tape| enough(dev, "tape", all, tape))
    }
}

impl<D: Backend> Backbone<D> for Mlp {
    fn d_input(&self) -> usize {
        self.config.d_input
    }

    fn d_output(&self) -> usize {
        self.config.d_model
    }

    fn parameters(&self) -> Vec<ParamSpec> {
        let layer = |i: usize| {
            let s = self.shape(1, i);
            let name = |n: &str| format!("backbone.layers.{i}.{n}");
            [
                ParamSpec::new(name("weight"), &[s.d_out, s.d_in], Group::BackboneDecayed, by_fan_in(s.d_in)),
                ParamSpec::new(name("bias"), &[s.d_out], Group::BackbonePlain, by_fan_in(s.d_in)),
            ]
        };
        (0..self.config.n_layers).flat_map(layer).collect()
    }

    fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        let layer = |i: usize| slots(layout, &format!("backbone.layers.{i}."), ["weight", "bias"]);
        self.slots = (0..self.config.n_layers).map(layer).collect::<Result<_>>()?;
        Ok(())
    }

    fn state_layout(&self) -> &[Part] {
        &[]
    }

    fn tape_layout(&self, s: SeqShape) -> Vec<Part> {
        let layers = (0..self.config.n_layers).map(|i| (format!("layers.{i}.y"), s.rows() * self.config.d_model));
        let all = [("x".to_string(), s.rows() * self.config.d_input)].into_iter().chain(layers);
        all.map(|(name, len)| Part::new(name, len, Kind::Small)).collect()
    }

    fn scratch_layout(&self, s: SeqShape, _: bool) -> Vec<Part> {
        self.scratch_parts(s).into_iter().map(|(name, len)| Part::new(name, len, Kind::Full)).collect()
    }

    fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        _: &mut State<D>,
        scratch: &mut Scratch<D>,
        y: ViewMut<'_, D::Tensor>,
        mut tape: Option<&mut Tape<D>>,
    ) -> Result<()> {
        let (rows, stream) = (seq.shape.rows(), seq.shape.rows() * self.config.d_model);
        check_sequence(dev, &seq, self.config.d_input, &y.read(), self.config.d_model)?;
        self.check(dev, seq.shape, scratch, tape.as_deref())?;
        if rows == 0 {
            return Ok(());
        }
        let [x, a, b] = &mut scratch.bufs[..] else { return Err(unbound()) };
        let first = ViewMut::new(tape.as_mut().map_or(&mut *x, |t| &mut t.bufs[0]), 0, rows * self.config.d_input);
        dev.keep_rows(self.config.d_input, seq.x, seq.valid, first)?;
        for (i, &[w, bias]) in self.slots.iter().enumerate() {
            let s = self.shape(rows, i);
            let (from, to) = match tape.as_mut() {
                Some(tape) => {
                    let [from, to] = &mut tape.bufs[i..i + 2] else { return Err(unbound()) };
                    (&*from, to)
                }
                None => (if i == 0 { &*x } else { &*b }, &mut *a),
            };
            let input =
                LinearIn { x: View::new(from, 0, rows * s.d_in), w: params.view(w), b: Some(params.view(bias)) };
            dev.linear(s, input, ViewMut::new(to, 0, stream), false)?;
            dev.relu(ViewMut::new(to, 0, stream))?;
            if tape.is_none() {
                std::mem::swap(a, b); // y of this layer is x of the next
            }
        }
        let last = tape.as_ref().map_or(&*b, |t| &t.bufs[self.config.n_layers]);
        dev.copy(View::new(last, 0, stream), y)
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
        let (rows, stream) = (seq.shape.rows(), seq.shape.rows() * self.config.d_model);
        check_sequence(dev, &seq, self.config.d_input, &from.g_y, self.config.d_model)?;
        self.check(dev, seq.shape, scratch, Some(tape))?;
        if rows == 0 {
            return Ok(());
        }
        let [x, g, next] = &mut scratch.bufs[..] else { return Err(unbound()) };
        dev.copy(from.g_y, ViewMut::new(g, 0, stream))?;
        for (i, &[w, bias]) in self.slots.iter().enumerate().rev() {
            let s = self.shape(rows, i);
            dev.relu_bwd(View::new(&tape.bufs[i + 1], 0, stream), ViewMut::new(g, 0, stream))?;
            let input = LinearIn { x: View::new(&tape.bufs[i], 0, rows * s.d_in), w: params.view(w), b: None };
            let g_y = View::new(&*g, 0, stream);
            let grad = LinearGrad { g_y, g_x: None, g_params: to.g_params, w, b: Some(bias) };
            dev.linear_bwd(s, input, grad)?;
            if i > 0 {
                dev.linear_bwd_x(s, params.view(w), g_y, ViewMut::new(next, 0, stream), false)?;
                std::mem::swap(g, next);
            } else if let Some(g_x) = to.g_x.take() {
                let len = rows * s.d_in;
                dev.linear_bwd_x(s, params.view(w), g_y, ViewMut::new(x, 0, len), false)?;
                dev.keep_rows(s.d_in, View::new(x, 0, len), seq.valid, g_x)?;
            }
        }
        Ok(())
    }
}
