//! Recorded episodes as JSON lines: one object per episode with the task, the hidden state it began with, and every
//! action, observation, reward and end flag. `record_episode` writes them, `replay` plays them again.
//!
//! Observations are a number for `Discrete`, else a flat list; actions a number for `Discrete`, `MultiDiscrete`
//! (row-major index) and a one-element `Box`, else a list. `states` has the physical state after each step, where the
//! task has one, and is null elsewhere.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::buffer::{ActionBuffer, ActionRef, ObsBuffer, ObsRef};
use crate::env::{DynEnv, Step, joint_action, split_action};
use crate::error::{EnvError, Result};
use crate::registry::{EnvArgs, Registry};
use crate::space::Space;

/// One recorded episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceEpisode {
    /// Plain name of the task.
    pub env: String,
    /// Registered id; absent in recordings of other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Old rules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub legacy: bool,
    /// Arguments the task was made with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Value>,
    /// Seed of the reset.
    pub seed: u64,
    /// Hidden state the episode began with.
    pub hidden: Value,
    /// First observation.
    pub reset_obs: Value,
    /// Actions, `[T]`.
    pub actions: Vec<Value>,
    /// Observation after each action, `[T]`.
    pub obs: Vec<Value>,
    /// Rewards, `[T]`.
    pub rewards: Vec<f64>,
    /// Task ended, `[T]`.
    pub terminated: Vec<bool>,
    /// Time ran out, `[T]`.
    pub truncated: Vec<bool>,
    /// Physical state after each action, `[T]`, where the task has one.
    #[serde(default)]
    pub states: Option<Vec<Vec<f64>>>,
}

/// An observation as JSON.
fn obs_to_json(space: &Space, row: ObsRef<'_>) -> Value {
    let list: Vec<Value> = match row {
        ObsRef::U8(r) => r.iter().map(|v| Value::from(*v)).collect(),
        ObsRef::I32(r) => r.iter().map(|v| Value::from(*v)).collect(),
        ObsRef::F32(r) => r.iter().map(|v| Value::from(f64::from(*v))).collect(),
    };
    match (space, list.as_slice()) {
        (Space::Discrete(_), [only]) => only.clone(),
        _ => Value::from(list),
    }
}

/// An action of the space as JSON.
fn action_to_json(space: &Space, action: ActionRef<'_>) -> Value {
    match action {
        ActionRef::Discrete(_) => Value::from(joint_action(space, action)),
        ActionRef::Continuous([only]) => Value::from(f64::from(*only)),
        ActionRef::Continuous(list) => list.iter().map(|v| f64::from(*v)).collect::<Vec<_>>().into(),
    }
}

/// An action of the space from JSON. Numbers outside a box are put to its border: recordings of continuous tasks hold
/// what the policy said before the dynamics clipped it.
fn action_from_json(space: &Space, v: &Value) -> Option<ActionBuffer> {
    match space {
        Space::Box { low, high, .. } => {
            let list = if v.is_number() { vec![v.as_f64()?] } else { floats(v)? };
            let clip = |(x, (l, h)): (f64, (&f32, &f32))| (x as f32).clamp(*l, *h);
            Some(ActionBuffer::Continuous(list.into_iter().zip(low.iter().zip(high)).map(clip).collect()))
        }
        _ => split_action(space, usize::try_from(v.as_u64()?).ok()?).map(ActionBuffer::Discrete),
    }
}

fn floats(v: &Value) -> Option<Vec<f64>> {
    match v {
        Value::Array(a) => a.iter().map(Value::as_f64).collect(),
        number => number.as_f64().map(|x| vec![x]),
    }
}

/// A policy to record: gets the environment (to look, to render), the observation to act on, and what the step before
/// gave (none at the episode's first observation).
pub type Policy<'a> = dyn FnMut(&dyn DynEnv, ObsRef<'_>, Option<Step>) -> Result<ActionBuffer> + 'a;

