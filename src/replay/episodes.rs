//! Where steps live: episodes in pages of slots, each slot once, in the observations' own number type.
//!
//! A slot holds an observation, its legal mask and, unless it is the newest or final one, the transition from it. Slots
//! of a lane are numbered without end; an episode of T steps owns T + 1 numbers. Pages of finished episodes are used
//! again, so a full replay allocates nothing. Large observations have pages of one slot: no page is half empty.

use super::config::{ReplayConfig, ReplaySpec};
use super::rows::{ActionRows, ActionSlice, ObsRows, ObsSlice};
use super::states::{NO_STATE, StateStore};
use std::collections::VecDeque;

/// The slot is an episode's first: the state is cleared before it, unless it is CARRIED.
pub(super) const FIRST: u8 = 1;
/// The slot holds a transition.
pub(super) const TRANSITION: u8 = 2;
/// The transition terminated the episode.
pub(super) const TERMINATED: u8 = 4;
/// The transition truncated the episode.
pub(super) const TRUNCATED: u8 = 8;
/// The slot is an episode's first, and memory was carried into it from the episode before.
pub(super) const CARRIED: u8 = 16;

/// Bytes that are allocated at a time.
const BLOCK_BYTES: usize = 8 << 20;

/// Slots of one block; arrays are [slots, ...].
#[derive(Debug)]
struct Block {
    obs: ObsRows,
    action: ActionRows,
    legal: Vec<u8>,
    reward: Vec<f32>,
    flags: Vec<u8>,
}

/// A slot's address in the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    block: usize,
    index: usize,
}

/// The transition part of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transition<'a> {
    pub action: ActionSlice<'a>,
    pub reward: f32,
    pub flags: u8,
}

/// All pages.
#[derive(Debug)]
pub(super) struct SlotStore {
    spec: ReplaySpec,
    page_slots: usize,
    block_pages: usize,
    blocks: Vec<Block>,
    pages: u32,
    free: Vec<u32>,
    /// Emptied page lists, to be used again.
    lists: Vec<VecDeque<u32>>,
}

impl SlotStore {
    pub fn new(spec: &ReplaySpec, config: &ReplayConfig) -> Self {
        let slot_bytes = spec.obs_len * spec.obs_kind.bytes();
        let page_slots = (4096 / slot_bytes).clamp(1, 16);
        let block_slots = (BLOCK_BYTES / slot_bytes).min(config.capacity.div_ceil(16));
        let block_pages = block_slots.div_ceil(page_slots).max(1);
        let (blocks, free, lists) = (Vec::new(), Vec::new(), Vec::new());
        SlotStore { spec: spec.clone(), page_slots, block_pages, blocks, pages: 0, free, lists }
    }

    pub fn page_slots(&self) -> u64 {
        self.page_slots as u64
    }

    /// Bytes held for observations, used or not.
    pub fn observation_bytes(&self) -> usize {
        self.blocks.len() * self.block_pages * self.page_slots * self.spec.obs_len * self.spec.obs_kind.bytes()
    }

    /// Bytes held for everything else of a step: actions, rewards, flags, legal masks.
    pub fn other_bytes(&self) -> usize {
        let slot = 4 * self.spec.action.len() + self.spec.legal_len + 4 + 1;
        self.blocks.len() * self.block_pages * self.page_slots * slot
    }

    fn take_page(&mut self) -> u32 {
        if let Some(page) = self.free.pop() {
            return page;
        }
        if self.pages as usize == self.blocks.len() * self.block_pages {
            let (slots, spec) = (self.block_pages * self.page_slots, &self.spec);
            self.blocks.push(Block {
                obs: ObsRows::zeros(spec.obs_kind, slots * spec.obs_len),
                action: ActionRows::zeros(spec.action, slots),
                legal: vec![0; slots * spec.legal_len],
                reward: vec![0.0; slots],
                flags: vec![0; slots],
            });
        }
        self.pages += 1;
        self.pages - 1
    }

    fn place(&self, page: u32, offset: usize) -> Place {
        let page = page as usize;
        Place { block: page / self.block_pages, index: page % self.block_pages * self.page_slots + offset }
    }

    /// Writes a new slot: an observation and no transition. Without a mask every action is legal.
    pub fn write_obs(&mut self, at: Place, obs: ObsSlice<'_>, legal: Option<&[bool]>, flags: u8) {
        let n = self.spec.legal_len;
        let block = &mut self.blocks[at.block];
        block.obs.set_row(at.index, obs);
        let mask = &mut block.legal[at.index * n..][..n];
        match legal {
            Some(legal) => mask.iter_mut().zip(legal).for_each(|(m, &l)| *m = u8::from(l)),
            None => mask.fill(1),
        }
        block.flags[at.index] = flags;
    }

    /// Adds the transition to a slot; its FIRST and CARRIED flags stay.
    pub fn write_transition(&mut self, at: Place, step: Transition<'_>) {
        let block = &mut self.blocks[at.block];
        block.action.set_row(at.index, step.action);
        block.reward[at.index] = step.reward;
        block.flags[at.index] |= step.flags | TRANSITION;
    }

