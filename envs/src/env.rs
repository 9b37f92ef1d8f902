//! The two forms of an environment, after Gymnasium's `Env`: the typed one (`Env`, fast, for `Batch`) and the erased
//! one (`DynEnv`, for the registry, wrappers, `VecEnv` and users' tasks).
//!
//! `reset(seed)` starts an episode and gives its first observation; without a seed the environment's own stream goes
//! on.
//! `step(action)` gives the next observation, the reward, and two flags: `terminated` (the task ended, value after it
//! is 0) and `truncated` (a time limit, value after it is not 0). Both may be set. After either, only `reset` may
//! follow.

use std::any::Any;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::buffer::{ActElem, ActionRef, ObsElem, ObsMut};
use crate::copies::Joiner;
use crate::error::{EnvError, Result};
use crate::picture::Picture;
use crate::space::{Dtype, Space};

/// What a task is, without an instance of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnvSpec {
    /// Registered id, say `popgym-RepeatPreviousEasy-v0`.
    pub id: String,
    /// Plain name, say `RepeatPreviousEasy`.
    pub name: String,
    /// Other ids and names it answers to.
    pub aliases: Vec<String>,
    /// Observations.
    pub observation_space: Space,
    /// Actions.
    pub action_space: Space,
    /// Longest possible episode, in steps.
    pub max_steps: Option<usize>,
    /// What is hidden from the agent; "nothing" if fully observable.
    pub hidden: String,
    /// Largest reward of one ordinary step; 1 where none is declared.
    pub unit_reward: f64,
    /// Does a reward answer the action at once? Then targets of one step, small batches and a higher learning rate suit
    /// the task.
    pub prompt_rewards: bool,
    /// Discount that suits the task; none means the agent's own.
    pub suggested_gamma: Option<f64>,
    /// Convolution window that suits the task; none means the agent's own.
    pub suggested_d_conv: Option<usize>,
    /// Do answers go back a sharp number of steps, or count, so that states that turn help?
    pub suggested_rotate: bool,
    /// Sequences an update that suit the task, more where outcomes are noise; none means the agent's own.
    pub suggested_batch: Option<usize>,
    /// One or two sentences.
    pub doc: String,
    /// Lowest and highest possible return of an episode.
    #[serde(with = "range")]
    pub return_range: (f64, f64),
    /// Old rules, as the published tables used them.
    pub legacy: bool,
}

impl EnvSpec {
    /// A spec with nothing hidden, unit reward 1, any return; set the other fields by struct update.
    pub fn new(id: &str, name: &str, observation_space: Space, action_space: Space) -> Self {
        EnvSpec {
            id: id.to_owned(),
            name: name.to_owned(),
            aliases: Vec::new(),
            observation_space,
            action_space,
            max_steps: None,
            hidden: "nothing".to_owned(),
            unit_reward: 1.0,
            prompt_rewards: false,
            suggested_gamma: None,
            suggested_d_conv: None,
            suggested_rotate: false,
            suggested_batch: None,
            doc: String::new(),
            return_range: (f64::NEG_INFINITY, f64::INFINITY),
            legacy: false,
        }
    }
}

/// What a step gave beside the observation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Step {
    /// Reward.
    pub reward: f64,
    /// The task ended.
    pub terminated: bool,
    /// The time ran out.
    pub truncated: bool,
}