/// Plays one episode with a policy and records it.
pub fn record_episode(env: &mut dyn DynEnv, seed: u64, policy: &mut Policy<'_>) -> Result<TraceEpisode> {
    let spec = env.spec().clone();
    let space = &spec.observation_space;
    let mut obs = ObsBuffer::for_space(space, 1);
    env.reset(Some(seed), obs.view_mut())?;
    let mut episode = TraceEpisode {
        env: spec.name.clone(),
        id: Some(spec.id.clone()),
        legacy: spec.legacy,
        args: BTreeMap::new(),
        seed,
        hidden: env.hidden(),
        reset_obs: obs_to_json(space, obs.view()),
        actions: Vec::new(),
        obs: Vec::new(),
        rewards: Vec::new(),
        terminated: Vec::new(),
        truncated: Vec::new(),
        states: env.state().map(|_| Vec::new()),
    };
    let mut before = None;
    loop {
        let action = policy(env, obs.view(), before)?;
        let step = env.step(action.view(), obs.view_mut())?;
        episode.actions.push(action_to_json(&spec.action_space, action.view()));
        episode.obs.push(obs_to_json(space, obs.view()));
        episode.rewards.push(step.reward);
        episode.terminated.push(step.terminated);
        episode.truncated.push(step.truncated);
        if let (Some(states), Some(now)) = (&mut episode.states, env.state()) {
            states.push(now);
        }
        if step.done() {
            return Ok(episode);
        }
        before = Some(step);
    }
}

/// How closely a replay must agree.
struct Tolerance {
    obs: f64,
    reward: f64,
    state: f64,
}

/// Everything to the bit but rewards and states, which allow for another order of double-precision sums.
const EXACT: Tolerance = Tolerance { obs: 0.0, reward: 1e-12, state: 1e-12 };
/// A recorded double-precision torque is rounded to `f32` on its way in: 3 · 0.05 · 2^-23 in the speed.
const ROUNDED_ACTION: Tolerance = Tolerance { obs: 2.4e-7, reward: 1e-9, state: 5e-8 };

/// Plays a recorded episode again, in an environment made from the registry, and compares everything. Tasks with a
/// physical state are put back into the recorded state before each step, since their dynamics amplify rounding. Tasks
/// with chance inside (bandit, noise) are compared in full if the seed gives the recorded hidden state, else in what
/// the hidden state determines. Error: the first difference, with its step and field.
pub fn replay(registry: &Registry, episode: &TraceEpisode) -> Result<()> {
    let args = EnvArgs { legacy: episode.legacy, args: episode.args.clone() };
    let mut env = registry.make(episode.id.as_deref().unwrap_or(&episode.env), &args)?;
    let spec = env.spec().clone();
    let differs = |step: usize, field, found: String, expected: String| {
        Err(EnvError::Replay { env: spec.name.clone(), seed: episode.seed, step, field, found, expected })
    };
    let steps = episode.actions.len();
    for (field, len) in [
        ("obs", episode.obs.len()),
        ("rewards", episode.rewards.len()),
        ("terminated", episode.terminated.len()),
        ("truncated", episode.truncated.len()),
        ("states", episode.states.as_ref().map_or(steps, Vec::len)),
    ] {
        if len != steps {
            return differs(0, field, format!("{steps} actions"), format!("{len} entries"));
        }
    }
    let mut obs = ObsBuffer::for_space(&spec.observation_space, 1);
    env.reset(Some(episode.seed), obs.view_mut())?;
    let own = env.hidden() == episode.hidden;
    if !own {
        env.set_hidden(&episode.hidden, obs.view_mut())?;
    }
    let chance = !own && (spec.name.starts_with("Noisy") || spec.name.starts_with("MultiarmedBandit"));
    let tolerance = if own || spec.action_space.is_discrete() { EXACT } else { ROUNDED_ACTION };
    if !chance && !obs_agree(&obs, &episode.reset_obs, tolerance.obs) {
        return differs(0, "reset_obs", format!("{obs:?}"), episode.reset_obs.to_string());
    }
    for t in 0..steps {
        let Some(action) = action_from_json(&spec.action_space, &episode.actions[t]) else {
            return differs(t, "actions", episode.actions[t].to_string(), spec.action_space.to_string());
        };
        if let (Some(states), true) = (&episode.states, t > 0) {
            env.set_state(&states[t - 1])?;
        }
        let step = env.step(action.view(), obs.view_mut())?;
        let reward = episode.rewards[t];
        if chance && spec.name.starts_with("MultiarmedBandit") {
            // Win or loss is chance; what each pays is not.
            let pays = if floats(&episode.obs[t]) == Some(vec![1.0]) { spec.unit_reward } else { -spec.unit_reward };
            if (reward - pays).abs() > tolerance.reward {
                return differs(t, "rewards", pays.to_string(), reward.to_string());
            }
        } else if (step.reward - reward).abs() > tolerance.reward {
            return differs(t, "rewards", step.reward.to_string(), reward.to_string());
        }
        let agree = if chance {
            obs_from_json(&spec.observation_space, &episode.obs[t]).is_some()
        } else {
            obs_agree(&obs, &episode.obs[t], tolerance.obs)
        };
        if !agree {
            return differs(t, "obs", format!("{obs:?}"), episode.obs[t].to_string());
        }
        if (step.terminated, step.truncated) != (episode.terminated[t], episode.truncated[t]) {
            let found = format!("{} {}", step.terminated, step.truncated);
            return differs(
                t,
                "terminated, truncated",
                found,
                format!("{} {}", episode.terminated[t], episode.truncated[t]),
            );
        }
        if let (Some(states), Some(now)) = (&episode.states, env.state()) {
            let close = now.len() == states[t].len()
                && now.iter().zip(&states[t]).all(|(a, b)| (a - b).abs() <= tolerance.state * b.abs().max(1.0));
            if !close {
                return differs(t, "states", format!("{now:?}"), format!("{:?}", states[t]));
            }
        }
    }
    match (episode.terminated.last(), episode.truncated.last()) {
        (Some(false), Some(false)) | (None, _) => {
            differs(steps, "terminated, truncated", "no end".to_owned(), "an end".to_owned())
        }
        _ => Ok(()),
    }
}

