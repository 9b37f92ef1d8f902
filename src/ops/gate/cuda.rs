//! The gate on CUDA: one launch each way. Forward and gradients in full, what the backward reads of the forward as stored.

use super::{Gate, GateGrad, GateShape};
use crate::device::cuda::{Cuda, Grid, Kernel, Source, Store, Tensor, full, int, small};
use crate::device::{View, ViewMut};
use crate::error::Result;
use crate::ops::Check;

const SOURCE: Source = Source { file: "gate", text: include_str!("../../../kernels/gate.cu") };
const GATE: Kernel = SOURCE.kernel("gate");
const GATE_BWD: Kernel = SOURCE.kernel("gate_bwd");

impl Gate for Cuda {
    fn gate(&self, s: GateShape, y: View<'_, Tensor>, xz: View<'_, Tensor>, out: ViewMut<'_, Tensor>) -> Result<()> {
        s.check(self, &y, &xz)?;
        Check::new(self, "gate").out("out", &out, &[("rows", s.rows), ("width", s.width)])?;
        let n = s.rows * s.width;
        let args = (full(&out), full(&y), full(&xz), int(s.width), int(n));
        // SAFETY: lengths were checked above; the order of arguments is that of kernels/gate.cu.
        unsafe { self.launch(GATE, Store::F32, Grid::elements(n), args) }
    }

    fn gate_bwd(&self, s: GateShape, y: View<'_, Tensor>, xz: View<'_, Tensor>, g: GateGrad<'_, Tensor>) -> Result<()> {
        s.check(self, &y, &xz)?;
        s.check_grad(self, &g)?;
        let n = s.rows * s.width;
        let (g_y, g_xz, out) = (full(&g.g_y), full(&g.g_xz), small(&g.out));
        let args = (g_y, g_xz, out, small(&y), small(&xz), full(&g.g_out), int(s.width), int(n));
        // SAFETY: lengths were checked above; the order of arguments is that of kernels/gate.cu.
        unsafe { self.launch(GATE_BWD, g.out.buf.store(), Grid::elements(n), args) }
    }
}
