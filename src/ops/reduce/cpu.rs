//! Reductions and blends on the CPU.

use super::Reduce;
use super::fast::{AddAssign, Blend};
use crate::device::{Cpu, Real, View, ViewMut};
use crate::error::Result;

/// Running sums: enough to keep the adders busy, few enough to add by hand.
const SUMS: usize = 8;

impl<F: Real> Reduce for Cpu<F> {
    fn sum_squares(&self, x: View<'_, Vec<F>>) -> Result<f64> {
        let x = x.get("sum_squares", "x", x.len)?;
        let mut sums = [0.0; SUMS];
        let chunks = x.chunks_exact(SUMS);
        for (sum, x) in sums.iter_mut().zip(chunks.remainder()) {
            *sum += x.wide() * x.wide();
        }
        for chunk in chunks {
            for (sum, x) in sums.iter_mut().zip(chunk) {
                *sum += x.wide() * x.wide();
            }
        }
        Ok(sums.iter().sum())
    }

    fn add_assign(&self, x: View<'_, Vec<F>>, y: ViewMut<'_, Vec<F>>) -> Result<()> {
        let x = x.get("add_assign", "x", y.len)?;
        let y = y.get("add_assign", "y", x.len())?;
        if let (Some(x), true) = (F::as_f32(x), F::SINGLE) {
            self.isa().run(AddAssign { x, y: F::as_f32_mut(y).unwrap_or_default() });
            return Ok(());
        }
        y.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
        Ok(())
    }

    fn blend(&self, tau: f32, x: View<'_, Vec<F>>, y: ViewMut<'_, Vec<F>>) -> Result<()> {
        let x = x.get("blend", "x", y.len)?;
        let y = y.get("blend", "y", x.len())?;
        if let (Some(x), true) = (F::as_f32(x), F::SINGLE) {
            self.isa().run(Blend { tau, x, y: F::as_f32_mut(y).unwrap_or_default() });
            return Ok(());
        }
        let tau = F::of(f64::from(tau));
        y.iter_mut().zip(x).for_each(|(y, &x)| *y += tau * (x - *y));
        Ok(())
    }
}