/// An observation of the space from JSON; none outside it.
fn obs_from_json(space: &Space, v: &Value) -> Option<ObsBuffer> {
    let list = floats(v)?;
    let mut row = ObsBuffer::for_space(space, 1);
    if row.len() != list.len() {
        return None;
    }
    match &mut row {
        ObsBuffer::U8(r) => r.iter_mut().zip(&list).for_each(|(y, x)| *y = *x as u8),
        ObsBuffer::I32(r) => r.iter_mut().zip(&list).for_each(|(y, x)| *y = *x as i32),
        ObsBuffer::F32(r) => r.iter_mut().zip(&list).for_each(|(y, x)| *y = *x as f32),
    }
    let exact = list.iter().enumerate().all(|(i, x)| f64::from(row.view().get(i)) == f64::from(*x as f32));
    (exact && space.contains_row(row.view())).then_some(row)
}

fn obs_agree(obs: &ObsBuffer, recorded: &Value, tolerance: f64) -> bool {
    let Some(list) = floats(recorded) else { return false };
    let row = obs.view();
    row.len() == list.len()
        && list.iter().enumerate().all(|(i, x)| {
            // Recorded as the doubles of 32-bit floats.
            (f64::from(row.get(i)) - x).abs() <= tolerance * x.abs().max(1.0)
        })
}

/// Reads a file of recorded episodes, plain or gzip-compressed (by its first two bytes). Errors name the line.
pub fn read_traces(path: &Path) -> Result<Vec<TraceEpisode>> {
    let file = path.display().to_string();
    let io = |source| EnvError::Io { file: file.clone(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)).map_err(io)?;
    let plain: Box<dyn Read> = if bytes.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::read::MultiGzDecoder::new(bytes.as_slice()))
    } else {
        Box::new(bytes.as_slice())
    };
    let mut episodes = Vec::new();
    for (i, line) in BufReader::new(plain).lines().enumerate() {
        let line = line.map_err(|source| EnvError::Io { file: file.clone(), source })?;
        if line.trim().is_empty() {
            continue;
        }
        let parsed = serde_json::from_str(&line);
        episodes.push(parsed.map_err(|source| EnvError::Json { file: file.clone(), line: i + 1, source })?);
    }
    Ok(episodes)
}
