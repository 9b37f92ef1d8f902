//! Replay of sequences for recurrent agents: episodes stored once, sequences as views with a priority each.
//!
//! Several lanes (environment copies) write side by side: `begin` with the first observation of an episode, `push` for
//! each step. Sequences appear as soon as their last observation is there: whole episodes, or windows of burn-in and
//! learnt steps by the rule of [`sequence`], where time's conventions are written down too. Host data only; observations
//! stay in their own number type. Source: R2D2 (Kapturowski et al., 2019), Sec. 2.3.
//!
//! ```
//! use mamba_rl::replay::*;
//! use rand::SeedableRng;
//! let spec = ReplaySpec { obs_kind: ObsKind::F32, obs_len: 1, action: ActionKind::Discrete { parts: 1 }, legal_len: 0,
//!                         state_len: 0, lanes: 1 };
//! let mut replay = SequenceReplay::new(spec, ReplayConfig::default())?;
//! replay.begin(0, ObsSlice::F32(&[0.0]), None)?;
//! for t in 1..=3 {
//!     replay.push(0, PushStep { state: None, action: ActionSlice::Discrete(&[0]), reward: 1.0, terminated: t == 3,
//!                               truncated: false, next_obs: ObsSlice::F32(&[t as f32]), next_legal: None })?;
//! }
//! let mut batch = SequenceBatch::new();
//! replay.sample(2, &mut rand_chacha::ChaCha8Rng::seed_from_u64(0), &mut batch)?;
//! assert_eq!((replay.len_steps(), replay.len_sequences(), batch.n_learnt()), (3, 1, 6));
//! # Ok::<(), ReplayError>(())
//! ```

mod batch;
mod config;
mod episodes;
mod error;
mod format;
mod prefix;
mod rows;
mod segments;
pub mod sequence;
mod states;
pub mod sum_tree;
mod table;

pub use batch::{NO_EPISODE, SequenceBatch};
pub use config::{InitialState, Layout, ReplayConfig, ReplaySpec, StateDtype};
pub use error::{ReplayError, Result};
pub use rows::{ActionKind, ActionRows, ActionSlice, ObsKind, ObsRows, ObsSlice};
pub use segments::SegmentInfo;
pub use table::{Handle, PRIORITY_FLOOR, PriorityReport};

use episodes::{CARRIED, Episode, FIRST, Lane, SlotStore, TERMINATED, TRANSITION, TRUNCATED, Transition};
use states::{NO_STATE, StateStore};
use std::collections::VecDeque;
use table::{Entry, Table};

/// One environment step, as the actor saw it.
#[derive(Debug, Clone, Copy)]
pub struct PushStep<'a> {
    /// Recurrent state before this step, `[state_len]`; needed iff [`SequenceReplay::wants_state`], else ignored.
    pub state: Option<&'a [f32]>,
    /// Action that answered the latest observation.
    pub action: ActionSlice<'a>,
    /// Reward that followed.
    pub reward: f32,
    /// The episode ended for good. Wins over `truncated`.
    pub terminated: bool,
    /// The episode was cut by a limit.
    pub truncated: bool,
    /// Observation that followed, at an end the true final one, `[obs_len]`.
    pub next_obs: ObsSlice<'a>,
    /// Its legal actions, `[legal_len]`; `None`: all.
    pub next_legal: Option<&'a [bool]>,
}

/// What a push brought about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Sequences that this push completed; [`SequenceReplay::drain_closed`] lists them.
    pub closed: usize,
}

/// A sequence that was just completed and waits for its own priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedSpan {
    /// Answer with [`SequenceReplay::set_priority`].
    pub handle: Handle,
    /// Lane it came from.
    pub lane: usize,
    /// Episode of its first learnt step, numbered in order of `begin`.
    pub episode: u64,
    /// First learnt step, in steps of that episode.
    pub start: usize,
    /// The same step, counted over all pushes of the lane: learnt are pushes `lane_step .. lane_step + len`.
    pub lane_step: u64,
    /// Learnt steps.
    pub len: usize,
    /// The last learnt step ended its episode.
    pub ends_episode: bool,
}

