//! The scan on CUDA, in one of two forms that the shape chooses: sequential in T, one launch; or, for few rows and long T,
//! chunks of T side by side, three launches (what each chunk adds, joined in order, then each from its own state). The
//! backward likewise, with one launch more for the sums over channels and rows.

use super::{CHECKPOINT_EVERY, ScanGrad, ScanIn, ScanOut, ScanShape, SelectiveScan};
use crate::device::cuda::{Cuda, Grid, Int, Kernel, Mask, Source, Store, Tensor, full, int, mask, slot, small};
use crate::error::{Error, Result};

const SOURCE: Source = Source { file: "selective_scan", text: include_str!("../../../kernels/selective_scan.cu") };
const CARRY: Kernel = SOURCE.kernel("scan_carry");
const BWD_CARRY: Kernel = SOURCE.kernel("scan_bwd_carry");
const BWD_FINISH: Kernel = SOURCE.kernel("scan_bwd_finish");

/// The kernels that exist for each number of states of a lane.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Walks {
    pub forward: Kernel,
    pub chunk: Kernel,
    pub backward: Kernel,
    pub bwd_chunk: Kernel,
}

const FOUR: Walks = Walks {
    forward: SOURCE.kernel("scan_fwd_4"),
    chunk: SOURCE.kernel("scan_chunk_4"),
    backward: SOURCE.kernel("scan_bwd_4"),
    bwd_chunk: SOURCE.kernel("scan_bwd_chunk_4"),
};
const EIGHT: Walks = Walks {
    forward: SOURCE.kernel("scan_fwd_8"),
    chunk: SOURCE.kernel("scan_chunk_8"),
    backward: SOURCE.kernel("scan_bwd_8"),
    bwd_chunk: SOURCE.kernel("scan_bwd_chunk_8"),
};

/// Warps of a block: WARPS of the kernels.
const WARPS: usize = 4;
/// Lanes of a warp.
const WARP: usize = 32;
/// Most states of a channel: 8 in each lane of a warp.
const MOST_STATES: usize = 8 * WARP;
/// Most warps that share the channels of a row in the backward, and so most parts that B's and C's gradients are added from.
const PARTS: usize = 32;

/// Steps of a chunk in the chunked form; a multiple of [`CHECKPOINT_EVERY`].
const CHUNK: usize = 32;
/// Fewest steps for the chunked form: four chunks.
const LONG: usize = 4 * CHUNK;
/// Most channels over all rows for the chunked form: with more, the channels alone fill a GPU.
const FEW: usize = 2048;

/// How the work of a scan of some shape is cut; for pairs that rotate the same, with half as many pairs as states in a lane.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Cut {
    /// States of a lane: 4 up to d_state 16, else 8.
    states: usize,
    /// Lanes that share a channel.
    lanes: usize,
    /// Steps of a chunk; the whole sequence in the sequential form.
    chunk: usize,
    /// Chunks.
    pub chunks: usize,
    /// Warps that share the channels of a row in the backward.
    pub parts: usize,
}

impl Cut {
    pub fn of(s: ScanShape) -> Self {
        let states = if s.d_state <= 16 { 4 } else { 8 };
        let lanes = s.d_state.div_ceil(states).next_power_of_two().min(WARP);
        let long = s.time >= LONG && s.batch * s.d_inner <= FEW;
        let chunk = if long { CHUNK } else { s.time.max(1) };
        let parts = s.d_inner.div_ceil(WARP / lanes).clamp(1, PARTS);
        Cut { states, lanes, chunk, chunks: s.time.div_ceil(chunk), parts }
    }

    /// The kernels for few or many states of a lane.
    pub fn of_states(self, few: Walks, many: Walks) -> Walks {
        if self.states == 4 { few } else { many }
    }

    /// The sizes that every kernel begins with.
    pub fn sizes(self, s: ScanShape) -> [Int; 7] {
        [s.time, s.batch, s.d_inner, s.d_state, s.dt_rank, self.lanes, self.chunk].map(int)
    }

    /// Floats of working memory.
    pub fn scratch(self, s: ScanShape, train: bool) -> usize {
        let ((local, total), (bc, a)) = (self.carried(s), if train { self.shares(s) } else { (0, 0) });
        local + total + bc + a
    }

    /// Blocks of whole channels of each row, for this many chunks.
    pub fn grid(self, s: ScanShape, chunks: usize) -> Grid {
        let tiles = s.d_inner.div_ceil(WARPS * (WARP / self.lanes));
        Grid::new([tiles * s.batch, chunks, 1], WARPS * WARP).shared(self.shared())
    }

    /// Blocks of the backward: warps are parts.
    pub fn grid_bwd(self, s: ScanShape) -> Grid {
        Grid::new([self.parts.div_ceil(WARPS) * s.batch, self.chunks, 1], WARPS * WARP).shared(self.shared())
    }

    /// Bytes of B and C of the steps between two states on the tape.
    fn shared(self) -> usize {
        4 * CHECKPOINT_EVERY * 2 * self.states * self.lanes
    }

    /// Floats of the states that chunks start from and of their sums of step sizes; none in the sequential form.
    pub fn carried(self, s: ScanShape) -> (usize, usize) {
        if self.chunks <= 1 { (0, 0) } else { (self.chunks * states(s), self.chunks * s.batch * s.d_inner) }
    }

