//! Normalisation on CUDA: one launch forward; backward one for the rows and one for the columns of the parameters.

use super::{Norm, NormShape};
use crate::device::cuda::{Cuda, Grid, Kernel, Pointer, Source, Store, Tensor, full, int, slot, small};
use crate::device::{Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Check;
use crate::ops::reduce::column_grid;

const SOURCE: Source = Source { file: "norm", text: include_str!("../../../kernels/norm.cu") };
const RMS_NORM: Kernel = SOURCE.kernel("rms_norm");
const LAYER_NORM: Kernel = SOURCE.kernel("layer_norm");
const RMS_NORM_BWD: Kernel = SOURCE.kernel("rms_norm_bwd");
const LAYER_NORM_BWD: Kernel = SOURCE.kernel("layer_norm_bwd");
const PARAMS: Kernel = SOURCE.kernel("norm_bwd_params");

/// Rows of a block, a warp each: ROWS_PER_BLOCK of kernels/norm.cu.
const ROWS: usize = 8;

fn grid(s: NormShape) -> Grid {
    Grid::new([s.rows.div_ceil(ROWS), 1, 1], 32 * ROWS)
}

impl Cuda {
    /// The sums over rows; `kept` holds the rows' statistics.
    ///
    /// # Safety
    /// All have the sizes of `s`.
    unsafe fn norm_params(&self, s: NormShape, g: [Pointer; 2], x: Pointer, g_y: Pointer, kept: Pointer) -> Result<()> {
        let args = (g[0], g[1], x, g_y, kept, int(s.rows), int(s.width));
        // SAFETY: the caller's promise; the order of arguments is that of kernels/norm.cu.
        unsafe { self.launch(PARAMS, Store::F32, column_grid(s.width), args) }
    }
}

impl Norm for Cuda {
    fn rms_norm(&self, s: NormShape, x: View<'_, Tensor>, w: View<'_, Tensor>, y: ViewMut<'_, Tensor>) -> Result<()> {
        s.check(self, "rms_norm", &[("x", &x), ("y", &y.read())], &w)?;
        let args = (small(&y), full(&x), full(&w), int(s.width), s.eps as f32, int(s.rows));
        // SAFETY: lengths were checked above; the order of arguments is that of kernels/norm.cu.
        unsafe { self.launch(RMS_NORM, y.buf.store(), grid(s), args) }
    }

    fn rms_norm_bwd(
        &self,
        s: NormShape,
        x: View<'_, Tensor>,
        w: View<'_, Tensor>,
        g_y: View<'_, Tensor>,
        g_x: ViewMut<'_, Tensor>,
        add: bool,
        g_params: &mut Tensor,
        w_slot: Slot,
    ) -> Result<()> {
        s.check(self, "rms_norm_bwd", &[("x", &x), ("g_y", &g_y), ("g_x", &g_x.read())], &w)?;
        Check::new(self, "rms_norm_bwd").slot("w", w_slot, g_params, &[("width", s.width)])?;
        let work = self.work(2 * s.rows)?;
        let kept = work.part(0, 2 * s.rows);
        let (x, g_y) = (full(&x), full(&g_y));
        let add = int(usize::from(add));
        let args = (full(&g_x), kept, x, full(&w), g_y, int(s.width), s.eps as f32, add, int(s.rows));
        // SAFETY: lengths were checked above; the orders of arguments are those of kernels/norm.cu.
        unsafe {
            self.launch(RMS_NORM_BWD, Store::F32, grid(s), args)?;
            self.norm_params(s, [slot(g_params, w_slot), full(&None::<View<'_, Tensor>>)], x, g_y, kept)
        }
    }

    fn layer_norm(
        &self,
        s: NormShape,
        x: View<'_, Tensor>,
        w: View<'_, Tensor>,
        b: View<'_, Tensor>,
        y: ViewMut<'_, Tensor>,
    ) -> Result<()> {
        s.check(self, "layer_norm", &[("x", &x), ("y", &y.read())], &w)?;
        Check::new(self, "layer_norm").view("b", &b, &[("width", s.width)])?;
        let args = (small(&y), full(&x), full(&w), full(&b), int(s.width), s.eps as f32, int(s.rows));
        // SAFETY: lengths were checked above; the order of arguments is that of kernels/norm.cu.
        unsafe { self.launch(LAYER_NORM, y.buf.store(), grid(s), args) }
    }

    fn layer_norm_bwd(
        &self,
        s: NormShape,
        x: View<'_, Tensor>,
        w: View<'_, Tensor>,
        g_y: View<'_, Tensor>,
        g_x: ViewMut<'_, Tensor>,
        g_params: &mut Tensor,
        w_slot: Slot,
        b_slot: Slot,
    ) -> Result<()> {
        s.check(self, "layer_norm_bwd", &[("x", &x), ("g_y", &g_y), ("g_x", &g_x.read())], &w)?;
        let c = Check::new(self, "layer_norm_bwd");
        c.slot("w", w_slot, g_params, &[("width", s.width)])?;
        c.slot("b", b_slot, g_params, &[("width", s.width)])?;
        let work = self.work(2 * s.rows)?;
        let kept = work.part(0, 2 * s.rows);
        let (x, g_y) = (full(&x), full(&g_y));
        let args = (full(&g_x), kept, x, full(&w), g_y, int(s.width), s.eps as f32, int(s.rows));
        // SAFETY: lengths were checked above; the orders of arguments are those of kernels/norm.cu.
        unsafe {
            self.launch(LAYER_NORM_BWD, Store::F32, grid(s), args)?;
            self.norm_params(s, [slot(g_params, w_slot), slot(g_params, b_slot)], x, g_y, kept)
        }
    }
}
