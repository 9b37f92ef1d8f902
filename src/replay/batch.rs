//! A sampled batch: time-major rows of slots with every mask that a learner needs, and how it is filled.

use super::SequenceReplay;
use super::episodes::{CARRIED, FIRST, TERMINATED, TRANSITION, TRUNCATED};
use super::error::{ReplayError, Result};
use super::rows::{ActionRows, ActionSlice, ObsRows, ObsSlice};
use super::sequence::bucket_slots;
use super::states::NO_STATE;
use super::table::{Entry, Handle};
use crate::value::priority::{importance_weight, normalise_by_max};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Marks slots of padding in [`SequenceBatch::episode`].
pub const NO_EPISODE: u64 = u64::MAX;

/// B sequences of S slots, time-major: entry (slot j, row b) of a `[S, B]` field stands at `j * batch + b`. A slot holds
/// an observation and, where `valid`, the transition from it. Kept and filled again by each call of
/// [`SequenceReplay::sample`]; it grows only.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceBatch {
    /// S.
    pub slots: usize,
    /// B.
    pub batch: usize,
    /// Learnt spans start at this slot in every row; shorter burn-ins are padded on the left.
    pub burn_in: usize,
    /// Observations, [S, B, obs_len]; zeros where there is none.
    pub obs: ObsRows,
    /// Legal actions, [S, B, legal_len]; all legal where there is no observation.
    pub legal: Vec<bool>,
    /// Actions, [S, B, action length].
    pub action: ActionRows,
    /// Rewards, [S, B].
    pub reward: Vec<f32>,
    /// The transition ended the episode for good, [S, B].
    pub terminated: Vec<bool>,
    /// The transition ended the episode by a limit, [S, B].
    pub truncated: Vec<bool>,
    /// 1: the slot holds a transition of the window, [S, B].
    pub valid: Vec<u8>,
    /// 1: the slot holds an observation, [S, B]: `valid`, final observations, and the one to bootstrap from.
    pub valid_obs: Vec<u8>,
    /// 1: the transition is learnt, [S, B].
    pub learn: Vec<u8>,
    /// 1: the state is cleared before this slot, [S, B]: an episode begins here, without memory of the one before.
    pub reset: Vec<u8>,
    /// Action before this slot's observation, [S, B, action length]; zeros unless `has_prev`.
    pub prev_action: ActionRows,
    /// Reward that came with this slot's observation, [S, B]; 0 unless `has_prev`.
    pub prev_reward: Vec<f32>,
    /// 1: there was a step before this slot in the same episode, [S, B].
    pub has_prev: Vec<u8>,
    /// State before each row's first slot, [B, state_len].
    pub state: Vec<f32>,
    /// Importance weights, the largest one 1, `[B]`.
    pub weight: Vec<f32>,
    /// Handles to give priorities back with, `[B]`.
    pub handle: Vec<Handle>,
    /// Number of the slot's episode, [S, B]; [`NO_EPISODE`] for padding.
    pub episode: Vec<u64>,
    /// Number of the slot's step in its episode, [S, B]; −1 for padding.
    pub step_in_episode: Vec<i32>,
}

impl Default for SequenceBatch {
    fn default() -> Self {
        SequenceBatch {
            slots: 0,
            batch: 0,
            burn_in: 0,
            obs: ObsRows::F32(Vec::new()),
            legal: Vec::new(),
            action: ActionRows::Discrete(Vec::new()),
            reward: Vec::new(),
            terminated: Vec::new(),
            truncated: Vec::new(),
            valid: Vec::new(),
            valid_obs: Vec::new(),
            learn: Vec::new(),
            reset: Vec::new(),
            prev_action: ActionRows::Discrete(Vec::new()),
            prev_reward: Vec::new(),
            has_prev: Vec::new(),
            state: Vec::new(),
            weight: Vec::new(),
            handle: Vec::new(),
            episode: Vec::new(),
            step_in_episode: Vec::new(),
        }
    }
}

fn refill<T: Copy>(v: &mut Vec<T>, len: usize, value: T) {
    v.clear();
    v.resize(len, value);
}

impl SequenceBatch {
    /// An empty batch; the first call of [`SequenceReplay::sample`] gives it its size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where (slot, row) stands in the `[S, B]` fields.
    pub fn at(&self, slot: usize, row: usize) -> usize {
        slot * self.batch + row
    }

