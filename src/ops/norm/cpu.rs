//! Normalisation on the CPU.
//! RMSNorm backward, x̂ = x / rms: g_x = (w g − x̂ mean(w g x̂)) / rms, g_w = Σ_rows g x̂. LayerNorm also takes mean(w g) away.

use super::fast;
use super::{Norm, NormShape};
use crate::device::{Cpu, Real, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Check;

/// 1 / √(mean x² + ε).
fn inverse_rms<F: Real>(x: &[F], eps: f64) -> F {
    let mean = x.iter().map(|&x| x * x).sum::<F>() / F::of(x.len() as f64);
    F::one() / (mean + F::of(eps)).sqrt()
}

/// Mean and 1 / √(var + ε).
fn moments<F: Real>(x: &[F], eps: f64) -> (F, F) {
    let n = F::of(x.len() as f64);
    let mean = x.iter().copied().sum::<F>() / n;
    let var = x.iter().map(|&x| (x - mean) * (x - mean)).sum::<F>() / n;
    (mean, F::one() / (var + F::of(eps)).sqrt())
}

impl<F: Real> Norm for Cpu<F> {
    fn rms_norm(&self, s: NormShape, x: View<'_, Vec<F>>, w: View<'_, Vec<F>>, y: ViewMut<'_, Vec<F>>) -> Result<()> {
        s.check(self, "rms_norm", &[("x", &x), ("y", &y.read())], &w)?;
        if F::SINGLE {
            self.isa().run(fast::Forward { s, x: x.f32s(), w: w.f32s(), y: y.f32s() });
            return Ok(());
        }
        let w = w.host();
        for (x, y) in x.host().chunks_exact(s.width).zip(y.host().chunks_exact_mut(s.width)) {
            let k = inverse_rms(x, s.eps);
            y.iter_mut().zip(x).zip(w).for_each(|((y, &x), &w)| *y = w * (x * k));
        }
        Ok(())
    }

    fn rms_norm_bwd(
        &self,
        s: NormShape,
        x: View<'_, Vec<F>>,
        w: View<'_, Vec<F>>,
        g_y: View<'_, Vec<F>>,
        g_x: ViewMut<'_, Vec<F>>,
        add: bool,
        g_params: &mut Vec<F>,
        w_slot: Slot,
    ) -> Result<()> {
        s.check(self, "rms_norm_bwd", &[("x", &x), ("g_y", &g_y), ("g_x", &g_x.read())], &w)?;
        Check::new(self, "rms_norm_bwd").slot("w", w_slot, g_params, &[("width", s.width)])?;
        let (g_w, n) = (&mut g_params[w_slot.range()], F::of(s.width as f64));
        if let Some(g_w) = F::as_f32_mut(g_w) {
            let (x, w, g_y, g_x) = (x.f32s(), w.f32s(), g_y.f32s(), g_x.f32s());
            self.isa().run(fast::Backward { s, x, w, g_y, g_x, add, g_w });
            return Ok(());
        }
        let w = w.host();
        let rows = x.host().chunks_exact(s.width).zip(g_y.host().chunks_exact(s.width));
        for (g_x, (x, g)) in g_x.host().chunks_exact_mut(s.width).zip(rows) {
            let k = inverse_rms(x, s.eps);
            let mean = (0..s.width).map(|i| w[i] * g[i] * (x[i] * k)).sum::<F>() / n;
            for i in 0..s.width {
                let hat = x[i] * k;
                let v = (w[i] * g[i] - hat * mean) * k;
                g_x[i] = if add { g_x[i] + v } else { v };
                g_w[i] += g[i] * hat;
            }
        }
        Ok(())
    }

    fn layer_norm(
        &self,
        s: NormShape,
        x: View<'_, Vec<F>>,
        w: View<'_, Vec<F>>,
        b: View<'_, Vec<F>>,
        y: ViewMut<'_, Vec<F>>,
    ) -> Result<()> {
        s.check(self, "layer_norm", &[("x", &x), ("y", &y.read())], &w)?;
        Check::new(self, "layer_norm").view("b", &b, &[("width", s.width)])?;
        if F::SINGLE {
            self.isa().run(fast::LayerForward { s, x: x.f32s(), w: w.f32s(), b: b.f32s(), y: y.f32s() });
            return Ok(());
        }
        let (w, b) = (w.host(), b.host());
        for (x, y) in x.host().chunks_exact(s.width).zip(y.host().chunks_exact_mut(s.width)) {
            let (mean, k) = moments(x, s.eps);
            for i in 0..s.width {
                y[i] = w[i] * ((x[i] - mean) * k) + b[i];
            }
        }
        Ok(())
    }

    fn layer_norm_bwd(
        &self,
        s: NormShape,
        x: View<'_, Vec<F>>,
        w: View<'_, Vec<F>>,
        g_y: View<'_, Vec<F>>,
        g_x: ViewMut<'_, Vec<F>>,
        g_params: &mut Vec<F>,
        w_slot: Slot,
        b_slot: Slot,
    ) -> Result<()> {
        s.check(self, "layer_norm_bwd", &[("x", &x), ("g_y", &g_y), ("g_x", &g_x.read())], &w)?;
        let c = Check::new(self, "layer_norm_bwd");
        c.slot("w", w_slot, g_params, &[("width", s.width)])?;
        c.slot("b", b_slot, g_params, &[("width", s.width)])?;
        if let Some(g_params) = F::as_f32_mut(g_params) {
            let (x, w, g_y, g_x) = (x.f32s(), w.f32s(), g_y.f32s(), g_x.f32s());
            let (w_at, b_at) = (w_slot.at, b_slot.at);
            self.isa().run(fast::LayerBackward { s, x, w, g_y, g_x, g_params, w_at, b_at });
            return Ok(());
        }
        let (w, n) = (w.host(), F::of(s.width as f64));
        let rows = x.host().chunks_exact(s.width).zip(g_y.host().chunks_exact(s.width));
        for (g_x, (x, g)) in g_x.host().chunks_exact_mut(s.width).zip(rows) {
            let (mean, k) = moments(x, s.eps);
            let hat = |i: usize| (x[i] - mean) * k;
            let first = (0..s.width).map(|i| w[i] * g[i]).sum::<F>() / n;
            let second = (0..s.width).map(|i| w[i] * g[i] * hat(i)).sum::<F>() / n;
            for i in 0..s.width {
                g_x[i] = (w[i] * g[i] - first - hat(i) * second) * k;
                g_params[w_slot.at + i] += g[i] * hat(i);
                g_params[b_slot.at + i] += g[i];
            }
        }
        Ok(())
    }
}
