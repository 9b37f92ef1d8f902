//! Linear map on the CPU: plain loops in f64, faer's matrix product in f32 (sequential: threads run shards, not products).

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::fast::{FEW, FewRows};
use super::{Linear, LinearGrad, LinearIn, LinearShape};
use crate::device::{Cpu, Real, Slot, View, ViewMut};
use crate::error::Result;

/// A row-major matrix inside a slice: `rows` rows of `cols`, `stride` apart.
pub(crate) struct Matrix<'a, F> {
    pub data: &'a [F],
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
}

/// As [`Matrix`], written.
pub(crate) struct MatrixMut<'a, F> {
    pub data: &'a mut [F],
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
}

impl<'a, F> Matrix<'a, F> {
    pub(crate) fn new(data: &'a [F], rows: usize, cols: usize) -> Self {
        Matrix { data, rows, cols, stride: cols }
    }

    /// The first `cols` columns of a matrix of `stride` columns.
    pub(crate) fn left(data: &'a [F], rows: usize, cols: usize, stride: usize) -> Self {
        Matrix { data, rows, cols, stride }
    }
}

impl<'a, F> MatrixMut<'a, F> {
    pub(crate) fn new(data: &'a mut [F], rows: usize, cols: usize) -> Self {
        MatrixMut { data, rows, cols, stride: cols }
    }

    /// The first `cols` columns of a matrix of `stride` columns.
    pub(crate) fn left(data: &'a mut [F], rows: usize, cols: usize, stride: usize) -> Self {
        MatrixMut { data, rows, cols, stride }
    }
}

fn view<'a>(m: &Matrix<'a, f32>) -> MatRef<'a, f32> {
    MatRef::from_row_major_slice_with_stride(m.data, m.rows, m.cols, m.stride)
}

/// c = a bᵀ, or c += a bᵀ where `add`; a [m, k], b [n, k], c [m, n].
pub(crate) fn times_transposed<F: Real>(a: Matrix<'_, F>, b: Matrix<'_, F>, c: MatrixMut<'_, F>, add: bool) {
    if let (Some(x), Some(y)) = (F::as_f32(a.data), F::as_f32(b.data)) {
        let (a, b) = (Matrix { data: x, ..sizes(&a) }, Matrix { data: y, ..sizes(&b) });
        return product(view(&a), view(&b).transpose(), c, add);
    }
    for i in 0..c.rows {
        for j in 0..c.cols {
            let mut sum = F::zero();
            for k in 0..a.cols {
                sum += a.data[i * a.stride + k] * b.data[j * b.stride + k];
            }
            let out = &mut c.data[i * c.stride + j];
            *out = if add { *out + sum } else { sum };
        }
    }
}

/// c = a b, or c += a b where `add`; a [m, k], b [k, n], c [m, n].
pub(crate) fn times<F: Real>(a: Matrix<'_, F>, b: Matrix<'_, F>, c: MatrixMut<'_, F>, add: bool) {
    if let (Some(x), Some(y)) = (F::as_f32(a.data), F::as_f32(b.data)) {
        let (a, b) = (Matrix { data: x, ..sizes(&a) }, Matrix { data: y, ..sizes(&b) });
        return product(view(&a), view(&b), c, add);
    }
    for i in 0..c.rows {
        let row = &mut c.data[i * c.stride..i * c.stride + c.cols];
        if !add {
            row.fill(F::zero());
        }
        for k in 0..a.cols {
            let x = a.data[i * a.stride + k];
            row.iter_mut().zip(&b.data[k * b.stride..]).for_each(|(c, &b)| *c += x * b);
        }
    }
}

/// c += aᵀ b; a [k, m], b [k, n], c [m, n].
pub(crate) fn add_transposed_times<F: Real>(a: Matrix<'_, F>, b: Matrix<'_, F>, c: MatrixMut<'_, F>) {
    if let (Some(x), Some(y)) = (F::as_f32(a.data), F::as_f32(b.data)) {
        let (a, b) = (Matrix { data: x, ..sizes(&a) }, Matrix { data: y, ..sizes(&b) });
        return product(view(&a).transpose(), view(&b), c, true);
    }
    for k in 0..a.rows {
        for i in 0..c.rows {
            let x = a.data[k * a.stride + i];
            let row = &mut c.data[i * c.stride..i * c.stride + c.cols];
            row.iter_mut().zip(&b.data[k * b.stride..]).for_each(|(c, &b)| *c += x * b);
        }
    }
}

