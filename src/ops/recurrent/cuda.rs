//! LSTM and GRU on CUDA: one launch walks the whole sequence, a block for each row of the batch; the weights' gradients are
//! a product of cuBLAS and a sum of columns over all steps.

use super::{Cell, Recurrent, RecurrentGrad, RecurrentIn, RecurrentOut, RecurrentShape};
use crate::device::cuda::{Cuda, Grid, Kernel, Mask, Mat, Source, Store, Tensor, full, int, mask, slot, small};
use crate::device::{Device, View, ViewMut};
use crate::error::Result;

const SOURCE: Source = Source { file: "recurrent", text: include_str!("../../../kernels/recurrent.cu") };
const LSTM: [Kernel; 2] = [SOURCE.kernel("lstm_fwd"), SOURCE.kernel("lstm_bwd")];
const GRU: [Kernel; 2] = [SOURCE.kernel("gru_fwd"), SOURCE.kernel("gru_bwd")];

/// Most threads of a block.
const THREADS: usize = 512;

fn kernels(cell: Cell) -> [Kernel; 2] {
    match cell {
        Cell::Lstm => LSTM,
        Cell::Gru => GRU,
    }
}

impl Recurrent for Cuda {
    fn recurrent_scratch(s: RecurrentShape, train: bool) -> usize {
        // g_gh of all steps, then g_h and g_c
        if train { s.time * s.batch * s.width() + 2 * s.batch * s.hidden } else { 0 }
    }

    fn recurrent(
        &self,
        s: RecurrentShape,
        x: RecurrentIn<'_, Tensor, Mask>,
        out: RecurrentOut<'_, Tensor>,
    ) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_gx(self, &x.gx)?;
        s.check_out(self, &out)?;
        // a warp for each unit; h of two steps is shared
        let grid = Grid::new([s.batch, 1, 1], (32 * s.hidden).min(THREADS)).shared(8 * s.hidden);
        let (y, h, c, tape) = (small(&out.y), full(&out.h), full(&out.c), full(&out.tape));
        let (gx, w, bias, reset) = (full(&x.gx), full(&x.w_hh), full(&x.b_hh), mask(&x.reset));
        let args = (y, h, c, tape, gx, w, bias, reset, int(s.time), int(s.batch), int(s.hidden));
        // SAFETY: all lengths were checked above; the order of arguments is that of kernels/recurrent.cu.
        unsafe { self.launch(kernels(s.cell)[0], out.y.buf.store(), grid, args) }
    }

    fn recurrent_bwd(
        &self,
        s: RecurrentShape,
        x: RecurrentIn<'_, Tensor, Mask>,
        g: RecurrentGrad<'_, Tensor>,
    ) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_grad(self, &g)?;
        let (rows, len, steps) = (s.time * s.batch, s.batch * s.hidden, s.time * s.batch * s.width());
        let scratch = g.scratch;
        for (at, from) in [(steps, g.g_h_out), (steps + len, g.g_c_out)] {
            let to = ViewMut::new(&mut *scratch.buf, scratch.at + at, len);
            match from {
                Some(from) => self.copy(from, to)?,
                None => self.fill(to, 0.0)?,
            }
        }
        let part = |at: usize, len: usize| View::new(&*scratch.buf, scratch.at + at, len);
        let (g_gh, g_h, g_c) = (full(&part(0, steps)), full(&part(steps, len)), full(&part(steps + len, len)));
        let (tape, w, reset) = (full(&g.tape), full(&x.w_hh), mask(&x.reset));
        let sizes = (int(s.time), int(s.batch), int(s.hidden));
        let args = (full(&g.g_gx), g_gh, g_h, g_c, tape, full(&g.g_y), w, reset, sizes.0, sizes.1, sizes.2);
        let grid = Grid::new([s.batch, 1, 1], s.hidden.next_multiple_of(32).min(THREADS));
        // h before each step is field 0 of the tape, zeroed where it was reset
        let (steps_g, before) = (Mat::new(g_gh, rows, s.width()), Mat::new(tape, rows, s.hidden));
        let g_w = Mat::new(slot(g.g_params, g.w_hh), s.width(), s.hidden);
        // SAFETY: all lengths were checked above; the orders of arguments are those of the kernels' files.
        unsafe {
            self.launch(kernels(s.cell)[1], Store::F32, grid, args)?;
            self.gemm(g_w, steps_g.t(), before, true)?;
            self.add_columns(slot(g.g_params, g.b_hh), g_gh, [rows, s.width()])?;
        }
        for (at, to) in [(steps, g.g_h), (steps + len, g.g_c)] {
            if let Some(to) = to {
                self.copy(part(at, len), to)?;
            }
        }
        Ok(())
    }
}
