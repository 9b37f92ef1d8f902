//! Reductions and blends on the CPU.

use super::Reduce;
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
        y.get("add_assign", "y", x.len())?.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
        Ok(())
    }

    fn blend(&self, tau: f32, x: View<'_, Vec<F>>, y: ViewMut<'_, Vec<F>>) -> Result<()> {
        let (x, tau) = (x.get("blend", "x", y.len)?, F::of(f64::from(tau)));
        y.get("blend", "y", x.len())?.iter_mut().zip(x).for_each(|(y, &x)| *y += tau * (x - *y));
        Ok(())
    }
}
