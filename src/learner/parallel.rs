//! Data parallel learning: one learner on each of several GPUs, each with its share of the batch's rows. The learners sum
//! their gradients on the way (`Device::all_reduce`), so that all take the same step and stay equal to the bit.

use super::{Learner, LearnerState, Update};
use crate::device::ABSENT;
use crate::error::{Error, Result};
use crate::params::ParamLayout;
use crate::replay::SequenceBatch;

/// Learners of one network, by their devices' places in the group.
pub struct Parallel<L> {
    ranks: Vec<L>,
    priorities: Vec<f32>,
}

impl<L: Learner> Parallel<L> {
    /// Learners on the devices of one group, in its order, all at the same weights.
    ///
    /// # Errors
    /// `Usage` where there is none.
    pub fn new(ranks: Vec<L>) -> Result<Self> {
        if ranks.is_empty() {
            return Err(Error::Usage("a parallel learner needs at least one device".into()));
        }
        Ok(Parallel { ranks, priorities: Vec::new() })
    }

    /// The learners.
    pub fn ranks(&self) -> &[L] {
        &self.ranks
    }
}

/// A batch that leaves a device without work.
pub(super) fn too_few(rows: usize, devices: usize) -> Error {
    Error::config("learner.batch", format!("is {rows}, less than one sequence for each of {devices} devices"))
}

/// Is it the failure of another device that this error tells of?
fn is_echo(e: &Error) -> bool {
    matches!(e, Error::Device { problem, .. } if problem.starts_with(ABSENT))
}

impl<L: Learner> Learner for Parallel<L> {
    fn update(&mut self, batch: &SequenceBatch) -> Result<Update> {
        // before any device waits for the others
        if batch.batch < self.ranks.len() {
            return Err(too_few(batch.batch, self.ranks.len()));
        }
        let updates: Vec<Result<Update>> = std::thread::scope(|scope| {
            let started: Vec<_> = self.ranks.iter_mut().map(|l| scope.spawn(move || l.update(batch))).collect();
            let ended = |t: std::thread::ScopedJoinHandle<'_, Result<Update>>| {
                t.join().unwrap_or_else(|_| Err(Error::Usage("internal: a learner's thread panicked".into())))
            };
            started.into_iter().map(ended).collect()
        });
        self.priorities.clear();
        // the device that failed says why, the others only that one did
        let (echoes, causes): (Vec<_>, Vec<_>) = updates.into_iter().partition(|u| matches!(u, Err(e) if is_echo(e)));
        let mut all = Update::default();
        for (update, learner) in causes.into_iter().chain(echoes).zip(&self.ranks) {
            let update = update?;
            // losses and means are shares of the whole batch's
            all = Update { loss: all.loss + update.loss, q_mean: all.q_mean + update.q_mean, ..update };
            self.priorities.extend_from_slice(learner.priorities());
        }
        Ok(all)
    }

    fn set_rate(&mut self, factor: f32) {
        self.ranks.iter_mut().for_each(|l| l.set_rate(factor));
    }

    fn priorities(&self) -> &[f32] {
        &self.priorities
    }

    fn errors(&self) -> (Vec<f32>, Vec<f32>) {
        let (td, targets): (Vec<_>, Vec<_>) = self.ranks.iter().map(Learner::errors).unzip();
        (td.concat(), targets.concat())
    }

    fn updates(&self) -> u64 {
        self.ranks[0].updates()
    }

    fn skipped(&self) -> u64 {
        self.ranks[0].skipped()
    }

    fn layout(&self) -> &ParamLayout {
        self.ranks[0].layout()
    }

    fn weights(&self, out: &mut Vec<f32>) -> Result<()> {
        self.ranks[0].weights(out)
    }

    fn save(&self) -> Result<LearnerState> {
        self.ranks[0].save()
    }

    fn restore(&mut self, state: &LearnerState) -> Result<()> {
        self.ranks.iter_mut().try_for_each(|l| l.restore(state))
    }

    fn delta_q(&mut self, windows: &SequenceBatch, prefixes: &SequenceBatch) -> Result<Option<f64>> {
        self.ranks[0].delta_q(windows, prefixes)
    }
}
