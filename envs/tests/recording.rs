//! Recorded episodes: what `record_episode` writes has the recordings' keys and plays again, for every task.

use std::collections::BTreeMap;
use std::io::Write;

use mamba_rl_envs::trace::{TraceEpisode, read_traces, record_episode, replay};
use mamba_rl_envs::{EnvArgs, EnvError, Registry, make, random_action};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

fn record(id: &str, args: &EnvArgs, seed: u64) -> TraceEpisode {
    let mut env = make(id, args).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut policy = |env: &dyn mamba_rl_envs::DynEnv, _: mamba_rl_envs::ObsRef<'_>, _| {
        Ok(random_action(&env.spec().action_space, None, &mut rng))
    };
    record_episode(env.as_mut(), seed, &mut policy).unwrap()
}

#[test]
fn every_task_records_and_plays_again() {
    let registry = Registry::bundled();
    let folder = std::env::temp_dir().join(format!("mamba-rl-envs-recording-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("episodes.jsonl");
    let mut out = std::fs::File::create(&file).unwrap();
    let mut recorded = Vec::new();
    for entry in registry.list() {
        for legacy in [false, true] {
            let episode = record(&entry.spec.id, &EnvArgs { legacy, ..EnvArgs::default() }, 3);
            writeln!(out, "{}", serde_json::to_string(&episode).unwrap()).unwrap();
            recorded.push(episode);
        }
    }
    let read = read_traces(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(read, recorded, "JSON keeps every bit");
    for episode in &read {
        replay(&registry, episode).unwrap_or_else(|e| panic!("{e}"));
        // From the hidden state alone, as another program would.
        let other_seed = TraceEpisode { seed: 99, ..episode.clone() };
        replay(&registry, &other_seed).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn keys_are_those_of_the_recordings() {
    let episode = serde_json::to_value(record("popgym-StatelessCartPoleEasy-v0", &EnvArgs::default(), 1)).unwrap();
    let keys: Vec<&str> = episode.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected =
        ["env", "id", "seed", "hidden", "reset_obs", "actions", "obs", "rewards", "terminated", "truncated", "states"];
    expected.sort_unstable();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert_eq!(episode["env"], json!("PositionOnlyCartPoleEasy"), "the current plain name");
    assert_eq!(episode["id"], json!("popgym-PositionOnlyCartPoleEasy-v0"));
    let battleship = record("BattleshipEasy", &EnvArgs { legacy: true, ..EnvArgs::default() }, 1);
    assert!(battleship.actions.iter().all(|a| a.as_u64().is_some_and(|a| a < 64)), "row-major");
    assert!(battleship.actions.iter().any(|a| a.as_u64().is_some_and(|a| a >= 8)));
    let text = serde_json::to_value(&battleship).unwrap();
    assert_eq!((text["legacy"].clone(), text["states"].clone()), (json!(true), Value::Null));
    let bandit = record("MultiarmedBanditEasy", &EnvArgs::default(), 1);
    assert_eq!(bandit.hidden["probabilities"].as_array().unwrap().len(), 10);
    let noisy = record("NoisyPositionOnlyPendulumEasy", &EnvArgs::default(), 1);
    assert_eq!(noisy.hidden["limit"], json!(200));
    let states = noisy.states.unwrap();
    let shown = noisy.obs[0][0].as_f64().unwrap();
    assert!((states[0][0].cos() - shown).abs() > 1e-6, "states are without noise, observations are not");
}

#[test]
fn arguments_travel_with_the_episode() {
    let args = EnvArgs { args: BTreeMap::from([("length".to_owned(), json!(4))]), ..EnvArgs::default() };
    let mut episode = record("TMaze-v0", &args, 1);
    assert!(replay(&Registry::bundled(), &episode).is_err(), "another length");
    episode.args = args.args;
    replay(&Registry::bundled(), &episode).unwrap();
}

#[test]
fn unreadable_files_are_named() {
    let folder = std::env::temp_dir().join(format!("mamba-rl-envs-unreadable-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let missing = read_traces(&folder.join("none.jsonl")).unwrap_err();
    assert!(matches!(missing, EnvError::Io { .. }) && missing.to_string().contains("none.jsonl"));
    let good = serde_json::to_string(&record("TMaze-v0", &EnvArgs::default(), 1)).unwrap();
    std::fs::write(folder.join("bad.jsonl"), format!("{good}\n\n{{\"env\": 1}}\n")).unwrap();
    let bad = read_traces(&folder.join("bad.jsonl")).unwrap_err();
    assert!(matches!(bad, EnvError::Json { line: 3, .. }), "{bad}");
    std::fs::write(folder.join("cut.gz"), [0x1f, 0x8b, 8, 0, 0]).unwrap();
    assert!(matches!(read_traces(&folder.join("cut.gz")), Err(EnvError::Io { .. })));
    std::fs::remove_dir_all(&folder).unwrap();
}
