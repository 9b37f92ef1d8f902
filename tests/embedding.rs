//! Parts of the library in other people's code: a cell of their own as a backbone, through a run and its checkpoints, and
//! the blocks of a checkpoint alone.

use mamba_rl::Error;
use mamba_rl::backbone::{self, BackboneConfig, Body, Cell, CellGrad, CustomConfig, SeqShape, Stepwise, Weights};
use mamba_rl::config::Flags;
use mamba_rl::device::Cpu;
use mamba_rl::network::{Blocks, Session};
use mamba_rl::params::{Group, Init, ParamSpec};
use mamba_rl::train;
use mamba_rl_envs::ObsRef;

/// h ← tanh(W x + u ⊙ h), y = (h, x₀).
struct Elman(usize, usize);

impl Cell for Elman {
    fn sizes(&self) -> (usize, usize, usize) {
        (self.0, self.1, self.1 + 1)
    }

    fn parameters(&self) -> Vec<ParamSpec> {
        let u = ParamSpec::new("backbone.u", &[self.1], Group::BackbonePlain, Init::Uniform(0.9));
        vec![u, ParamSpec::new("backbone.w", &[self.1, self.0], Group::BackboneDecayed, Init::Uniform(0.7))]
    }

    fn step(&self, w: Weights<'_>, x: &[f32], state: &mut [f32], y: &mut [f32]) {
        for i in 0..self.1 {
            let sum: f32 = (0..self.0).map(|j| w[1][i * self.0 + j] * x[j]).sum();
            state[i] = (sum + w[0][i] * state[i]).tanh();
        }
        y[..self.1].copy_from_slice(state);
        y[self.1] = x[0];
    }

    fn step_bwd(&self, w: Weights<'_>, x: &[f32], before: &[f32], mut g: CellGrad<'_>) {
        g.x[0] += g.y[self.1];
        for i in 0..self.1 {
            let sum: f32 = (0..self.0).map(|j| w[1][i * self.0 + j] * x[j]).sum();
            let h = (sum + w[0][i] * before[i]).tanh();
            let g_sum = (g.state[i] + g.y[i]) * (1.0 - h * h);
            g.w[0][i] += g_sum * before[i];
            for j in 0..self.0 {
                g.w[1][i * self.0 + j] += g_sum * x[j];
                g.x[j] += g_sum * w[1][i * self.0 + j];
            }
            g.state[i] = g_sum * w[0][i];
        }
    }
}

fn elman(time: usize) -> Body {
    let net = Stepwise::new(Elman(3, 4)).unwrap();
    Body::of(Box::new(net), SeqShape { time, batch: 2 }, 5).unwrap()
}

fn waves(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.9).sin()).collect()
}

#[test]
fn an_own_cell_carries_its_state_and_forgets_at_resets() {
    let x = waves(6 * 2 * 3);
    let whole = elman(6).forward(&x, None).unwrap().to_vec();
    let mut half = elman(3);
    let mut joined = half.forward(&x[..18], None).unwrap().to_vec();
    joined.extend_from_slice(half.forward(&x[18..], None).unwrap());
    assert_eq!(whole, joined);

    let mut reset = [0u8; 12];
    reset[3 * 2 + 1] = 1; // row 1 before step 3
    let cut = elman(6).forward(&x, Some(&reset)).unwrap().to_vec();
    let mut fresh = elman(3);
    let after = fresh.forward(&x[18..], None).unwrap();
    for t in 0..3 {
        let row = |y: &[f32], t: usize, b: usize| y[(t * 2 + b) * 5..][..5].to_vec();
        assert_eq!(row(&cut, 3 + t, 1), row(after, t, 1), "row 1 starts anew");
        assert_eq!(row(&cut, 3 + t, 0), row(&whole, 3 + t, 0), "row 0 goes on");
    }
}

