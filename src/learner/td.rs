//! From Q-values to TD errors, loss, gradient and priorities, row by row on the host. The formulas are those of `value`;
//! `rows` gathers a row's slots.

use super::rows::{Reading, Row, own_bug};
use super::td_distribution::OneAction;
use crate::error::Result;
use crate::replay::SequenceBatch;
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
    pub reading: Reading,
    pub loss: Loss<f32>,
    pub eta: f32,
}

/// One row's arrays over the L unrolled slots, reused, and what the shard's rows came to.
#[derive(Debug, Default)]
pub(super) struct TdRows {
    pub(super) row: Row,
    pub(super) td: Vec<f32>,
    g: Vec<f32>,
    pub(super) actions: Vec<usize>,
    pub(super) one: OneAction,
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
        self.begin();
        for (i, row) in rows.clone().enumerate() {
            let at = |t: usize| (t * rows.len() + i) * q.actions;
            self.gather(config, batch, row, join)?;
            for t in 0..len {
                if !self.row.reaches(t) {
                    continue;
                }
                // L4  a* = argmax online; L5 its value by the target network
                let (o, g) = (&q.online[at(t + 1)..][..q.actions], &q.target[at(t + 1)..][..q.actions]);
                self.row.next_value[t] = next_value(config, o, g, batch.legal_row(batch.at(first + t + 1, row)));
            }
            self.row.targets(config.gamma, config.n_step, config.rescaling)?;
            for t in 0..len {
                // L6  δ
                if self.row.learnt[t] {
                    let taken = q.online[at(t) + self.actions[t]];
                    self.td[t] = self.row.target[t] - taken;
                    self.q_sum += f64::from(taken);
                }
            }
            let (learnt, weight) = (&self.row.learnt, batch.weight[row]);
            let td = TdRow { td_error: &self.td, learnt, weight, n_learnt };
            self.loss += f64::from(td_loss(td, config.loss, &mut self.g).map_err(own_bug)?);
            for t in (0..len).filter(|&t| self.row.learnt[t]) {
                g_q[at(t) + self.actions[t]] = self.g[t];
            }
            // L9  without the importance weight
            self.priorities.push(sequence_priority(&self.td, &self.row.learnt, config.eta).map_err(own_bug)?);
            self.all_td.extend_from_slice(&self.td);
            self.all_targets.extend_from_slice(&self.row.target);
        }
        Ok(())
    }

    /// Nothing of the batch before is left.
    pub(super) fn begin(&mut self) {
        self.priorities.clear();
        self.all_td.clear();
        self.all_targets.clear();
        (self.loss, self.q_sum) = (0.0, 0.0);
    }

    pub(super) fn gather(
        &mut self,
        config: TdConfig,
        batch: &SequenceBatch,
        row: usize,
        join: &dyn Fn(usize) -> Result<usize>,
    ) -> Result<()> {
        self.row.gather(config.reading, batch, row);
        self.actions.clear();
        for t in 0..self.row.len() {
            self.actions.push(if self.row.mask[t] { join(batch.at(batch.burn_in + t, row))? } else { 0 });
        }
        for v in [&mut self.td, &mut self.g] {
            v.clear();
            v.resize(self.row.len(), 0.0);
        }
        Ok(())
    }
}

fn next_value(config: TdConfig, online: &[f32], target: &[f32], legal: Option<&[bool]>) -> f32 {
    if config.double_q {
        return double_q_value(online, target, legal, config.rescaling);
    }
    let best = legal_argmax(target, legal).map_or(0.0, |a| target[a]);
    config.rescaling.map_or(best, |eps| rescale_inverse(best, eps))
}
