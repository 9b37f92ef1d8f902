//! The step size on the CPU: the product of `linear`, then softplus in place.

use super::fast;
use super::{Delta, DeltaGrad, DeltaIn, DeltaShape};
use crate::device::{Cpu, Real, ViewMut};
use crate::error::Result;
use crate::ops::linear::cpu::{Matrix, MatrixMut, add_rows, add_transposed_times, times, times_transposed};

/// ln(1 + e^s).
pub(crate) fn softplus<F: Real>(s: F) -> F {
    s.max(F::zero()) + (-s.abs()).exp().ln_1p()
}

impl<F: Real> Delta for Cpu<F> {
    fn delta(&self, s: DeltaShape, x: DeltaIn<'_, Vec<F>>, delta: ViewMut<'_, Vec<F>>) -> Result<()> {
        s.check(self, &x)?;
        let delta = delta.get("delta", "delta", s.rows * s.d_inner)?;
        let q = Matrix::left(x.q.host(), s.rows, s.dt_rank, s.width);
        let w = Matrix::new(x.w.host(), s.d_inner, s.dt_rank);
        times_transposed(q, w, MatrixMut::new(delta, s.rows, s.d_inner), false);
        if let Some(delta) = F::as_f32_mut(delta) {
            self.isa().run(fast::Softplus { b: x.b.f32s(), delta });
            return Ok(());
        }
        let b = x.b.host();
        for row in delta.chunks_exact_mut(s.d_inner) {
            row.iter_mut().zip(b).for_each(|(d, &b)| *d = softplus(*d + b));
        }
        Ok(())
    }

    fn delta_bwd(&self, s: DeltaShape, x: DeltaIn<'_, Vec<F>>, g: DeltaGrad<'_, Vec<F>>) -> Result<()> {
        s.check(self, &x)?;
        s.check_grad(self, &g)?;
        let g_s = g.g_delta.host();
        if let Some(g_s) = F::as_f32_mut(g_s) {
            self.isa().run(fast::Slope { delta: g.delta.f32s(), g: g_s });
        } else {
            g_s.iter_mut().zip(g.delta.host()).for_each(|(g, &delta)| *g *= -(-delta).exp_m1());
        }
        let rows = || Matrix::new(&*g_s, s.rows, s.d_inner);
        let g_q = MatrixMut::left(g.g_q.host(), s.rows, s.dt_rank, s.width);
        times(rows(), Matrix::new(x.w.host(), s.d_inner, s.dt_rank), g_q, false);
        let g_w = MatrixMut::new(&mut g.g_params[g.w.range()], s.d_inner, s.dt_rank);
        add_transposed_times(rows(), Matrix::left(x.q.host(), s.rows, s.dt_rank, s.width), g_w);
        add_rows(g_s, &mut g.g_params[g.b.range()]);
        Ok(())
    }
}
