//! Dueling head. q_a = v + a_a − mean(a), so that value and advantage are identified.
//! Source: Wang et al., 2016, Eq. 9.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use crate::device::{Device, View, ViewMut};
use crate::error::Result;

/// The dueling combination as an op.
pub trait Dueling: Device {
    /// q [rows, actions] from value `[rows]` and advantage [rows, actions].
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn dueling(
        &self,
        rows: usize,
        actions: usize,
        value: View<'_, Self::Tensor>,
        advantage: View<'_, Self::Tensor>,
        q: ViewMut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// g_value `[rows]` = Σ g_q; g_advantage [rows, actions] = g_q − mean(g_q); overwritten.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn dueling_bwd(
        &self,
        rows: usize,
        actions: usize,
        g_q: View<'_, Self::Tensor>,
        g_value: ViewMut<'_, Self::Tensor>,
        g_advantage: ViewMut<'_, Self::Tensor>,
    ) -> Result<()>;
}
