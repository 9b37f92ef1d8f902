//! Linear map on CUDA: one product of cuBLAS, the bias by a kernel. Where an activation is stored small, the other operand
//! is narrowed to the same type first; where all are f32, so is the product.

use super::{Linear, LinearGrad, LinearIn, LinearShape};
use crate::device::cuda::{Cuda, Grid, Kernel, Mat, Pointer, Source, Store, Tensor, Work, full, int, slot, small};
use crate::device::{Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Check;

const SOURCE: Source = Source { file: "linear", text: include_str!("../../../kernels/linear.cu") };
const ADD_BIAS: Kernel = SOURCE.kernel("add_bias");
const COLUMN_PIECES: Kernel = SOURCE.kernel("column_pieces");
const ADD_PIECES: Kernel = SOURCE.kernel("add_pieces");

/// Columns of a block of `column_pieces`.
const COLUMNS: usize = 32;
/// Fewest rows that a piece of a column sum is worth.
const ROWS: usize = 64;
/// Most pieces of a column sum.
const PIECES: usize = 256;

/// The type that the operands of a product are brought to: the small one of the two.
fn operand(a: &Tensor, b: &Tensor) -> Store {
    if a.store() == Store::F32 { b.store() } else { a.store() }
}

/// Floats of working memory for `len` numbers of type `to` made from `from`; none where they are of it already.
fn room(from: &Tensor, to: Store, len: usize) -> usize {
    if from.store() == to { 0 } else { (len * to.bytes()).next_multiple_of(256) / 4 }
}

/// The range in the type `to`: itself, or narrowed into the working memory from `at`.
fn as_type(dev: &Cuda, work: &Work<'_>, at: usize, v: View<'_, Tensor>, to: Store) -> Result<Pointer> {
    if v.buf.store() == to {
        return Ok(small(&v));
    }
    let narrowed = work.part_as(at, v.len, to);
    // SAFETY: the view was checked by the caller; the working memory has room for it.
    unsafe { dev.narrow(full(&v), narrowed, to, v.len)? };
    Ok(narrowed)
}

/// Pieces and rows of a piece of a column sum.
fn pieces(rows: usize) -> (usize, usize) {
    let each = rows.div_ceil(PIECES).max(ROWS);
    (rows.div_ceil(each), each)
}

/// g_b += Σ_rows x; x [rows, width].
fn add_columns(dev: &Cuda, x: View<'_, Tensor>, [rows, width]: [usize; 2], g: &Tensor, b: Slot) -> Result<()> {
    let (pieces, each) = pieces(rows);
    let work = dev.work(pieces * width)?;
    let partial = work.part(0, pieces * width);
    let grid = Grid::new([width.div_ceil(COLUMNS), pieces, 1], 1).block([COLUMNS, 8, 1]);
    // SAFETY: x and g_b were checked by the caller; the order of arguments is that of kernels/linear.cu.
    unsafe {
        dev.launch(COLUMN_PIECES, x.buf.store(), grid, (partial, small(&x), int(rows), int(width), int(each)))?;
        dev.launch(ADD_PIECES, Store::F32, Grid::elements(width), (slot(g, b), partial, int(pieces), int(width)))
    }
}

impl Linear for Cuda {
    fn linear(&self, s: LinearShape, x: LinearIn<'_, Tensor>, y: ViewMut<'_, Tensor>, add: bool) -> Result<()> {
        s.check(self, &x)?;
        Check::new(self, "linear").out("y", &y, &[("rows", s.rows), ("d_out", s.d_out)])?;
        let to = operand(x.x.buf, y.buf);
        let n_x = room(x.x.buf, to, x.x.len);
        let work = self.work(n_x + room(x.w.buf, to, x.w.len))?;
        let a = Mat::new(as_type(self, &work, 0, x.x, to)?, s.rows, s.d_in);
        let w = Mat::new(as_type(self, &work, n_x, x.w, to)?, s.d_out, s.d_in);
        // SAFETY: all lengths were checked above; y is another buffer than x and w, borrowed mutably.
        unsafe { self.gemm(Mat::new(small(&y), s.rows, s.d_out), a, w.t(), add)? };
        let Some(b) = x.b else { return Ok(()) };
        let args = (small(&y), full(&b), int(s.rows), int(s.d_out));
        // SAFETY: lengths as above; the order of arguments is that of kernels/linear.cu.
        unsafe { self.launch(ADD_BIAS, y.buf.store(), Grid::elements(s.rows * s.d_out), args) }
    }

    fn linear_bwd(&self, s: LinearShape, x: LinearIn<'_, Tensor>, g: LinearGrad<'_, Tensor>) -> Result<()> {
        s.check(self, &x)?;
        s.check_grad(self, &g)?;
        if let Some(g_x) = g.g_x {
            self.linear_bwd_x(s, x.w, g.g_y, g_x, false)?;
        }
        {
            let to = operand(x.x.buf, g.g_y.buf);
            let n_x = room(x.x.buf, to, x.x.len);
            let work = self.work(n_x + room(g.g_y.buf, to, g.g_y.len))?;
            let a = Mat::new(as_type(self, &work, 0, x.x, to)?, s.rows, s.d_in);
            let g_y = Mat::new(as_type(self, &work, n_x, g.g_y, to)?, s.rows, s.d_out);
            // SAFETY: all lengths were checked above; the gradient is borrowed mutably.
            unsafe { self.gemm(Mat::new(slot(g.g_params, g.w), s.d_out, s.d_in), g_y.t(), a, true)? };
        }
        match g.b {
            Some(b) => add_columns(self, g.g_y, [s.rows, s.d_out], g.g_params, b),
            None => Ok(()),
        }
    }

    fn linear_bwd_x(
        &self,
        s: LinearShape,
        w: View<'_, Tensor>,
        g_y: View<'_, Tensor>,
        g_x: ViewMut<'_, Tensor>,
        add: bool,
    ) -> Result<()> {
        let c = Check::new(self, "linear_bwd_x");
        c.view("w", &w, &[("d_out", s.d_out), ("d_in", s.d_in)])?;
        c.view("g_y", &g_y, &[("rows", s.rows), ("d_out", s.d_out)])?;
        c.out("g_x", &g_x, &[("rows", s.rows), ("d_in", s.d_in)])?;
        let to = operand(g_y.buf, g_x.buf);
        let n_y = room(g_y.buf, to, g_y.len);
        let work = self.work(n_y + room(w.buf, to, w.len))?;
        let a = Mat::new(as_type(self, &work, 0, g_y, to)?, s.rows, s.d_out);
        let w = Mat::new(as_type(self, &work, n_y, w, to)?, s.d_out, s.d_in);
        // SAFETY: all lengths were checked above; g_x is borrowed mutably.
        unsafe { self.gemm(Mat::new(small(&g_x), s.rows, s.d_in), a, w, add) }
    }
}
