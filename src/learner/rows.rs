//! One row's transitions over the L unrolled slots, gathered for the formulas of `value`. A final observation is a slot
//! without a transition, so that the observation reached by slot t always is slot t + 1.

use crate::error::{Error, Result};
use crate::replay::SequenceBatch;
use crate::value::n_step::{NStepOut, NStepRow, n_step_targets};

/// How transitions are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    /// Time limits end without a value.
    pub truncation_is_terminal: bool,
    /// Factor on rewards.
    pub reward_scale: f32,
}

/// A row's arrays over the L unrolled slots, reused.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Scaled; 0 where there is no transition.
    pub reward: Vec<f32>,
    pub terminated: Vec<bool>,
    pub truncated: Vec<bool>,
    /// The slot holds a transition.
    pub mask: Vec<bool>,
    /// The transition is learnt.
    pub learnt: Vec<bool>,
    /// Value, not rescaled, of the observation that the transition reaches; filled in by the caller before `targets`.
    pub next_value: Vec<f32>,
    pub target: Vec<f32>,
    pub raw: Vec<f32>,
    pub steps: Vec<usize>,
    pub bootstrap: Vec<bool>,
    full: Vec<bool>,
}

impl Row {
    /// Row `row` of `batch` behind its burn-in.
    pub fn gather(&mut self, reading: Reading, batch: &SequenceBatch, row: usize) {
        self.reward.clear();
        self.terminated.clear();
        self.truncated.clear();
        self.mask.clear();
        self.learnt.clear();
        for t in batch.burn_in..batch.slots {
            let at = batch.at(t, row);
            let real = batch.valid[at] != 0;
            let truncated = real && batch.truncated[at];
            self.mask.push(real);
            self.learnt.push(real && batch.learn[at] != 0);
            self.reward.push(if real { batch.reward[at] * reading.reward_scale } else { 0.0 });
            self.terminated.push(real && (batch.terminated[at] || (truncated && reading.truncation_is_terminal)));
            self.truncated.push(truncated);
        }
        let len = self.mask.len();
        self.next_value.clear();
        self.next_value.resize(len, 0.0);
        for v in [&mut self.target, &mut self.raw] {
            v.clear();
            v.resize(len, 0.0);
        }
        self.steps.clear();
        self.steps.resize(len, 0);
        for v in [&mut self.bootstrap, &mut self.full] {
            v.clear();
            v.resize(len, false);
        }
    }

    /// L.
    pub fn len(&self) -> usize {
        self.mask.len()
    }

    /// Does the value of the observation behind slot t count?
    pub fn reaches(&self, t: usize) -> bool {
        self.mask[t] && !self.terminated[t] && t + 1 < self.len()
    }

    /// n-step targets of every slot into `target`, `raw`, `steps` and `bootstrap`.
    pub fn targets(&mut self, gamma: f32, n_step: usize, rescaling: Option<f32>) -> Result<()> {
        let input = NStepRow {
            reward: &self.reward,
            terminated: &self.terminated,
            truncated: &self.truncated,
            mask: &self.mask,
            next_value: &self.next_value,
        };
        let out = NStepOut {
            target: &mut self.target,
            raw: &mut self.raw,
            steps: &mut self.steps,
            bootstrap: &mut self.bootstrap,
            full: &mut self.full,
        };
        n_step_targets(input, gamma, n_step, rescaling, out).map_err(own_bug)
    }
}

/// The slices above are made to fit; a mismatch is ours.
pub(super) fn own_bug(e: crate::value::ValueError) -> Error {
    Error::Usage(format!("internal: TD rows: {e}"))
}

/// Learnt steps of a batch behind its burn-in: what losses are means over.
pub(super) fn learnt_steps(batch: &SequenceBatch) -> usize {
    let behind = batch.burn_in * batch.batch..batch.slots * batch.batch;
    behind.filter(|&at| batch.valid[at] != 0 && batch.learn[at] != 0).count()
}
