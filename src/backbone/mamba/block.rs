//! One Mamba block without its residual connection: what is added to the stream r.
//!
//! ```text
//! F1  n     = rms_norm(r)                            [T,B,d_model]
//! F2  x, z  = in_proj(n)                             [T,B,2 d_inner]
//! F3  u     = silu(conv1d(x))                        [T,B,d_inner]
//! F4  Δ₀,B,C = x_proj(u)                             [T,B,dt_rank + 2 d_state]
//! F5  Δ     = softplus(dt_proj(Δ₀) + b)              [T,B,d_inner]
//! F6  h, y  = selective_scan(u, Δ, A, B, C, D)       [T,B,d_inner]      rotating_scan, with θ, where the config says so
//! F7  r    += out_proj(y · silu(z))                  [T,B,d_model]
//! ```
//! B1..B7 undo them in the opposite order.
//! Source: Gu & Dao, 2023, Fig. 3 and Alg. 2; the arrangement of the official `Mamba` module.

use super::init::BlockSlots;
use super::{MambaConfig, SeqShape};
use crate::device::{View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::causal_conv1d::{ConvGrad, ConvIn, ConvOut, ConvShape};
use crate::ops::delta::{DeltaGrad, DeltaIn, DeltaShape};
use crate::ops::gate::{GateGrad, GateShape};
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::ops::norm::NormShape;
use crate::ops::rotating_scan::{RotatingGrad, RotatingIn};
use crate::ops::selective_scan::{ScanGrad, ScanIn, ScanOut, ScanShape};
use crate::params::Params;

/// Shapes of all ops of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub norm: NormShape,
    pub in_proj: LinearShape,
    pub conv: ConvShape,
    pub x_proj: LinearShape,
    pub delta: DeltaShape,
    pub scan: ScanShape,
    /// Do pairs of states turn?
    pub rotates: bool,
    pub gate: GateShape,
    pub out_proj: LinearShape,
}

impl Sizes {
    pub fn new(c: &MambaConfig, s: SeqShape) -> Self {
        let (rows, e, dt_rank) = (s.rows(), c.d_inner(), c.rank());
        let scan = ScanShape { time: s.time, batch: s.batch, d_inner: e, d_state: c.d_state, dt_rank };
        Sizes {
            norm: NormShape { rows, width: c.d_model, eps: c.rms_eps },
            in_proj: LinearShape { rows, d_in: c.d_model, d_out: 2 * e },
            conv: ConvShape { time: s.time, batch: s.batch, d_inner: e, d_conv: c.d_conv, stride: 2 * e },
            x_proj: LinearShape { rows, d_in: e, d_out: scan.width() },
            delta: DeltaShape { rows, dt_rank, width: scan.width(), d_inner: e },
            scan,
            rotates: c.rotates(),
            gate: GateShape { rows, width: e },
            out_proj: LinearShape { rows, d_in: e, d_out: c.d_model },
        }
    }

    /// Elements of [T, B, d_inner].
    pub fn inner(&self) -> usize {
        self.gate.rows * self.gate.width
    }

    /// Elements of the stream, [T, B, d_model].
    pub fn stream(&self) -> usize {
        self.norm.rows * self.norm.width
    }

    /// Elements of q, [T, B, dt_rank + 2 d_state].
    pub fn q(&self) -> usize {
        self.x_proj.rows * self.x_proj.d_out
    }

    /// Elements of the convolution window, [B, d_conv − 1, d_inner].
    pub fn window(&self) -> usize {
        self.conv.batch * self.conv.window() * self.conv.d_inner
    }

    /// Elements of h, [B, d_state, d_inner].
    pub fn h(&self) -> usize {
        self.scan.batch * self.scan.d_state * self.scan.d_inner
    }

    /// Working memory of the scan.
    pub fn scan_scratch<D: Backend>(&self, train: bool) -> usize {
        if self.rotates { D::rotating_scratch(self.scan, train) } else { D::scan_scratch(self.scan, train) }
    }
}

fn all<T>(buf: &T, len: usize) -> View<'_, T> {
    View::new(buf, 0, len)
}

