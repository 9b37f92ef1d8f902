//! Pointwise functions on the CPU.

use super::Elementwise;
use crate::device::{Cpu, Real, View, ViewMut};
use crate::error::Result;

impl<F: Real> Elementwise for Cpu<F> {
    fn relu(&self, x: ViewMut<'_, Vec<F>>) -> Result<()> {
        let len = x.len;
        for x in x.get("relu", "x", len)? {
            // not max: that would turn NaN into 0 and hide it
            *x = if *x < F::zero() { F::zero() } else { *x };
        }
        Ok(())
    }

    fn relu_bwd(&self, y: View<'_, Vec<F>>, g: ViewMut<'_, Vec<F>>) -> Result<()> {
        let y = y.get("relu_bwd", "y", g.len)?;
        for (g, &y) in g.get("relu_bwd", "g", y.len())?.iter_mut().zip(y) {
            *g = if y == F::zero() { F::zero() } else { *g };
        }
        Ok(())
    }

    fn keep_rows(
        &self,
        width: usize,
        x: View<'_, Vec<F>>,
        keep: Option<View<'_, Vec<u8>>>,
        y: ViewMut<'_, Vec<F>>,
    ) -> Result<()> {
        let x = x.get("keep_rows", "x", y.len)?;
        let y = y.get("keep_rows", "y", x.len())?;
        let Some(keep) = keep else {
            y.copy_from_slice(x);
            return Ok(());
        };
        let width = width.max(1);
        let keep = keep.get("keep_rows", "keep", x.len() / width)?;
        for ((y, x), &keep) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(keep) {
            if keep != 0 {
                y.copy_from_slice(x);
            } else {
                y.fill(F::zero());
            }
        }
        Ok(())
    }
}
