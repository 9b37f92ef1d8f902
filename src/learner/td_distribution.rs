//! As `td`, for critics that predict a distribution of the return: the window's rewards, discount and last observation by
//! the n-step rule, the next action by the expected returns, the loss by `value::distributional`. The TD error of a step,
//! for its priority, is the target's mean less the expected return of the action taken.

use super::rows::own_bug;
use super::td::{ShardQ, TdConfig, TdRows};
use crate::error::Result;
use crate::replay::SequenceBatch;
use crate::value::distributional::{Prediction, StepTarget, step_loss};
use crate::value::priority::sequence_priority;
use crate::value::td_error::legal_argmax;

/// The critics' numbers of a shard, [L, B_shard, N, A].
pub(super) struct ShardNumbers<'a> {
    pub online: &'a [f32],
    pub target: &'a [f32],
    /// N.
    pub n: usize,
    pub prediction: Prediction<'a, f32>,
}

/// Arrays over the N numbers of one action, reused.
#[derive(Debug, Default)]
pub(super) struct OneAction {
    predicted: Vec<f32>,
    next: Vec<f32>,
    target: Vec<f32>,
    g: Vec<f32>,
}

/// The numbers of action `a` out of [N, A].
fn pick(from: &[f32], a: usize, actions: usize, to: &mut Vec<f32>) {
    to.clear();
    to.extend(from[a..].iter().step_by(actions));
}

impl TdRows {
    /// L4 to L6 and L9 for the rows `q.rows` of `batch`, whose expected returns `q` holds; writes `g` [L, B_shard, N, A].
    #[allow(clippy::too_many_arguments)] // those of `TdRows::run` and the numbers
    pub fn run_distribution(
        &mut self,
        config: TdConfig,
        batch: &SequenceBatch,
        n_learnt: usize,
        q: ShardQ<'_>,
        numbers: ShardNumbers<'_>,
        g: &mut [f32],
        join: &dyn Fn(usize) -> Result<usize>,
    ) -> Result<()> {
        g.fill(0.0);
        self.begin();
        let (rows, wide) = (q.rows.clone(), numbers.n * q.actions);
        let mut one = std::mem::take(&mut self.one);
        for (i, row) in rows.clone().enumerate() {
            let at = |t: usize| t * rows.len() + i;
            self.gather(config, batch, row, join)?;
            // the rewards alone: what they are added to is a distribution
            self.row.targets(config.gamma, config.n_step, None)?;
            let weight = batch.weight[row] / n_learnt.max(1) as f32;
            for t in 0..self.row.len() {
                if !self.row.learnt[t] {
                    self.row.target[t] = 0.0;
                    continue;
                }
                // L4  a* = argmax online, or of the target network itself
                let s = t + self.row.steps[t];
                let next = if self.row.bootstrap[t] && s < self.row.len() {
                    next_action(config, batch, &q, at(s), s, row)
                } else {
                    None
                };
                // L5  without a next action the discount is 0, and what it multiplies does not matter
                let (from, a, discount) =
                    next.map_or((t, 0, 0.0), |a| (s, a, config.gamma.powi(self.row.steps[t] as i32)));
                pick(&numbers.target[at(from) * wide..][..wide], a, q.actions, &mut one.next);
                let taken = self.actions[t];
                pick(&numbers.online[at(t) * wide..][..wide], taken, q.actions, &mut one.predicted);
                // L6
                one.g.resize(numbers.n, 0.0);
                let (reward, rescaling) = (self.row.raw[t], config.rescaling);
                let step = StepTarget { reward, discount, next: &one.next, rescaling };
                let (loss, mean) =
                    step_loss(numbers.prediction, step, &one.predicted, weight, &mut one.target, &mut one.g)
                        .map_err(own_bug)?;
                self.loss += f64::from(weight * loss);
                let expected = q.online[at(t) * q.actions + taken];
                self.q_sum += f64::from(expected);
                (self.row.target[t], self.td[t]) = (mean, mean - expected);
                let to = g[at(t) * wide + taken..].iter_mut().step_by(q.actions);
                to.zip(&one.g).for_each(|(to, &g)| *to = g);
            }
            // L9
            self.priorities.push(sequence_priority(&self.td, &self.row.learnt, config.eta).map_err(own_bug)?);
            self.all_td.extend_from_slice(&self.td);
            self.all_targets.extend_from_slice(&self.row.target);
        }
        self.one = one;
        Ok(())
    }
}

/// The action to be taken at slot `s` of the row's window, `place` in the shard's [L, B_shard].
fn next_action(
    config: TdConfig,
    batch: &SequenceBatch,
    q: &ShardQ<'_>,
    place: usize,
    s: usize,
    row: usize,
) -> Option<usize> {
    let by = if config.double_q { q.online } else { q.target };
    let legal = batch.legal_row(batch.at(batch.burn_in + s, row));
    legal_argmax(&by[place * q.actions..][..q.actions], legal)
}
