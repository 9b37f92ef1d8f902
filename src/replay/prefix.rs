//! Windows beside their whole prefix, to measure how far the state that a window begins with leads astray
//! (`learner/delta_q`): the same learnt span once from its stored state, or from zeros where none are stored, and once from
//! the episode's own beginning.

use super::error::Result;
use super::states::NO_STATE;
use super::table::{Entry, Handle};
use super::{Layout, SequenceBatch, SequenceReplay};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Draws per wanted row: windows from an episode's start are their own prefix and are passed over.
const TRIES: usize = 16;

/// Sequences with their handles.
type Named = Vec<(Handle, Entry)>;

impl SequenceReplay {
    /// Are windows what is sampled?
    pub fn keeps_windows(&self) -> bool {
        self.config.layout == Layout::Window
    }

    /// Up to `rows` different windows that begin inside an episode and whose prefix is complete and at most `max_prefix`
    /// steps long, into `windows`; the same learnt spans from their episodes' first step into `prefixes`.
    /// Returns the number of rows; both batches are left alone where it is 0, and always with seams.
    ///
    /// # Errors
    /// None today; the type is that of [`SequenceReplay::sample`].
    pub fn sample_prefixes(
        &self,
        rows: usize,
        max_prefix: usize,
        rng: &mut ChaCha8Rng,
        windows: &mut SequenceBatch,
        prefixes: &mut SequenceBatch,
    ) -> Result<usize> {
        let (mut found, mut whole): (Named, Named) = (Vec::new(), Vec::new());
        let tree = self.table.tree();
        for _ in 0..TRIES * rows {
            if found.len() == rows || self.config.seams {
                break;
            }
            let Some(index) = tree.find(rng.random::<f64>() * tree.total()) else { break };
            let handle = self.table.handle(index as u32);
            let Some(entry) = self.table.get(handle.index).copied() else { break };
            let Some(prefix) = self.prefix_of(entry, max_prefix) else { continue };
            if !found.iter().any(|(h, _)| *h == handle) {
                found.push((handle, entry));
                whole.push((handle, prefix));
            }
        }
        if !found.is_empty() {
            self.fill(&found, windows);
            self.fill(&whole, prefixes);
        }
        Ok(found.len())
    }

    fn prefix_of(&self, entry: Entry, max_prefix: usize) -> Option<Entry> {
        let episode = self.lanes.get(entry.lane as usize)?.episode_at(entry.first)?;
        let start = entry.first + u64::from(entry.burn_in);
        let before = start - episode.base;
        let complete = episode.front() == episode.base && before <= max_prefix as u64;
        let prefix = Entry { first: episode.base, burn_in: before as u32, has_prev: false, state: NO_STATE, ..entry };
        (complete && entry.first > episode.base).then_some(prefix)
    }

    /// Fills a batch with the windows of these entries, weights 1.
    fn fill(&self, entries: &[(Handle, Entry)], out: &mut SequenceBatch) {
        out.batch = entries.len();
        out.handle.clear();
        out.handle.extend(entries.iter().map(|(h, _)| *h));
        out.weight.clear();
        out.weight.resize(entries.len(), 1.0);
        self.fill_rows(entries.iter().map(|(_, e)| *e), out);
    }
}
