//! The dueling combination on CUDA.

use super::Dueling;
use crate::device::cuda::{Cuda, Grid, Kernel, Source, Store, Tensor, full, int};
use crate::device::{View, ViewMut};
use crate::error::Result;
use crate::ops::Check;

const SOURCE: Source = Source { file: "dueling", text: include_str!("../../../kernels/dueling.cu") };
const DUELING: Kernel = SOURCE.kernel("dueling");
const DUELING_BWD: Kernel = SOURCE.kernel("dueling_bwd");

impl Dueling for Cuda {
    fn dueling(
        &self,
        rows: usize,
        actions: usize,
        value: View<'_, Tensor>,
        advantage: View<'_, Tensor>,
        q: ViewMut<'_, Tensor>,
    ) -> Result<()> {
        let c = Check::new(self, "dueling");
        c.view("value", &value, &[("rows", rows)])?;
        c.view("advantage", &advantage, &[("rows", rows), ("actions", actions)])?;
        c.out("q", &q, &[("rows", rows), ("actions", actions)])?;
        let args = (full(&q), full(&value), full(&advantage), int(actions), int(rows));
        // SAFETY: lengths were checked above; the order of arguments is that of kernels/dueling.cu.
        unsafe { self.launch(DUELING, Store::F32, Grid::elements(rows), args) }
    }

    fn dueling_bwd(
        &self,
        rows: usize,
        actions: usize,
        g_q: View<'_, Tensor>,
        g_value: ViewMut<'_, Tensor>,
        g_advantage: ViewMut<'_, Tensor>,
    ) -> Result<()> {
        let c = Check::new(self, "dueling_bwd");
        c.view("g_q", &g_q, &[("rows", rows), ("actions", actions)])?;
        c.out("g_value", &g_value, &[("rows", rows)])?;
        c.out("g_advantage", &g_advantage, &[("rows", rows), ("actions", actions)])?;
        let args = (full(&g_value), full(&g_advantage), full(&g_q), int(actions), int(rows));
        // SAFETY: lengths were checked above; the order of arguments is that of kernels/dueling.cu.
        unsafe { self.launch(DUELING_BWD, Store::F32, Grid::elements(rows), args) }
    }
}
