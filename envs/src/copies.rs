//! The copies of a vector environment: one environment each, its running episode, and the rows that it writes to. The
//! loop over the copies is compiled for each task (`Erased<E>`), with one dynamic call per batch; copies of several
//! kinds, wrapped ones and users' own go through their `Box`.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::buffer::{ActionBuffer, ActionRef, ObsMut, ObsRef};
use crate::env::{BoxEnv, DynEnv, Step};
use crate::error::{EnvError, Result};
use crate::seed::episode_seed;
use crate::vector::{Autoreset, StepBatch};

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
struct Copy<E> {
    env: E,
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
fn rows(b: &mut StepBatch, size: Sizes) -> impl Iterator<Item = Row<'_>> {
    let mut obs = b.obs.view_mut().rows(size.flat_len);
    let mut final_obs = b.final_obs.view_mut().rows(size.flat_len);
    let mut legal = b.legal.as_deref_mut().unwrap_or_default().chunks_exact_mut(size.n_actions.max(1));
    let mut final_legal = b.final_legal.as_deref_mut().unwrap_or_default().chunks_exact_mut(size.n_actions.max(1));
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

/// Row i alone.
fn row(b: &mut StepBatch, size: Sizes, i: usize) -> Row<'_> {
    let mask = i * size.n_actions..(i + 1) * size.n_actions;
    Row {
        obs: b.obs.row_mut(i, size.flat_len),
        final_obs: b.final_obs.row_mut(i, size.flat_len),
        reward: &mut b.reward[i],
        terminated: &mut b.terminated[i],
        truncated: &mut b.truncated[i],
        legal: &mut b.legal.as_deref_mut().unwrap_or_default()[mask.clone()],
        final_legal: &mut b.final_legal.as_deref_mut().unwrap_or_default()[mask],
        is_first: &mut b.is_first[i],
        valid: &mut b.valid[i],
        episode_return: &mut b.episode_return[i],
        episode_length: &mut b.episode_length[i],
        episode_number: &mut b.episode_number[i],
    }
}

impl<E: DynEnv> Copy<E> {
    #[inline(never)]
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

    #[inline(always)]
    fn look_up_legal(&self, row: &mut Row<'_>) {
        if !row.legal.is_empty() {
            self.env.legal(row.legal);
        }
    }

    /// Keeps what a step was, to play it again.
    #[inline(always)]
    fn note(&mut self, action: ActionRef<'_>, obs: ObsRef<'_>, step: Step) {
        self.now.actions.extend(action);
        self.now.obs_hash = obs.hash(self.now.obs_hash);
        self.now.episode_return += step.reward;
        self.now.episode_length += 1;
        self.now.over = step.done();
    }

    /// One step without autoreset.
    #[inline(always)]
    fn play(&mut self, action: ActionRef<'_>, row: &mut Row<'_>) -> Result<Step> {
        let step = self.env.step(action, row.obs.reborrow())?;
        self.note(action, row.obs.view(), step);
        *row.is_first = false;
        self.look_up_legal(row);
        Ok(step)
    }

    #[inline(always)]
    fn advance(&mut self, action: ActionRef<'_>, s: Settings, row: &mut Row<'_>) -> Result<()> {
        if self.now.over {
            row.no_step();
            return self.start(s.base, self.now.episode_number + 1, row);
        }
        let step = self.play(action, row)?;
        *row.reward = step.reward as f32;
        *row.terminated = step.terminated;
        *row.truncated = step.truncated;
        *row.valid = true;
        if step.done() { self.end(s, row) } else { Ok(()) }
    }

    #[cold]
    fn end(&mut self, s: Settings, row: &mut Row<'_>) -> Result<()> {
        row.final_obs.copy_from(row.obs.view());
        row.final_legal.copy_from_slice(row.legal);
        *row.episode_return = self.now.episode_return;
        *row.episode_length = self.now.episode_length;
        if s.mode == Autoreset::SameStep {
            self.start(s.base, self.now.episode_number + 1, row)?;
        }
        Ok(())
    }