/// The replay.
#[derive(Debug)]
pub struct SequenceReplay {
    spec: ReplaySpec,
    config: ReplayConfig,
    store: SlotStore,
    states: StateStore,
    table: Table,
    lanes: Vec<Lane>,
    /// Lanes of finished episodes, in the order they finished.
    finished: VecDeque<u32>,
    /// Episodes finished so far.
    n_finished: u64,
    n_episodes: u64,
    /// Episodes of the `Episode` layout that were too long to be kept whole.
    n_long: u64,
    steps: u64,
    closed: Vec<ClosedSpan>,
    segments: Vec<segments::Segment>,
}

impl SequenceReplay {
    /// An empty replay.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn new(spec: ReplaySpec, config: ReplayConfig) -> Result<Self> {
        config.check(&spec)?;
        Ok(SequenceReplay {
            store: SlotStore::new(&spec, &config),
            states: StateStore::new(config.state_dtype, spec.state_len),
            table: Table::new(config.alpha),
            lanes: (0..spec.lanes).map(|_| Lane::default()).collect(),
            finished: VecDeque::new(),
            n_finished: 0,
            n_episodes: 0,
            n_long: 0,
            steps: 0,
            closed: Vec::new(),
            segments: Vec::new(),
            spec,
            config,
        })
    }

    /// What a step looks like.
    pub fn spec(&self) -> &ReplaySpec {
        &self.spec
    }

    /// The settings.
    pub fn config(&self) -> &ReplayConfig {
        &self.config
    }

    /// Begins an episode with its first observation, `[obs_len]`, and cleared memory. A running episode of the lane is
    /// abandoned.
    ///
    /// # Errors
    /// Lane or lengths that do not fit the specification.
    pub fn begin(&mut self, lane: usize, obs: ObsSlice<'_>, legal: Option<&[bool]>) -> Result<()> {
        self.begin_with(lane, obs, legal, false)
    }

    /// As [`Self::begin`]. `carried`: memory was not cleared before this episode (trials of several episodes), so its
    /// first step has no reset, and sequences from there start from the state that the first `push` brings.
    ///
    /// # Errors
    /// As `begin`; `carried` with seams, where the final observation between two episodes would move the state.
    pub fn begin_with(&mut self, lane: usize, obs: ObsSlice<'_>, legal: Option<&[bool]>, carried: bool) -> Result<()> {
        self.check_lane(lane)?;
        if carried && self.config.seams {
            let expected = "false where memory is carried from one episode to the next".into();
            return Err(ReplayError::Config { field: "seams", expected, found: "true".into() });
        }
        obs.check("obs", self.spec.obs_kind, self.spec.obs_len)?;
        self.check_legal("legal", legal)?;
        self.abandon(lane);
        let of = &mut self.lanes[lane];
        let mut episode = Episode::new(&mut self.store, self.n_episodes, of.next_slot, of.pushes);
        episode.carried = carried;
        let place = episode.append(&mut self.store);
        self.store.write_obs(place, obs, legal, if carried { FIRST | CARRIED } else { FIRST });
        if !self.config.seams {
            (of.origin, of.cut) = (of.next_slot, of.next_slot);
        }
        of.next_slot += 1;
        of.running = true;
        of.episodes.push_back(episode);
        self.n_episodes += 1;
        self.close_full_spans(lane);
        Ok(())
    }

    /// Whether the next `push` to this lane must bring the recurrent state before its step: a window may start there.
    /// In the `Episode` layout this includes episodes that turn out short enough to be kept whole.
    pub fn wants_state(&self, lane: usize) -> bool {
        let Some(of) = self.lanes.get(lane) else { return false };
        let Some(episode) = of.current() else { return false };
        if self.spec.state_len == 0 || self.config.initial_state == InitialState::Zero {
            return false;
        }
        let (slot, burn_in) = (of.next_slot - 1, self.config.burn_in as u64);
        if slot == episode.base {
            return episode.carried;
        }
        (slot - of.origin + burn_in).is_multiple_of(self.config.period as u64)
    }

    /// Adds one step to the lane's running episode; ends it if terminated or truncated.
    ///
    /// # Errors
    /// No running episode, data that do not fit the specification, a reward that is not finite, a missing state. Nothing is
    /// stored then.
    pub fn push(&mut self, lane: usize, step: PushStep<'_>) -> Result<Pushed> {
        self.check_step(lane, &step)?;
        let wants_state = self.wants_state(lane);
        let of = &mut self.lanes[lane];
        let slot = of.next_slot - 1;
        let Some(episode) = of.episodes.back_mut() else { return Err(ReplayError::NotBegun { lane }) };
        if let (true, Some(state)) = (wants_state, step.state) {
            let state = self.states.store(state);
            if slot == episode.base {
                episode.initial = state;
            } else {
                of.pending.push_back((slot, state));
            }
        }
        let flags = (u8::from(step.terminated) * TERMINATED) | (u8::from(step.truncated) * TRUNCATED);
        let place = episode.place(&self.store, slot);
        self.store.write_transition(place, Transition { action: step.action, reward: step.reward, flags });
        let place = episode.append(&mut self.store);
        self.store.write_obs(place, step.next_obs, step.next_legal, 0);
        let steps = episode.slots - 1;
        of.next_slot += 1;
        of.pushes += 1;
        self.steps += 1;
        let whole = self.config.whole_limit() as u64;
        self.n_long += u64::from(whole > 0 && steps == whole + 1);
        let before = self.closed.len();
        let ended = step.terminated || step.truncated;
        self.close_full_spans(lane);
        if ended {
            self.end_episode(lane);
        }
        let closed = self.closed.len() - before;
        self.keep_capacity();
        self.bound_closed();
        Ok(Pushed { closed })
    }

    fn end_episode(&mut self, lane: usize) {
        if !self.config.seams {
            self.close_last_spans(lane);
            self.forget_pending(lane, u64::MAX);
        }
        self.lanes[lane].running = false;
        self.finished.push_back(lane as u32);
        self.n_finished += 1;
    }

    /// Spans whose steps and bootstrap observation are all there.
    fn close_full_spans(&mut self, lane: usize) {
        let of = &self.lanes[lane];
        let whole = self.config.whole_limit() as u64;
        // An episode that may still be kept whole is not cut.
        if whole > 0 && of.current().is_none_or(|e| e.slots - 1 <= whole) {
            return;
        }
        let (length, period) = (self.config.length as u64, self.config.period as u64);
        while self.lanes[lane].cut + length < self.lanes[lane].next_slot {
            let start = self.lanes[lane].cut;
            self.make_sequence(lane, start, length);
            self.lanes[lane].cut += period;
        }
    }

    /// The rest of an episode that just ended: all of it, or its last windows.
    fn close_last_spans(&mut self, lane: usize) {
        let Some(episode) = self.lanes[lane].episodes.back() else { return };
        let (base, steps) = (episode.base, episode.slots - 1);
        if steps <= self.config.whole_limit() as u64 {
            self.forget_pending(lane, u64::MAX);
            return self.make_sequence(lane, base, steps);
        }
        let (length, period) = (self.config.length as u64, self.config.period as u64);
        while self.lanes[lane].cut - base < steps {
            let start = self.lanes[lane].cut - base;
            if sequence::is_made(start, steps, length, period) {
                self.make_sequence(lane, base + start, length.min(steps - start));
            }
            self.lanes[lane].cut += period;
        }
    }

    /// Enters the sequence of the learnt span `start .. start + len` (lane slots), if all it needs is still there.
    fn make_sequence(&mut self, lane: usize, start: u64, len: u64) {
        let burn_in = (self.config.burn_in as u64).min(start - self.lanes[lane].origin);
        let first = start - burn_in;
        self.forget_pending(lane, first);
        let of = &mut self.lanes[lane];
        let state = match of.pending.front() {
            Some(&(slot, state)) if slot == first => {
                of.pending.pop_front();
                state
            }
            _ => NO_STATE,
        };
        let made = self.learnt_part(lane, first, start, len).map(|(has_prev, span)| {
            let (burn_in, span_slots) = (burn_in as u32, len as u32);
            let priority = self.table.initial_priority();
            let entry = Entry { lane: lane as u32, first, burn_in, span: span_slots, has_prev, state, priority };
            let index = self.table.insert(entry);
            self.lanes[lane].sequences.push_back(index);
            self.closed.push(ClosedSpan { handle: self.table.handle(index), ..span });
        });
        if made.is_none() {
            self.states.release(state);
        }
    }

    /// Whether slot `first` has a step before it that the window needs, and the span's learnt steps. `None` if slots are
    /// gone or no step would be learnt.
    fn learnt_part(&self, lane: usize, first: u64, start: u64, len: u64) -> Option<(bool, ClosedSpan)> {
        let of = &self.lanes[lane];
        let episode = of.episode_at(first)?;
        let has_prev = first != episode.base;
        if has_prev && first == episode.front() {
            return None;
        }
        let flags = |slot| of.episode_at(slot).map_or(0, |e| self.store.flags(e.place(&self.store, slot)));
        let mut learnt = (start..start + len).filter(|&slot| flags(slot) & TRANSITION != 0);
        let begin = learnt.next()?;
        let (n, last) = learnt.fold((1, begin), |(n, _), slot| (n + 1, slot));
        let episode = of.episode_at(begin)?;
        let span = ClosedSpan {
            handle: Handle::default(),
            lane,
            episode: episode.id,
            start: (begin - episode.base) as usize,
            lane_step: episode.push_base + (begin - episode.base),
            len: n,
            ends_episode: flags(last) & (TERMINATED | TRUNCATED) != 0,
        };
        Some((has_prev, span))
    }

    fn forget_pending(&mut self, lane: usize, before: u64) {
        let pending = &mut self.lanes[lane].pending;
        while let Some((_, state)) = pending.pop_front_if(|(slot, _)| *slot < before) {
            self.states.release(state);
        }
    }

    /// Evicts whole finished episodes, the oldest first; if there is none, the oldest steps of the longest running one.
    fn keep_capacity(&mut self) {
        while self.steps > self.config.capacity as u64 {
            if let Some(lane) = self.finished.pop_front() {
                let lane = lane as usize;
                if let Some(episode) = self.lanes[lane].episodes.pop_front() {
                    self.steps -= episode.stored_steps();
                    episode.release(&mut self.store, &mut self.states);
                }
                self.drop_cut_sequences(lane);
                continue;
            }
            let stored = |of: &Lane| of.current().map_or(0, Episode::stored_steps);
            let Some(lane) = (0..self.lanes.len()).max_by_key(|&l| stored(&self.lanes[l])) else { return };
            let surplus = (self.steps - self.config.capacity as u64).min(stored(&self.lanes[lane]).saturating_sub(1));
            let Some(episode) = self.lanes[lane].episodes.back_mut().filter(|_| surplus > 0) else { return };
            episode.drop_front(&mut self.store, surplus);
            self.steps -= surplus;
            self.drop_cut_sequences(lane);
        }
    }

    /// Removes the lane's sequences that need a slot which is gone.
    fn drop_cut_sequences(&mut self, lane: usize) {
        let of = &mut self.lanes[lane];
        let front = of.front();
        while let Some(index) = of.sequences.pop_front_if(|i| self.table.get(*i).is_none_or(|e| e.needs() < front)) {
            self.states.release(self.table.remove(index));
        }
    }

    /// Drops the lane's running episode and every sequence that touches it; nothing half is sampled.
    pub fn abandon(&mut self, lane: usize) {
        let Some(of) = self.lanes.get_mut(lane).filter(|of| of.running) else { return };
        let Some(episode) = of.episodes.pop_back() else { return };
        of.running = false;
        (of.origin, of.cut) = (of.next_slot, of.next_slot);
        self.steps -= episode.stored_steps();
        let touches = |i: &mut u32| self.table.get(*i).is_none_or(|e| e.last() >= episode.base);
        let mut gone = Vec::new();
        while let Some(index) = of.sequences.pop_back_if(touches) {
            gone.push(index);
        }
        for index in gone {
            self.states.release(self.table.remove(index));
        }
        episode.release(&mut self.store, &mut self.states);
        self.forget_pending(lane, u64::MAX);
        self.closed.retain(|c| self.table.is_live(c.handle));
    }

    /// Hands out the sequences completed since the last call, oldest first, and forgets the list.
    pub fn drain_closed(&mut self, f: impl FnMut(ClosedSpan)) {
        self.closed.drain(..).for_each(f);
    }

    /// Nobody may ever ask for the list: it must not outgrow the table.
    fn bound_closed(&mut self) {
        if self.closed.len() > 2 * self.table.len() + 1024 {
            self.closed.retain(|c| self.table.is_live(c.handle));
        }
    }

    /// Sets priorities, before the exponent α. Handles of sequences that are gone are counted as stale; NaN, infinite
    /// and negative priorities are refused, counted, and leave the old one; 0 becomes [`PRIORITY_FLOOR`].
    /// Of slices of two lengths the rest of the longer one is refused and counted, too.
    pub fn set_priority(&mut self, handles: &[Handle], priority: &[f32]) -> PriorityReport {
        self.table.set_priority(handles, priority)
    }

    fn check_lane(&self, lane: usize) -> Result<()> {
        if lane < self.lanes.len() { Ok(()) } else { Err(ReplayError::Lane { lane, lanes: self.lanes.len() }) }
    }

    fn check_legal(&self, argument: &'static str, legal: Option<&[bool]>) -> Result<()> {
        match legal {
            Some(legal) if legal.len() != self.spec.legal_len => Err(ReplayError::Shape {
                argument,
                expected: format!("{} flags", self.spec.legal_len),
                found: format!("{} flags", legal.len()),
            }),
            _ => Ok(()),
        }
    }

    fn check_step(&self, lane: usize, step: &PushStep<'_>) -> Result<()> {
        self.check_lane(lane)?;
        if !self.lanes[lane].running {
            return Err(ReplayError::NotBegun { lane });
        }
        step.action.check(self.spec.action)?;
        step.next_obs.check("next_obs", self.spec.obs_kind, self.spec.obs_len)?;
        self.check_legal("next_legal", step.next_legal)?;
        if !step.reward.is_finite() {
            let found = step.reward.to_string();
            return Err(ReplayError::Shape { argument: "reward", expected: "a finite number".into(), found });
        }
        match step.state {
            None if self.wants_state(lane) => Err(ReplayError::MissingState { lane }),
            Some(state) if state.len() != self.spec.state_len => Err(ReplayError::Shape {
                argument: "state",
                expected: format!("{} x f32", self.spec.state_len),
                found: format!("{} x f32", state.len()),
            }),
            _ => Ok(()),
        }
    }

    /// Environment steps held, running episodes included.
    pub fn len_steps(&self) -> usize {
        self.steps as usize
    }

    /// Sequences that can be drawn.
    pub fn len_sequences(&self) -> usize {
        self.table.len()
    }

    /// Environment steps that are kept at most.
    pub fn capacity(&self) -> usize {
        self.config.capacity
    }

    /// Bytes held for recurrent states, one per window start.
    pub fn state_bytes(&self) -> usize {
        self.states.bytes()
    }

    /// Bytes held for observations.
    pub fn observation_bytes(&self) -> usize {
        self.store.observation_bytes()
    }

    /// Bytes held for actions, rewards, flags and legal masks.
    pub fn transition_bytes(&self) -> usize {
        self.store.other_bytes()
    }

    /// Episodes that were longer than the `Episode` layout keeps whole and are cut into windows, since this replay was
    /// made or loaded. A caller warns at the first one.
    pub fn long_episodes(&self) -> u64 {
        self.n_long
    }

    /// Stale handles so far.
    pub fn stale_total(&self) -> u64 {
        self.table.stale
    }

    /// Refused priorities so far.
    pub fn refused_total(&self) -> u64 {
        self.table.refused
    }

    /// Priority of one sequence, before the exponent; `None` for a stale handle.
    pub fn priority(&self, handle: Handle) -> Option<f32> {
        self.table.get(handle.index).filter(|_| self.table.is_live(handle)).map(|e| e.priority)
    }

    /// Mean priority, before the exponent; 0 if empty. O(sequences).
    pub fn priority_mean(&self) -> f32 {
        let sum: f64 = self.table.priorities().map(f64::from).sum();
        (sum / self.table.len().max(1) as f64) as f32
    }

    /// Largest priority, before the exponent; 0 if empty. O(sequences).
    pub fn priority_max(&self) -> f32 {
        self.table.priorities().fold(0.0, f32::max)
    }
}