fn all_mut<T>(buf: &mut T, len: usize) -> ViewMut<'_, T> {
    ViewMut::new(buf, 0, len)
}

/// Activations of a block: on the tape where there is one, else in the scratch.
pub(super) struct Activations<'a, T> {
    /// [T, B, 2 d_inner].
    pub xz: &'a mut T,
    /// Before the SiLU of the convolution, [T, B, d_inner].
    pub pre: Option<&'a mut T>,
    /// [T, B, d_inner].
    pub u: &'a mut T,
    /// [T, B, dt_rank + 2 d_state].
    pub q: &'a mut T,
    /// [T, B, d_inner].
    pub delta: &'a mut T,
    /// [T, B, d_inner].
    pub y: &'a mut T,
    /// States between checkpoints, see `selective_scan`.
    pub h: Option<&'a mut T>,
    /// The window before the first step, [B, d_conv − 1, d_inner].
    pub window: Option<&'a mut T>,
}

/// What a block's forward reads and writes.
pub(super) struct BlockIo<'a, D: Backend> {
    pub reset: Option<View<'a, D::Mask>>,
    /// The normalised stream n, [T, B, d_model].
    pub norm: &'a D::Tensor,
    pub act: Activations<'a, D::Tensor>,
    /// Copies of xz, u and y that the backward reads, where the tape stores them smaller than they are computed.
    pub kept: Option<[&'a mut D::Tensor; 3]>,
    /// y · silu(z), [T, B, d_inner]; none: where u was, which is then no longer needed.
    pub gated: Option<&'a mut D::Tensor>,
    /// In and out, [B, d_conv − 1, d_inner].
    pub window: &'a mut D::Tensor,
    /// In and out, [B, d_state, d_inner].
    pub h: &'a mut D::Tensor,
    /// Working memory of the ops.
    pub ops: &'a mut D::Tensor,
    /// The stream, added to, [T, B, d_model].
    pub res: &'a mut D::Tensor,
}

/// F2 to F7.
pub(super) fn forward<D: Backend>(dev: &D, p: &Params<D>, k: &BlockSlots, s: &Sizes, io: BlockIo<'_, D>) -> Result<()> {
    let (n, act) = (s.inner(), io.act);
    let train = act.pre.is_some();

    // F2  x, z = in_proj(n)                           [T,B,2 d_inner]
    let x = all(io.norm, s.stream());
    dev.linear_split(
        s.in_proj,
        LinearIn { x, w: p.view(k.in_w), b: k.in_b.map(|b| p.view(b)) },
        all_mut(act.xz, 2 * n),
        false,
    )?;

    // F3  u = silu(conv1d(x))                         [T,B,d_inner]
    let x = ConvIn { x: all(act.xz, 2 * n), w: p.view(k.conv_w), b: k.conv_b.map(|b| p.view(b)), reset: io.reset };
    let out = ConvOut {
        u: all_mut(act.u, n),
        pre: act.pre.map(|pre| all_mut(pre, n)),
        window: all_mut(io.window, s.window()),
        window_tape: act.window.map(|w| all_mut(w, s.window())),
        scratch: all_mut(io.ops, D::conv_scratch(s.conv, train)),
    };
    dev.causal_conv1d(s.conv, x, out)?;

    // F4  Δ₀, B, C = x_proj(u)                        [T,B,dt_rank + 2 d_state]
    let x = LinearIn { x: all(act.u, n), w: p.view(k.x_w), b: None };
    dev.linear(s.x_proj, x, all_mut(act.q, s.q()), false)?;

    // F5  Δ = softplus(dt_proj(Δ₀) + b)               [T,B,d_inner]
    let x = DeltaIn { q: all(act.q, s.q()), w: p.view(k.dt_w), b: p.view(k.dt_b) };
    dev.delta(s.delta, x, all_mut(act.delta, n))?;

    // F6  h, y = selective_scan(u, Δ, A, B, C, D)     [T,B,d_inner]
    let x = ScanIn {
        u: all(act.u, n),
        delta: all(act.delta, n),
        q: all(act.q, s.q()),
        a_log: p.view(k.a_log),
        d_skip: p.view(k.d_skip),
        reset: io.reset,
    };
    let out = ScanOut {
        y: all_mut(act.y, n),
        h: all_mut(io.h, s.h()),
        h_tape: act.h.map(|h| all_mut(h, s.scan.tape_len())),
        scratch: all_mut(io.ops, s.scan_scratch::<D>(train)),
    };
    match k.theta {
        None => dev.selective_scan(s.scan, x, out)?,
        Some(theta) => dev.rotating_scan(s.scan, RotatingIn { scan: x, theta: p.view(theta) }, out)?,
    }

    if let Some([xz, u, y]) = io.kept {
        dev.copy(all(act.xz, 2 * n), all_mut(xz, 2 * n))?;
        dev.copy(all(act.u, n), all_mut(u, n))?;
        dev.copy(all(act.y, n), all_mut(y, n))?;
    }

    // F7  r += out_proj(y · silu(z))                  [T,B,d_model]
    let gated = io.gated.unwrap_or(act.u);
    dev.gate(s.gate, all(act.y, n), all(act.xz, 2 * n), all_mut(gated, n))?;
    let x = LinearIn { x: all(gated, n), w: p.view(k.out_w), b: k.out_b.map(|b| p.view(b)) };
    dev.linear_split(s.out_proj, x, all_mut(io.res, s.stream()), true)
}