    /// Observation of entry `at` = slot · B + row, `[obs_len]`.
    pub fn obs_row(&self, at: usize) -> ObsSlice<'_> {
        self.obs.row(at, self.obs.as_slice().len() / (self.slots * self.batch).max(1))
    }

    /// Action of entry `at`, [action length].
    pub fn action_row(&self, at: usize) -> ActionSlice<'_> {
        self.action.row(at, self.action_len())
    }

    /// Action before entry `at`, [action length]; zeros unless `has_prev`.
    pub fn prev_action_row(&self, at: usize) -> ActionSlice<'_> {
        self.prev_action.row(at, self.action_len())
    }

    /// Legal actions of entry `at`, `[legal_len]`; None where the task has no mask.
    pub fn legal_row(&self, at: usize) -> Option<&[bool]> {
        let n = self.legal.len() / (self.slots * self.batch).max(1);
        (n > 0).then(|| &self.legal[at * n..(at + 1) * n])
    }

    fn action_len(&self) -> usize {
        let all = match &self.action {
            ActionRows::Discrete(v) => v.len(),
            ActionRows::Continuous(v) => v.len(),
        };
        all / (self.slots * self.batch).max(1)
    }

    /// Learnt steps of the whole batch.
    pub fn n_learnt(&self) -> usize {
        self.learn.iter().filter(|&&l| l != 0).count()
    }

    fn reshape(&mut self, replay: &SequenceReplay) {
        let (spec, n) = (replay.spec(), self.slots * self.batch);
        if self.obs.kind() != spec.obs_kind {
            self.obs = ObsRows::zeros(spec.obs_kind, 0);
        }
        let empty_action = ActionRows::zeros(spec.action, 0);
        if std::mem::discriminant(&self.action) != std::mem::discriminant(&empty_action) {
            (self.action, self.prev_action) = (empty_action.clone(), empty_action);
        }
        self.obs.clear_resize(n * spec.obs_len);
        self.action.clear_resize(n * spec.action.len());
        self.prev_action.clear_resize(n * spec.action.len());
        refill(&mut self.legal, n * spec.legal_len, true);
        for v in [&mut self.reward, &mut self.prev_reward] {
            refill(v, n, 0.0);
        }
        for v in [&mut self.terminated, &mut self.truncated] {
            refill(v, n, false);
        }
        for v in [&mut self.valid, &mut self.valid_obs, &mut self.learn, &mut self.reset, &mut self.has_prev] {
            refill(v, n, 0);
        }
        refill(&mut self.state, self.batch * spec.state_len, 0.0);
        refill(&mut self.episode, n, NO_EPISODE);
        refill(&mut self.step_in_episode, n, -1);
    }
}

impl SequenceReplay {
    /// Draws `batch` sequences with probability pᵅ/Σpᵅ, stratified: one from each `batch`-th of the total. Weights are
    /// (N P)^−β divided by the batch's largest. `out` is used again, without allocation once it is large enough.
    ///
    /// # Errors
    /// [`ReplayError::Empty`] without a sequence; a batch of 0.
    pub fn sample(&self, batch: usize, rng: &mut ChaCha8Rng, out: &mut SequenceBatch) -> Result<()> {
        if batch == 0 {
            return Err(ReplayError::Config { field: "batch", expected: "at least 1".into(), found: "0".into() });
        }
        let (tree, n) = (self.table.tree(), self.table.len());
        out.batch = batch;
        out.handle.clear();
        out.weight.clear();
        for k in 0..batch {
            let query = tree.stratified_query(k, batch, rng.random::<f64>());
            let index = tree.find(query).ok_or(ReplayError::Empty)? as u32;
            self.table.get(index).ok_or(ReplayError::Empty)?;
            out.handle.push(self.table.handle(index));
            let probability = tree.get(index as usize) / tree.total();
            out.weight.push(importance_weight(probability, n, self.config.beta) as f32);
        }
        normalise_by_max(&mut out.weight);
        let handles = std::mem::take(&mut out.handle);
        self.fill_rows(handles.iter().filter_map(|h| self.table.get(h.index)).copied(), out);
        out.handle = handles;
        Ok(())
    }

    /// Gives the batch the size of these windows, and their contents. `out.batch` is set.
    pub(super) fn fill_rows(&self, entries: impl Iterator<Item = Entry> + Clone, out: &mut SequenceBatch) {
        let longest = |f: fn(&Entry) -> u32| entries.clone().map(|e| f(&e) as usize).max().unwrap_or(0);
        self.shape(longest(|e| e.burn_in), longest(|e| e.span), out);
        for (row, entry) in entries.enumerate() {
            self.fill_row(entry, row, out);
        }
    }

