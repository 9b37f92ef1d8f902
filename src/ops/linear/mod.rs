//! Linear map. y = x Wᵀ + b with W `[d_out, d_in]` as in PyTorch and its gradients.

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
    /// b, [d_out].
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
    /// Place of b, [d_out].
    pub b: Option<Slot>,
}

/// The linear map as an op.
pub trait Linear: Device {
    /// y = x Wᵀ + b, or y += x Wᵀ + b where `add`.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear(&self, s: LinearShape, x: LinearIn<'_, Self::Tensor>, y: ViewMut<'_, Self::Tensor>, add: bool) -> Result<()>;

    /// Gradients of the inputs and, added, of the parameters.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn linear_bwd(&self, s: LinearShape, x: LinearIn<'_, Self::Tensor>, g: LinearGrad<'_, Self::Tensor>) -> Result<()>;
}
