//! Memoryless players against players that know the hidden state, one pair per family.
//!
//! Where actions do not change the future (RepeatFirst, RepeatPrevious, Autoencode, CountRecall, HigherLower) both are
//! exact on the sampled decks: every action is tried at every step; the best memoryless player takes, per observation,
//! the action with the largest sum, the knowing one the best action of each step. Elsewhere they are simulated: the
//! best of a family of memoryless players, each a function of the observation (and of chance) alone.

mod control;
mod grid;

use std::collections::HashMap;

use mamba_rl_envs::{ActionRef, BoxEnv, EnvArgs, EnvSpec, ObsBuffer, Step, make};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Mean returns of the best memoryless player and of one that knows.
pub fn compare(spec: &EnvSpec) -> (f64, f64) {
    match spec.name.as_str() {
        n if n.starts_with("Concentration") => concentration(spec),
        n if n.starts_with("Battleship") || n.starts_with("MineSweeper") => grid::targets(spec),
        n if n.starts_with("MultiarmedBandit") => bandit(spec),
        n if n.contains("CartPole") => control::cart_pole(spec),
        n if n.contains("Pendulum") => control::pendulum(spec),
        n if n.starts_with("Labyrinth") => grid::labyrinth(spec),
        "TMaze" => t_maze(spec),
        _ => answers(spec),
    }
}

pub fn env(spec: &EnvSpec) -> (BoxEnv, ObsBuffer) {
    let env = make(&spec.id, &EnvArgs::default()).unwrap();
    let obs = ObsBuffer::for_space(&spec.observation_space, 1);
    (env, obs)
}

pub fn row(obs: &ObsBuffer) -> Vec<usize> {
    (0..obs.len()).map(|i| obs.view().get(i) as usize).collect()
}

pub fn indices(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect()
}

/// Mean return over seeds of a discrete player; the player gets the environment and the observation.
pub fn mean(spec: &EnvSpec, episodes: u64, mut player: impl FnMut(&BoxEnv, &ObsBuffer, usize) -> Vec<i32>) -> f64 {
    let (mut env, mut obs) = env(spec);
    let mut total = 0.0;
    for seed in 0..episodes {
        env.reset(Some(seed), obs.view_mut()).unwrap();
        for t in 0.. {
            let action = player(&env, &obs, t);
            let step = env.step(ActionRef::Discrete(&action), obs.view_mut()).unwrap();
            total += step.reward;
            if step.done() {
                break;
            }
        }
    }
    total / episodes as f64
}

fn answers(spec: &EnvSpec) -> (f64, f64) {
    let (mut env, mut obs) = env(spec);
    let actions = spec.action_space.n_actions().unwrap();
    let episodes = 40_000 / spec.max_steps.unwrap() as u64;
    let mut table: HashMap<Vec<usize>, Vec<f64>> = HashMap::new();
    let mut knowing = 0.0;
    for seed in 0..episodes {
        let mut best: Vec<f64> = Vec::new();
        for a in 0..actions {
            env.reset(Some(seed), obs.view_mut()).unwrap();
            for t in 0.. {
                let seen = row(&obs);
                let Step { reward, terminated, .. } =
                    env.step(ActionRef::Discrete(&[a as i32]), obs.view_mut()).unwrap();
                table.entry(seen).or_insert_with(|| vec![0.0; actions])[a] += reward;
                match best.get_mut(t) {
                    Some(b) => *b = b.max(reward),
                    None => best.push(reward),
                }
                if terminated {
                    break;
                }
            }
        }
        knowing += best.iter().sum::<f64>();
    }
    let best = |sums: &Vec<f64>| sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (table.values().map(best).sum::<f64>() / episodes as f64, knowing / episodes as f64)
}

/// A fixed cell order cannot be told apart after a miss, so chance over the cards still down is the memoryless choice.
fn concentration(spec: &EnvSpec) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let down = spec.observation_space.parts()[0].features() - 1;
    let memoryless = mean(spec, 200, |_, obs, _| {
        let closed: Vec<usize> = row(obs).iter().enumerate().filter(|(_, s)| **s == down).map(|(i, _)| i).collect();
        vec![closed[rng.random_range(0..closed.len())] as i32]
    });
    let knowing = mean(spec, 20, |env, _, t| {
        let symbols = indices(&env.hidden()["symbols_by_position"]);
        let mut order: Vec<usize> = (0..symbols.len()).collect();
        order.sort_by_key(|i| symbols[*i]);
        vec![order[t] as i32]
    });
    (memoryless, knowing)
}

/// By the arms' symmetry a deterministic memoryless player is "one arm always" or "one after a loss, another after a
/// win".
fn bandit(spec: &EnvSpec) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let arms = spec.action_space.n_actions().unwrap() as i32;
    let same = mean(spec, 300, |_, _, _| vec![0]);
    let two = mean(spec, 300, |_, obs, _| vec![row(obs)[0] as i32]);
    let chance = mean(spec, 300, |_, obs, _| vec![if row(obs)[0] == 1 { 0 } else { rng.random_range(0..arms) }]);
    let knowing = mean(spec, 300, |env, _, _| {
        let hidden = env.hidden();
        let p = hidden["probabilities"].as_array().unwrap();
        let value = |i: &usize| p[*i].as_f64().unwrap();
        vec![(0..p.len()).max_by(|a, b| value(a).total_cmp(&value(b))).unwrap() as i32]
    });
    (same.max(two).max(chance), knowing)
}

/// Exact: both signs, both arms. Walking is the same for all.
fn t_maze(spec: &EnvSpec) -> (f64, f64) {
    let (mut env, mut obs) = env(spec);
    let mut play = |sign: &str, arm: i32| {
        env.set_hidden(&serde_json::json!({"sign": sign}), obs.view_mut()).unwrap();
        loop {
            let action = if row(&obs)[0] == 3 { arm } else { 0 };
            let step = env.step(ActionRef::Discrete(&[action]), obs.view_mut()).unwrap();
            if step.done() {
                return step.reward;
            }
        }
    };
    let memoryless = [1, 2].map(|arm| (play("up", arm) + play("down", arm)) / 2.0);
    assert_eq!(memoryless, [0.0, 0.0]);
    (0.0, (play("up", 1) + play("down", 2)) / 2.0)
}
