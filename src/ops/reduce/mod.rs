//! Passes over flat buffers, each in a fixed order so that bits do not depend on threads.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

#[cfg(feature = "cuda")]
pub(in crate::ops) use cuda::{SUM_THREADS, column_grid, parts};

use crate::device::{Device, View, ViewMut};
use crate::error::Result;

/// Reductions and blends.
pub trait Reduce: Device {
    /// Σ x², accumulated in f64 in a fixed order.
    ///
    /// # Errors
    /// Device errors.
    fn sum_squares(&self, x: View<'_, Self::Tensor>) -> Result<f64>;
    /// y += x.
    ///
    /// # Errors
    /// `Shape` when the lengths differ.
    fn add_assign(&self, x: View<'_, Self::Tensor>, y: ViewMut<'_, Self::Tensor>) -> Result<()>;
    /// y += tau (x − y): the soft target update.
    ///
    /// # Errors
    /// `Shape` when the lengths differ.
    fn blend(&self, tau: f32, x: View<'_, Self::Tensor>, y: ViewMut<'_, Self::Tensor>) -> Result<()>;
}
