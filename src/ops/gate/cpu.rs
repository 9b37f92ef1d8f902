//! The gate on the CPU.

use super::fast;
use super::{Gate, GateGrad, GateShape};
use crate::device::{Cpu, Real, View, ViewMut};
use crate::error::Result;
use crate::ops::Check;

/// σ(x) = 1 / (1 + e^−x).
pub(crate) fn sigmoid<F: Real>(x: F) -> F {
    F::one() / (F::one() + (-x).exp())
}

/// d silu / dx = σ (1 + x (1 − σ)).
pub(crate) fn silu_slope<F: Real>(x: F) -> F {
    let s = sigmoid(x);
    s * (F::one() + x * (F::one() - s))
}

impl<F: Real> Gate for Cpu<F> {
    fn gate(&self, s: GateShape, y: View<'_, Vec<F>>, xz: View<'_, Vec<F>>, out: ViewMut<'_, Vec<F>>) -> Result<()> {
        s.check(self, &y, &xz)?;
        Check::new(self, "gate").out("out", &out, &[("rows", s.rows), ("width", s.width)])?;
        if F::SINGLE {
            self.isa().run(fast::Forward { s, y: y.f32s(), xz: xz.f32s(), out: out.f32s() });
            return Ok(());
        }
        let out = out.host();
        let rows = y.host().chunks_exact(s.width).zip(xz.host().chunks_exact(2 * s.width));
        for (out, (y, xz)) in out.chunks_exact_mut(s.width).zip(rows) {
            for ((out, &y), &z) in out.iter_mut().zip(y).zip(&xz[s.width..]) {
                *out = y * (z * sigmoid(z));
            }
        }
        Ok(())
    }

    fn gate_bwd(&self, s: GateShape, y: View<'_, Vec<F>>, xz: View<'_, Vec<F>>, g: GateGrad<'_, Vec<F>>) -> Result<()> {
        s.check(self, &y, &xz)?;
        s.check_grad(self, &g)?;
        if F::SINGLE {
            self.isa().run(fast::Backward {
                s,
                y: y.f32s(),
                xz: xz.f32s(),
                g_out: g.g_out.f32s(),
                g_y: g.g_y.f32s(),
                g_xz: g.g_xz.f32s(),
                out: g.out.f32s(),
            });
            return Ok(());
        }
        let (y, xz, g_out) = (y.host(), xz.host(), g.g_out.host());
        let (g_y, g_xz, out) = (g.g_y.host(), g.g_xz.host(), g.out.host());
        for row in 0..s.rows {
            for i in 0..s.width {
                let (at, z_at) = (row * s.width + i, (2 * row + 1) * s.width + i);
                let z = xz[z_at];
                let silu = z * sigmoid(z);
                g_y[at] = g_out[at] * silu;
                g_xz[z_at] = g_out[at] * y[at] * silu_slope(z);
                out[at] = y[at] * silu;
            }
        }
        Ok(())
    }
}
