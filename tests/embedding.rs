//! Parts of the library in other people's code: a cell of their own as a backbone, through a run and its checkpoints, and
//! the blocks of a checkpoint alone.

use mamba_rl::Error;
use mamba_rl::backbone::{self, BackboneConfig, Body, Cell, CellGrad, CustomConfig, SeqShape, Stepwise, Weights};
use mamba_rl::config::Flags;
use mamba_rl::device::Cpu;
use mamba_rl::network::{Blocks, Session};
use mamba_rl::params::{Group, Init, ParamSpec};
use mamba_rl::train;
use mamba_rl_envs::{Entry, Env, EnvSpec, ObsRef, Space, Step, erase, register};

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

/// An index and a number to see; breaks the rule that `how` names at step 2 of an episode.
struct Rule(EnvSpec, &'static str, usize, usize); // spec, rule, length of an episode, steps so far

impl Env for Rule {
    type Obs = f32;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.0
    }

    fn reset_into(&mut self, _seed: Option<u64>, obs: &mut [f32]) {
        self.3 = 0;
        obs.copy_from_slice(&[1.0, 0.5]);
    }

    fn step_into(&mut self, _action: &[i32], obs: &mut [f32]) -> Step {
        self.3 += 1;
        obs.copy_from_slice(&[2.0, 0.5]);
        let (now, over) = (self.3 == 2, self.3 == self.2);
        match self.1 {
            "index" if now => obs[0] = 9.0,
            "number" if now => obs[1] = f32::NAN,
            "last observation" if over => obs[1] = f32::INFINITY,
            _ => {}
        }
        let reward = if self.1 == "reward" && now { f64::NAN } else { 1.0 };
        Step { reward, terminated: false, truncated: over }
    }
}

/// Trains on it for a moment, from registration to result.
fn play(how: &'static str, length: usize, max_steps: Option<usize>, run: &std::path::Path) -> Result<u64, Error> {
    let id = format!("{}{length}-v0", how.replace(' ', ""));
    let space = Space::Tuple(vec![Space::Discrete(3), Space::box_f32(&[0.0], &[1.0])]);
    let spec = EnvSpec { max_steps, ..EnvSpec::new(&id, &format!("{how} {length}"), space, Space::Discrete(2)) };
    let of = spec.clone();
    register(Entry::new(spec, vec![], move |_| Ok(erase(Rule(of.clone(), how, length, 0))))).unwrap();
    let flags = Flags { env: Some(id), steps: Some(400), ..Flags::default() };
    let sets = ["backbone.d_model=8", "network.head_hidden=8", "env.num_envs=4", "learner.batch=2", "eval.episodes=2"];
    Ok(train::train(&train::plan(&sets, &flags)?, run)?.updates)
}

#[test]
fn a_task_that_breaks_its_space_stops_the_run_and_the_error_says_where() {
    let dir = tempfile::tempdir().unwrap();
    for (how, what) in [
        ("end", "episodes end: none did in 100000 steps"),
        ("index", "element 0 is 9, expected one of 0..3"),
        ("number", "element 1 is NaN, expected a finite number"),
        ("last observation", "element 1 is inf, expected a finite number"),
        ("reward", "`reward` is NaN, expected a finite number"),
    ] {
        let (length, promised) = if how == "end" { (usize::MAX, None) } else { (5, Some(5)) };
        let error = play(how, length, promised, &dir.path().join(how)).unwrap_err().to_string();
        assert!(error.contains(what), "{how}: {error}");
    }
}

#[test]
fn episodes_of_one_step_and_longer_ones_than_promised_train() {
    let dir = tempfile::tempdir().unwrap();
    assert!(play("none", 1, Some(1), &dir.path().join("one")).unwrap() > 5);
    assert!(play("none", 7, Some(2), &dir.path().join("long")).unwrap() > 5);
    assert!(play("none", 6, None, &dir.path().join("unsaid")).unwrap() > 5);

    let run = dir.path().join("one");
    assert_eq!(train::resume(&run, None).unwrap().steps, 400, "done: left as it is");
    let further = train::resume(&run, Some(800)).unwrap();
    assert!(further.steps == 800 && further.updates > 10);
    assert!(matches!(train::resume(dir.path(), None), Err(Error::Usage(_))), "no run is there");

    let mut agent = Session::from_checkpoint(&run).unwrap();
    agent.observe(ObsRef::F32(&[1.0, 0.5]), None, 0.0, true).unwrap();
    let mut before = vec![0.0; agent.memory_len()];
    agent.save_memory(&mut before).unwrap();
    let mut refused = |obs: &[f32], legal: Option<&[bool]>, reward: f32| {
        let error = agent.observe(ObsRef::F32(obs), legal, reward, false).map(|_| ()).unwrap_err().to_string();
        let mut after = vec![0.0; before.len()];
        agent.save_memory(&mut after).unwrap();
        assert_eq!(before, after, "{error}: the memory is as it was");
        error
    };
    assert!(refused(&[1.0], None, 0.0).contains("1 elements, expected 2"));
    assert!(refused(&[3.0, 0.5], None, 0.0).contains("element 0 is 3, expected one of 0..3"));
    assert!(refused(&[1.0, f32::NAN], None, 0.0).contains("element 1 is NaN"));
    assert!(refused(&[1.0, 0.5], None, f32::NAN).contains("reward is NaN"));
    assert!(refused(&[1.0, 0.5], Some(&[true]), 0.0).contains("has 1 elements, expected 2"));
    assert!(refused(&[1.0, 0.5], Some(&[false; 2]), 0.0).contains("forbids every action"));
    assert!(agent.observe(ObsRef::F32(&[1.0, 0.5]), Some(&[false, true]), 0.0, false).is_ok());
    assert!(matches!(agent.restore_memory(&[0.0]), Err(Error::Shape { arg: "memory", .. })));
}