/// Activations on the tape, read.
pub(super) struct BlockTape<'a, T> {
    pub res: &'a T,
    pub xz: &'a T,
    pub pre: &'a T,
    pub u: &'a T,
    pub q: &'a T,
    pub delta: &'a T,
    pub y: &'a T,
    pub h: &'a T,
    pub window: &'a T,
}

/// Working memory of a block's backward, each as its activation; `g_norm` [T, B, d_model]. `gated` then holds n.
pub(super) struct BlockWork<'a, T> {
    pub g_norm: &'a mut T,
    pub g_xz: &'a mut T,
    pub g_u: &'a mut T,
    pub g_q: &'a mut T,
    pub g_delta: &'a mut T,
    pub g_y: &'a mut T,
    pub gated: &'a mut T,
    pub ops: &'a mut T,
}

/// Gradients of a block.
pub(super) struct BlockGrad<'a, D: Backend> {
    pub reset: Option<View<'a, D::Mask>>,
    /// Of the window and h after the last step.
    pub state_out: Option<[&'a D::Tensor; 2]>,
    /// Of the window and h before the first step; overwritten.
    pub state_in: Option<[&'a mut D::Tensor; 2]>,
    /// In: gradient of the stream after the block; out: before it. [T, B, d_model].
    pub g_res: &'a mut D::Tensor,
    /// Of all parameters, added to.
    pub g_params: &'a mut D::Tensor,
}

/// B7 to B1.
pub(super) fn backward<D: Backend>(
    dev: &D,
    p: &Params<D>,
    k: &BlockSlots,
    s: &Sizes,
    tape: BlockTape<'_, D::Tensor>,
    w: BlockWork<'_, D::Tensor>,
    g: BlockGrad<'_, D>,
) -> Result<()> {
    let (n, stream) = (s.inner(), s.stream());
    let (g_window_out, g_h_out) = match g.state_out {
        Some([window, h]) => (Some(all(window, s.window())), Some(all(h, s.h()))),
        None => (None, None),
    };
    let (g_window, g_h) = match g.state_in {
        Some([window, h]) => (Some(all_mut(window, s.window())), Some(all_mut(h, s.h()))),
        None => (None, None),
    };

    // B7  r += out_proj(y · silu(z))
    dev.linear_split_bwd_x(s.out_proj, p.view(k.out_w), all(g.g_res, stream), all_mut(w.g_u, n), false)?;
    let grad = GateGrad {
        g_out: all(w.g_u, n),
        g_y: all_mut(w.g_y, n),
        g_xz: all_mut(w.g_xz, 2 * n),
        out: all_mut(w.gated, n),
    };
    dev.gate_bwd(s.gate, all(tape.y, n), all(tape.xz, 2 * n), grad)?;
    let x = LinearIn { x: all(w.gated, n), w: p.view(k.out_w), b: None };
    let grad = LinearGrad { g_y: all(g.g_res, stream), g_x: None, g_params: g.g_params, w: k.out_w, b: k.out_b };
    dev.linear_bwd(s.out_proj, x, grad)?;

    // B6  h, y = selective_scan(u, Δ, A, B, C, D)
    let x = ScanIn {
        u: all(tape.u, n),
        delta: all(tape.delta, n),
        q: all(tape.q, s.q()),
        a_log: p.view(k.a_log),
        d_skip: p.view(k.d_skip),
        reset: g.reset,
    };
    let grad = ScanGrad {
        h_tape: all(tape.h, s.scan.tape_len()),
        g_y: all(w.g_y, n),
        g_h_out,
        g_u: all_mut(w.g_u, n),
        g_delta: all_mut(w.g_delta, n),
        g_q: all_mut(w.g_q, s.q()),
        g_h,
        g_params: g.g_params,
        a_log: k.a_log,
        d_skip: k.d_skip,
        scratch: all_mut(w.ops, s.scan_scratch::<D>(true)),
    };
    match k.theta {
        None => dev.selective_scan_bwd(s.scan, x, grad)?,
        Some(theta) => {
            let x = RotatingIn { scan: x, theta: p.view(theta) };
            let learnt = k.learns_theta.then_some(theta);
            dev.rotating_scan_bwd(s.scan, x, RotatingGrad { scan: grad, theta: learnt })?;
        }
    }

    // B5  Δ = softplus(dt_proj(Δ₀) + b)
    let x = DeltaIn { q: all(tape.q, s.q()), w: p.view(k.dt_w), b: p.view(k.dt_b) };
    let grad = DeltaGrad {
        delta: all(tape.delta, n),
        g_delta: all_mut(w.g_delta, n),
        g_q: all_mut(w.g_q, s.q()),
        g_params: g.g_params,
        w: k.dt_w,
        b: k.dt_b,
    };
    dev.delta_bwd(s.delta, x, grad)?;

    // B4  Δ₀, B, C = x_proj(u)
    dev.linear_split_bwd_x(s.x_proj, p.view(k.x_w), all(w.g_q, s.q()), all_mut(w.g_u, n), true)?;
    let x = LinearIn { x: all(tape.u, n), w: p.view(k.x_w), b: None };
    let grad = LinearGrad { g_y: all(w.g_q, s.q()), g_x: None, g_params: g.g_params, w: k.x_w, b: None };
    dev.linear_bwd(s.x_proj, x, grad)?;

    // B3  u = silu(conv1d(x))
    let x = ConvIn { x: all(tape.xz, 2 * n), w: p.view(k.conv_w), b: k.conv_b.map(|b| p.view(b)), reset: g.reset };
    let grad = ConvGrad {
        pre: all(tape.pre, n),
        window: all(tape.window, s.window()),
        g_u: all(w.g_u, n),
        g_window_out,
        g_x: all_mut(w.g_xz, 2 * n),
        g_window,
        g_params: g.g_params,
        w: k.conv_w,
        b: k.conv_b,
        scratch: all_mut(w.ops, D::conv_scratch(s.conv, true)),
    };
    dev.causal_conv1d_bwd(s.conv, x, grad)?;

    // B2  x, z = in_proj(n), with n computed once more
    dev.rms_norm(s.norm, all(tape.res, stream), p.view(k.norm), all_mut(w.gated, stream))?;
    let x = LinearIn { x: all(w.gated, stream), w: p.view(k.in_w), b: None };
    let g_x = Some(all_mut(w.g_norm, stream));
    let grad = LinearGrad { g_y: all(w.g_xz, 2 * n), g_x, g_params: g.g_params, w: k.in_w, b: k.in_b };
    dev.linear_bwd(s.in_proj, x, grad)?;

    // B1  n = rms_norm(r); the stream's own gradient passes beside it
    let g_y = all(w.g_norm, stream);
    let g_x = all_mut(g.g_res, stream);
    dev.rms_norm_bwd(s.norm, all(tape.res, stream), p.view(k.norm), g_y, g_x, true, g.g_params, k.norm)
}