    /// Plays a saved episode again; false if it did not repeat.
    fn replay(&mut self, saved: &CopyState, s: Settings, row: &mut Row<'_>) -> Result<bool> {
        if saved.broken {
            return Ok(false);
        }
        self.start(s.base, saved.episode_number, row)?;
        let (actions, action_len) = (saved.actions.view(), s.size.action_len);
        for t in 0..actions.len() / action_len.max(1) {
            if self.now.over || self.play(actions.slice(t * action_len, action_len), row).is_err() {
                return Ok(false);
            }
        }
        Ok(self.now == *saved)
    }
}

/// What all copies share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub flat_len: usize,
    pub action_len: usize,
    /// 0 without a mask.
    pub n_actions: usize,
}

/// How a vector environment was set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub base: u64,
    pub mode: Autoreset,
    /// On rayon's pool.
    pub parallel: bool,
    pub size: Sizes,
}

/// N copies behind one object.
pub(crate) trait Copies: Send {
    fn env(&self, copy: usize) -> Option<&dyn DynEnv>;
    fn len(&self) -> usize;
    /// Starts episode 0 in every copy.
    fn reset(&mut self, s: Settings, out: &mut StepBatch) -> Result<()>;
    /// `actions` is flat `[N, action_len]`.
    fn step(&mut self, s: Settings, actions: ActionRef<'_>, out: &mut StepBatch) -> Result<()>;
    fn save(&self) -> Vec<CopyState>;
    /// The copies that did not repeat.
    fn restore(&mut self, s: Settings, saved: &[CopyState], out: &mut StepBatch) -> Result<Vec<usize>>;
}

/// Copies of one kind.
pub(crate) struct Many<E> {
    copies: Vec<Copy<E>>,
    announces: bool,
}

impl<E: DynEnv> Many<E> {
    pub fn new(envs: Vec<E>) -> Self {
        let log = |env: &E| {
            let (space, steps) = (&env.spec().action_space, env.spec().max_steps.unwrap_or(0));
            let mut log = ActionBuffer::for_space(space, 0);
            // Room for the longest episode's actions, unless that is out of proportion.
            log.reserve(steps.min(4096) * space.flat_len());
            log
        };
        let copy = |(index, env): (usize, E)| Copy {
            now: CopyState {
                episode_number: 0,
                actions: log(&env),
                obs_hash: HASH_START,
                episode_return: 0.0,
                episode_length: 0,
                over: false,
                broken: false,
            },
            env,
            index: index as u64,
        };
        let announces = envs.first().is_some_and(DynEnv::announces);
        Many { copies: envs.into_iter().enumerate().map(copy).collect(), announces }
    }

    /// One step of every copy, in turn. The twin of [`Copy::advance`] without the rows, which cost more than a step of
    /// a card game: 30 against 22 ns for RepeatPrevious on one core of an AMD EPYC (`cargo bench -p mamba-rl-envs`).
    fn step_in_turn(&mut self, s: Settings, actions: ActionRef<'_>, out: &mut StepBatch) -> Result<()> {
        let Sizes { flat_len, action_len, n_actions } = s.size;
        for (i, c) in self.copies.iter_mut().enumerate() {
            let action = actions.slice(i * action_len, action_len);
            if c.now.over {
                c.advance(action, s, &mut row(out, s.size, i))?;
                continue;
            }
            let mut obs = out.obs.row_mut(i, flat_len);
            let step = c.env.step(action, obs.reborrow())?;
            c.note(action, obs.view(), step);
            out.reward[i] = step.reward as f32;
            out.terminated[i] = step.terminated;
            out.truncated[i] = step.truncated;
            out.is_first[i] = false;
            out.valid[i] = true;
            if let Some(legal) = &mut out.legal {
                c.env.legal(&mut legal[i * n_actions..(i + 1) * n_actions]);
            }
            if step.done() {
                c.end(s, &mut row(out, s.size, i))?;
            }
        }
        Ok(())
    }

