//! A recurrent cell of your own in `r2d2`, by name: leaky integrators, h ← σ(a) h + W x, y = h.
//! `cargo run --release --example 07_custom_backbone -- FOLDER`

use mamba_rl::backbone::{self, Cell, CellGrad, Stepwise, Weights};
use mamba_rl::params::{Group, Init, ParamSpec};
use mamba_rl::{config::Flags, device::Cpu, train};

struct Leaky(usize, usize); // features in, states

impl Cell for Leaky {
    fn sizes(&self) -> (usize, usize, usize) {
        (self.0, self.1, self.1) // x, state, y
    }

    fn parameters(&self) -> Vec<ParamSpec> {
        let rate = Init::Values((0..self.1).map(|i| i as f32 * 8.0 / self.1 as f32).collect()); // σ(a) from 0.5 to 1
        let w = Init::Uniform(1.0 / (self.0 as f32).sqrt());
        let one = ParamSpec::new("backbone.rate", &[self.1], Group::BackbonePlain, rate);
        vec![one, ParamSpec::new("backbone.weight", &[self.1, self.0], Group::BackboneDecayed, w)]
    }

    fn step(&self, w: Weights<'_>, x: &[f32], state: &mut [f32], y: &mut [f32]) {
        for (i, (h, row)) in state.iter_mut().zip(w[1].chunks(self.0)).enumerate() {
            *h = *h / (1.0 + (-w[0][i]).exp()) + row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
        }
        y.copy_from_slice(state);
    }

    fn step_bwd(&self, w: Weights<'_>, x: &[f32], before: &[f32], mut g: CellGrad<'_>) {
        for i in 0..self.1 {
            let (keep, g_h) = (1.0 / (1.0 + (-w[0][i]).exp()), g.state[i] + g.y[i]);
            g.w[0][i] += g_h * before[i] * keep * (1.0 - keep);
            (0..self.0).for_each(|j| g.w[1][i * self.0 + j] += g_h * x[j]);
            (0..self.0).for_each(|j| g.x[j] += g_h * w[1][i * self.0 + j]);
            g.state[i] = g_h * keep;
        }
    }
}

fn main() -> mamba_rl::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "runs/example_backbone".into());
    backbone::register::<Cpu>("leaky", |c| Ok(Box::new(Stepwise::new(Leaky(c.d_input, c.d_model))?)))?;
    let (env, body) = (Some("RepeatFirstEasy".into()), Some("leaky".into()));
    let flags = Flags { env, backbone: body, steps: Some(30_000), ..Flags::default() };
    let result = train::train(&train::plan(&[], &flags)?, dir.as_ref())?;
    println!("greedy return {:.3} after {} steps", result.eval_return_mean.unwrap_or(f64::NAN), result.steps);
    Ok(())
}
