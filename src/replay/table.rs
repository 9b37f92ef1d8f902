//! The table of sequences: which slots, which state, which priority; and the sum tree over it.
//!
//! A sequence's weight in the tree is pᵅ. Rows are used again; the generation in a [`Handle`] tells an old sequence
//! from the one that took its place. Source: prioritised replay (Schaul et al., 2016), Sec. 3.3.

use super::states::NO_STATE;
use super::sum_tree::SumTree;

/// Smallest priority: a sequence without error can still be drawn.
pub const PRIORITY_FLOOR: f32 = 1e-6;

/// Names one sequence for as long as it is in the replay; afterwards it is stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Handle {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// What [`super::SequenceReplay::set_priority`] did with each handle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PriorityReport {
    /// Priorities that were set.
    pub applied: usize,
    /// Handles of sequences that are gone.
    pub stale: usize,
    /// Priorities that were NaN, infinite or negative.
    pub refused: usize,
}

/// One sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    pub lane: u32,
    /// First slot of the window.
    pub first: u64,
    /// Burn-in slots.
    pub burn_in: u32,
    /// Slots of the learnt span.
    pub span: u32,
    /// Needs the slot before `first` too, for the previous action and reward.
    pub has_prev: bool,
    /// Stored state, or NO_STATE.
    pub state: u32,
    /// Before the exponent.
    pub priority: f32,
}

impl Entry {
    /// First slot that must be there.
    pub fn needs(&self) -> u64 {
        self.first - u64::from(self.has_prev)
    }

    /// The slot of the observation to bootstrap from.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.burn_in) + u64::from(self.span)
    }
}

#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    pub generations: Vec<u32>,
    pub free: Vec<u32>,
    tree: SumTree,
    alpha: f64,
    /// Largest priority that a caller has set.
    pub largest: Option<f32>,
    pub stale: u64,
    pub refused: u64,
}

impl Table {
    pub fn new(alpha: f64) -> Self {
        Table {
            entries: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            tree: SumTree::new(64),
            alpha,
            largest: None,
            stale: 0,
            refused: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn tree(&self) -> &SumTree {
        &self.tree
    }

    pub fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self.generations.get(index as usize).copied().unwrap_or(0) }
    }

    pub fn is_live(&self, handle: Handle) -> bool {
        self.get(handle.index).is_some() && self.handle(handle.index) == handle
    }

    /// Priority of a new sequence: the largest one so far, 1 before there is any.
    pub fn initial_priority(&self) -> f32 {
        self.largest.unwrap_or(1.0)
    }

    pub fn insert(&mut self, entry: Entry) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.generations.push(0);
            self.entries.len() as u32 - 1
        });
        self.put(index, entry);
        index
    }

    /// Rows of a saved table, all empty and none free yet.
    pub fn restore_rows(&mut self, generations: Vec<u32>, free: Vec<u32>) {
        self.entries = vec![None; generations.len()];
        (self.generations, self.free) = (generations, free);
    }

    pub fn put(&mut self, index: u32, entry: Entry) {
        self.entries[index as usize] = Some(entry);
        self.tree.grow(self.entries.len());
        let accepted = self.tree.set(index as usize, self.weight(entry.priority));
        debug_assert!(accepted, "a stored priority is finite and above 0");
    }

    /// Removes a sequence; returns its state to free.
    pub fn remove(&mut self, index: u32) -> u32 {
        let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::take) else { return NO_STATE };
        let accepted = self.tree.set(index as usize, 0.0);
        debug_assert!(accepted, "0 is a weight");
        self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
        self.free.push(index);
        entry.state
    }

    fn weight(&self, priority: f32) -> f64 {
        f64::from(priority.max(PRIORITY_FLOOR)).powf(self.alpha)
    }

    pub fn set_priority(&mut self, handles: &[Handle], priority: &[f32]) -> PriorityReport {
        let mut report = PriorityReport::default();
        for (&handle, &p) in handles.iter().zip(priority) {
            if !self.is_live(handle) {
                report.stale += 1;
            } else if !p.is_finite() || p < 0.0 || !self.tree.set(handle.index as usize, self.weight(p)) {
                report.refused += 1;
            } else {
                let p = p.max(PRIORITY_FLOOR);
                if let Some(entry) = &mut self.entries[handle.index as usize] {
                    entry.priority = p;
                }
                self.largest = Some(self.largest.map_or(p, |l| l.max(p)));
                report.applied += 1;
            }
        }
        report.refused += handles.len().abs_diff(priority.len());
        self.stale += report.stale as u64;
        self.refused += report.refused as u64;
        report
    }

    pub fn priorities(&self) -> impl Iterator<Item = f32> + '_ {
        self.entries.iter().flatten().map(|e| e.priority)
    }
}
