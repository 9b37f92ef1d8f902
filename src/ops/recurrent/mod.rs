//! LSTM and GRU cells over a sequence, with the input's share of the gates (gx = x W_ihᵀ + b_ih) already computed.
//! LSTM: i, f, o = σ, g = tanh of gx + W_hh h + b_hh; c = f c + i g; h = o tanh c          (rows i, f, g, o)
//! GRU: r, z = σ(gx + W_hh h + b_hh); n = tanh(gx_n + r (W_hn h + b_hn)); h = (1−z) n + z h   (rows r, z, n)
//! Source: Hochreiter & Schmidhuber, 1997; Cho et al., 2014; form and row order of `torch.nn.LSTM` and `torch.nn.GRU`.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

use super::Check;
use crate::device::{Device, Slot, View, ViewMut};
use crate::error::Result;

/// Which cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Gates i, f, g, o; state h and c.
    Lstm,
    /// Gates r, z, n; state h.
    Gru,
}

impl Cell {
    /// Blocks of rows in the gate matrices.
    pub fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
        }
    }

    /// Fields of [T, B, hidden] on the tape: h before the step (LSTM: and c), the gates, and tanh c or W_hn h + b_hn.
    pub fn fields(self) -> usize {
        match self {
            Cell::Lstm => 7,
            Cell::Gru => 5,
        }
    }
}

/// Sizes of a recurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecurrentShape {
    /// Which cell; G = its gates.
    pub cell: Cell,
    /// T.
    pub time: usize,
    /// B.
    pub batch: usize,
    /// H.
    pub hidden: usize,
}

/// Inputs of [`Recurrent::recurrent`].
pub struct RecurrentIn<'a, T, M> {
    /// The input's share of the gates, [T, B, G H]; not read by the backward.
    pub gx: View<'a, T>,
    /// W_hh, [G H, H].
    pub w_hh: View<'a, T>,
    /// b_hh, [G H].
    pub b_hh: View<'a, T>,
    /// 1: the state is cleared before step t, [T, B].
    pub reset: Option<View<'a, M>>,
}

/// Outputs of [`Recurrent::recurrent`].
pub struct RecurrentOut<'a, T> {
    /// h after every step, [T, B, H].
    pub y: ViewMut<'a, T>,
    /// In: h before the first step; out: after the last. [B, H].
    pub h: ViewMut<'a, T>,
    /// c likewise, [B, H]; LSTM only.
    pub c: Option<ViewMut<'a, T>>,
    /// [fields, T, B, H] for the backward.
    pub tape: Option<ViewMut<'a, T>>,
    /// Working memory, `[recurrent_scratch]`.
    pub scratch: ViewMut<'a, T>,
}

/// Gradients of [`Recurrent::recurrent_bwd`].
pub struct RecurrentGrad<'a, T> {
    /// The tape of the forward call, [fields, T, B, H].
    pub tape: View<'a, T>,
    /// Gradient of y, [T, B, H].
    pub g_y: View<'a, T>,
    /// Gradient of h after the last step, [B, H].
    pub g_h_out: Option<View<'a, T>>,
    /// Gradient of c after the last step, [B, H].
    pub g_c_out: Option<View<'a, T>>,
    /// Gradient of gx, [T, B, G H]; overwritten.
    pub g_gx: ViewMut<'a, T>,
    /// Gradient of h before the first step, [B, H]; overwritten.
    pub g_h: Option<ViewMut<'a, T>>,
    /// Gradient of c before the first step, [B, H]; overwritten.
    pub g_c: Option<ViewMut<'a, T>>,
    /// The flat parameter gradient, added to.
    pub g_params: &'a mut T,
    /// Place of W_hh.
    pub w_hh: Slot,
    /// Place of b_hh.
    pub b_hh: Slot,
    /// Working memory, `[recurrent_scratch]`.
    pub scratch: ViewMut<'a, T>,
}

/// The cells as an op.
pub trait Recurrent: Device {
    /// Elements of working memory that a call needs.
    fn recurrent_scratch(s: RecurrentShape, train: bool) -> usize;

