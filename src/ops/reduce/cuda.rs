//! Reductions and blends on CUDA. Sums are made in two stages, blocks and then their parts, in an order that depends on
//! the length alone.

use super::Reduce;
use crate::device::cuda::{Cuda, Grid, Kernel, Pointer, Source, Store, Tensor, full, int};
use crate::device::{View, ViewMut};
use crate::error::Result;
use crate::ops::Check;

const SOURCE: Source = Source { file: "reduce", text: include_str!("../../../kernels/reduce.cu") };
const ADD_ASSIGN: Kernel = SOURCE.kernel("add_assign");
const BLEND: Kernel = SOURCE.kernel("blend");
const ADD_COLUMNS: Kernel = SOURCE.kernel("add_columns");
const SUM_SQUARES: Kernel = SOURCE.kernel("sum_squares");
const SUM_PARTS: Kernel = SOURCE.kernel("sum_parts");

/// Threads of a block that sums.
pub(in crate::ops) const SUM_THREADS: usize = 256;
/// Most parts of a sum.
const PARTS: usize = 256;
/// Columns and lanes of a block that sums columns: COLUMNS and COLUMN_LANES of kernels/common.cuh.
pub(in crate::ops) const COLUMN_BLOCK: [usize; 3] = [8, 64, 1];

/// Parts of a sum over `n` numbers, each one f64.
pub(in crate::ops) fn parts(n: usize) -> usize {
    n.div_ceil(SUM_THREADS).clamp(1, PARTS)
}

/// Blocks that sum the columns of a matrix of this width.
pub(in crate::ops) fn column_grid(width: usize) -> Grid {
    Grid::new([width.div_ceil(COLUMN_BLOCK[0]), 1, 1], 1).block(COLUMN_BLOCK)
}

impl Cuda {
    /// First stage of Σ x²: `parts(n)` numbers of f64.
    ///
    /// # Safety
    /// x has n numbers, and there is room for the parts.
    pub(in crate::ops) unsafe fn square_parts(&self, x: Pointer, n: usize, to: Pointer) -> Result<()> {
        let grid = Grid::new([parts(n), 1, 1], SUM_THREADS);
        // SAFETY: the caller's promise; the order of arguments is that of kernels/reduce.cu.
        unsafe { self.launch(SUM_SQUARES, Store::F32, grid, (to, x, int(n))) }
    }

    /// sum += Σ_rows x; x [rows, width] in full.
    ///
    /// # Safety
    /// Both have their sizes.
    pub(in crate::ops) unsafe fn add_columns(&self, sum: Pointer, x: Pointer, [rows, width]: [usize; 2]) -> Result<()> {
        // SAFETY: the caller's promise; the order of arguments is that of kernels/reduce.cu.
        unsafe { self.launch(ADD_COLUMNS, Store::F32, column_grid(width), (sum, x, int(rows), int(width))) }
    }
}

impl Reduce for Cuda {
    fn sum_squares(&self, x: View<'_, Tensor>) -> Result<f64> {
        Check::new(self, "sum_squares").view("x", &x, &[("x", x.len)])?;
        let parts = parts(x.len);
        let work = self.work(2 * (parts + 1))?; // two floats for each f64
        let (to, total) = (work.part(0, 2 * parts), work.part(2 * parts, 2));
        // SAFETY: the range was checked above, the working memory is large enough; orders as in kernels/reduce.cu.
        unsafe {
            self.square_parts(full(&x), x.len, to)?;
            self.launch(SUM_PARTS, Store::F32, Grid::new([1; 3], SUM_THREADS), (total, to, int(parts)))?;
        }
        self.read_f64(total)
    }

    fn add_assign(&self, x: View<'_, Tensor>, y: ViewMut<'_, Tensor>) -> Result<()> {
        let c = Check::new(self, "add_assign");
        c.view("x", &x, &[("y", y.len)])?;
        c.out("y", &y, &[("y", y.len)])?;
        let args = (full(&y), full(&x), int(y.len));
        // SAFETY: both ranges were checked above; the order of arguments is that of kernels/reduce.cu.
        unsafe { self.launch(ADD_ASSIGN, Store::F32, Grid::elements(y.len), args) }
    }

    fn blend(&self, tau: f32, x: View<'_, Tensor>, y: ViewMut<'_, Tensor>) -> Result<()> {
        let c = Check::new(self, "blend");
        c.view("x", &x, &[("y", y.len)])?;
        c.out("y", &y, &[("y", y.len)])?;
        let args = (full(&y), full(&x), tau, int(y.len));
        // SAFETY: both ranges were checked above; the order of arguments is that of kernels/reduce.cu.
        unsafe { self.launch(BLEND, Store::F32, Grid::elements(y.len), args) }
    }
}
