//! Selective scan. h_t = exp(Δ_t A) h_{t−1} + Δ_t B_t u_t ;  y_t = C_t h_t + D u_t, with A = −exp(A_log), elementwise
//! over [d_state, d_inner]. A reset at t puts h_{t−1} = 0 (a branch: NaN and inf too).
//! The tape holds h before every eighth step (`CHECKPOINT_EVERY`); the backward recomputes between them.
//! Source: Gu & Dao, 2023, Eq. 2 and Alg. 2.
// Deviation: B is discretised as Δ·B (Euler), as in the official Mamba code; the paper's Eq. 4 has the exact form.

mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod fast;

use super::Check;
use crate::device::{Device, Slot, View, ViewMut};
use crate::error::Result;

/// Steps between two states on the tape.
pub(crate) const CHECKPOINT_EVERY: usize = 8;

/// Sizes of a scan. B and C are read from the rows of x_proj's output q [T, B, dt_rank + 2 d_state]: B_t from column
/// dt_rank, C_t from column dt_rank + d_state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanShape {
    /// T.
    pub time: usize,
    /// B.
    pub batch: usize,
    /// Channels.
    pub d_inner: usize,
    /// States per channel.
    pub d_state: usize,
    /// Columns of q before B.
    pub dt_rank: usize,
}

/// Inputs of [`SelectiveScan::selective_scan`].
pub struct ScanIn<'a, T, M> {
    /// u, [T, B, d_inner].
    pub u: View<'a, T>,
    /// Δ after softplus, [T, B, d_inner].
    pub delta: View<'a, T>,
    /// Rows that hold B and C, [T, B, dt_rank + 2 d_state].
    pub q: View<'a, T>,
    /// A_log, [d_inner, d_state].
    pub a_log: View<'a, T>,
    /// D, `[d_inner]`.
    pub d_skip: View<'a, T>,
    /// 1: h is cleared before step t, [T, B].
    pub reset: Option<View<'a, M>>,
}

/// Outputs of [`SelectiveScan::selective_scan`].
pub struct ScanOut<'a, T> {
    /// y, [T, B, d_inner].
    pub y: ViewMut<'a, T>,
    /// In: h before the first step; out: after the last. [B, d_state, d_inner].
    pub h: ViewMut<'a, T>,
    /// h before steps 0, k, 2k, ..., [⌈T/k⌉, B, d_state, d_inner], for the backward.
    pub h_tape: Option<ViewMut<'a, T>>,
    /// Working memory, `[scan_scratch]`.
    pub scratch: ViewMut<'a, T>,
}

/// Gradients of [`SelectiveScan::selective_scan_bwd`].
pub struct ScanGrad<'a, T> {
    /// h_tape of the forward call, [⌈T/k⌉, B, d_state, d_inner].
    pub h_tape: View<'a, T>,
    /// Gradient of y, [T, B, d_inner].
    pub g_y: View<'a, T>,
    /// Gradient of h after the last step, [B, d_state, d_inner].
    pub g_h_out: Option<View<'a, T>>,
    /// Gradient of u, [T, B, d_inner]; overwritten.
    pub g_u: ViewMut<'a, T>,
    /// Gradient of Δ, [T, B, d_inner]; overwritten.
    pub g_delta: ViewMut<'a, T>,
    /// Gradient of q, [T, B, dt_rank + 2 d_state]; the columns of B and C are overwritten, the others left alone.
    pub g_q: ViewMut<'a, T>,
    /// Gradient of h before the first step, [B, d_state, d_inner]; overwritten.
    pub g_h: Option<ViewMut<'a, T>>,
    /// The flat parameter gradient, added to.
    pub g_params: &'a mut T,
    /// Place of A_log.
    pub a_log: Slot,
    /// Place of D.
    pub d_skip: Slot,
    /// Working memory, `[scan_scratch]`.
    pub scratch: ViewMut<'a, T>,
}

/// The scan as an op.
pub trait SelectiveScan: Device {
    /// Elements of working memory that a call needs.
    fn scan_scratch(s: ScanShape, train: bool) -> usize;

