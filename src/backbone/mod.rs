//! Recurrent backbones behind one trait. A sequence `[T, B, d_input]` goes in with a state, features `[T, B, d_output]`
//! and the state after the last step come out. Acting is T = 1 without a tape; burn-in and the target network are
//! without a tape; training keeps a tape and calls [`Backbone::backward`]. There is no other path.
//!
//! State = whatever the next step needs (for Mamba the last `d_conv − 1` convolution inputs and the SSM state of each layer).
//! `reset[t, b] = 1` clears row b's state before step t: a branch, so NaN and inf are cleared too, and no gradient passes.
//! `valid[t, b] = 0` marks padding: inputs there are zeroed on entry, so their contents never matter.

mod body;
pub(crate) mod custom;
pub(crate) mod gru;
pub(crate) mod lstm;
pub(crate) mod mamba;
pub(crate) mod mlp;
mod rnn;
pub(crate) mod stepwise;

pub use body::Body;
pub use custom::{CustomConfig, register};
pub use gru::Gru;
pub use lstm::Lstm;
pub use mamba::{Mamba, MambaConfig, Rotate};
pub use mlp::{Mlp, MlpConfig};
pub use rnn::RnnConfig;
pub use stepwise::{Cell, CellGrad, Stepwise, WeightGrads, Weights};

use serde::{Deserialize, Serialize};

use crate::device::{Device, Kind, Slot, View, ViewMut};
use crate::error::{Error, Result};
use crate::ops::{Backend, Check};
use crate::params::{ParamLayout, ParamSpec, Params};

/// Steps and rows of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeqShape {
    /// T.
    pub time: usize,
    /// B.
    pub batch: usize,
}

impl SeqShape {
    /// T · B.
    pub fn rows(self) -> usize {
        self.time * self.batch
    }
}

/// A named part of a state, tape or scratch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name, such as `layers.0.ssm`.
    pub name: String,
    /// Elements: per row for a state, in all for tape and scratch.
    pub len: usize,
    /// Storage.
    pub kind: Kind,
}

impl Part {
    /// A part.
    pub fn new(name: impl Into<String>, len: usize, kind: Kind) -> Self {
        Part { name: name.into(), len, kind }
    }
}

/// A sequence on the device, time-major.
pub struct Sequence<'a, D: Device> {
    /// T and B.
    pub shape: SeqShape,
    /// Inputs, [T, B, d_input].
    pub x: View<'a, D::Tensor>,
    /// 1: the state of row b is cleared before step t, [T, B]. None: no resets.
    pub reset: Option<View<'a, D::Mask>>,
    /// 0: padding, [T, B]. None: all steps are real.
    pub valid: Option<View<'a, D::Mask>>,
}

impl<D: Device> Clone for Sequence<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Device> Copy for Sequence<'_, D> {}

/// Buffers by the parts of a layout. State: part p is [B, len_p]. Tape and scratch: part p is `[len_p]`.
pub struct Parts<D: Device> {
    /// One buffer per part, in the order of the layout.
    pub bufs: Vec<D::Tensor>,
}

/// What the next step needs, one buffer [B, len] per part of [`Backbone::state_layout`].
pub type State<D> = Parts<D>;
/// What backward needs.
pub type Tape<D> = Parts<D>;
/// Working memory, contents meaningless between calls.
pub type Scratch<D> = Parts<D>;

impl<D: Device> Parts<D> {
    /// Zeroed buffers: `times` is B for a state, 1 for tape and scratch.
    ///
    /// # Errors
    /// Device errors (out of memory).
    pub fn zeros(dev: &D, layout: &[Part], times: usize) -> Result<Self> {
        let bufs = layout.iter().map(|p| dev.zeros((p.len * times).max(1), p.kind)).collect::<Result<_>>()?;
        Ok(Parts { bufs })
    }
}

/// Numbers per row of a state layout.
pub fn state_len(layout: &[Part]) -> usize {
    layout.iter().map(|p| p.len).sum()
}

fn expect_row(layout: &[Part], got: usize) -> Result<()> {
    let want = state_len(layout);
    if want == got {
        return Ok(());
    }
    Err(crate::Error::Shape { op: "state", arg: "row", shape: "[state_len]".into(), want, got })
}