    /// y, and the state moved on.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn recurrent(
        &self,
        s: RecurrentShape,
        x: RecurrentIn<'_, Self::Tensor, Self::Mask>,
        out: RecurrentOut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// Gradients of gx, W_hh, b_hh and the first state.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn recurrent_bwd(
        &self,
        s: RecurrentShape,
        x: RecurrentIn<'_, Self::Tensor, Self::Mask>,
        g: RecurrentGrad<'_, Self::Tensor>,
    ) -> Result<()>;
}

impl RecurrentShape {
    /// G H.
    pub fn width(self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Elements of the tape.
    pub fn tape_len(self) -> usize {
        self.cell.fields() * self.time * self.batch * self.hidden
    }

    fn state_axes(self) -> [(&'static str, usize); 2] {
        [("B", self.batch), ("hidden", self.hidden)]
    }

    fn axes(self) -> [(&'static str, usize); 3] {
        [("T", self.time), ("B", self.batch), ("hidden", self.hidden)]
    }

    fn check_in<D: Device>(&self, dev: &D, x: &RecurrentIn<'_, D::Tensor, D::Mask>) -> Result<()> {
        let c = Check::new(dev, "recurrent");
        c.view("w_hh", &x.w_hh, &[("gates hidden", self.width()), ("hidden", self.hidden)])?;
        c.view("b_hh", &x.b_hh, &[("gates hidden", self.width())])?;
        c.mask("reset", x.reset.as_ref(), &[("T", self.time), ("B", self.batch)])
    }

    fn check_gx<D: Device>(&self, dev: &D, gx: &View<'_, D::Tensor>) -> Result<()> {
        let axes = [("T", self.time), ("B", self.batch), ("gates hidden", self.width())];
        Check::new(dev, "recurrent").view("gx", gx, &axes)
    }

    fn check_out<D: Device + Recurrent>(&self, dev: &D, o: &RecurrentOut<'_, D::Tensor>) -> Result<()> {
        let k = Check::new(dev, "recurrent");
        k.out("y", &o.y, &self.axes())?;
        k.out("h", &o.h, &self.state_axes())?;
        match (&o.c, self.cell) {
            (Some(c), _) => k.out("c", c, &self.state_axes())?,
            (None, Cell::Gru) => {}
            (None, Cell::Lstm) => {
                let want = self.batch * self.hidden;
                return Err(crate::Error::Shape {
                    op: "recurrent",
                    arg: "c",
                    shape: "[B, hidden]".into(),
                    want,
                    got: 0,
                });
            }
        }
        if let Some(t) = &o.tape {
            k.out("tape", t, &[("fields", self.cell.fields()), ("T B hidden", self.time * self.batch * self.hidden)])?;
        }
        k.out("scratch", &o.scratch, &[("recurrent_scratch", D::recurrent_scratch(*self, o.tape.is_some()))])
    }

    fn check_grad<D: Device + Recurrent>(&self, dev: &D, g: &RecurrentGrad<'_, D::Tensor>) -> Result<()> {
        let k = Check::new(dev, "recurrent_bwd");
        k.view(
            "tape",
            &g.tape,
            &[("fields", self.cell.fields()), ("T B hidden", self.time * self.batch * self.hidden)],
        )?;
        k.view("g_y", &g.g_y, &self.axes())?;
        for (name, v) in [("g_h_out", &g.g_h_out), ("g_c_out", &g.g_c_out)] {
            if let Some(v) = v {
                k.view(name, v, &self.state_axes())?;
            }
        }
        k.out("g_gx", &g.g_gx, &[("T", self.time), ("B", self.batch), ("gates hidden", self.width())])?;
        for (name, v) in [("g_h", &g.g_h), ("g_c", &g.g_c)] {
            if let Some(v) = v {
                k.out(name, v, &self.state_axes())?;
            }
        }
        k.slot("w_hh", g.w_hh, g.g_params, &[("gates hidden", self.width()), ("hidden", self.hidden)])?;
        k.slot("b_hh", g.b_hh, g.g_params, &[("gates hidden", self.width())])?;
        k.out("scratch", &g.scratch, &[("recurrent_scratch", D::recurrent_scratch(*self, true))])
    }
}
