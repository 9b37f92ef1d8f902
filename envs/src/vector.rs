//! N erased environments stepped together, with autoreset, episode statistics, and save and restore in mid-episode.
//!
//! Every reset gets the explicit seed `episode_seed(base, copy, episode)`. A saved state is the episode's number and
//! its actions so far; restoring plays them again and compares a hash of the observations, so a copy that does not
//! repeat is noticed and starts a fresh episode instead.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::buffer::{ActionBuffer, ActionRef, ObsBuffer, ObsMut};
use crate::env::{BoxEnv, EnvSpec, Step};
use crate::error::{EnvError, Result};
use crate::seed::episode_seed;

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

/// One saved copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyState {
    /// Number of the running episode.
    pub episode_number: u64,
    /// Its actions so far, flat `[length, action_len]`.
    pub actions: ActionBuffer,
    /// Hash of its observations so far, the first included.
    pub obs_hash: u64,
    /// Its return so far.
    pub episode_return: f64,
    /// Its length so far.
    pub episode_length: u32,
    /// It has ended and waits for its reset (`NextStep` only).
    pub over: bool,
    /// A step of the copies failed: this episode cannot go on, a restored copy starts the next one.
    #[serde(default)]
    pub broken: bool,
}

/// FNV-1a offset basis.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

/// One copy: its environment and the running episode.
struct Copy {
    env: BoxEnv,
    index: u64,
    now: CopyState,
}

/// Copy i's rows of a [`StepBatch`], so that copies write there directly and can step in parallel.
struct Row<'a> {
    obs: ObsMut<'a>,
    final_obs: ObsMut<'a>,
    reward: &'a mut f32,
    terminated: &'a mut bool,
    truncated: &'a mut bool,
    legal: &'a mut [bool],
    final_legal: &'a mut [bool],
    is_first: &'a mut bool,
    valid: &'a mut bool,
    episode_return: &'a mut f64,
    episode_length: &'a mut u32,
    episode_number: &'a mut u64,
}

impl Row<'_> {
    /// No transition in this row.
    fn no_step(&mut self) {
        *self.reward = 0.0;
        *self.terminated = false;
        *self.truncated = false;
        *self.valid = false;
    }
}

/// All rows of a batch, `[N]`. Every list but the masks has one entry per copy.
fn rows(b: &mut StepBatch, flat_len: usize, n_actions: usize) -> impl Iterator<Item = Row<'_>> {
    let mut obs = b.obs.view_mut().rows(flat_len);
    let mut final_obs = b.final_obs.view_mut().rows(flat_len);
    let mut legal = b.legal.as_deref_mut().unwrap_or_default().chunks_exact_mut(n_actions.max(1));
    let mut final_legal = b.final_legal.as_deref_mut().unwrap_or_default().chunks_exact_mut(n_actions.max(1));
    let flags = b.reward.iter_mut().zip(&mut b.terminated).zip(&mut b.truncated).zip(&mut b.is_first).zip(&mut b.valid);
    let books = b.episode_return.iter_mut().zip(&mut b.episode_length).zip(&mut b.episode_number);
    flags.zip(books).map_while(move |(flags, books)| {
        let ((((reward, terminated), truncated), is_first), valid) = flags;
        let ((episode_return, episode_length), episode_number) = books;
        Some(Row {
            obs: obs.next()?,
            final_obs: final_obs.next()?,
            reward,
            terminated,
            truncated,
            legal: legal.next().unwrap_or_default(),
            final_legal: final_legal.next().unwrap_or_default(),
            is_first,
            valid,
            episode_return,
            episode_length,
            episode_number,
        })
    })
}

impl Copy {
    fn start(&mut self, base: u64, episode: u64, row: &mut Row<'_>) -> Result<()> {
        self.env.reset(Some(episode_seed(base, self.index, episode)), row.obs.reborrow())?;
        self.now.episode_number = episode;
        self.now.actions.clear();
        self.now.obs_hash = row.obs.view().hash(HASH_START);
        self.now.episode_return = 0.0;
        self.now.episode_length = 0;
        self.now.over = false;
        self.now.broken = false;
        *row.is_first = true;
        *row.episode_number = episode;
        self.look_up_legal(row);
        Ok(())
    }