/// The sizes of a matrix without its numbers.
fn sizes<F>(m: &Matrix<'_, F>) -> Matrix<'static, f32> {
    Matrix { data: &[], rows: m.rows, cols: m.cols, stride: m.stride }
}

fn product<F: Real>(a: MatRef<'_, f32>, b: MatRef<'_, f32>, c: MatrixMut<'_, F>, add: bool) {
    let (rows, cols, stride) = (c.rows, c.cols, c.stride);
    if rows == 0 || cols == 0 {
        return;
    }
    if let Some(c) = F::as_f32_mut(c.data) {
        // faer 0.24.4's from_row_major_slice_with_stride_mut swaps its strides: take the transpose of the columns
        let c = MatMut::from_column_major_slice_with_stride_mut(c, cols, rows, stride).transpose_mut();
        matmul(c, if add { Accum::Add } else { Accum::Replace }, a, b, 1.0, Par::Seq);
    }
}

/// y += b in every row.
pub(crate) fn add_bias<F: Real>(y: &mut [F], b: &[F]) {
    for row in y.chunks_exact_mut(b.len().max(1)) {
        row.iter_mut().zip(b).for_each(|(y, &b)| *y += b);
    }
}

/// g_b += Σ_rows g_y.
pub(crate) fn add_rows<F: Real>(g_y: &[F], g_b: &mut [F]) {
    for row in g_y.chunks_exact(g_b.len().max(1)) {
        g_b.iter_mut().zip(row).for_each(|(b, &g)| *b += g);
    }
}

impl<F: Real> Linear for Cpu<F> {
    fn linear(&self, s: LinearShape, x: LinearIn<'_, Vec<F>>, y: ViewMut<'_, Vec<F>>, add: bool) -> Result<()> {
        s.check(self, &x)?;
        let y = y.get("linear", "y", s.rows * s.d_out)?;
        if let (true, Some(y)) = (s.rows <= FEW, F::as_f32_mut(y)) {
            let (d_in, d_out, b) = (s.d_in, s.d_out, x.b.map(|b| b.f32s()));
            self.isa().run(FewRows { d_in, d_out, x: x.x.f32s(), w: x.w.f32s(), b, y, add });
            return Ok(());
        }
        let (w, rows) = (Matrix::new(x.w.host(), s.d_out, s.d_in), s.rows);
        times_transposed(Matrix::new(x.x.host(), rows, s.d_in), w, MatrixMut::new(y, rows, s.d_out), add);
        if let Some(b) = x.b {
            add_bias(y, b.host());
        }
        Ok(())
    }

    fn linear_bwd(&self, s: LinearShape, x: LinearIn<'_, Vec<F>>, g: LinearGrad<'_, Vec<F>>) -> Result<()> {
        s.check(self, &x)?;
        s.check_grad(self, &g)?;
        let g_y = g.g_y.host();
        if let Some(g_x) = g.g_x {
            let g_x = MatrixMut::new(g_x.host(), s.rows, s.d_in);
            times(Matrix::new(g_y, s.rows, s.d_out), Matrix::new(x.w.host(), s.d_out, s.d_in), g_x, false);
        }
        let g_w = MatrixMut::new(&mut g.g_params[g.w.range()], s.d_out, s.d_in);
        add_transposed_times(Matrix::new(g_y, s.rows, s.d_out), Matrix::new(x.x.host(), s.rows, s.d_in), g_w);
        if let Some(b) = g.b {
            add_rows(g_y, &mut g.g_params[Slot::range(b)]);
        }
        Ok(())
    }

    fn linear_bwd_x(
        &self,
        s: LinearShape,
        w: View<'_, Vec<F>>,
        g_y: View<'_, Vec<F>>,
        g_x: ViewMut<'_, Vec<F>>,
        add: bool,
    ) -> Result<()> {
        let w = Matrix::new(w.get("linear_bwd_x", "w", s.d_out * s.d_in)?, s.d_out, s.d_in);
        let g_y = Matrix::new(g_y.get("linear_bwd_x", "g_y", s.rows * s.d_out)?, s.rows, s.d_out);
        times(g_y, w, MatrixMut::new(g_x.get("linear_bwd_x", "g_x", s.rows * s.d_in)?, s.rows, s.d_in), add);
        Ok(())
    }
}
