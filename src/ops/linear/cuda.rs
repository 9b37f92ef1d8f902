//! Linear map on CUDA: one product of cuBLAS, the bias by a kernel. Where an activation is stored small, the other operand
//! is narrowed to the same type first; where all are f32, so is the product, but for the forms that ask for small operands:
//! x Wᵀ and g_y W with both factors as hi + lo, in one product of three times the depth.

use super::{Linear, LinearGrad, LinearIn, LinearShape};
use crate::device::cuda::{Cuda, Grid, Kernel, Mat, Pointer, Source, Store, Tensor, Work, full, int, slot, small};
use crate::device::{Device, Slot, View, ViewMut};
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

/// Floats of working memory for `len` numbers as hi + lo of type `to`.
fn split_room(len: usize, to: Store) -> usize {
    (3 * len * to.bytes()).next_multiple_of(256) / 4
}

/// g_x = g_y W, or g_x += g_y W where `add`, all in full, with factors as hi + lo of type `to`: of g_y by columns, of W by
/// rows. `work` has room for both from `at` on. Returns g_y rounded.
fn split_input_grad(
    dev: &Cuda,
    s: LinearShape,
    (work, at): (&Work<'_>, usize),
    [w, g_y]: [View<'_, Tensor>; 2],
    (g_x, add): (&ViewMut<'_, Tensor>, bool),
    to: Store,
) -> Result<Mat> {
    let a = work.part_as(at, 3 * g_y.len, to);
    let b = work.part_as(at + split_room(g_y.len, to), 3 * w.len, to);
    let (of_a, of_b) = (Mat::new(a, s.rows, 3 * s.d_out), Mat::new(b, 3 * s.d_out, s.d_in));
    // SAFETY: all lengths were checked by the caller, which made room for both; g_x is borrowed mutably.
    unsafe {
        dev.split(full(&g_y), a, to, [s.rows, s.d_out], false)?;
        dev.split(full(&w), b, to, [1, s.d_out * s.d_in], true)?;
        dev.gemm(Mat::new(full(g_x), s.rows, s.d_in), of_a, of_b, add)?;
    }
    Ok(Mat::new(a, s.rows, s.d_out).stride(3 * s.d_out))
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

/// y += b in every row; y [rows, d_out].
fn add_bias(dev: &Cuda, s: LinearShape, b: Option<View<'_, Tensor>>, y: &ViewMut<'_, Tensor>) -> Result<()> {
    let Some(b) = b else { return Ok(()) };
    let args = (small(y), full(&b), int(s.rows), int(s.d_out));
    // SAFETY: the lengths were checked by the caller; the order of arguments is that of kernels/linear.cu.
    unsafe { dev.launch(ADD_BIAS, y.buf.store(), Grid::elements(s.rows * s.d_out), args) }
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
        add_bias(self, s, x.b, &y)
    }

    fn linear_split(&self, s: LinearShape, x: LinearIn<'_, Tensor>, y: ViewMut<'_, Tensor>, add: bool) -> Result<()> {
        let to = Store::from(self.precision());
        if to == Store::F32 {
            return self.linear(s, x, y, add);
        }
        s.check(self, &x)?;
        Check::new(self, "linear_split").out("y", &y, &[("rows", s.rows), ("d_out", s.d_out)])?;
        let n_x = split_room(x.x.len, to);
        let work = self.work(n_x + split_room(x.w.len, to))?;
        let [a, w] = [work.part_as(0, 3 * x.x.len, to), work.part_as(n_x, 3 * x.w.len, to)];
        let [of_a, of_w] = [Mat::new(a, s.rows, 3 * s.d_in), Mat::new(w, s.d_out, 3 * s.d_in)];
        // SAFETY: all lengths were checked above, the working memory has room for both; y is borrowed mutably.
        unsafe {
            self.split(full(&x.x), a, to, [s.rows, s.d_in], false)?;
            self.split(full(&x.w), w, to, [s.d_out, s.d_in], true)?;
            self.gemm(Mat::new(full(&y), s.rows, s.d_out), of_a, of_w.t(), add)?;
        }
        drop(work);
        add_bias(self, s, x.b, &y)
    }

    fn linear_bwd(&self, s: LinearShape, x: LinearIn<'_, Tensor>, g: LinearGrad<'_, Tensor>) -> Result<()> {
        s.check(self, &x)?;
        s.check_grad(self, &g)?;
        {
            let full_g = |g_x: &ViewMut<'_, Tensor>| g.g_y.buf.store() == Store::F32 && g_x.buf.store() == Store::F32;
            let to = operand(x.x.buf, g.g_y.buf);
            let apart = to != Store::F32 && g.g_x.as_ref().is_some_and(full_g);
            if let (Some(g_x), false) = (&g.g_x, apart) {
                self.input_grad(s, [x.w, g.g_y], g_x, false)?;
            }
            let n_x = room(x.x.buf, to, x.x.len);
            let n_g = match apart {
                true => split_room(g.g_y.len, to) + split_room(x.w.len, to),
                false => room(g.g_y.buf, to, g.g_y.len),
            };
            let work = self.work(n_x + n_g)?;
            let a = Mat::new(as_type(self, &work, 0, x.x, to)?, s.rows, s.d_in);
            let g_y = match &g.g_x {
                Some(g_x) if apart => split_input_grad(self, s, (&work, n_x), [x.w, g.g_y], (g_x, false), to)?,
                _ => Mat::new(as_type(self, &work, n_x, g.g_y, to)?, s.rows, s.d_out),
            };
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
        self.input_grad(s, [w, g_y], &g_x, add)
    }

    fn linear_split_bwd_x(
        &self,
        s: LinearShape,
        w: View<'_, Tensor>,
        g_y: View<'_, Tensor>,
        g_x: ViewMut<'_, Tensor>,
        add: bool,
    ) -> Result<()> {
        let to = Store::from(self.precision());
        if to == Store::F32 {
            return self.input_grad(s, [w, g_y], &g_x, add);
        }
        s.check_input_grad(self, &w, &g_y, &g_x)?;
        let work = self.work(split_room(g_y.len, to) + split_room(w.len, to))?;
        split_input_grad(self, s, (&work, 0), [w, g_y], (&g_x, add), to).map(|_| ())
    }
}

impl Cuda {
    /// g_x = g_y W, or g_x += g_y W where `add`, with operands of the small type of g_y and g_x.
    fn input_grad(
        &self,
        s: LinearShape,
        [w, g_y]: [View<'_, Tensor>; 2],
        g_x: &ViewMut<'_, Tensor>,
        add: bool,
    ) -> Result<()> {
        s.check_input_grad(self, &w, &g_y, g_x)?;
        let to = operand(g_y.buf, g_x.buf);
        let n_y = room(g_y.buf, to, g_y.len);
        let work = self.work(n_y + room(w.buf, to, w.len))?;
        let a = Mat::new(as_type(self, &work, 0, g_y, to)?, s.rows, s.d_out);
        let w = Mat::new(as_type(self, &work, n_y, w, to)?, s.d_out, s.d_in);
        // SAFETY: all lengths were checked above; g_x is borrowed mutably.
        unsafe { self.gemm(Mat::new(small(g_x), s.rows, s.d_in), a, w, add) }
    }
}

impl LinearShape {
    fn check_input_grad(
        &self,
        dev: &Cuda,
        w: &View<'_, Tensor>,
        g_y: &View<'_, Tensor>,
        g_x: &ViewMut<'_, Tensor>,
    ) -> Result<()> {
        let c = Check::new(dev, "linear_bwd_x");
        c.view("w", w, &[("d_out", self.d_out), ("d_in", self.d_in)])?;
        c.view("g_y", g_y, &[("rows", self.rows), ("d_out", self.d_out)])?;
        c.out("g_x", g_x, &[("rows", self.rows), ("d_in", self.d_in)])
    }
}