    fn look_up_legal(&self, row: &mut Row<'_>) {
        if !row.legal.is_empty() {
            self.env.legal(row.legal);
        }
    }

    /// One step without autoreset.
    #[inline]
    fn play(&mut self, action: ActionRef<'_>, row: &mut Row<'_>) -> Result<Step> {
        let step = self.env.step(action, row.obs.reborrow())?;
        self.now.actions.extend(action);
        self.now.obs_hash = row.obs.view().hash(self.now.obs_hash);
        self.now.episode_return += step.reward;
        self.now.episode_length += 1;
        self.now.over = step.done();
        *row.is_first = false;
        self.look_up_legal(row);
        Ok(step)
    }

    fn advance(&mut self, action: ActionRef<'_>, base: u64, mode: Autoreset, row: &mut Row<'_>) -> Result<()> {
        if self.now.over {
            row.no_step();
            return self.start(base, self.now.episode_number + 1, row);
        }
        let step = self.play(action, row)?;
        *row.reward = step.reward as f32;
        *row.terminated = step.terminated;
        *row.truncated = step.truncated;
        *row.valid = true;
        if step.done() {
            row.final_obs.copy_from(row.obs.view());
            row.final_legal.copy_from_slice(row.legal);
            *row.episode_return = self.now.episode_return;
            *row.episode_length = self.now.episode_length;
            if mode == Autoreset::SameStep {
                self.start(base, self.now.episode_number + 1, row)?;
            }
        }
        Ok(())
    }

    /// Plays a saved episode again; false if it did not repeat.
    fn replay(&mut self, saved: &CopyState, base: u64, action_len: usize, row: &mut Row<'_>) -> Result<bool> {
        if saved.broken {
            return Ok(false);
        }
        self.start(base, saved.episode_number, row)?;
        let actions = saved.actions.view();
        for t in 0..actions.len() / action_len.max(1) {
            if self.now.over || self.play(actions.slice(t * action_len, action_len), row).is_err() {
                return Ok(false);
            }
        }
        Ok(self.now == *saved)
    }
}

