//! Pointwise functions of the heads: ReLU and its gradient, and the product with a 0/1 row mask.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use crate::device::{Device, View, ViewMut};
use crate::error::Result;

/// Pointwise ops.
pub trait Elementwise: Device {
    /// x = max(x, 0), in place.
    ///
    /// # Errors
    /// Device errors.
    fn relu(&self, x: ViewMut<'_, Self::Tensor>) -> Result<()>;
    /// g = 0 where y (the output of relu) is 0, in place.
    ///
    /// # Errors
    /// `Shape` when the lengths differ.
    fn relu_bwd(&self, y: View<'_, Self::Tensor>, g: ViewMut<'_, Self::Tensor>) -> Result<()>;
    /// y = x where `keep[row]` ≠ 0, else 0 (a branch: NaN is cleared), rows of `width`; no mask copies.
    ///
    /// # Errors
    /// `Shape` when the lengths differ.
    fn keep_rows(
        &self,
        width: usize,
        x: View<'_, Self::Tensor>,
        keep: Option<View<'_, Self::Mask>>,
        y: ViewMut<'_, Self::Tensor>,
    ) -> Result<()>;
}
