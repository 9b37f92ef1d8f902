//! The operations of the model. Each op is a trait over [`Device`]: one contract (formula, shapes, checks) in its `mod.rs`,
//! a CPU body beside it, a CUDA body with the kernel of the same name. [`Backend`] is the sum of all of them.
//! Model code is written once over `D: Backend`.

pub mod adamw;
pub mod causal_conv1d;
pub mod delta;
pub mod dueling;
pub mod elementwise;
pub mod gate;
pub mod linear;
pub mod norm;
pub mod recurrent;
pub mod reduce;
pub mod rotating_scan;
pub mod selective_scan;

use crate::device::{Device, Slot, View, ViewMut};
use crate::error::{Error, Result};

/// Everything a network needs from a device.
pub trait Backend:
    Device
    + linear::Linear
    + norm::Norm
    + causal_conv1d::CausalConv1d
    + delta::Delta
    + selective_scan::SelectiveScan
    + rotating_scan::RotatingScan
    + gate::Gate
    + elementwise::Elementwise
    + recurrent::Recurrent
    + dueling::Dueling
    + adamw::AdamW
    + reduce::Reduce
{
}

impl<D> Backend for D where
    D: Device
        + linear::Linear
        + norm::Norm
        + causal_conv1d::CausalConv1d
        + delta::Delta
        + selective_scan::SelectiveScan
        + rotating_scan::RotatingScan
        + gate::Gate
        + elementwise::Elementwise
        + recurrent::Recurrent
        + dueling::Dueling
        + adamw::AdamW
        + reduce::Reduce
{
}

/// Length checks of one op call: `Check::new(dev, "gate").view("y", &y, &[("rows", 3), ("d_inner", 8)])?`.
pub(crate) struct Check<'a, D> {
    dev: &'a D,
    op: &'static str,
}

/// Names and sizes of the axes of an argument.
pub(crate) type Axes<'a> = &'a [(&'static str, usize)];

impl<'a, D: Device> Check<'a, D> {
    pub(crate) fn new(dev: &'a D, op: &'static str) -> Self {
        Check { dev, op }
    }

    /// The view has exactly the elements of `axes` and lies inside its buffer.
    pub(crate) fn view(&self, arg: &'static str, v: &View<'_, D::Tensor>, axes: Axes<'_>) -> Result<()> {
        self.range(arg, v.at, v.len, self.dev.len(v.buf), axes)
    }

    /// As [`Check::view`].
    pub(crate) fn out(&self, arg: &'static str, v: &ViewMut<'_, D::Tensor>, axes: Axes<'_>) -> Result<()> {
        self.range(arg, v.at, v.len, self.dev.len(v.buf), axes)
    }

    /// The mask has exactly the elements of `axes`.
    pub(crate) fn mask(&self, arg: &'static str, v: Option<&View<'_, D::Mask>>, axes: Axes<'_>) -> Result<()> {
        match v {
            Some(v) => self.range(arg, 0, v.len, v.len, axes),
            None => Ok(()),
        }
    }

    /// The slot has exactly the elements of `axes` and lies inside the flat buffer.
    pub(crate) fn slot(&self, arg: &'static str, slot: Slot, flat: &D::Tensor, axes: Axes<'_>) -> Result<()> {
        self.range(arg, slot.at, slot.len, self.dev.len(flat), axes)
    }

    fn range(&self, arg: &'static str, at: usize, len: usize, buf: usize, axes: Axes<'_>) -> Result<()> {
        let want: usize = axes.iter().map(|a| a.1).product();
        if len == want && at + len <= buf {
            return Ok(());
        }
        let words: Vec<String> = axes.iter().map(|(name, size)| format!("{name} {size}")).collect();
        let got = if len == want { buf.saturating_sub(at) } else { len };
        Err(Error::Shape { op: self.op, arg, shape: format!("[{}]", words.join(", ")), want, got })
    }
}