/// N copies of one task.
pub struct VecEnv {
    copies: Vec<Copy>,
    base_seed: u64,
    mode: Autoreset,
    parallel: bool,
    announces: bool,
    action_len: usize,
    flat_len: usize,
    n_actions: usize,
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
        let announces = first.announces();
        for env in &envs {
            let (s, other) = (env.spec(), &spec);
            if s.observation_space != other.observation_space || s.action_space != other.action_space {
                let found = format!("{} -> {}", s.observation_space, s.action_space);
                let expected = format!("{} -> {}", other.observation_space, other.action_space);
                return Err(EnvError::Space { what: "copies of one vector environment".to_owned(), found, expected });
            }
        }
        let (space, flat_len) = (&spec.observation_space, spec.observation_space.flat_len());
        let n_actions = if masked { spec.action_space.n_actions().unwrap_or(0) } else { 0 };
        // Room for the longest episode's actions, unless that is out of proportion.
        let room = spec.max_steps.unwrap_or(0).min(4096) * spec.action_space.flat_len();
        let log = || {
            let mut log = ActionBuffer::for_space(&spec.action_space, 0);
            log.reserve(room);
            log
        };
        let copy = |(index, env): (usize, BoxEnv)| Copy {
            env,
            index: index as u64,
            now: CopyState {
                episode_number: 0,
                actions: log(),
                obs_hash: HASH_START,
                episode_return: 0.0,
                episode_length: 0,
                over: false,
                broken: false,
            },
        };
        let n = num_envs;
        let mask = masked.then(|| vec![true; n * n_actions]);
        Ok(VecEnv {
            copies: envs.into_iter().enumerate().map(copy).collect(),
            base_seed,
            mode: autoreset,
            parallel: false,
            announces,
            action_len: spec.action_space.flat_len(),
            flat_len,
            n_actions,
            last: StepBatch {
                obs: ObsBuffer::for_space(space, n),
                reward: vec![0.0; n],
                terminated: vec![false; n],
                truncated: vec![false; n],
                final_obs: ObsBuffer::for_space(space, n),
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
        self.parallel = on;
        self
    }

    /// What the task is.
    pub fn spec(&self) -> &EnvSpec {
        self.copies[0].env.spec()
    }

    /// Number of copies.
    pub fn num_envs(&self) -> usize {
        self.copies.len()
    }

    /// One copy's environment, to render it say. None beyond the last copy.
    pub fn env(&self, copy: usize) -> Option<&BoxEnv> {
        self.copies.get(copy).map(|c| &c.env)
    }

    /// Starts episode 0 in every copy.
    pub fn reset(&mut self) -> Result<&StepBatch> {
        let base = self.base_seed;
        self.each(|c, _, row| {
            row.no_step();
            c.start(base, 0, row)
        })?;
        Ok(&self.last)
    }

    /// One step of every copy; `actions` is flat `[N, action_len]`. Errors: an action outside the space or not legal,
    /// or what an environment reports. Copies before the failing one (all other ones where parallel) have then stepped;
    /// after an environment's failure a saved state begins new episodes.
    pub fn step(&mut self, actions: ActionRef<'_>) -> Result<&StepBatch> {
        let (want, len) = (self.copies.len() * self.action_len, self.action_len);
        if actions.len() != want {
            let what = format!("{}: actions of {} copies", self.spec().name, self.num_envs());
            return Err(EnvError::Length { what, found: actions.len(), expected: want });
        }
        let (base, mode) = (self.base_seed, self.mode);
        let stepped = self
            .announce(actions)
            .and_then(|()| self.each(|c, i, row| c.advance(actions.slice(i * len, len), base, mode, row)));
        if let Err(e) = stepped {
            let mended_by_caller = matches!(e, EnvError::Action { .. } | EnvError::IllegalNow { .. });
            self.copies.iter_mut().for_each(|c| c.now.broken |= !mended_by_caller);
            return Err(e);
        }
        Ok(&self.last)
    }

    fn announce(&mut self, actions: ActionRef<'_>) -> Result<()> {
        let len = self.action_len;
        if self.announces {
            for (i, c) in self.copies.iter_mut().enumerate().filter(|(_, c)| !c.now.over) {
                c.env.announce(actions.slice(i * len, len))?;
            }
        }
        Ok(())
    }

    /// What the last reset or step gave.
    pub fn last(&self) -> &StepBatch {
        &self.last
    }

    fn each(&mut self, f: impl Fn(&mut Copy, usize, &mut Row<'_>) -> Result<()> + Sync) -> Result<()> {
        let rows = rows(&mut self.last, self.flat_len, self.n_actions);
        let mut all = self.copies.iter_mut().zip(rows).enumerate();
        if self.parallel {
            all.collect::<Vec<_>>().into_par_iter().try_for_each(|(i, (c, mut row))| f(c, i, &mut row))
        } else {
            all.try_for_each(|(i, (c, mut row))| f(c, i, &mut row))
        }
    }

    /// Everything needed to go on later from here.
    pub fn save(&self) -> VecEnvState {
        VecEnvState {
            id: self.spec().id.clone(),
            base_seed: self.base_seed,
            copies: self.copies.iter().map(|c| c.now.clone()).collect(),
        }
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
        if s.base_seed != self.base_seed {
            return differs("base_seed", s.base_seed.to_string(), self.base_seed.to_string());
        }
        let (base, len) = (self.base_seed, self.action_len);
        let mut fresh = Vec::new();
        let rows = rows(&mut self.last, self.flat_len, self.n_actions);
        for (i, ((c, saved), mut row)) in self.copies.iter_mut().zip(&s.copies).zip(rows).enumerate() {
            row.no_step();
            if !c.replay(saved, base, len, &mut row)? {
                c.start(base, saved.episode_number + 1, &mut row)?;
                fresh.push(i);
            }
        }
        Ok(fresh)
    }
}