impl<D: Device> State<D> {
    /// Row b as one host row `[state_len]`, parts in layout order.
    ///
    /// # Errors
    /// `Shape` for a row of another length; device errors.
    pub fn read_row(&self, dev: &D, layout: &[Part], b: usize, out: &mut [f32]) -> Result<()> {
        expect_row(layout, out.len())?;
        let mut at = 0;
        for (p, buf) in layout.iter().zip(&self.bufs) {
            dev.download(View::new(buf, b * p.len, p.len), &mut out[at..at + p.len])?;
            at += p.len;
        }
        Ok(())
    }

    /// Sets row b from one host row `[state_len]`.
    ///
    /// # Errors
    /// `Shape` for a row of another length; device errors.
    pub fn write_row(&mut self, dev: &D, layout: &[Part], b: usize, from: &[f32]) -> Result<()> {
        expect_row(layout, from.len())?;
        let mut at = 0;
        for (p, buf) in layout.iter().zip(&mut self.bufs) {
            dev.upload(&from[at..at + p.len], ViewMut::new(buf, b * p.len, p.len))?;
            at += p.len;
        }
        Ok(())
    }

    /// Sets all rows from host rows `[state_len]`, one copy for each part. `spare` is working memory.
    ///
    /// # Errors
    /// Device errors.
    pub fn write_rows<'a>(
        &mut self,
        dev: &D,
        layout: &[Part],
        rows: impl Iterator<Item = &'a [f32]> + Clone,
        spare: &mut Vec<f32>,
    ) -> Result<()> {
        let mut at = 0;
        for (p, buf) in layout.iter().zip(&mut self.bufs) {
            spare.clear();
            rows.clone().for_each(|row| spare.extend_from_slice(&row[at..at + p.len]));
            dev.upload(spare, ViewMut::new(buf, 0, spare.len()))?;
            at += p.len;
        }
        Ok(())
    }

    /// Copies all rows of another state of the same layout and batch.
    ///
    /// # Errors
    /// Device errors.
    pub fn copy_from(&mut self, dev: &D, layout: &[Part], batch: usize, from: &State<D>) -> Result<()> {
        for ((p, to), from) in layout.iter().zip(&mut self.bufs).zip(&from.bufs) {
            let len = p.len * batch;
            dev.copy(View::new(from, 0, len), ViewMut::new(to, 0, len))?;
        }
        Ok(())
    }
}

/// Gradients that come in.
pub struct SeqGrad<'a, D: Device> {
    /// Of the outputs, [T, B, d_output].
    pub g_y: View<'a, D::Tensor>,
    /// Of the state after the last step.
    pub g_state: Option<&'a State<D>>,
}

/// Gradients that go out.
pub struct SeqGradOut<'a, D: Device> {
    /// Of all parameters, flat; added to what is there.
    pub g_params: &'a mut D::Tensor,
    /// Of the inputs, [T, B, d_input]; overwritten.
    pub g_x: Option<ViewMut<'a, D::Tensor>>,
    /// Of the state before the first step; overwritten.
    pub g_state: Option<&'a mut State<D>>,
}

/// A recurrent network body. Object-safe: `Box<dyn Backbone<D>>` is what the learner holds.
pub trait Backbone<D: Backend>: Send + Sync {
    /// Features per step that go in.
    fn d_input(&self) -> usize;
    /// Features per step that come out.
    fn d_output(&self) -> usize;
    /// Parameters, with names under `backbone.` (and `input_proj.` for the input projection).
    fn parameters(&self) -> Vec<ParamSpec>;
    /// Finds the places of its parameters in the network's layout; called once before use.
    ///
    /// # Errors
    /// `Config` naming a parameter that is not there.
    fn bind(&mut self, layout: &ParamLayout) -> Result<()>;
    /// Parts of the recurrent state, lengths per row. Empty for a body without memory.
    fn state_layout(&self) -> &[Part];
    /// Parts of the tape for sequences up to this shape.
    fn tape_layout(&self, shape: SeqShape) -> Vec<Part>;
    /// Parts of the scratch for a forward without tape (`train = false`) or for forward and backward with one.
    fn scratch_layout(&self, shape: SeqShape, train: bool) -> Vec<Part>;