impl Step {
    /// Either flag.
    #[inline]
    pub fn done(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// The typed form. Implement this for a new task; `erase` makes it a `BoxEnv`, `Batch` runs many.
///
/// Callers pass an action that lies in the action space and an observation slice of `flat_len` elements, and do not
/// step before the first reset or after the end: `Batch` and the erased form check this once for all tasks.
pub trait Env: Send {
    /// Element of an observation; must be the observation space's `dtype`.
    type Obs: ObsElem;
    /// Element of an action: `i32` for discrete spaces, `f32` for boxes.
    type Act: ActElem;

    /// What the task is.
    fn spec(&self) -> &EnvSpec;
    /// Starts an episode; writes its first observation, `[flat_len]`.
    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [Self::Obs]);
    /// One step; writes the next observation, `[flat_len]`.
    fn step_into(&mut self, action: &[Self::Act], obs: &mut [Self::Obs]) -> Step;

    /// Whether some joint actions can be illegal.
    fn has_legal_mask(&self) -> bool {
        false
    }
    /// Which joint actions (row-major for `MultiDiscrete`) are legal now, `[n_actions]`.
    fn legal_into(&self, mask: &mut [bool]) {
        mask.fill(true);
    }
    /// The hidden state that the running episode began with, enough to play it again.
    fn hidden(&self) -> Value {
        Value::Null
    }
    /// Starts an episode in a given hidden state; writes its first observation.
    fn set_hidden(&mut self, _hidden: &Value, _obs: &mut [Self::Obs]) -> Result<()> {
        Err(no_hidden(self.spec()))
    }
    /// The physical state now, where the task has one, noise-free, in the recordings' order.
    fn state(&self) -> Option<Vec<f64>> {
        None
    }
    /// Puts the running episode into a physical state, keeping its clock.
    fn set_state(&mut self, _state: &[f64]) -> Result<()> {
        Err(no_state(self.spec()))
    }
    /// A frame as text; none prints the last observation.
    fn render_text(&self) -> Option<String> {
        None
    }
    /// A frame as shapes, of the same size through an episode; none draws the text.
    fn picture(&self) -> Option<Picture> {
        None
    }
}

/// The erased form, object-safe.
pub trait DynEnv: Send {
    /// What the task is.
    fn spec(&self) -> &EnvSpec;
    /// Starts an episode; writes its first observation, `[flat_len]`.
    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()>;
    /// One step; writes the next observation, `[flat_len]`. Errors: an action outside the space or not legal now, a
    /// step before the first reset or after the end; the environment is then unchanged.
    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step>;

    /// How copies of this type are joined into one loop. Not for implementing: only this package makes one.
    #[doc(hidden)]
    fn joiner(&self) -> Option<Joiner> {
        None
    }
    /// The concrete type, for `joiner`.
    #[doc(hidden)]
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
    /// The concrete value, for `joiner`.
    #[doc(hidden)]
    fn into_any(self: Box<Self>) -> Option<Box<dyn Any>> {
        None
    }
    /// Whether [`DynEnv::announce`] is worth calling: copies that live in one other process.
    fn announces(&self) -> bool {
        false
    }
    /// The action that the next `step` will be called with, so that many copies can be stepped in one go.
    fn announce(&mut self, _action: ActionRef<'_>) -> Result<()> {
        Ok(())
    }
    /// Whether some joint actions can be illegal.
    fn has_legal_mask(&self) -> bool {
        false
    }
    /// Which joint actions (row-major for `MultiDiscrete`) are legal now, `[n_actions]`.
    fn legal(&self, mask: &mut [bool]) {
        mask.fill(true);
    }
    /// The hidden state that the running episode began with, enough to play it again.
    fn hidden(&self) -> Value {
        Value::Null
    }
    /// Starts an episode in a given hidden state; writes its first observation.
    fn set_hidden(&mut self, _hidden: &Value, _obs: ObsMut<'_>) -> Result<()> {
        Err(no_hidden(self.spec()))
    }
    /// The physical state now, where the task has one, noise-free.
    fn state(&self) -> Option<Vec<f64>> {
        None
    }
    /// Puts the running episode into a physical state, keeping its clock.
    fn set_state(&mut self, _state: &[f64]) -> Result<()> {
        Err(no_state(self.spec()))
    }
    /// A frame as readable text.
    fn render_text(&self) -> String {
        format!("{}\n", self.spec().name)
    }
    /// A frame as shapes.
    fn picture(&self) -> Picture {
        Picture::lines(&self.render_text())
    }
}

/// Any environment, owned.
pub type BoxEnv = Box<dyn DynEnv>;

impl DynEnv for BoxEnv {
    fn spec(&self) -> &EnvSpec {
        (**self).spec()
    }
    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        (**self).reset(seed, obs)
    }
    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        (**self).step(action, obs)
    }
    fn announces(&self) -> bool {
        (**self).announces()
    }
    fn announce(&mut self, action: ActionRef<'_>) -> Result<()> {
        (**self).announce(action)
    }
    fn has_legal_mask(&self) -> bool {
        (**self).has_legal_mask()
    }
    fn legal(&self, mask: &mut [bool]) {
        (**self).legal(mask);
    }
    fn hidden(&self) -> Value {
        (**self).hidden()
    }
    fn set_hidden(&mut self, hidden: &Value, obs: ObsMut<'_>) -> Result<()> {
        (**self).set_hidden(hidden, obs)
    }
    fn state(&self) -> Option<Vec<f64>> {
        (**self).state()
    }
    fn set_state(&mut self, state: &[f64]) -> Result<()> {
        (**self).set_state(state)
    }
    fn render_text(&self) -> String {
        (**self).render_text()
    }
    fn picture(&self) -> Picture {
        (**self).picture()
    }
}