    /// Most states per channel.
    fn most_states() -> usize {
        usize::MAX
    }

    /// y, and h moved on.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn selective_scan(
        &self,
        s: ScanShape,
        x: ScanIn<'_, Self::Tensor, Self::Mask>,
        out: ScanOut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// Gradients of u, Δ, B, C, A_log, D and the first h.
    ///
    /// # Errors
    /// `Shape` naming the argument.
    fn selective_scan_bwd(
        &self,
        s: ScanShape,
        x: ScanIn<'_, Self::Tensor, Self::Mask>,
        g: ScanGrad<'_, Self::Tensor>,
    ) -> Result<()>;
}

impl ScanShape {
    /// Columns of q.
    pub fn width(self) -> usize {
        self.dt_rank + 2 * self.d_state
    }

    /// States on the tape.
    pub fn checkpoints(self) -> usize {
        self.time.div_ceil(CHECKPOINT_EVERY)
    }

    /// Elements of the tape.
    pub fn tape_len(self) -> usize {
        self.checkpoints() * self.batch * self.d_state * self.d_inner
    }

    pub(super) fn axes(self) -> [(&'static str, usize); 3] {
        [("T", self.time), ("B", self.batch), ("d_inner", self.d_inner)]
    }

    pub(super) fn q_axes(self) -> [(&'static str, usize); 3] {
        [("T", self.time), ("B", self.batch), ("dt_rank + 2 d_state", self.width())]
    }

    pub(super) fn h_axes(self) -> [(&'static str, usize); 3] {
        [("B", self.batch), ("d_state", self.d_state), ("d_inner", self.d_inner)]
    }

    pub(super) fn tape_axes(self) -> [(&'static str, usize); 2] {
        [("checkpoints", self.checkpoints()), ("B d_state d_inner", self.batch * self.d_state * self.d_inner)]
    }

    fn check_in<D: Device>(&self, dev: &D, x: &ScanIn<'_, D::Tensor, D::Mask>) -> Result<()> {
        let c = Check::new(dev, "selective_scan");
        c.view("u", &x.u, &self.axes())?;
        c.view("delta", &x.delta, &self.axes())?;
        c.view("q", &x.q, &self.q_axes())?;
        c.view("a_log", &x.a_log, &[("d_inner", self.d_inner), ("d_state", self.d_state)])?;
        c.view("d_skip", &x.d_skip, &[("d_inner", self.d_inner)])?;
        c.mask("reset", x.reset.as_ref(), &[("T", self.time), ("B", self.batch)])
    }

    fn check_out<D: Device + SelectiveScan>(&self, dev: &D, o: &ScanOut<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "selective_scan");
        c.out("y", &o.y, &self.axes())?;
        c.out("h", &o.h, &self.h_axes())?;
        if let Some(t) = &o.h_tape {
            c.out("h_tape", t, &self.tape_axes())?;
        }
        c.out("scratch", &o.scratch, &[("scan_scratch", D::scan_scratch(*self, o.h_tape.is_some()))])
    }

    fn check_grad<D: Device + SelectiveScan>(&self, dev: &D, g: &ScanGrad<'_, D::Tensor>) -> Result<()> {
        let c = Check::new(dev, "selective_scan_bwd");
        c.view("h_tape", &g.h_tape, &self.tape_axes())?;
        c.view("g_y", &g.g_y, &self.axes())?;
        if let Some(h) = &g.g_h_out {
            c.view("g_h_out", h, &self.h_axes())?;
        }
        c.out("g_u", &g.g_u, &self.axes())?;
        c.out("g_delta", &g.g_delta, &self.axes())?;
        c.out("g_q", &g.g_q, &self.q_axes())?;
        if let Some(h) = &g.g_h {
            c.out("g_h", h, &self.h_axes())?;
        }
        c.slot("a_log", g.a_log, g.g_params, &[("d_inner", self.d_inner), ("d_state", self.d_state)])?;
        c.slot("d_skip", g.d_skip, g.g_params, &[("d_inner", self.d_inner)])?;
        c.out("scratch", &g.scratch, &[("scan_scratch", D::scan_scratch(*self, true))])
    }
}