    /// Floats of the parts of the gradients of B and C, and of A_log and D.
    pub fn shares(self, s: ScanShape) -> (usize, usize) {
        let rows = s.time * s.batch;
        (self.parts * rows * 2 * s.d_state, self.chunks * s.batch * (s.d_state + 1) * s.d_inner)
    }
}

/// Elements of h.
pub(in crate::ops) fn states(s: ScanShape) -> usize {
    s.batch * s.d_state * s.d_inner
}

/// Threads of the launch that makes the last sums.
pub(in crate::ops) fn last_sums(s: ScanShape) -> usize {
    s.time * s.batch * 2 * s.d_state + (s.d_state + 1) * s.d_inner
}

pub(in crate::ops) fn check_states(kernel: &str, s: ScanShape) -> Result<()> {
    if s.d_state <= MOST_STATES {
        return Ok(());
    }
    let problem = format!("takes up to {MOST_STATES} states of a channel, d_state is {}", s.d_state);
    Err(Error::Kernel { kernel: kernel.into(), problem })
}

impl SelectiveScan for Cuda {
    fn most_states() -> usize {
        MOST_STATES
    }

    fn scan_scratch(s: ScanShape, train: bool) -> usize {
        Cut::of(s).scratch(s, train)
    }

    fn selective_scan(&self, s: ScanShape, x: ScanIn<'_, Tensor, Mask>, out: ScanOut<'_, Tensor>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_out(self, &out)?;
        check_states(SOURCE.file, s)?;
        let (cut, [t, b, e, n, r, lanes, chunk]) = (Cut::of(s), Cut::of(s).sizes(s));
        let (u, delta, q, a_log) = (full(&x.u), full(&x.delta), full(&x.q), full(&x.a_log));
        let (h, reset, walks) = (full(&out.h), mask(&x.reset), cut.of_states(FOUR, EIGHT));
        let mut start = h;
        if cut.chunks > 1 {
            let (len, sums) = cut.carried(s);
            let scratch = out.scratch.read();
            let (local, total) = (full(&scratch.part(0, len)), full(&scratch.part(len, sums)));
            let each = (t, b, e, n, r, lanes, chunk, local, total, u, delta, q, a_log, reset);
            let join = (t, b, e, n, r, lanes, chunk, local, total, h, a_log);
            // SAFETY: all lengths were checked above; the orders of arguments are those of kernels/selective_scan.cu.
            unsafe {
                self.launch(walks.chunk, Store::F32, cut.grid(s, cut.chunks - 1), each)?;
                self.launch(CARRY, Store::F32, Grid::elements(states(s)), join)?;
            }
            start = local;
        }
        let (y, tape, d_skip) = (full(&out.y), full(&out.h_tape), full(&x.d_skip));
        let args = (t, b, e, n, r, lanes, chunk, y, h, tape, start, u, delta, q, a_log, d_skip, reset);
        // SAFETY: as above.
        unsafe { self.launch(walks.forward, Store::F32, cut.grid(s, cut.chunks), args) }
    }

    fn selective_scan_bwd(&self, s: ScanShape, x: ScanIn<'_, Tensor, Mask>, g: ScanGrad<'_, Tensor>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_grad(self, &g)?;
        check_states(SOURCE.file, s)?;
        let (cut, store, [t, b, e, n, r, lanes, chunk]) = (Cut::of(s), x.u.buf.store(), Cut::of(s).sizes(s));
        let (u, delta, q, a_log) = (small(&x.u), full(&x.delta), full(&x.q), full(&x.a_log));
        let (g_y, reset, walks) = (full(&g.g_y), mask(&x.reset), cut.of_states(FOUR, EIGHT));
        let ((n_bc, n_a), (len, sums), scratch) = (cut.shares(s), cut.carried(s), g.scratch.read());
        let (part_bc, part_a) = (full(&scratch.part(0, n_bc)), full(&scratch.part(n_bc, n_a)));
        let mut after = full(&g.g_h_out);
        if cut.chunks > 1 {
            let (local, total) = (full(&scratch.part(n_bc + n_a, len)), full(&scratch.part(n_bc + n_a + len, sums)));
            let each = (t, b, e, n, r, lanes, chunk, local, total, g_y, delta, q, a_log, reset);
            let join = (t, b, e, n, r, lanes, chunk, local, total, after, a_log);
            // SAFETY: all lengths were checked above; the orders of arguments are those of kernels/selective_scan.cu.
            unsafe {
                self.launch(walks.bwd_chunk, Store::F32, cut.grid(s, cut.chunks), each)?;
                self.launch(BWD_CARRY, Store::F32, Grid::elements(states(s)), join)?;
            }
            after = local;
        }
        let (parts, tape, d_skip) = (int(cut.parts), full(&g.h_tape), full(&x.d_skip));
        let (g_u, g_delta, g_q, g_h) = (full(&g.g_u), full(&g.g_delta), full(&g.g_q), full(&g.g_h));
        let walk = (
            t, b, e, n, r, lanes, chunk, parts, g_u, g_delta, part_bc, part_a, g_h, after, tape, g_y, u, delta, q,
            a_log, d_skip, reset,
        );
        let (g_a, g_d) = (slot(g.g_params, g.a_log), slot(g.g_params, g.d_skip));
        let finish = (t, b, e, n, r, lanes, chunk, parts, g_q, g_a, g_d, part_bc, part_a);
        // SAFETY: as above.
        unsafe {
            self.launch(walks.backward, store, cut.grid_bwd(s), walk)?;
            self.launch(BWD_FINISH, Store::F32, Grid::elements(last_sums(s)), finish)
        }
    }
}