    /// The way to a sampled window from its episode's first step, as a batch of one row: all steps before the learnt
    /// span are burn-in, from the episode's own start (zeros, or the state carried into it). Returns the slot at which the window begins, so that a stored state can be
    /// compared with one replayed by today's weights. `None` if the handle is stale, the episode's beginning is gone, or
    /// there are more than `max_steps` steps.
    pub fn prefix(&self, handle: Handle, max_steps: usize, out: &mut SequenceBatch) -> Option<usize> {
        let entry = *self.table.get(handle.index).filter(|_| self.table.is_live(handle))?;
        let episode = self.lanes[entry.lane as usize].episode_at(entry.first)?;
        let before = (entry.first - episode.base) as u32;
        if episode.dropped > 0 || entry.last() - episode.base > max_steps as u64 {
            return None;
        }
        let burn_in = before + entry.burn_in;
        let row = Entry { first: episode.base, burn_in, has_prev: false, state: NO_STATE, ..entry };
        out.batch = 1;
        out.handle.clear();
        out.handle.push(handle);
        refill(&mut out.weight, 1, 1.0);
        self.shape(burn_in as usize, entry.span as usize, out);
        self.fill_row(row, 0, out);
        Some(before as usize)
    }

    /// Sizes a batch whose longest burn-in and span are these.
    fn shape(&self, burn_in: usize, span: usize, out: &mut SequenceBatch) {
        let (length, whole) = (self.config.length, self.config.whole_limit());
        let exact = [length + 1, self.config.burn_in + length + 1, whole + 1];
        out.burn_in = burn_in;
        out.slots = bucket_slots(burn_in + span + 1, &exact);
        out.reshape(self);
    }

    fn fill_row(&self, entry: Entry, row: usize, out: &mut SequenceBatch) {
        let (lane, state_len) = (&self.lanes[entry.lane as usize], self.spec.state_len);
        // every window from a carried episode's first step shares that episode's own state
        let start = lane.episode_at(entry.first).filter(|e| e.base == entry.first).map_or(entry.state, |e| e.initial);
        self.states.read(start, &mut out.state[row * state_len..][..state_len]);
        let left = out.burn_in - entry.burn_in as usize;
        let steps = (entry.burn_in + entry.span) as usize;
        let mut episode = None;
        for j in 0..=steps {
            let slot = entry.first + j as u64;
            if episode.is_none_or(|e: &super::episodes::Episode| slot >= e.end()) {
                episode = lane.episode_at(slot);
            }
            let Some(of) = episode else { continue };
            let place = of.place(&self.store, slot);
            let (at, flags) = (out.at(left + j, row), self.store.flags(place));
            out.obs.set_row(at, self.store.obs(place));
            let n = self.spec.legal_len;
            for (legal, &stored) in out.legal[at * n..][..n].iter_mut().zip(self.store.legal(place)) {
                *legal = stored != 0;
            }
            out.valid_obs[at] = 1;
            out.reset[at] = u8::from(flags & (FIRST | CARRIED) == FIRST);
            out.episode[at] = of.id;
            out.step_in_episode[at] = i32::try_from(slot - of.base).unwrap_or(i32::MAX);
            if flags & TRANSITION != 0 && j < steps {
                let step = self.store.transition(place);
                out.action.set_row(at, step.action);
                out.reward[at] = step.reward;
                out.terminated[at] = flags & TERMINATED != 0;
                out.truncated[at] = flags & TRUNCATED != 0;
                out.valid[at] = 1;
                out.learn[at] = u8::from(j >= entry.burn_in as usize);
            }
            if flags & FIRST == 0 && slot > of.front() {
                let before = self.store.transition(of.place(&self.store, slot - 1));
                out.prev_action.set_row(at, before.action);
                out.prev_reward[at] = before.reward;
                out.has_prev[at] = 1;
            }
        }
    }

    /// Observation of (slot, row) of a batch of this replay's specification, `[obs_len]`.
    pub fn obs_of<'a>(&self, batch: &'a SequenceBatch, slot: usize, row: usize) -> ObsSlice<'a> {
        batch.obs.row(batch.at(slot, row), self.spec.obs_len)
    }
}