    /// Runs the sequence from `state`, which is replaced by the state after the last step; writes `y` [T, B, d_output].
    ///
    /// # Errors
    /// `Shape` naming the argument; device errors.
    #[allow(clippy::too_many_arguments)] // one call, read as one line at every use
    fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        scratch: &mut Scratch<D>,
        y: ViewMut<'_, D::Tensor>,
        tape: Option<&mut Tape<D>>,
    ) -> Result<()>;

    /// Backpropagation through time of the forward call that wrote `tape`.
    ///
    /// # Errors
    /// `Shape` naming the argument; device errors.
    #[allow(clippy::too_many_arguments)] // as forward
    fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        tape: &Tape<D>,
        scratch: &mut Scratch<D>,
        from: SeqGrad<'_, D>,
        to: SeqGradOut<'_, D>,
    ) -> Result<()>;
}

/// Looks up `prefix` + each name.
pub(crate) fn slots<const N: usize>(layout: &ParamLayout, prefix: &str, names: [&str; N]) -> Result<[Slot; N]> {
    let mut out = [Slot::default(); N];
    for (o, n) in out.iter_mut().zip(names) {
        *o = layout.slot(&format!("{prefix}{n}"))?;
    }
    Ok(out)
}

/// Which backbone, with its sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum BackboneConfig {
    /// Mamba: convolution window and SSM state.
    Mamba(MambaConfig),
    /// GRU: h.
    Gru(RnnConfig),
    /// LSTM: h and c.
    Lstm(RnnConfig),
    /// No memory: the control.
    Mlp(MlpConfig),
    /// One of your own, see [`register`].
    Custom(CustomConfig),
}

/// A backbone by its configuration, for any device.
///
/// # Errors
/// `Config` naming the field, its value and the limit.
pub fn build<D: Backend>(config: &BackboneConfig) -> Result<Box<dyn Backbone<D>>> {
    Ok(match config {
        BackboneConfig::Mamba(c) if c.d_state > D::most_states() => {
            let problem =
                format!("is {}, but this device holds at most {} states of a channel", c.d_state, D::most_states());
            return Err(Error::config("backbone.d_state", problem));
        }
        BackboneConfig::Mamba(c) => Box::new(Mamba::new(c.clone())?),
        BackboneConfig::Gru(c) => Box::new(Gru::new(c.clone())?),
        BackboneConfig::Lstm(c) => Box::new(Lstm::new(c.clone())?),
        BackboneConfig::Mlp(c) => Box::new(Mlp::new(c.clone())?),
        BackboneConfig::Custom(c) => custom::build(c)?,
    })
}

/// What a backbone says that was used before [`Backbone::bind`].
pub(crate) fn unbound() -> Error {
    Error::Usage("the backbone has no parameters yet: call `bind` with the network's layout first".into())
}

/// x is [T, B, d_input], y is [T, B, d_output].
pub(crate) fn check_sequence<D: Backend>(
    dev: &D,
    seq: &Sequence<'_, D>,
    d_input: usize,
    y: &View<'_, D::Tensor>,
    d_output: usize,
) -> Result<()> {
    let (c, time, batch) = (Check::new(dev, "backbone"), ("T", seq.shape.time), ("B", seq.shape.batch));
    c.view("x", &seq.x, &[time, batch, ("d_input", d_input)])?;
    c.view("y", y, &[time, batch, ("d_output", d_output)])?;
    c.mask("reset", seq.reset.as_ref(), &[time, batch])?;
    c.mask("valid", seq.valid.as_ref(), &[time, batch])
}

/// Part p of the state is [B, len_p].
pub(crate) fn check_state<D: Backend>(dev: &D, layout: &[Part], state: &State<D>, batch: usize) -> Result<()> {
    enough(dev, "state", layout.iter().map(|p| (p.name.as_str(), p.len * batch)), state)
}

/// Every buffer has at least the elements of its part, given as name and length.
pub(crate) fn enough<'a, D: Backend>(
    dev: &D,
    arg: &'static str,
    layout: impl IntoIterator<Item = (&'a str, usize)>,
    parts: &Parts<D>,
) -> Result<()> {
    for (i, (name, want)) in layout.into_iter().enumerate() {
        let got = parts.bufs.get(i).map_or(0, |buf| dev.len(buf));
        if got < want || parts.bufs.len() <= i {
            return Err(Error::Shape { op: "backbone", arg, shape: format!("[{name}]"), want, got });
        }
    }
    Ok(())
}
