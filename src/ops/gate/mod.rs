//! The gate of a block. out = y · silu(z), silu(z) = z / (1 + e^−z). z is the second half of the rows of in_proj's output
//! `xz` [rows, 2 width].
//! Source: Gu & Dao, 2023, Fig. 3.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

use super::Check;
use crate::device::{Device, View, ViewMut};
use crate::error::Result;

/// Sizes of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateShape {
    /// Rows, T · B.
    pub rows: usize,
    /// Width of y: d_inner.
    pub width: usize,
}

/// Gradients of [`Gate::gate_bwd`].
pub struct GateGrad<'a, T> {
    /// Gradient of out, [rows, width].
    pub g_out: View<'a, T>,
    /// Gradient of y, [rows, width]; overwritten.
    pub g_y: ViewMut<'a, T>,
    /// Gradient of xz, [rows, 2 width]; its second half is overwritten, the first left alone.
    pub g_xz: ViewMut<'a, T>,
    /// out once more, [rows, width]: it is not on the tape, and the next gradient needs it.
    pub out: ViewMut<'a, T>,
}

/// The gate as an op.
pub trait Gate: Device {
    /// out [rows, width] from y [rows, width] and xz [rows, 2 width].
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn gate(
        &self,
        s: GateShape,
        y: View<'_, Self::Tensor>,
        xz: View<'_, Self::Tensor>,
        out: ViewMut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// Gradients of y and z.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn gate_bwd(
        &self,
        s: GateShape,
        y: View<'_, Self::Tensor>,
        xz: View<'_, Self::Tensor>,
        g: GateGrad<'_, Self::Tensor>,
    ) -> Result<()>;
}

impl GateShape {
    fn check<D: Device>(&self, dev: &D, y: &View<'_, D::Tensor>, xz: &View<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "gate");
        c.view("y", y, &[("rows", self.rows), ("width", self.width)])?;
        c.view("xz", xz, &[("rows", self.rows), ("2 width", 2 * self.width)])
    }

    fn check_grad<D: Device>(&self, dev: &D, g: &GateGrad<'_, D::Tensor>) -> Result<()> {
        let (c, row) = (Check::new(dev, "gate_bwd"), [("rows", self.rows), ("width", self.width)]);
        c.view("g_out", &g.g_out, &row)?;
        c.out("g_y", &g.g_y, &row)?;
        c.out("out", &g.out, &row)?;
        c.out("g_xz", &g.g_xz, &[("rows", self.rows), ("2 width", 2 * self.width)])
    }
}
