//! N erased environments stepped together, with autoreset, episode statistics, and save and restore in mid-episode.
//!
//! Every reset gets the explicit seed `episode_seed(base, copy, episode)`. A saved state is the episode's number and
//! its actions so far; restoring plays them again and compares a hash of the observations, so a copy that does not
//! repeat is noticed and starts a fresh episode instead.

use serde::{Deserialize, Serialize};

use crate::buffer::{ActionRef, ObsBuffer};
pub use crate::copies::CopyState;
use crate::copies::{Copies, Settings, Sizes, join};
use crate::env::{BoxEnv, DynEnv, EnvSpec};
use crate::error::{EnvError, Result};

/// When an ended copy starts its next episode (Gymnasium's `AutoresetMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Autoreset {
    /// In the step that ended it: `obs` is the new episode's first observation.
    #[default]
    SameStep,
    /// In the next step, whose action is ignored and which is no transition (`valid` false): `obs` is the last one
    /// first.
    NextStep,
}

/// What one step of all copies gave. N copies, rows of `flat_len`.
#[derive(Debug, Clone, PartialEq)]
pub struct StepBatch {
    /// What to act on next, `[N, flat_len]`.
    pub obs: ObsBuffer,
    /// Rewards, `[N]`; 0 where not valid.
    pub reward: Vec<f32>,
    /// Task ended, `[N]`.
    pub terminated: Vec<bool>,
    /// Time ran out, `[N]`.
    pub truncated: Vec<bool>,
    /// True last observation of the episode, `[N, flat_len]`; a row is valid where terminated or truncated.
    pub final_obs: ObsBuffer,
    /// Legal joint actions for `obs`, `[N, n_actions]`, if the task has a mask.
    pub legal: Option<Vec<bool>>,
    /// Legal joint actions at `final_obs`, `[N, n_actions]`, valid where an episode ended.
    pub final_legal: Option<Vec<bool>>,
    /// `obs` row is an episode's first, `[N]`.
    pub is_first: Vec<bool>,
    /// False for a step that only reset: no transition, `[N]`. False in all copies after `reset`.
    pub valid: Vec<bool>,
    /// Return of the episode that just ended, where done, `[N]`.
    pub episode_return: Vec<f64>,
    /// Length of the episode that just ended, where done, `[N]`.
    pub episode_length: Vec<u32>,
    /// Number of the episode that `obs` belongs to, `[N]`, from 0.
    pub episode_number: Vec<u64>,
}

/// Saved copies in mid-episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VecEnvState {
    /// Id of the task.
    pub id: String,
    /// Base seed.
    pub base_seed: u64,
    /// One per copy.
    pub copies: Vec<CopyState>,
}

/// N copies of one task.
pub struct VecEnv {
    copies: Box<dyn Copies>,
    spec: EnvSpec,
    settings: Settings,
    last: StepBatch,
}

impl VecEnv {
    /// `num_envs` copies of what `make(copy)` makes. Errors: no copies, copies of different spaces, what `make`
    /// reports.
    pub fn new(
        make: &dyn Fn(usize) -> Result<BoxEnv>,
        num_envs: usize,
        base_seed: u64,
        autoreset: Autoreset,
    ) -> Result<Self> {
        let envs = (0..num_envs).map(make).collect::<Result<Vec<_>>>()?;
        let Some(first) = envs.first() else {
            return Err(EnvError::Length { what: "num_envs".to_owned(), found: 0, expected: 1 });
        };
        let spec = first.spec().clone();
        let masked = first.has_legal_mask();
        for env in &envs {
            let (s, other) = (env.spec(), &spec);
            if s.observation_space != other.observation_space || s.action_space != other.action_space {
                let found = format!("{} -> {}", s.observation_space, s.action_space);
                let expected = format!("{} -> {}", other.observation_space, other.action_space);
                return Err(EnvError::Space { what: "copies of one vector environment".to_owned(), found, expected });
            }
        }
        let flat_len = spec.observation_space.flat_len();
        let n_actions = if masked { spec.action_space.n_actions().unwrap_or(0) } else { 0 };
        let n = num_envs;
        let mask = masked.then(|| vec![true; n * n_actions]);
        let size = Sizes { flat_len, action_len: spec.action_space.flat_len(), n_actions };
        let space = spec.observation_space.clone();
        Ok(VecEnv {
            copies: join(envs),
            spec,
            settings: Settings { base: base_seed, mode: autoreset, parallel: false, size },
            last: StepBatch {
                obs: ObsBuffer::for_space(&space, n),
                reward: vec![0.0; n],
                terminated: vec![false; n],
                truncated: vec![false; n],
                final_obs: ObsBuffer::for_space(&space, n),
                legal: mask.clone(),
                final_legal: mask,
                is_first: vec![true; n],
                valid: vec![false; n],
                episode_return: vec![0.0; n],
                episode_length: vec![0; n],
                episode_number: vec![0; n],
            },
        })
    }

    /// Steps the copies on rayon's pool (same bits), worth it where one step is slow. Off by default.
    pub fn parallel(mut self, on: bool) -> Self {
        self.settings.parallel = on;
        self
    }

    /// What the task is.
    pub fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// Number of copies.
    pub fn num_envs(&self) -> usize {
        self.copies.len()
    }

    /// One copy's environment, to render it say. None beyond the last copy.
    pub fn env(&self, copy: usize) -> Option<&dyn DynEnv> {
        self.copies.env(copy)
    }

    /// Starts episode 0 in every copy.
    pub fn reset(&mut self) -> Result<&StepBatch> {
        self.copies.reset(self.settings, &mut self.last)?;
        Ok(&self.last)
    }

    /// One step of every copy; `actions` is flat `[N, action_len]`. Errors: an action outside the space or not legal,
    /// or what an environment reports. Copies before the failing one (all other ones where parallel) have then stepped;
    /// after an environment's failure a saved state begins new episodes.
    pub fn step(&mut self, actions: ActionRef<'_>) -> Result<&StepBatch> {
        let want = self.copies.len() * self.settings.size.action_len;
        if actions.len() != want {
            let what = format!("{}: actions of {} copies", self.spec.name, self.num_envs());
            return Err(EnvError::Length { what, found: actions.len(), expected: want });
        }
        self.copies.step(self.settings, actions, &mut self.last)?;
        Ok(&self.last)
    }

    /// What the last reset or step gave.
    pub fn last(&self) -> &StepBatch {
        &self.last
    }

    /// Everything needed to go on later from here.
    pub fn save(&self) -> VecEnvState {
        VecEnvState { id: self.spec().id.clone(), base_seed: self.settings.base, copies: self.copies.save() }
    }

    /// Goes on from a saved state; `last()` then shows its observations, with no transition. Returns the copies that
    /// did not repeat their episode: those start the next one. Errors: a state of another task, size or seed.
    pub fn restore(&mut self, s: &VecEnvState) -> Result<Vec<usize>> {
        let differs = |field, found: String, expected: String| Err(EnvError::State { field, found, expected });
        if s.id != self.spec().id {
            return differs("id", s.id.clone(), self.spec().id.clone());
        }
        if s.copies.len() != self.copies.len() {
            return differs("copies", s.copies.len().to_string(), self.copies.len().to_string());
        }
        if s.base_seed != self.settings.base {
            return differs("base_seed", s.base_seed.to_string(), self.settings.base.to_string());
        }
        self.copies.restore(self.settings, &s.copies, &mut self.last)
    }
}
