//! The rotating scan on CUDA: forms, chunks and working memory are those of the selective scan.

use super::{RotatingGrad, RotatingIn, RotatingScan, check_grad, check_in, check_out};
use crate::device::View;
use crate::device::cuda::{Cuda, Grid, Kernel, Mask, Source, Store, Tensor, full, int, mask, slot, small};
use crate::error::Result;
use crate::ops::selective_scan::cuda::{Cut, Walks, check_states, last_sums, states};
use crate::ops::selective_scan::{ScanOut, ScanShape};

const SOURCE: Source = Source { file: "rotating_scan", text: include_str!("../../../kernels/rotating_scan.cu") };
const CARRY: Kernel = SOURCE.kernel("rotating_carry");
const BWD_CARRY: Kernel = SOURCE.kernel("rotating_bwd_carry");
const BWD_FINISH: Kernel = SOURCE.kernel("rotating_bwd_finish");
const TWO: Walks = Walks {
    forward: SOURCE.kernel("rotating_fwd_2"),
    chunk: SOURCE.kernel("rotating_chunk_2"),
    backward: SOURCE.kernel("rotating_bwd_2"),
    bwd_chunk: SOURCE.kernel("rotating_bwd_chunk_2"),
};
const FOUR: Walks = Walks {
    forward: SOURCE.kernel("rotating_fwd_4"),
    chunk: SOURCE.kernel("rotating_chunk_4"),
    backward: SOURCE.kernel("rotating_bwd_4"),
    bwd_chunk: SOURCE.kernel("rotating_bwd_chunk_4"),
};

impl RotatingScan for Cuda {
    fn rotating_scratch(s: ScanShape, train: bool) -> usize {
        Cut::of(s).scratch(s, train)
    }

    fn rotating_scan(&self, s: ScanShape, x: RotatingIn<'_, Tensor, Mask>, out: ScanOut<'_, Tensor>) -> Result<()> {
        check_in(s, self, &x)?;
        check_out(s, self, &out)?;
        check_states(SOURCE.file, s)?;
        let (theta, x, cut) = (full(&x.theta), x.scan, Cut::of(s));
        let [t, b, e, n, r, lanes, chunk] = cut.sizes(s);
        let (u, delta, q, a_log) = (full(&x.u), full(&x.delta), full(&x.q), full(&x.a_log));
        let (h, reset, walks) = (full(&out.h), mask(&x.reset), cut.of_states(TWO, FOUR));
        let mut start = h;
        if cut.chunks > 1 {
            let (len, sums) = cut.carried(s);
            let scratch = out.scratch.read();
            let (local, total) = (full(&scratch.part(0, len)), full(&scratch.part(len, sums)));
            let each = (t, b, e, n, r, lanes, chunk, local, total, u, delta, q, a_log, theta, reset);
            let join = (t, b, e, n, r, lanes, chunk, local, total, h, a_log, theta);
            // SAFETY: all lengths were checked above; the orders of arguments are those of kernels/rotating_scan.cu.
            unsafe {
                self.launch(walks.chunk, Store::F32, cut.grid(s, cut.chunks - 1), each)?;
                self.launch(CARRY, Store::F32, Grid::elements(states(s) / 2), join)?;
            }
            start = local;
        }
        let (y, tape, d_skip) = (full(&out.y), full(&out.h_tape), full(&x.d_skip));
        let args = (t, b, e, n, r, lanes, chunk, y, h, tape, start, u, delta, q, a_log, theta, d_skip, reset);
        // SAFETY: as above.
        unsafe { self.launch(walks.forward, Store::F32, cut.grid(s, cut.chunks), args) }
    }

    fn rotating_scan_bwd(
        &self,
        s: ScanShape,
        x: RotatingIn<'_, Tensor, Mask>,
        g: RotatingGrad<'_, Tensor>,
    ) -> Result<()> {
        check_in(s, self, &x)?;
        check_grad(s, self, &g)?;
        check_states(SOURCE.file, s)?;
        let (theta, x, g_theta, g, cut) = (full(&x.theta), x.scan, g.theta, g.scan, Cut::of(s));
        let (store, [t, b, e, n, r, lanes, chunk]) = (x.u.buf.store(), cut.sizes(s));
        let (u, delta, q, a_log) = (small(&x.u), full(&x.delta), full(&x.q), full(&x.a_log));
        let (g_y, reset, walks) = (full(&g.g_y), mask(&x.reset), cut.of_states(TWO, FOUR));
        let ((n_bc, n_a), (len, sums), scratch) = (cut.shares(s), cut.carried(s), g.scratch.read());
        let (part_bc, part_a) = (full(&scratch.part(0, n_bc)), full(&scratch.part(n_bc, n_a)));
        let mut after = full(&g.g_h_out);
        if cut.chunks > 1 {
            let (local, total) = (full(&scratch.part(n_bc + n_a, len)), full(&scratch.part(n_bc + n_a + len, sums)));
            let each = (t, b, e, n, r, lanes, chunk, local, total, g_y, delta, q, a_log, theta, reset);
            let join = (t, b, e, n, r, lanes, chunk, local, total, after, a_log, theta);
            // SAFETY: all lengths were checked above; the orders of arguments are those of kernels/rotating_scan.cu.
            unsafe {
                self.launch(walks.bwd_chunk, Store::F32, cut.grid(s, cut.chunks), each)?;
                self.launch(BWD_CARRY, Store::F32, Grid::elements(states(s) / 2), join)?;
            }
            after = local;
        }
        let (parts, tape, d_skip) = (int(cut.parts), full(&g.h_tape), full(&x.d_skip));
        let (g_u, g_delta, g_q, g_h) = (full(&g.g_u), full(&g.g_delta), full(&g.g_q), full(&g.g_h));
        let walk = (
            t, b, e, n, r, lanes, chunk, parts, g_u, g_delta, part_bc, part_a, g_h, after, tape, g_y, u, delta, q,
            a_log, theta, d_skip, reset,
        );
        let (g_a, g_d) = (slot(g.g_params, g.a_log), slot(g.g_params, g.d_skip));
        let g_theta = full(&g_theta.map(|at| View::new(&*g.g_params, at.at, at.len)));
        let finish = (t, b, e, n, r, lanes, chunk, parts, g_q, g_a, g_theta, g_d, part_bc, part_a);
        // SAFETY: as above.
        unsafe {
            self.launch(walks.backward, store, cut.grid_bwd(s), walk)?;
            self.launch(BWD_FINISH, Store::F32, Grid::elements(last_sums(s)), finish)
        }
    }
}
