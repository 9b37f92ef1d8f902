//! The dueling combination on the CPU.

use super::Dueling;
use crate::device::{Cpu, Real, View, ViewMut};
use crate::error::Result;

impl<F: Real> Dueling for Cpu<F> {
    fn dueling(
        &self,
        rows: usize,
        actions: usize,
        value: View<'_, Vec<F>>,
        advantage: View<'_, Vec<F>>,
        q: ViewMut<'_, Vec<F>>,
    ) -> Result<()> {
        let value = value.get("dueling", "value", rows)?;
        let advantage = advantage.get("dueling", "advantage", rows * actions)?;
        let q = q.get("dueling", "q", rows * actions)?;
        let n = F::of(actions as f64);
        let inputs = value.iter().zip(advantage.chunks_exact(actions.max(1)));
        for (q, (&v, a)) in q.chunks_exact_mut(actions.max(1)).zip(inputs) {
            let mean = a.iter().copied().sum::<F>() / n;
            q.iter_mut().zip(a).for_each(|(q, &a)| *q = v + (a - mean));
        }
        Ok(())
    }

    fn dueling_bwd(
        &self,
        rows: usize,
        actions: usize,
        g_q: View<'_, Vec<F>>,
        g_value: ViewMut<'_, Vec<F>>,
        g_advantage: ViewMut<'_, Vec<F>>,
    ) -> Result<()> {
        let g_q = g_q.get("dueling_bwd", "g_q", rows * actions)?;
        let g_value = g_value.get("dueling_bwd", "g_value", rows)?;
        let g_advantage = g_advantage.get("dueling_bwd", "g_advantage", rows * actions)?;
        let n = F::of(actions as f64);
        let outputs = g_value.iter_mut().zip(g_advantage.chunks_exact_mut(actions.max(1)));
        for (g, (g_v, g_a)) in g_q.chunks_exact(actions.max(1)).zip(outputs) {
            let sum = g.iter().copied().sum::<F>();
            *g_v = sum;
            g_a.iter_mut().zip(g).for_each(|(g_a, &g)| *g_a = g - sum / n);
        }
        Ok(())
    }
}
