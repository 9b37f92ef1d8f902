//! The convolution on CUDA: tiles of steps and channels in shared memory. Forward one launch, and one for the window;
//! backward one for all gradients and one that adds the shares of w and b. What the backward reads of the forward may be small.

use super::{CausalConv1d, ConvGrad, ConvIn, ConvOut, ConvShape};
use crate::device::cuda::{Cuda, Grid, Kernel, Mask, Source, Store, Tensor, full, int, mask, slot, small};
use crate::error::{Error, Result};

const SOURCE: Source = Source { file: "causal_conv1d", text: include_str!("../../../kernels/causal_conv1d.cu") };
const FORWARD: Kernel = SOURCE.kernel("conv_fwd");
const WINDOW: Kernel = SOURCE.kernel("conv_window");
const BACKWARD: Kernel = SOURCE.kernel("conv_bwd");
const FINISH: Kernel = SOURCE.kernel("conv_bwd_finish");

/// Steps of a tile, channels and depth of a block: TILE, CHANNELS and TILE_ROWS of the kernels.
const TILE: usize = 32;
const CHANNELS: usize = 32;
const TILE_ROWS: usize = 8;
/// Most taps that a block can hold.
const MOST_TAPS: usize = 128;
/// Most shares of the gradients of w and b.
const SHARES: usize = 64;

/// Blocks that share the items (tile, row) of a group of channels.
fn shares(s: ConvShape) -> usize {
    ((s.time + s.window()).div_ceil(TILE) * s.batch).min(SHARES)
}

impl ConvShape {
    fn check_taps(self) -> Result<()> {
        if self.d_conv <= MOST_TAPS {
            return Ok(());
        }
        let problem = format!("takes up to {MOST_TAPS} taps, d_conv is {}", self.d_conv);
        Err(Error::Kernel { kernel: FORWARD.name.into(), problem })
    }

    /// Dynamic shared memory: the taps and `steps` steps, for each channel of the block.
    fn shared(self, steps: usize) -> usize {
        4 * CHANNELS * (self.d_conv + steps)
    }
}

impl CausalConv1d for Cuda {
    fn conv_scratch(s: ConvShape, train: bool) -> usize {
        if train { shares(s) * (s.d_conv + 1) * s.d_inner } else { 0 }
    }

    fn causal_conv1d(&self, s: ConvShape, x: ConvIn<'_, Tensor, Mask>, out: ConvOut<'_, Tensor>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_out(self, &out)?;
        s.check_taps()?;
        let store = out.pre.as_ref().map_or(Store::F32, |pre| pre.buf.store());
        let (xs, reset, window) = (full(&x.x), mask(&x.reset), full(&out.window));
        let sizes = (int(s.time), int(s.batch), int(s.d_inner), int(s.d_conv), int(s.stride));
        let grid = Grid::new([s.batch, s.time.div_ceil(TILE), s.d_inner.div_ceil(CHANNELS)], 1)
            .block([CHANNELS, TILE_ROWS, 1])
            .shared(s.shared(TILE + s.window()));
        let (w, b, u, pre) = (full(&x.w), full(&x.b), full(&out.u), small(&out.pre));
        let args = (u, pre, xs, w, b, window, reset, sizes.0, sizes.1, sizes.2, sizes.3, sizes.4);
        // SAFETY: all lengths were checked above; the order of arguments is that of kernels/causal_conv1d.cu.
        unsafe { self.launch(FORWARD, store, grid, args)? };
        if s.window() == 0 {
            return Ok(());
        }
        let kept = full(&out.window_tape);
        let args = (window, kept, xs, reset, sizes.0, sizes.1, sizes.2, sizes.3, sizes.4);
        // SAFETY: as above.
        unsafe { self.launch(WINDOW, Store::F32, Grid::elements(s.batch * s.d_inner), args) }
    }

    fn causal_conv1d_bwd(&self, s: ConvShape, x: ConvIn<'_, Tensor, Mask>, g: ConvGrad<'_, Tensor>) -> Result<()> {
        s.check_in(self, &x)?;
        s.check_grad(self, &g)?;
        s.check_taps()?;
        let (shares, part) = (shares(s), full(&g.scratch));
        let grid = Grid::new([s.d_inner.div_ceil(CHANNELS), shares, 1], 1)
            .block([CHANNELS, TILE_ROWS, 1])
            .shared(s.shared(2 * TILE + s.window()));
        let (d_inner, d_conv) = (int(s.d_inner), int(s.d_conv));
        let args = (
            full(&g.g_x),
            full(&g.g_window),
            part,
            small(&x.x),
            small(&g.pre),
            full(&x.w),
            full(&g.window),
            full(&g.g_u),
            full(&g.g_window_out),
            mask(&x.reset),
            int(s.time),
            int(s.batch),
            d_inner,
            d_conv,
            int(s.stride),
        );
        let g_b = g.b.map(|b| b.of(&*g.g_params));
        let finish = (slot(g.g_params, g.w), full(&g_b), part, int(shares), d_inner, d_conv);
        let n = (s.d_conv + 1) * s.d_inner;
        // SAFETY: all lengths were checked above; the orders of arguments are those of kernels/causal_conv1d.cu.
        unsafe {
            self.launch(BACKWARD, g.pre.buf.store(), grid, args)?;
            self.launch(FINISH, Store::F32, Grid::elements(n), finish)
        }
    }
}