#[test]
fn gradients_of_an_own_cell_are_slopes() {
    let (x, mut reset) = (waves(5 * 2 * 3), [0u8; 10]);
    reset[2 * 2] = 1;
    let g_y: Vec<f32> = (0..5 * 2 * 5).map(|i| (i as f32 * 0.3).cos()).collect();
    let mut body = elman(5);
    body.forward(&x, Some(&reset)).unwrap();
    let of_weights = body.backward(&g_y).unwrap().to_vec();
    let of_x = body.input_gradient().to_vec();
    let loss = |body: &mut Body, x: &[f32]| -> f64 {
        body.clear_state().unwrap();
        let y = body.forward(x, Some(&reset)).unwrap();
        y.iter().zip(&g_y).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum()
    };
    let close = |what: String, slope: f64, found: f32| {
        assert!((slope - f64::from(found)).abs() < 3e-3 * (1.0 + slope.abs()), "{what}: {slope} against {found}");
    };
    for (at, found) in of_weights.iter().enumerate() {
        let mut side = |by: f32| {
            body.weights_mut()[at] += by;
            let value = loss(&mut body, &x);
            body.weights_mut()[at] -= by;
            value
        };
        let slope = (side(4e-3) - side(-4e-3)) / 8e-3;
        close(format!("weight {at}"), slope, *found);
    }
    for (at, found) in of_x.iter().enumerate() {
        let mut side = |by: f32| {
            let mut moved = x.clone();
            moved[at] += by;
            loss(&mut body, &moved)
        };
        let slope = (side(4e-3) - side(-4e-3)) / 8e-3;
        close(format!("x {at}"), slope, *found);
    }
}

#[test]
fn a_registered_body_trains_saves_and_plays() {
    let unknown = Flags { backbone: Some("elman".into()), ..Flags::default() };
    let message = train::plan(&[], &unknown).unwrap_err().to_string();
    assert!(message.contains("backbone.name") && message.contains("\"mamba\""), "{message}");

    backbone::register::<Cpu>("elman", |c| Ok(Box::new(Stepwise::new(Elman(c.d_input, c.d_model))?))).unwrap();
    let again = backbone::register::<Cpu>("elman", |c| Ok(Box::new(Stepwise::new(Elman(c.d_input, 1))?)));
    assert!(matches!(again, Err(Error::Config { .. })));
    let elsewhere = BackboneConfig::Custom(CustomConfig { body: "elman".into(), d_input: 1, d_model: 2, n_layers: 1 });
    assert!(backbone::build::<Cpu<f64>>(&elsewhere).is_err(), "registered for f32");

    let dir = tempfile::tempdir().unwrap();
    let flags = Flags {
        env: Some("RepeatPreviousEasy".into()),
        backbone: Some("elman".into()),
        steps: Some(1_500),
        ..Flags::default()
    };
    let sets = ["backbone.d_model=8", "env.num_envs=8", "learner.start_after=200", "eval.episodes=4"];
    let config = train::plan(&sets, &flags).unwrap();
    let run = dir.path().join("run");
    let result = train::train(&config, &run).unwrap();
    assert!(result.updates > 5 && result.backbone == "elman");
    assert!(matches!(train::train(&config, &run), Err(Error::Usage(_))), "the folder holds a run");

    let mut agent = Session::from_checkpoint(&run).unwrap();
    assert_eq!(agent.description().env, "popgym-RepeatPreviousEasy-v0");
    agent.observe(ObsRef::U8(&[1]), None, 0.0, true).unwrap();
    assert!(Blocks::load(&run).map(|_| ()).unwrap_err().to_string().contains("elman"));
}

#[test]
fn blocks_of_an_own_checkpoint_are_the_network_without_ends() {
    let dir = tempfile::tempdir().unwrap();
    let flags = Flags { steps: Some(600), ..Flags::default() };
    let sets =
        ["backbone.d_model=8", "backbone.n_layers=2", "env.num_envs=4", "learner.start_after=200", "eval.episodes=2"];
    let run = dir.path().join("run");
    train::train(&train::plan(&sets, &flags).unwrap(), &run).unwrap();
    let blocks = Blocks::load(&run).unwrap();
    assert_eq!(blocks.d_model(), 8);
    let x = waves(2 * 5 * 8);
    let both = blocks.forward(&x, 2, 5).unwrap();
    let second = blocks.forward(&x[5 * 8..], 1, 5).unwrap();
    // products of other sizes round otherwise
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(&both[5 * 8..], &second), "rows are independent");
    let shorter = blocks.forward(&x[..3 * 8], 1, 3).unwrap();
    assert!(close(&both[..3 * 8], &shorter), "causal");
    assert!(matches!(blocks.forward(&x, 3, 5), Err(Error::Shape { arg: "x", .. })));
}