    pub fn obs(&self, at: Place) -> ObsSlice<'_> {
        self.blocks[at.block].obs.row(at.index, self.spec.obs_len)
    }

    pub fn legal(&self, at: Place) -> &[u8] {
        &self.blocks[at.block].legal[at.index * self.spec.legal_len..][..self.spec.legal_len]
    }

    pub fn flags(&self, at: Place) -> u8 {
        self.blocks[at.block].flags[at.index]
    }

    /// The slot's transition; only meaningful where its flags have TRANSITION.
    pub fn transition(&self, at: Place) -> Transition<'_> {
        let block = &self.blocks[at.block];
        Transition {
            action: block.action.row(at.index, self.spec.action.len()),
            reward: block.reward[at.index],
            flags: block.flags[at.index],
        }
    }
}

/// One episode, finished or running.
#[derive(Debug)]
pub(super) struct Episode {
    /// Number over all lanes, in order of `begin`.
    pub id: u64,
    /// Lane slot of its first observation.
    pub base: u64,
    /// Slots written, T + 1.
    pub slots: u64,
    /// Slots dropped from its front, because it alone exceeds the capacity.
    pub dropped: u64,
    /// Number of its first transition among all pushes of the lane.
    pub push_base: u64,
    /// Memory is carried into it: its first step has a stored state and no reset.
    pub carried: bool,
    /// State before its first step, where it is carried; NO_STATE until that step is pushed.
    pub initial: u32,
    /// Pages of slots dropped/page_slots ..= (slots−1)/page_slots.
    pages: VecDeque<u32>,
}

impl Episode {
    pub fn new(store: &mut SlotStore, id: u64, base: u64, push_base: u64) -> Self {
        let pages = store.lists.pop().unwrap_or_default();
        Episode { id, base, slots: 0, dropped: 0, push_base, carried: false, initial: NO_STATE, pages }
    }

    /// Takes slots before `dropped` as gone, before any is written.
    pub fn skip(&mut self, dropped: u64) {
        (self.slots, self.dropped) = (dropped, dropped);
    }

    /// First lane slot that is still there.
    pub fn front(&self) -> u64 {
        self.base + self.dropped
    }

    /// Lane slot after its last one.
    pub fn end(&self) -> u64 {
        self.base + self.slots
    }

    /// Steps that are still there.
    pub fn stored_steps(&self) -> u64 {
        (self.slots - self.dropped).saturating_sub(1)
    }

    /// Address of a lane slot, which lies in `front()..end()`.
    pub fn place(&self, store: &SlotStore, slot: u64) -> Place {
        let (at, page) = (slot - self.base, store.page_slots());
        store.place(self.pages[(at / page - self.dropped / page) as usize], (at % page) as usize)
    }

    /// Room for one more slot at the end.
    pub fn append(&mut self, store: &mut SlotStore) -> Place {
        if self.pages.is_empty() || self.slots.is_multiple_of(store.page_slots()) {
            self.pages.push_back(store.take_page());
        }
        self.slots += 1;
        self.place(store, self.end() - 1)
    }

    /// Forgets the oldest `steps` slots.
    pub fn drop_front(&mut self, store: &mut SlotStore, steps: u64) {
        let before = self.dropped / store.page_slots();
        self.dropped += steps;
        for _ in before..self.dropped / store.page_slots() {
            store.free.extend(self.pages.pop_front());
        }
    }

    /// Gives all pages and the initial state back.
    pub fn release(mut self, store: &mut SlotStore, states: &mut StateStore) {
        states.release(self.initial);
        store.free.extend(self.pages.drain(..));
        store.lists.push(self.pages);
    }
}

/// One environment copy's stream of episodes.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Oldest first; the last one is the running one while `running`.
    pub episodes: VecDeque<Episode>,
    pub running: bool,
    /// Slot from which windows are cut: the episode's first one, or with seams the stream's.
    pub origin: u64,
    /// Where the next learnt span starts.
    pub cut: u64,
    /// Slot number that the next observation gets.
    pub next_slot: u64,
    /// Transitions pushed so far.
    pub pushes: u64,
    /// Table indices of this lane's sequences, oldest first.
    pub sequences: VecDeque<u32>,
    /// Stored states that wait for their window to close: (slot, state).
    pub pending: VecDeque<(u64, u32)>,
}

impl Lane {
    /// The running episode.
    pub fn current(&self) -> Option<&Episode> {
        self.episodes.back().filter(|_| self.running)
    }

    /// The episode that holds `slot`, if it is still there.
    pub fn episode_at(&self, slot: u64) -> Option<&Episode> {
        let after = self.episodes.partition_point(|e| e.base <= slot);
        let episode = self.episodes.get(after.checked_sub(1)?)?;
        (slot >= episode.front() && slot < episode.end()).then_some(episode)
    }

    /// First slot that is still there.
    pub fn front(&self) -> u64 {
        self.episodes.front().map_or(self.next_slot, Episode::front)
    }
}
