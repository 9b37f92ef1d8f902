//! From Q-values to TD errors, loss, gradient and priorities, row by row on the host. The formulas are those of `value`;
//! this file only gathers a row's slots. A final observation is a slot without a transition, so that the observation
//! reached by slot t always is slot t + 1.

use crate::error::{Error, Result};
use crate::replay::SequenceBatch;
use crate::value::n_step::{NStepOut, NStepRow, n_step_targets};
use crate::value::priority::sequence_priority;
use crate::value::rescaling::rescale_inverse;
use crate::value::td_error::{Loss, TdRow, double_q_value, legal_argmax, td_loss};

/// What the targets depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TdConfig {
    pub gamma: f32,
    pub n_step: usize,
    pub rescaling: Option<f32>,
    pub double_q: bool,
    pub truncation_is_terminal: bool,
    pub loss: Loss<f32>,
    pub eta: f32,
    pub reward_scale: f32,
}

/// One row's arrays over the L unrolled slots, reused.
#[derive(Debug, Default)]
pub(super) struct TdRows {
    reward: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    mask: Vec<bool>,
    learnt: Vec<bool>,
    next_value: Vec<f32>,
    target: Vec<f32>,
    raw: Vec<f32>,
    steps: Vec<usize>,
    bootstrap: Vec<bool>,
    full: Vec<bool>,
    td: Vec<f32>,
    g: Vec<f32>,
    actions: Vec<usize>,
    /// New raw priorities of the shard's rows.
    pub priorities: Vec<f32>,
    /// Σ of the rows' losses and of Q of the actions taken.
    pub loss: f64,
    pub q_sum: f64,
    /// TD errors and targets of all rows, [B_shard, L], for tests and histograms.
    pub all_td: Vec<f32>,
    pub all_targets: Vec<f32>,
}

/// Q-values of a shard, [L, B_shard, A].
pub(super) struct ShardQ<'a> {
    pub online: &'a [f32],
    pub target: &'a [f32],
    pub actions: usize,
    /// Rows of the batch.
    pub rows: std::ops::Range<usize>,
}

impl TdRows {
    /// L4 to L6 and L9 for the rows `q.rows` of `batch`; writes `g_q` [L, B_shard, A].
    pub fn run(
        &mut self,
        config: TdConfig,
        batch: &SequenceBatch,
        n_learnt: usize,
        q: ShardQ<'_>,
        g_q: &mut [f32],
        join: &dyn Fn(usize) -> Result<usize>,
    ) -> Result<()> {
        let (len, first, rows) = (batch.slots - batch.burn_in, batch.burn_in, q.rows.clone());
        g_q.fill(0.0);
        self.priorities.clear();
        self.all_td.clear();
        self.all_targets.clear();
        (self.loss, self.q_sum) = (0.0, 0.0);
        for (i, row) in rows.clone().enumerate() {
            let at = |t: usize| (t * rows.len() + i) * q.actions;
            self.gather(config, batch, row, first, len, join)?;
            for t in 0..len {
                // L4  a* = argmax online; L5 its value by the target network
                let value = if self.mask[t] && !self.terminated[t] && t + 1 < len {
                    let (o, g) = (&q.online[at(t + 1)..][..q.actions], &q.target[at(t + 1)..][..q.actions]);
                    next_value(config, o, g, batch.legal_row((first + t + 1) * batch.batch + row))
                } else {
                    0.0
                };
                self.next_value.push(value);
            }
            self.resize(len);
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
            n_step_targets(input, config.gamma, config.n_step, config.rescaling, out).map_err(own_bug)?;
            for t in 0..len {
                // L6  δ
                if self.learnt[t] {
                    let taken = q.online[at(t) + self.actions[t]];
                    self.td[t] = self.target[t] - taken;
                    self.q_sum += f64::from(taken);
                }
            }
            let weight = batch.weight[row];
            let td = TdRow { td_error: &self.td, learnt: &self.learnt, weight, n_learnt };
            self.loss += f64::from(td_loss(td, config.loss, &mut self.g).map_err(own_bug)?);
            for t in (0..len).filter(|&t| self.learnt[t]) {
                g_q[at(t) + self.actions[t]] = self.g[t];
            }
            // L9  without the importance weight
            self.priorities.push(sequence_priority(&self.td, &self.learnt, config.eta));
            self.all_td.extend_from_slice(&self.td);
            self.all_targets.extend_from_slice(&self.target);
        }
        Ok(())
    }

    fn gather(
        &mut self,
        config: TdConfig,
        batch: &SequenceBatch,
        row: usize,
        first: usize,
        len: usize,
        join: &dyn Fn(usize) -> Result<usize>,
    ) -> Result<()> {
        self.reward.clear();
        self.terminated.clear();
        self.truncated.clear();
        self.mask.clear();
        self.learnt.clear();
        self.next_value.clear();
        self.actions.clear();
        for t in first..first + len {
            let at = t * batch.batch + row;
            let real = batch.valid[at] != 0;
            let truncated = real && batch.truncated[at];
            self.mask.push(real);
            self.learnt.push(real && batch.learn[at] != 0);
            self.reward.push(if real { batch.reward[at] * config.reward_scale } else { 0.0 });
            self.terminated.push(real && (batch.terminated[at] || (truncated && config.truncation_is_terminal)));
            self.truncated.push(truncated);
            self.actions.push(if real { join(at)? } else { 0 });
        }
        Ok(())
    }

    fn resize(&mut self, len: usize) {
        for v in [&mut self.target, &mut self.raw, &mut self.td, &mut self.g] {
            v.clear();
            v.resize(len, 0.0);
        }
        self.steps.clear();
        self.steps.resize(len, 0);
        self.bootstrap.clear();
        self.bootstrap.resize(len, false);
        self.full.clear();
        self.full.resize(len, false);
    }
}

fn next_value(config: TdConfig, online: &[f32], target: &[f32], legal: Option<&[bool]>) -> f32 {
    if config.double_q {
        return double_q_value(online, target, legal, config.rescaling);
    }
    let best = legal_argmax(target, legal).map_or(0.0, |a| target[a]);
    config.rescaling.map_or(best, |eps| rescale_inverse(best, eps))
}

/// The slices above are made to fit; a mismatch is ours.
fn own_bug(e: crate::value::ValueError) -> Error {
    Error::Usage(format!("internal: TD rows: {e}"))
}
