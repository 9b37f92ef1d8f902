//! Every recorded episode plays again: those of `tests/data/`, and those of the file that `MAMBA_RL_TRACES` names.

use std::path::{Path, PathBuf};

use mamba_rl_envs::classic::PendulumState;
use mamba_rl_envs::trace::{TraceEpisode, read_traces, replay};
use mamba_rl_envs::{EnvError, Registry};

/// Tasks of the recordings that are not built. A name here fails as soon as the registry knows it.
const NOT_YET: [&str; 0] = [];

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/popgym-traces.jsonl.gz")
}

fn play(file: &Path) -> usize {
    let registry = Registry::bundled();
    let episodes = read_traces(file).unwrap();
    let mut failures = Vec::new();
    for episode in &episodes {
        if NOT_YET.contains(&episode.env.as_str()) {
            continue;
        }
        if let Err(e) = replay(&registry, episode) {
            failures.push(e.to_string());
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), episodes.len(), failures.join("\n"));
    episodes.len()
}

#[test]
fn bundled_episodes_repeat() {
    assert_eq!(play(&bundled()), 66);
}

#[test]
fn episodes_of_the_named_file_repeat() {
    if let Some(file) = std::env::var_os("MAMBA_RL_TRACES") {
        assert!(play(Path::new(&file)) > 0);
    }
}

#[test]
fn what_is_not_yet_built_is_not() {
    for name in NOT_YET {
        assert!(Registry::bundled().find(name).is_err(), "{name} is built: take it off the list");
    }
}

/// The pendulum's recorded torques are doubles; in doubles the dynamics agree to rounding.
#[test]
fn pendulum_in_double_precision() {
    let mut steps = 0;
    for e in read_traces(&bundled()).unwrap().iter().filter(|e| e.env.contains("Pendulum")) {
        let states = e.states.as_ref().unwrap();
        for t in 1..states.len() {
            let mut s = PendulumState::from_array([states[t - 1][0], states[t - 1][1]]);
            let cost = s.step(e.actions[t].as_f64().unwrap());
            let reward = (8.1368022 - cost) / 8.1368022 / e.actions.len() as f64;
            assert!((reward - e.rewards[t]).abs() < 1e-15, "{} step {t}", e.env);
            assert!((s.theta - states[t][0]).abs() < 1e-14 && (s.theta_dot - states[t][1]).abs() < 1e-14);
            let shown = [s.theta.cos() as f32, s.theta.sin() as f32].map(f64::from);
            assert_eq!(e.obs[t], serde_json::json!(shown), "{} step {t}", e.env);
            steps += 1;
        }
    }
    assert_eq!(steps, 894);
}

/// The comparison notices a change in any field.
#[test]
fn a_changed_recording_is_noticed() {
    let registry = Registry::bundled();
    let good = read_traces(&bundled()).unwrap().into_iter().find(|e| e.env == "PositionOnlyCartPoleEasy").unwrap();
    replay(&registry, &good).unwrap();
    type Change = (&'static str, fn(&mut TraceEpisode));
    let changes: [Change; 7] = [
        ("actions", |e| e.actions[10] = serde_json::json!(1 - e.actions[10].as_i64().unwrap())),
        ("obs", |e| e.obs[10][0] = serde_json::json!(e.obs[10][0].as_f64().unwrap() + 1e-8)),
        ("reset_obs", |e| e.reset_obs[0] = serde_json::json!(0.0)),
        ("rewards", |e| e.rewards[10] += 1e-9),
        ("terminated", |e| e.terminated[10] = true),
        ("states", |e| e.states.as_mut().unwrap()[10][3] += 1e-9),
        ("hidden", |e| e.hidden["state"][0] = serde_json::json!(0.5)),
    ];
    for (field, change) in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(matches!(replay(&registry, &bad), Err(EnvError::Replay { .. })), "{field}");
    }
}
