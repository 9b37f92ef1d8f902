//! The step size on CUDA: a product of cuBLAS on the first columns of q, then softplus in place. All in full precision:
//! Δ feeds exponents.

use super::{Delta, DeltaGrad, DeltaIn, DeltaShape};
use crate::device::ViewMut;
use crate::device::cuda::{Cuda, Grid, Kernel, Mat, Source, Store, Tensor, full, int, slot};
use crate::error::Result;
use crate::ops::Check;

const SOURCE: Source = Source { file: "delta", text: include_str!("../../../kernels/delta.cu") };
const SOFTPLUS: Kernel = SOURCE.kernel("softplus");
const SOFTPLUS_BWD: Kernel = SOURCE.kernel("softplus_bwd");

impl Delta for Cuda {
    fn delta(&self, s: DeltaShape, x: DeltaIn<'_, Tensor>, delta: ViewMut<'_, Tensor>) -> Result<()> {
        s.check(self, &x)?;
        Check::new(self, "delta").out("delta", &delta, &[("rows", s.rows), ("d_inner", s.d_inner)])?;
        let q = Mat::new(full(&x.q), s.rows, s.dt_rank).stride(s.width);
        let w = Mat::new(full(&x.w), s.d_inner, s.dt_rank);
        let n = s.rows * s.d_inner;
        let args = (full(&delta), full(&x.b), int(s.d_inner), int(n));
        // SAFETY: lengths were checked above, Δ is borrowed mutably; the order of arguments is that of kernels/delta.cu.
        unsafe {
            self.gemm(Mat::new(full(&delta), s.rows, s.d_inner), q, w.t(), false)?;
            self.launch(SOFTPLUS, Store::F32, Grid::elements(n), args)
        }
    }

    fn delta_bwd(&self, s: DeltaShape, x: DeltaIn<'_, Tensor>, g: DeltaGrad<'_, Tensor>) -> Result<()> {
        s.check(self, &x)?;
        s.check_grad(self, &g)?;
        let n = s.rows * s.d_inner;
        let (g_s, q) = (full(&g.g_delta), Mat::new(full(&x.q), s.rows, s.dt_rank).stride(s.width));
        let rows = Mat::new(g_s, s.rows, s.d_inner);
        let w = Mat::new(full(&x.w), s.d_inner, s.dt_rank);
        let g_q = Mat::new(full(&g.g_q), s.rows, s.dt_rank).stride(s.width);
        let g_w = Mat::new(slot(g.g_params, g.w), s.d_inner, s.dt_rank);
        // SAFETY: lengths were checked above, gradients are borrowed mutably; orders are those of the kernels' files.
        unsafe {
            self.launch(SOFTPLUS_BWD, Store::F32, Grid::elements(n), (g_s, full(&g.delta), int(n)))?;
            self.gemm(g_q, rows, w, false)?;
            self.gemm(g_w, rows.t(), q, true)?;
            self.add_columns(slot(g.g_params, g.b), g_s, [s.rows, s.d_inner])
        }
    }
}