    fn each(
        &mut self,
        s: Settings,
        out: &mut StepBatch,
        f: impl Fn(&mut Copy<E>, usize, &mut Row<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        let mut all = self.copies.iter_mut().zip(rows(out, s.size)).enumerate();
        if s.parallel {
            all.collect::<Vec<_>>().into_par_iter().try_for_each(|(i, (c, mut row))| f(c, i, &mut row))
        } else {
            all.try_for_each(|(i, (c, mut row))| f(c, i, &mut row))
        }
    }

    fn announce(&mut self, len: usize, actions: ActionRef<'_>) -> Result<()> {
        if self.announces {
            for (i, c) in self.copies.iter_mut().enumerate().filter(|(_, c)| !c.now.over) {
                c.env.announce(actions.slice(i * len, len))?;
            }
        }
        Ok(())
    }
}

impl<E: DynEnv> Copies for Many<E> {
    fn env(&self, copy: usize) -> Option<&dyn DynEnv> {
        self.copies.get(copy).map(|c| &c.env as &dyn DynEnv)
    }

    fn len(&self) -> usize {
        self.copies.len()
    }

    fn reset(&mut self, s: Settings, out: &mut StepBatch) -> Result<()> {
        self.each(s, out, |c, _, row| {
            row.no_step();
            c.start(s.base, 0, row)
        })
    }

    fn step(&mut self, s: Settings, actions: ActionRef<'_>, out: &mut StepBatch) -> Result<()> {
        let len = s.size.action_len;
        let stepped = self.announce(len, actions).and_then(|()| {
            if s.parallel {
                self.each(s, out, |c, i, row| c.advance(actions.slice(i * len, len), s, row))
            } else {
                self.step_in_turn(s, actions, out)
            }
        });
        if let Err(e) = &stepped {
            let mended_by_caller = matches!(e, EnvError::Action { .. } | EnvError::IllegalNow { .. });
            self.copies.iter_mut().for_each(|c| c.now.broken |= !mended_by_caller);
        }
        stepped
    }

    fn save(&self) -> Vec<CopyState> {
        self.copies.iter().map(|c| c.now.clone()).collect()
    }

    fn restore(&mut self, s: Settings, saved: &[CopyState], out: &mut StepBatch) -> Result<Vec<usize>> {
        let mut fresh = Vec::new();
        for (i, ((c, saved), mut row)) in self.copies.iter_mut().zip(saved).zip(rows(out, s.size)).enumerate() {
            row.no_step();
            if !c.replay(saved, s, &mut row)? {
                c.start(s.base, saved.episode_number + 1, &mut row)?;
                fresh.push(i);
            }
        }
        Ok(fresh)
    }
}

/// Copies of one typed task run in a loop of their own; others through their boxes.
pub(crate) fn join(envs: Vec<BoxEnv>) -> Box<dyn Copies> {
    match envs.first().and_then(|first| first.joiner()) {
        Some(joiner) => (joiner.0)(envs),
        None => Box::new(Many::new(envs)),
    }
}

/// How copies of one type are put together. Only this package makes one.
pub struct Joiner(pub(crate) fn(Vec<BoxEnv>) -> Box<dyn Copies>);

impl Joiner {
    /// For the type `E`; a mixture stays in its boxes.
    pub(crate) fn of<E: DynEnv + 'static>() -> Self {
        Joiner(|envs| {
            let all = envs.iter().all(|e| e.as_any().is_some_and(|any| any.is::<E>()));
            if !all {
                return Box::new(Many::new(envs));
            }
            let one = |e: BoxEnv| e.into_any().and_then(|any| any.downcast::<E>().ok()).map(|e| *e);
            Box::new(Many::new(envs.into_iter().filter_map(one).collect()))
        })
    }
}
