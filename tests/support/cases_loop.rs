//! Field cases about whole runs, in this process: SH-4, SH-8, LT-8, LG-5.

use std::path::Path;

use mamba_rl::checkpoint::{Checkpoints, load, load_weights};
use mamba_rl::config::Config;
use mamba_rl::network::Session;
use mamba_rl::replay::{SequenceBatch, SequenceReplay};
use mamba_rl::train::{Parts, RunOptions, RunResult, evaluate, run};
use mamba_rl_envs::{ActionRef, EnvArgs, ObsBuffer, episode_seed, make};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::cases_learner::config;
use super::rig::{Rig, Script, Setup};

/// Small enough for thousands of steps in a second.
const SMALL: &[&str] = &["env.num_envs=10", "backbone.d_model=8", "network.head_hidden=8", "eval.episodes=4"];

fn small(more: &[&str]) -> Config {
    config(&[SMALL, more].concat())
}

fn train(config: &Config, dir: &Path, resume: bool) -> RunResult {
    std::fs::write(dir.join("config.toml"), config.to_toml().unwrap()).unwrap();
    let options = RunOptions {
        run_dir: dir.to_path_buf(),
        resume,
        init_from: None,
        stop: Default::default(),
        quiet: true,
        preset: "popgym".into(),
    };
    run(config, options).unwrap()
}

/// (step, value) of a tag in `metrics.jsonl`.
fn series(dir: &Path, tag: &str) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter_map(|row| Some((row["step"].as_u64()?, row.get(tag)?.as_f64()?))).collect()
}

/// Observations, actions and Q-values of one greedy episode, and its return.
type Played = (Vec<ObsBuffer>, Vec<i32>, Vec<Vec<f32>>, f64);

fn play(session: &mut Session, id: &str, seed: u64) -> Played {
    let mut env = make(id, &EnvArgs::default()).unwrap();
    let mut obs = ObsBuffer::for_space(&env.spec().observation_space, 1);
    env.reset(Some(seed), obs.view_mut()).unwrap();
    let (mut reward, mut first, mut out) = (0.0, true, (Vec::new(), Vec::new(), Vec::new(), 0.0));
    loop {
        let ActionRef::Discrete(action) = session.observe(obs.view(), None, reward, first).unwrap() else {
            panic!("discrete actions");
        };
        let action = action.to_vec();
        out.0.push(obs.clone());
        out.2.push(session.q_values().to_vec());
        let step = env.step(ActionRef::Discrete(&action), obs.view_mut()).unwrap();
        out.1.extend(action);
        out.3 += step.reward;
        (reward, first) = (step.reward as f32, false);
        if step.done() {
            return out;
        }
    }
}

/// Two episodes from one seed are equal through a session; and each of 130 episodes of an evaluation, two or three in a
/// row per copy, is what a fresh session plays from the same seed. Returns the run folder, for the command.
pub fn sh_4_episodes_repeat() -> (tempfile::TempDir, Value) {
    let dir = tempfile::tempdir().unwrap();
    let id = "PositionOnlyCartPoleEasy";
    let c = small(&["env.id=PositionOnlyCartPoleEasy", "train.steps=600", "learner.replay_ratio=0.5"]);
    train(&c, dir.path(), false);
    let mut session = Session::from_checkpoint(dir.path()).unwrap();
    for seed in [3, 4] {
        let (one, two) = (play(&mut session, id, seed), play(&mut session, id, seed));
        assert!(one.1.len() > 5);
        assert_eq!(one, two);
    }
    // the documented stream of evaluation episodes: number 4 of the base seed
    let mut stream = ChaCha8Rng::seed_from_u64(5);
    stream.set_stream(4);
    let base: u64 = stream.random();
    let (mut returns, mut steps) = (Vec::new(), 0);
    for copy in 0..64 {
        for episode in 0..130 / 64 + u64::from(copy < 130 % 64) {
            let mut fresh = Session::from_checkpoint(dir.path()).unwrap();
            let played = play(&mut fresh, id, episode_seed(base, copy, episode));
            returns.push(played.3);
            steps += played.1.len();
        }
    }
    let report = evaluate(dir.path(), 130, 5).unwrap();
    let mean = returns.iter().sum::<f64>() / 130.0;
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    close(report.eval_return_mean, mean);
    close(report.eval_return_max, returns.iter().copied().fold(f64::MIN, f64::max));
    close(report.eval_return_min, returns.iter().copied().fold(f64::MAX, f64::min));
    close(report.eval_length_mean, steps as f64 / 130.0);
    (dir, serde_json::to_value(report).unwrap())
}

