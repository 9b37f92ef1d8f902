//! Rotating scan: the selective scan over pairs of states that also turn by a constant angle at every step.
//!
//! ```text
//! (hr, hi)_t = exp(Δ_t A) Rot(θ) (hr, hi)_{t−1} + Δ_t u_t (Br_t, Bi_t)        Rot(θ) = [cos θ, −sin θ; sin θ, cos θ]
//! y_t        = Σ_m Cr_t hr_t + Ci_t hi_t + D u_t                             A = −exp(A_log)
//! ```
//! elementwise over [pairs, d_inner], pairs = d_state / 2; A and θ belong to a pair and channel. Layout: hr of pair m is row
//! m of h [B, d_state, d_inner], hi is row pairs + m; columns of B and C likewise, so that sizes of state, tape and q are
//! those of the selective scan. The angle is not scaled by Δ and does not depend on the input. Resets, tape and backward
//! are as in [`selective_scan`](super::selective_scan).
//! Source: ours; `docs/rotating-state.md` has the specification and its relatives (S4D, LRU, Mamba-3).

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;

use super::Check;
use super::selective_scan::{ScanGrad, ScanIn, ScanOut, ScanShape};
use crate::device::{Device, Slot, View};
use crate::error::{Error, Result};

/// Inputs of [`RotatingScan::rotating_scan`].
pub struct RotatingIn<'a, T, M> {
    /// As in the selective scan, but `a_log` is [d_inner, d_state / 2].
    pub scan: ScanIn<'a, T, M>,
    /// θ in radians per step, [d_state / 2, d_inner].
    pub theta: View<'a, T>,
}

/// Gradients of [`RotatingScan::rotating_scan_bwd`].
pub struct RotatingGrad<'a, T> {
    /// As in the selective scan, but `a_log` is [d_inner, d_state / 2].
    pub scan: ScanGrad<'a, T>,
    /// Place of θ; none where the angles stay as they are.
    pub theta: Option<Slot>,
}

/// The rotating scan as an op.
pub trait RotatingScan: Device {
    /// Elements of working memory that a call needs.
    fn rotating_scratch(s: ScanShape, train: bool) -> usize;

    /// y, and h moved on.
    ///
    /// # Errors
    /// `Shape` naming the argument; `Config` where d_state is odd.
    fn rotating_scan(
        &self,
        s: ScanShape,
        x: RotatingIn<'_, Self::Tensor, Self::Mask>,
        out: ScanOut<'_, Self::Tensor>,
    ) -> Result<()>;

    /// Gradients of u, Δ, B, C, A_log, D, θ and the first h.
    ///
    /// # Errors
    /// `Shape` naming the argument; `Config` where d_state is odd.
    fn rotating_scan_bwd(
        &self,
        s: ScanShape,
        x: RotatingIn<'_, Self::Tensor, Self::Mask>,
        g: RotatingGrad<'_, Self::Tensor>,
    ) -> Result<()>;
}

/// Pairs of states per channel.
fn pairs(s: ScanShape) -> usize {
    s.d_state / 2
}

fn theta_axes(s: ScanShape) -> [(&'static str, usize); 2] {
    [("d_state / 2", pairs(s)), ("d_inner", s.d_inner)]
}

fn a_axes(s: ScanShape) -> [(&'static str, usize); 2] {
    [("d_inner", s.d_inner), ("d_state / 2", pairs(s))]
}

fn check_in<D: Device>(s: ScanShape, dev: &D, x: &RotatingIn<'_, D::Tensor, D::Mask>) -> Result<()> {
    if !s.d_state.is_multiple_of(2) {
        let problem = format!("is {}; a rotating state needs an even number", s.d_state);
        return Err(Error::config("backbone.d_state", problem));
    }
    let (c, x, theta) = (Check::new(dev, "rotating_scan"), &x.scan, &x.theta);
    c.view("u", &x.u, &s.axes())?;
    c.view("delta", &x.delta, &s.axes())?;
    c.view("q", &x.q, &s.q_axes())?;
    c.view("a_log", &x.a_log, &a_axes(s))?;
    c.view("theta", theta, &theta_axes(s))?;
    c.view("d_skip", &x.d_skip, &[("d_inner", s.d_inner)])?;
    c.mask("reset", x.reset.as_ref(), &[("T", s.time), ("B", s.batch)])
}

fn check_out<D: RotatingScan>(s: ScanShape, dev: &D, o: &ScanOut<'_, D::Tensor>) -> Result<()> {
    let c = Check::new(dev, "rotating_scan");
    c.out("y", &o.y, &s.axes())?;
    c.out("h", &o.h, &s.h_axes())?;
    if let Some(t) = &o.h_tape {
        c.out("h_tape", t, &s.tape_axes())?;
    }
    c.out("scratch", &o.scratch, &[("rotating_scratch", D::rotating_scratch(s, o.h_tape.is_some()))])
}

fn check_grad<D: RotatingScan>(s: ScanShape, dev: &D, g: &RotatingGrad<'_, D::Tensor>) -> Result<()> {
    let (c, theta, g) = (Check::new(dev, "rotating_scan_bwd"), g.theta, &g.scan);
    c.view("h_tape", &g.h_tape, &s.tape_axes())?;
    c.view("g_y", &g.g_y, &s.axes())?;
    if let Some(h) = &g.g_h_out {
        c.view("g_h_out", h, &s.h_axes())?;
    }
    c.out("g_u", &g.g_u, &s.axes())?;
    c.out("g_delta", &g.g_delta, &s.axes())?;
    c.out("g_q", &g.g_q, &s.q_axes())?;
    if let Some(h) = &g.g_h {
        c.out("g_h", h, &s.h_axes())?;
    }
    c.slot("a_log", g.a_log, g.g_params, &a_axes(s))?;
    c.slot("d_skip", g.d_skip, g.g_params, &[("d_inner", s.d_inner)])?;
    if let Some(theta) = theta {
        c.slot("theta", theta, g.g_params, &theta_axes(s))?;
    }
    c.out("scratch", &g.scratch, &[("rotating_scratch", D::rotating_scratch(s, true))])
}
