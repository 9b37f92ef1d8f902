//! Pointwise functions on CUDA.

use super::Elementwise;
use crate::device::cuda::{Cuda, Grid, Kernel, Mask, Source, Tensor, full, int, mask, small};
use crate::device::{Device, View, ViewMut};
use crate::error::{Error, Result};
use crate::ops::Check;

const SOURCE: Source = Source { file: "elementwise", text: include_str!("../../../kernels/elementwise.cu") };
const RELU: Kernel = SOURCE.kernel("relu");
const RELU_BWD: Kernel = SOURCE.kernel("relu_bwd");
const KEEP_ROWS: Kernel = SOURCE.kernel("keep_rows");

impl Elementwise for Cuda {
    fn relu(&self, x: ViewMut<'_, Tensor>) -> Result<()> {
        Check::new(self, "relu").out("x", &x, &[("x", x.len)])?;
        // SAFETY: the range was checked above; the order of arguments is that of kernels/elementwise.cu.
        unsafe { self.launch(RELU, x.buf.store(), Grid::elements(x.len), (small(&x), int(x.len))) }
    }

    fn relu_bwd(&self, y: View<'_, Tensor>, g: ViewMut<'_, Tensor>) -> Result<()> {
        let c = Check::new(self, "relu_bwd");
        c.view("y", &y, &[("g", g.len)])?;
        c.out("g", &g, &[("g", g.len)])?;
        let args = (full(&g), small(&y), int(g.len));
        // SAFETY: both ranges were checked above; the order of arguments is that of kernels/elementwise.cu.
        unsafe { self.launch(RELU_BWD, y.buf.store(), Grid::elements(g.len), args) }
    }

    fn keep_rows(
        &self,
        width: usize,
        x: View<'_, Tensor>,
        keep: Option<View<'_, Mask>>,
        y: ViewMut<'_, Tensor>,
    ) -> Result<()> {
        let (c, width) = (Check::new(self, "keep_rows"), width.max(1));
        c.view("x", &x, &[("y", y.len)])?;
        c.out("y", &y, &[("y", y.len)])?;
        let Some(rows) = &keep else { return self.copy(x, y) };
        if rows.len != y.len / width {
            let shape = format!("[rows {}]", y.len / width);
            return Err(Error::Shape { op: "keep_rows", arg: "keep", shape, want: y.len / width, got: rows.len });
        }
        let args = (small(&y), full(&x), mask(&keep), int(width), int(y.len));
        // SAFETY: all lengths were checked above; the order of arguments is that of kernels/elementwise.cu.
        unsafe { self.launch(KEEP_ROWS, y.buf.store(), Grid::elements(y.len), args) }
    }
}
