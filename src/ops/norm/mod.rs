//! Normalisation over the last axis. RMSNorm: y = w x / √(mean x² + ε) (Zhang & Sennrich, 2019);
//! LayerNorm: y = w (x − mean) / √(var + ε) + b (Ba et al., 2016).

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

use super::Check;
use crate::device::{Device, Slot, View, ViewMut};
use crate::error::Result;

/// Rows, width and ε of a normalisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormShape {
    /// Rows.
    pub rows: usize,
    /// Width of a row.
    pub width: usize,
    /// ε under the root; f64, so that the double-precision device sees 1e-5 and not its nearest f32.
    pub eps: f64,
}

/// RMSNorm and LayerNorm as ops. The backward recomputes the statistics from x.
pub trait Norm: Device {
    /// y [rows, width].
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn rms_norm(
        &self,
        s: NormShape,
        x: View<'_, Self::Tensor>,
        w: View<'_, Self::Tensor>,
        y: ViewMut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// g_x [rows, width], added to what is there where `add` (the residual stream), else overwritten; g_w is added into
    /// `g_params` at `w_slot`.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    #[allow(clippy::too_many_arguments)] // x, its parameter, and the three gradients
    fn rms_norm_bwd(
        &self,
        s: NormShape,
        x: View<'_, Self::Tensor>,
        w: View<'_, Self::Tensor>,
        g_y: View<'_, Self::Tensor>,
        g_x: ViewMut<'_, Self::Tensor>,
        add: bool,
        g_params: &mut Self::Tensor,
        w_slot: Slot,
    ) -> Result<()>;

    /// y [rows, width] with scale w and offset b.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn layer_norm(
        &self,
        s: NormShape,
        x: View<'_, Self::Tensor>,
        w: View<'_, Self::Tensor>,
        b: View<'_, Self::Tensor>,
        y: ViewMut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// As [`Norm::rms_norm_bwd`], overwriting g_x, with the offset's gradient at `b_slot`.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    #[allow(clippy::too_many_arguments)] // as rms_norm_bwd
    fn layer_norm_bwd(
        &self,
        s: NormShape,
        x: View<'_, Self::Tensor>,
        w: View<'_, Self::Tensor>,
        g_y: View<'_, Self::Tensor>,
        g_x: ViewMut<'_, Self::Tensor>,
        g_params: &mut Self::Tensor,
        w_slot: Slot,
        b_slot: Slot,
    ) -> Result<()>;
}

impl NormShape {
    fn check<D: Device>(
        &self,
        dev: &D,
        op: &'static str,
        rows: &[(&'static str, &View<'_, D::Tensor>)],
        w: &View<'_, D::Tensor>,
    ) -> Result<()> {
        let c = Check::new(dev, op);
        for (name, v) in rows {
            c.view(name, v, &[("rows", self.rows), ("width", self.width)])?;
        }
        c.view("w", w, &[("width", self.width)])
    }
}
