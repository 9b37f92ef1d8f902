//! Wrappers over any environment, by Gymnasium's names. Each is a `Wrapper` (what it changes) in a `Layer` (everything
//! else passes through); layers compose: `TimeLimit::new(ClipReward::new(env, -1.0, 1.0)?, 100)?.boxed()`.
//!
//! | wrapper | changes |
//! |---|---|
//! | `TimeLimit` | truncates after n steps |
//! | `FrameSkip` | repeats each action, adds the rewards |
//! | `DelayedObservation` | shows the observation of d steps ago |
//! | `RecordEpisodeStatistics` | keeps return and length of ended episodes |
//! | `ClipReward`, `ScaleReward` | the reward |
//! | `NormalizeObservation` | running mean 0, variance 1 |
//! | `FlattenObservation` | one flat float box, discrete parts one-hot |
//! | `MaskObservation` | hides elements |
//! | `FlattenAction` | `MultiDiscrete` as one `Discrete`, row-major; keeps the mask |
//! | `DiscretizeAction` | a one-dimensional box as n evenly spaced actions |
//! | `PreviousAction` | appends the previous action; the null action at reset |
//! | `FirstStepFlag` | appends a flag that is 1 only at reset |

mod action;
mod memory;
mod observation;
mod reward;
mod time;

pub use action::{DiscretizeAction, FlattenAction};
pub use memory::{FirstStepFlag, PreviousAction};
pub use observation::{FlattenObservation, MaskObservation, NormalizeObservation};
pub use reward::{ClipReward, EpisodeStatistics, RecordEpisodeStatistics, ScaleReward};
pub use time::{DelayedObservation, FrameSkip, TimeLimit};

use serde_json::Value;

use crate::buffer::{ActionBuffer, ActionRef, ObsBuffer, ObsMut, ObsRef};
use crate::env::{BoxEnv, DynEnv, EnvSpec, Step};
use crate::error::{EnvError, Result};

/// What a layer changes. The defaults change nothing.
pub trait Wrapper: Send {
    /// An episode's first observation.
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        copy(inner, out)
    }

    /// The observation after a step, and the step itself. `action` is the outer one.
    fn next(&mut self, _action: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _step: &mut Step) -> Result<()> {
        copy(inner, out)
    }

    /// The inner action of an outer one that lies in the outer action space. True if written to `inner`, false if the
    /// outer one is passed on as it is.
    fn act(&mut self, _outer: ActionRef<'_>, _inner: &mut ActionBuffer) -> bool {
        false
    }

    /// How often an action is repeated.
    fn repeat(&self) -> usize {
        1
    }
}

/// A wrapper around an environment.
pub struct Layer<W> {
    env: BoxEnv,
    spec: EnvSpec,
    obs: ObsBuffer,
    action: ActionBuffer,
    over: Option<bool>,
    wrapper: W,
}

impl<W: Wrapper + 'static> Layer<W> {
    /// `spec` is what the outside sees.
    pub fn new(env: BoxEnv, spec: EnvSpec, wrapper: W) -> Self {
        let obs = ObsBuffer::for_space(&env.spec().observation_space, 1);
        let action = ActionBuffer::for_space(&env.spec().action_space, 1);
        Layer { env, spec, obs, action, over: None, wrapper }
    }

    /// The wrapper, to read what it kept.
    pub fn wrapper(&self) -> &W {
        &self.wrapper
    }

    /// The wrapper, to change its settings.
    pub fn wrapper_mut(&mut self) -> &mut W {
        &mut self.wrapper
    }

    /// As an environment of any kind.
    pub fn boxed(self) -> BoxEnv {
        Box::new(self)
    }
}

impl<W: Wrapper + 'static> From<Layer<W>> for BoxEnv {
    fn from(layer: Layer<W>) -> BoxEnv {
        layer.boxed()
    }
}

impl<W: Wrapper> DynEnv for Layer<W> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        self.env.reset(seed, self.obs.view_mut())?;
        self.over = Some(false);
        self.wrapper.first(self.obs.view(), obs)
    }

    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        match self.over {
            Some(false) => {}
            Some(true) => return Err(EnvError::EpisodeOver { env: self.spec.name.clone() }),
            None => return Err(EnvError::NotReset { env: self.spec.name.clone() }),
        }
        self.spec.action_space.check_action(&self.spec.name, action)?;
        let inner = if self.wrapper.act(action, &mut self.action) { self.action.view() } else { action };
        let mut step = self.env.step(inner, self.obs.view_mut())?;
        for _ in 1..self.wrapper.repeat() {
            if step.done() {
                break;
            }
            let more = self.env.step(inner, self.obs.view_mut())?;
            step = Step { reward: step.reward + more.reward, ..more };
        }
        self.wrapper.next(action, self.obs.view(), obs, &mut step)?;
        self.over = Some(step.done());
        Ok(step)
    }

    fn announces(&self) -> bool {
        self.env.announces()
    }

    fn announce(&mut self, action: ActionRef<'_>) -> Result<()> {
        self.spec.action_space.check_action(&self.spec.name, action)?;
        let inner = if self.wrapper.act(action, &mut self.action) { self.action.view() } else { action };
        self.env.announce(inner)
    }

    fn has_legal_mask(&self) -> bool {
        self.env.has_legal_mask()
    }

    fn legal(&self, mask: &mut [bool]) {
        self.env.legal(mask);
    }

    fn hidden(&self) -> Value {
        self.env.hidden()
    }

    fn set_hidden(&mut self, hidden: &Value, obs: ObsMut<'_>) -> Result<()> {
        self.env.set_hidden(hidden, self.obs.view_mut())?;
        self.over = Some(false);
        self.wrapper.first(self.obs.view(), obs)
    }

    fn state(&self) -> Option<Vec<f64>> {
        self.env.state()
    }

    fn set_state(&mut self, state: &[f64]) -> Result<()> {
        self.env.set_state(state)
    }

    fn render_text(&self) -> String {
        self.env.render_text()
    }

    fn picture(&self) -> crate::picture::Picture {
        self.env.picture()
    }
}

fn copy(from: ObsRef<'_>, mut to: ObsMut<'_>) -> Result<()> {
    if to.copy_from(from) {
        return Ok(());
    }
    Err(misfit(from.len(), to.view().len()))
}

fn misfit(expected: usize, found: usize) -> EnvError {
    EnvError::Length { what: "observation buffer of a wrapper".to_owned(), found, expected }
}

fn unusable(what: &str, found: impl std::fmt::Display, expected: &str) -> EnvError {
    EnvError::Space { what: what.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}

fn at_least_one(what: &str, n: usize) -> Result<()> {
    if n == 0 {
        return Err(EnvError::Length { what: what.to_owned(), found: 0, expected: 1 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
