//! Causal depthwise convolution with SiLU. p_t = b + Σ_{k<K} w_k x_{t−K+1+k}, u = silu(p), per channel; K = d_conv.
//! What lies before t = 0 comes from the window of the last K − 1 inputs, oldest first. A reset at t makes everything
//! before t zero (a branch: NaN and inf too). Sums run from the oldest tap to the newest.
//! Source: Gu & Dao, 2023, Fig. 3; `causal_conv1d_fn` of the official code.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
mod four;

use super::Check;
use crate::device::{Device, Slot, View, ViewMut};
use crate::error::Result;

/// Sizes of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvShape {
    /// T.
    pub time: usize,
    /// B.
    pub batch: usize,
    /// Channels.
    pub d_inner: usize,
    /// Taps K, 1 or more.
    pub d_conv: usize,
    /// Columns of a row of x; the first d_inner are convolved.
    pub stride: usize,
}

/// Inputs of [`CausalConv1d::causal_conv1d`].
pub struct ConvIn<'a, T, M> {
    /// x, [T, B, stride].
    pub x: View<'a, T>,
    /// w, [d_inner, 1, d_conv], newest tap last.
    pub w: View<'a, T>,
    /// b, `[d_inner]`.
    pub b: Option<View<'a, T>>,
    /// 1: nothing before step t is seen, [T, B].
    pub reset: Option<View<'a, M>>,
}

/// Outputs of [`CausalConv1d::causal_conv1d`].
pub struct ConvOut<'a, T> {
    /// u = silu(p), [T, B, d_inner].
    pub u: ViewMut<'a, T>,
    /// p, [T, B, d_inner], for the backward.
    pub pre: Option<ViewMut<'a, T>>,
    /// In: the window before the first step; out: after the last. [B, d_conv − 1, d_inner].
    pub window: ViewMut<'a, T>,
    /// The window before the first step, [B, d_conv − 1, d_inner], for the backward.
    pub window_tape: Option<ViewMut<'a, T>>,
    /// Working memory, `[conv_scratch]`.
    pub scratch: ViewMut<'a, T>,
}

/// Gradients of [`CausalConv1d::causal_conv1d_bwd`].
pub struct ConvGrad<'a, T> {
    /// p of the forward call, [T, B, d_inner].
    pub pre: View<'a, T>,
    /// The window before the first step, [B, d_conv − 1, d_inner].
    pub window: View<'a, T>,
    /// Gradient of u, [T, B, d_inner].
    pub g_u: View<'a, T>,
    /// Gradient of the window after the last step, [B, d_conv − 1, d_inner].
    pub g_window_out: Option<View<'a, T>>,
    /// Gradient of x, [T, B, stride]; the first d_inner columns are overwritten, the others left alone.
    pub g_x: ViewMut<'a, T>,
    /// Gradient of the window before the first step, [B, d_conv − 1, d_inner]; overwritten.
    pub g_window: Option<ViewMut<'a, T>>,
    /// The flat parameter gradient, added to.
    pub g_params: &'a mut T,
    /// Place of w.
    pub w: Slot,
    /// Place of b.
    pub b: Option<Slot>,
    /// Working memory, `[conv_scratch]`.
    pub scratch: ViewMut<'a, T>,
}

/// The convolution as an op.
pub trait CausalConv1d: Device {
    /// Elements of working memory that a call needs.
    fn conv_scratch(s: ConvShape, train: bool) -> usize;

    /// u, and the window moved on.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn causal_conv1d(
        &self,
        s: ConvShape,
        x: ConvIn<'_, Self::Tensor, Self::Mask>,
        out: ConvOut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// Gradients of x, w, b and the window.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn causal_conv1d_bwd(
        &self,
        s: ConvShape,
        x: ConvIn<'_, Self::Tensor, Self::Mask>,
        g: ConvGrad<'_, Self::Tensor>,
    ) -> Result<()>;
}

impl ConvShape {
    /// Entries of the window, d_conv − 1.
    pub fn window(self) -> usize {
        self.d_conv - 1
    }

    fn axes(self) -> [(&'static str, usize); 3] {
        [("T", self.time), ("B", self.batch), ("d_inner", self.d_inner)]
    }

    fn window_axes(self) -> [(&'static str, usize); 3] {
        [("B", self.batch), ("d_conv - 1", self.window()), ("d_inner", self.d_inner)]
    }

    fn check_in<D: Device>(&self, dev: &D, x: &ConvIn<'_, D::Tensor, D::Mask>) -> Result<()> {
        let c = Check::new(dev, "causal_conv1d");
        c.view("x", &x.x, &[("T", self.time), ("B", self.batch), ("stride", self.stride)])?;
        c.view("w", &x.w, &[("d_inner", self.d_inner), ("d_conv", self.d_conv)])?;
        if let Some(b) = &x.b {
            c.view("b", b, &[("d_inner", self.d_inner)])?;
        }
        c.mask("reset", x.reset.as_ref(), &[("T", self.time), ("B", self.batch)])
    }

    fn check_out<D: Device + CausalConv1d>(&self, dev: &D, o: &ConvOut<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "causal_conv1d");
        c.out("u", &o.u, &self.axes())?;
        if let Some(pre) = &o.pre {
            c.out("pre", pre, &self.axes())?;
        }
        c.out("window", &o.window, &self.window_axes())?;
        if let Some(w) = &o.window_tape {
            c.out("window_tape", w, &self.window_axes())?;
        }
        c.out("scratch", &o.scratch, &[("conv_scratch", D::conv_scratch(*self, o.pre.is_some()))])
    }

    fn check_grad<D: Device + CausalConv1d>(&self, dev: &D, g: &ConvGrad<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "causal_conv1d_bwd");
        c.view("pre", &g.pre, &self.axes())?;
        c.view("window", &g.window, &self.window_axes())?;
        c.view("g_u", &g.g_u, &self.axes())?;
        if let Some(w) = &g.g_window_out {
            c.view("g_window_out", w, &self.window_axes())?;
        }
        c.out("g_x", &g.g_x, &[("T", self.time), ("B", self.batch), ("stride", self.stride)])?;
        if let Some(w) = &g.g_window {
            c.out("g_window", w, &self.window_axes())?;
        }
        c.slot("w", g.w, g.g_params, &[("d_inner", self.d_inner), ("d_conv", self.d_conv)])?;
        if let Some(b) = g.b {
            c.slot("b", b, g.g_params, &[("d_inner", self.d_inner)])?;
        }
        c.out("scratch", &g.scratch, &[("conv_scratch", D::conv_scratch(*self, true))])
    }
}