fn no_hidden(spec: &EnvSpec) -> EnvError {
    EnvError::Hidden {
        env: spec.name.clone(),
        field: "hidden".to_owned(),
        found: "a state".to_owned(),
        expected: "none: this task cannot be set".to_owned(),
    }
}

fn no_state(spec: &EnvSpec) -> EnvError {
    EnvError::Hidden {
        env: spec.name.clone(),
        field: "state".to_owned(),
        found: "a physical state".to_owned(),
        expected: "none: this task has no physical state".to_owned(),
    }
}

/// Makes a typed environment an erased one.
pub fn erase<E: Env + 'static>(env: E) -> BoxEnv {
    Box::new(Erased::new(env))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    Running,
    Over,
}

/// A typed environment behind the erased form: checks actions, buffers and the order of calls.
pub struct Erased<E: Env> {
    env: E,
    phase: Phase,
    time: usize,
    flat_len: usize,
    /// Copy of the last observation, for the default frame.
    last: Vec<E::Obs>,
    /// Scratch of the legality check, empty without a mask.
    mask: Vec<bool>,
}

impl<E: Env> Erased<E> {
    /// Wraps it.
    pub fn new(env: E) -> Self {
        let flat_len = env.spec().observation_space.flat_len();
        let masked = if env.has_legal_mask() { env.spec().action_space.n_actions().unwrap_or(0) } else { 0 };
        Erased {
            phase: Phase::Fresh,
            time: 0,
            flat_len,
            last: vec![E::Obs::default(); flat_len],
            mask: vec![true; masked],
            env,
        }
    }

    /// The typed environment.
    pub fn inner(&self) -> &E {
        &self.env
    }

    #[inline(always)]
    fn slice<'a>(&self, obs: ObsMut<'a>) -> Result<&'a mut [E::Obs]> {
        let found = obs.dtype();
        let Some(row) = E::Obs::from_mut(obs) else { return Err(self.other_dtype(found)) };
        if row.len() != self.flat_len {
            return Err(self.other_length(row.len()));
        }
        Ok(row)
    }

    #[cold]
    fn not_running(&self) -> EnvError {
        let env = self.env.spec().name.clone();
        if self.phase == Phase::Fresh { EnvError::NotReset { env } } else { EnvError::EpisodeOver { env } }
    }

    #[cold]
    fn other_dtype(&self, found: Dtype) -> EnvError {
        let what = format!("{}: observation buffer", self.env.spec().name);
        EnvError::Dtype { what, found: found.to_string(), expected: E::Obs::DTYPE.to_string() }
    }

    #[cold]
    fn other_length(&self, found: usize) -> EnvError {
        EnvError::Length {
            what: format!("{}: observation buffer", self.env.spec().name),
            found,
            expected: self.flat_len,
        }
    }

    #[inline(always)]
    fn check(&mut self, action: ActionRef<'_>) -> Result<()> {
        let spec = self.env.spec();
        if self.phase != Phase::Running {
            return Err(self.not_running());
        }
        spec.action_space.check_action(&spec.name, action)?;
        if !self.mask.is_empty() {
            self.env.legal_into(&mut self.mask);
            if !self.mask[joint_action(&spec.action_space, action)] {
                let (env, space) = (spec.name.clone(), spec.action_space.to_string());
                return Err(EnvError::IllegalNow { env, space, found: action.to_string() });
            }
        }
        Ok(())
    }

    fn started(&mut self, obs: &[E::Obs]) {
        self.phase = Phase::Running;
        self.time = 0;
        self.last.copy_from_slice(obs);
    }
}

