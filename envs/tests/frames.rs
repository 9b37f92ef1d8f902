//! Text frames show what the hidden state is and what has been done.

use mamba_rl_envs::{ActionRef, BoxEnv, EnvArgs, ObsBuffer, list, make};
use serde_json::json;

fn set(name: &str, hidden: serde_json::Value) -> (BoxEnv, ObsBuffer) {
    let mut env = make(name, &EnvArgs::default()).unwrap();
    let mut obs = ObsBuffer::for_space(&env.spec().observation_space, 1);
    env.set_hidden(&hidden, obs.view_mut()).unwrap();
    (env, obs)
}

#[test]
fn mines_counts_and_closed_cells() {
    let (mut env, mut obs) = set("MineSweeperEasy", json!({"size": 4, "mines": [[2, 2], [3, 0]]}));
    env.step(ActionRef::Discrete(&[2, 1]), obs.view_mut()).unwrap();
    env.step(ActionRef::Discrete(&[0, 0]), obs.view_mut()).unwrap();
    assert_eq!(env.render_text(), "MineSweeperEasy  step 2\n0...\n....\n.2*.\n*...\n");
}

#[test]
fn cards_with_the_asked_one_in_brackets() {
    let deck: Vec<usize> = (0..52).collect();
    let (mut env, mut obs) = set("RepeatPreviousEasy", json!({"deck": deck}));
    for _ in 0..5 {
        env.step(ActionRef::Discrete(&[0]), obs.view_mut()).unwrap();
    }
    assert_eq!(env.render_text(), "RepeatPreviousEasy  step 5\nA♠ A♦ [A♣] A♥ 2♠ 2♦\n");
}

#[test]
fn a_corridor_with_its_sign() {
    let (mut env, mut obs) = set("TMaze-v0", json!({"sign": "up"}));
    env.step(ActionRef::Discrete(&[0]), obs.view_mut()).unwrap();
    let frame = env.render_text();
    assert_eq!(frame.lines().nth(2), Some("sign ^ .@........."), "{frame}");
}

#[test]
fn every_task_has_its_own_frame() {
    for spec in list() {
        let mut env = make(&spec.id, &EnvArgs::default()).unwrap();
        let mut obs = ObsBuffer::for_space(&spec.observation_space, 1);
        env.reset(Some(1), obs.view_mut()).unwrap();
        let frame = env.render_text();
        assert!(frame.starts_with(&spec.name) && !frame.contains("observation ["), "{}: {frame}", spec.id);
    }
}
