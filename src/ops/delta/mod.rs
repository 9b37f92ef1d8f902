//! The step size. Δ = softplus(q₀ Wᵀ + b), q₀ the first `dt_rank` columns of x_proj's output.
//! softplus(s) = max(s, 0) + ln(1 + e^−|s|), exact to the last digits at both ends; its slope is 1 − e^−Δ, so the
//! backward needs Δ alone.
//! Source: Gu & Dao, 2023, Alg. 2.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

use super::Check;
use crate::device::{Device, Slot, View, ViewMut};
use crate::error::Result;

/// Sizes of a step-size projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaShape {
    /// Rows, T · B.
    pub rows: usize,
    /// Columns of q that are read.
    pub dt_rank: usize,
    /// Columns of q in all.
    pub width: usize,
    /// Columns of Δ.
    pub d_inner: usize,
}

/// Inputs of [`Delta::delta`].
pub struct DeltaIn<'a, T> {
    /// x_proj's output, [rows, width].
    pub q: View<'a, T>,
    /// W, [d_inner, dt_rank].
    pub w: View<'a, T>,
    /// b, `[d_inner]`.
    pub b: View<'a, T>,
}

/// Gradients of [`Delta::delta_bwd`].
pub struct DeltaGrad<'a, T> {
    /// Δ of the forward call, [rows, d_inner].
    pub delta: View<'a, T>,
    /// In: gradient of Δ; out: gradient before the softplus, [rows, d_inner].
    pub g_delta: ViewMut<'a, T>,
    /// Gradient of q, [rows, width]; its first dt_rank columns are overwritten, the others left alone.
    pub g_q: ViewMut<'a, T>,
    /// The flat parameter gradient, added to.
    pub g_params: &'a mut T,
    /// Place of W.
    pub w: Slot,
    /// Place of b.
    pub b: Slot,
}

/// The step size as an op.
pub trait Delta: Device {
    /// Δ, [rows, d_inner].
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn delta(&self, s: DeltaShape, x: DeltaIn<'_, Self::Tensor>, delta: ViewMut<'_, Self::Tensor>) -> Result<()>;

    /// Gradients of q, W and b.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn delta_bwd(&self, s: DeltaShape, x: DeltaIn<'_, Self::Tensor>, g: DeltaGrad<'_, Self::Tensor>) -> Result<()>;
}

impl DeltaShape {
    fn check<D: Device>(&self, dev: &D, x: &DeltaIn<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "delta");
        c.view("q", &x.q, &[("rows", self.rows), ("width", self.width)])?;
        c.view("w", &x.w, &[("d_inner", self.d_inner), ("dt_rank", self.dt_rank)])?;
        c.view("b", &x.b, &[("d_inner", self.d_inner)])
    }

    fn check_grad<D: Device>(&self, dev: &D, g: &DeltaGrad<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "delta_bwd");
        c.view("delta", &g.delta, &[("rows", self.rows), ("d_inner", self.d_inner)])?;
        c.out("g_delta", &g.g_delta, &[("rows", self.rows), ("d_inner", self.d_inner)])?;
        c.out("g_q", &g.g_q, &[("rows", self.rows), ("width", self.width)])?;
        c.slot("w", g.w, g.g_params, &[("d_inner", self.d_inner), ("dt_rank", self.dt_rank)])?;
        c.slot("b", g.b, g.g_params, &[("d_inner", self.d_inner)])
    }
}