/// Row-major index of a discrete action that lies in its space; 0 for boxes.
pub fn joint_action(space: &Space, action: ActionRef<'_>) -> usize {
    let index = |a: i32| usize::try_from(a).unwrap_or(0);
    match (space, action) {
        (Space::MultiDiscrete(ns), ActionRef::Discrete(a)) => a.iter().zip(ns).fold(0, |i, (a, n)| i * n + index(*a)),
        (_, ActionRef::Discrete([a])) => index(*a),
        _ => 0,
    }
}

/// The flat discrete action of a row-major joint index; none outside the space and for boxes.
pub fn split_action(space: &Space, joint: usize) -> Option<Vec<i32>> {
    let sizes = match space {
        Space::Discrete(n) => std::slice::from_ref(n),
        Space::MultiDiscrete(ns) => ns.as_slice(),
        _ => return None,
    };
    let mut rest = joint;
    let mut parts = vec![0; sizes.len()];
    for (p, n) in parts.iter_mut().zip(sizes).rev() {
        *p = i32::try_from(rest.checked_rem(*n)?).ok()?;
        rest /= n;
    }
    (rest == 0).then_some(parts)
}

impl<E: Env + 'static> DynEnv for Erased<E> {
    fn spec(&self) -> &EnvSpec {
        self.env.spec()
    }

    fn joiner(&self) -> Option<Joiner> {
        Some(Joiner::of::<Self>())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn into_any(self: Box<Self>) -> Option<Box<dyn Any>> {
        Some(self)
    }

    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        let obs = self.slice(obs)?;
        self.env.reset_into(seed, obs);
        self.started(obs);
        Ok(())
    }

    #[inline(always)]
    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        self.check(action)?;
        let obs = self.slice(obs)?;
        let Some(act) = E::Act::from_ref(action) else {
            let spec = self.env.spec();
            let (env, space) = (spec.name.clone(), spec.action_space.to_string());
            return Err(EnvError::Action { env, space, found: action.to_string() });
        };
        let step = self.env.step_into(act, obs);
        // A call for one element would cost more than the step.
        if let ([last], [now]) = (self.last.as_mut_slice(), &*obs) {
            *last = *now;
        } else {
            self.last.copy_from_slice(obs);
        }
        self.time += 1;
        if step.done() {
            self.phase = Phase::Over;
        }
        Ok(step)
    }

    fn has_legal_mask(&self) -> bool {
        self.env.has_legal_mask()
    }

    fn legal(&self, mask: &mut [bool]) {
        self.env.legal_into(mask);
    }

    fn hidden(&self) -> Value {
        self.env.hidden()
    }

    fn set_hidden(&mut self, hidden: &Value, obs: ObsMut<'_>) -> Result<()> {
        let obs = self.slice(obs)?;
        self.env.set_hidden(hidden, obs)?;
        self.started(obs);
        Ok(())
    }

    fn state(&self) -> Option<Vec<f64>> {
        self.env.state()
    }

    fn set_state(&mut self, state: &[f64]) -> Result<()> {
        self.env.set_state(state)
    }

    fn render_text(&self) -> String {
        let head = format!("{}  step {}\n", self.env.spec().name, self.time);
        let body = self.env.render_text().unwrap_or_else(|| format!("observation {:?}\n", self.last));
        head + &body
    }

    fn picture(&self) -> Picture {
        self.env.picture().unwrap_or_else(|| Picture::lines(&self.render_text()))
    }
}

/// JSON has no infinity: an open end of a range is null.
mod range {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(r: &(f64, f64), s: S) -> Result<S::Ok, S::Error> {
        (r.0.is_finite().then_some(r.0), r.1.is_finite().then_some(r.1)).serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<(f64, f64), D::Error> {
        let (low, high) = <(Option<f64>, Option<f64>)>::deserialize(d)?;
        Ok((low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY)))
    }
}
