//! Linear map. y = x Wᵀ + b with W `[d_out, d_in]` as in PyTorch and its gradients.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
pub(crate) mod rows;

use super::Check;
use crate::device::{Device, Slot, View, ViewMut};
use crate::error::Result;

/// Sizes of a linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// Rows of x and y.
    pub rows: usize,
    /// Columns of x.
    pub d_in: usize,
    /// Columns of y.
    pub d_out: usize,
}

/// Inputs of [`Linear::linear`].
pub struct LinearIn<'a, T> {
    /// x, [rows, d_in].
    pub x: View<'a, T>,
    /// W, [d_out, d_in].
    pub w: View<'a, T>,
    /// b, `[d_out]`.
    pub b: Option<View<'a, T>>,
}

/// Gradients of [`Linear::linear_bwd`].
pub struct LinearGrad<'a, T> {
    /// g_y, [rows, d_out].
    pub g_y: View<'a, T>,
    /// g_x = g_y W, [rows, d_in]; overwritten.
    pub g_x: Option<ViewMut<'a, T>>,
    /// The flat parameter gradient; g_W = g_yᵀ x and g_b = Σ_rows g_y are added to it.
    pub g_params: &'a mut T,
    /// Place of W, [d_out, d_in].
    pub w: Slot,
    /// Place of b, `[d_out]`.
    pub b: Option<Slot>,
}

/// The linear map as an op.
pub trait Linear: Device {
    /// y = x Wᵀ + b, or y += x Wᵀ + b where `add`.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear(
        &self,
        s: LinearShape,
        x: LinearIn<'_, Self::Tensor>,
        y: ViewMut<'_, Self::Tensor>,
        add: bool,
    ) -> Result<()>;

    /// Gradients of the inputs and, added, of the parameters.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear_bwd(&self, s: LinearShape, x: LinearIn<'_, Self::Tensor>, g: LinearGrad<'_, Self::Tensor>) -> Result<()>;

    /// g_x = g_y W, or g_x += g_y W where `add`: the input's part of [`Linear::linear_bwd`] alone.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear_bwd_x(
        &self,
        s: LinearShape,
        w: View<'_, Self::Tensor>,
        g_y: View<'_, Self::Tensor>,
        g_x: ViewMut<'_, Self::Tensor>,
        add: bool,
    ) -> Result<()>;

    /// As [`Linear::linear`] of full tensors, for wide products. A device that stores operands small takes each factor as the
    /// sum of two small numbers, hi + lo, and leaves out lo lo alone: 16 bits of fraction in bf16, 22 in f16.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear_split(
        &self,
        s: LinearShape,
        x: LinearIn<'_, Self::Tensor>,
        y: ViewMut<'_, Self::Tensor>,
        add: bool,
    ) -> Result<()> {
        self.linear(s, x, y, add)
    }

    /// As [`Linear::linear_bwd_x`] of full tensors, with factors as in [`Linear::linear_split`].
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear_split_bwd_x(
        &self,
        s: LinearShape,
        w: View<'_, Self::Tensor>,
        g_y: View<'_, Self::Tensor>,
        g_x: ViewMut<'_, Self::Tensor>,
        add: bool,
    ) -> Result<()> {
        self.linear_bwd_x(s, w, g_y, g_x, add)
    }
}

impl LinearShape {
    fn check<D: Device>(&self, dev: &D, x: &LinearIn<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "linear");
        c.view("x", &x.x, &[("rows", self.rows), ("d_in", self.d_in)])?;
        c.view("w", &x.w, &[("d_out", self.d_out), ("d_in", self.d_in)])?;
        match &x.b {
            Some(b) => c.view("b", b, &[("d_out", self.d_out)]),
            None => Ok(()),
        }
    }

    fn check_grad<D: Device>(&self, dev: &D, g: &LinearGrad<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "linear_bwd");
        c.view("g_y", &g.g_y, &[("rows", self.rows), ("d_out", self.d_out)])?;
        if let Some(g_x) = &g.g_x {
            c.out("g_x", g_x, &[("rows", self.rows), ("d_in", self.d_in)])?;
        }
        c.slot("w", g.w, g.g_params, &[("d_out", self.d_out), ("d_in", self.d_in)])?;
        match g.b {
            Some(b) => c.slot("b", b, g.g_params, &[("d_out", self.d_out)]),
            None => Ok(()),
        }
    }
}