/// Everything of a run's last checkpoint that evaluation must not move.
fn last_state(config: &Config, dir: &Path) -> (Vec<Vec<f32>>, Vec<u8>, Value, SequenceBatch) {
    let newest = Checkpoints::newest(dir).unwrap().unwrap();
    let parts = Parts::new(config, None).unwrap();
    let layout = parts.learner.layout();
    let found = load(&newest, layout, None).unwrap();
    let optimizer = found.optimizer.unwrap();
    let weights = vec![load_weights(&newest, layout).unwrap(), optimizer.target, optimizer.m, optimizer.v];
    let empty = parts.replay.lock().unwrap();
    let replay = SequenceReplay::load(empty.spec().clone(), empty.config().clone(), &newest).unwrap();
    let mut batch = SequenceBatch::new();
    replay.sample(replay.len_sequences(), &mut ChaCha8Rng::seed_from_u64(1), &mut batch).unwrap();
    let state = ["envs", "actor", "replay_rng", "updates"].map(|key| (key.to_owned(), found.state[key].clone()));
    let actor = std::fs::read(newest.join("actor.bin")).unwrap();
    (weights, actor, Value::Object(state.into_iter().collect()), batch)
}

/// 5,000 steps with an evaluation every 500 steps and with none end with the same weights, replay and environments.
pub fn sh_8_evaluation_changes_nothing() {
    let ends = [500, 0].map(|every| {
        let dir = tempfile::tempdir().unwrap();
        let layout = ["replay.layout=window", "learner.burn_in=4", "learner.length=16", "train.steps=5000"];
        let every = format!("eval.every={every}");
        let rest = ["learner.replay_ratio=2", "checkpoint.every=0", every.as_str()];
        let c = small(&[&layout[..], &rest].concat());
        let result = train(&c, dir.path(), false);
        assert_eq!(result.steps, 5_000);
        assert_eq!(series(dir.path(), "eval/return_mean").len(), if c.eval.every > 0 { 10 } else { 1 });
        last_state(&c, dir.path())
    });
    let [with, without] = ends;
    assert!(with.3.batch > 100);
    assert!(with.2["updates"].as_u64().unwrap() > 50, "{}", with.2["updates"]);
    assert!(with.0 == without.0, "weights, target or moments differ");
    assert!(with.1 == without.1 && with.2 == without.2, "actor, environments or random streams differ");
    assert!(with.3 == without.3, "replay differs");
}

/// ε by environment steps, whatever the episodes; a run resumed at 5,000 goes on from 0.525.
pub fn lt_8_linear_schedule_through_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    let linear = |steps: &'static str| {
        let schedule = ["exploration.kind=linear", "exploration.start=1.0", "exploration.end=0.05"];
        let rest = ["exploration.steps=10000", "log.every=500", "learner.replay_ratio=0.02", "eval.every=0", steps];
        small(&[&schedule[..], &rest].concat())
    };
    let at = |step: u64| {
        let found = series(dir.path(), "charts/epsilon_mean");
        assert!(found.windows(2).all(|w| w[0].0 < w[1].0), "one value per step: {found:?}");
        found.into_iter().find(|p| p.0 == step).unwrap_or_else(|| panic!("nothing logged at {step}")).1
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, expected {b}");
    train(&linear("train.steps=5000"), dir.path(), false);
    near(at(3_000), 0.715);
    near(at(5_000), 0.525);
    train(&linear("train.steps=11000"), dir.path(), true);
    near(at(5_000), 0.525);
    near(at(5_500), 0.4775);
    near(at(10_000), 0.05);
    near(at(11_000), 0.05);
}

/// Episodes of ten steps with rewards 0.3 and 0.7 count 1.0 and 10, whatever the learner's scale; and a random player's
/// logged returns do not depend on the scale.
pub fn lg_5_raw_returns() {
    let reward = |t| [0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.7][t];
    let script = Script { lengths: vec![10], end: (true, false), reward, obs: |_, t| t as f32 };
    let base = Setup::script(script);
    let learner = mamba_rl::learner::R2d2Config { reward_scale: 100.0, ..base.learner.clone() };
    let mut rig = Rig::new(&Setup { copies: 3, learner, ..base });
    for step in 1..=50 {
        rig.step();
        let last = rig.envs.last();
        for i in 0..3 {
            assert_eq!(last.terminated[i], step % 10 == 0);
            if last.terminated[i] {
                assert!((last.episode_return[i] - 1.0).abs() < 1e-12 && last.episode_length[i] == 10);
            }
        }
    }
    let logged = ["learner.reward_scale=1.0", "learner.reward_scale=100.0"].map(|scale| {
        let dir = tempfile::tempdir().unwrap();
        let random = ["exploration.kind=linear", "exploration.start=1.0", "exploration.end=1.0"];
        let rest = ["train.steps=2040", "learner.replay_ratio=0.1", "log.every=510", "eval.every=0", scale];
        train(&small(&[&random[..], &rest].concat()), dir.path(), false);
        (series(dir.path(), "charts/episodic_return"), series(dir.path(), "charts/episodic_length"))
    });
    assert_eq!(logged[0], logged[1]);
    // 51 steps an episode, ten copies: environment steps, not vector steps or episodes
    let (returns, lengths) = &logged[0];
    assert_eq!(returns.iter().map(|p| p.0).collect::<Vec<_>>(), [510, 1020, 1530, 2040]);
    assert!(returns.iter().all(|p| p.1.abs() <= 1.0) && lengths.iter().all(|p| p.1 == 51.0), "{lengths:?}");
}
