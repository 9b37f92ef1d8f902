//! The formulas of soft actor-critic on a shard's rows, on the host. Reparametrised actions ã = tanh(μ + σξ) are drawn once
//! per slot and serve both losses.
//!
//! value of an observation    V(o) = min_i Q⁻ᵢ(o, ã) − α log π(ã | o)
//! critics                    L_Q = Σᵢ ℓ(y − Qᵢ(o, a)), y the n-step return of rewards, entropies on the way and V
//! policy                     L_π = α log π(ã | o) − min_i Qᵢ(o, ã)
//! temperature                L_α = −log α (log π(ã | o) + H)
//!
//! each a mean over the learnt steps, importance weights included. Source: soft actor-critic (Haarnoja et al., 2018 and
//! 2018 b). Deviation: the two steps use the same critics, where the paper's code has updated them in between; one unroll
//! serves both.

use std::ops::Range;

use super::rows::{Reading, Row, own_bug};
use crate::error::Result;
use crate::network::LOG_STD;
use crate::replay::SequenceBatch;
use crate::value::gaussian::{bounded_log_std, bounded_log_std_grad, squashed_backward, squashed_sample};
use crate::value::priority::sequence_priority;
use crate::value::rescaling::rescale_inverse;
use crate::value::td_error::{Loss, TdRow, td_loss};

/// What the losses depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SoftConfig {
    pub gamma: f32,
    pub n_step: usize,
    pub rescaling: Option<f32>,
    pub reading: Reading,
    pub loss: Loss<f32>,
    pub eta: f32,
    /// α.
    pub alpha: f32,
}

/// Actions drawn for a shard's slots, reused.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    /// ξ, [L, B_shard, A].
    pub noise: Vec<f32>,
    /// Mean and raw log σ, [L, B_shard, 2, A].
    pub out: Vec<f32>,
    /// ã, [L, B_shard, A].
    pub action: Vec<f32>,
    /// log π(ã), [L, B_shard].
    pub log_prob: Vec<f32>,
    /// Gradient of `action`, [L, B_shard, A].
    pub g_action: Vec<f32>,
    /// Gradient of `log_prob`, [L, B_shard].
    pub g_log_prob: Vec<f32>,
    /// Gradient of `out`, [L, B_shard, 2, A].
    pub g_out: Vec<f32>,
}

impl Drawn {
    /// Room for `rows` slots of `actions` components.
    pub fn resize(&mut self, rows: usize, actions: usize) {
        for v in [&mut self.out, &mut self.g_out] {
            v.resize(rows * 2 * actions, 0.0);
        }
        for v in [&mut self.noise, &mut self.action, &mut self.g_action] {
            v.resize(rows * actions, 0.0);
        }
        for v in [&mut self.log_prob, &mut self.g_log_prob] {
            v.resize(rows, 0.0);
        }
    }

    /// Actions and their log-probabilities from `out` and `noise`.
    pub fn sample(&mut self) {
        let actions = self.action.len() / self.log_prob.len().max(1);
        for (at, log_prob) in self.log_prob.iter_mut().enumerate() {
            let out = &self.out[at * 2 * actions..][..2 * actions];
            *log_prob = 0.0;
            for k in 0..actions {
                let log_std = bounded_log_std(out[actions + k], LOG_STD);
                let one = squashed_sample(out[k], log_std, self.noise[at * actions + k]);
                self.action[at * actions + k] = one.action;
                *log_prob += one.log_prob;
            }
        }
    }

    /// `g_out` from `g_action` and `g_log_prob` at fixed noise.
    pub fn backward(&mut self) {
        let actions = self.action.len() / self.log_prob.len().max(1);
        for at in 0..self.log_prob.len() {
            let out = &self.out[at * 2 * actions..][..2 * actions];
            let g_out = &mut self.g_out[at * 2 * actions..][..2 * actions];
            for k in 0..actions {
                let (i, raw) = (at * actions + k, out[actions + k]);
                let log_std = bounded_log_std(raw, LOG_STD);
                let (g_log_prob, g_action) = (self.g_log_prob[at], self.g_action[i]);
                let (g_mean, g_log_std) = squashed_backward(out[k], log_std, self.noise[i], g_log_prob, g_action);
                g_out[k] = g_mean;
                g_out[actions + k] = g_log_std * bounded_log_std_grad(raw, LOG_STD);
            }
        }
    }
}

/// Both critics' values of a shard, [L, B_shard] each, and where their gradients go.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub q: [Vec<f32>; 2],
    pub g: [Vec<f32>; 2],
}

impl Pair {
    /// Room for `rows` slots.
    pub fn resize(&mut self, rows: usize) {
        for v in self.q.iter_mut().chain(&mut self.g) {
            v.resize(rows, 0.0);
        }
    }
}

/// What a shard's rows came to, and one row's arrays, reused.
#[derive(Debug, Default)]
pub(super) struct SoftRows {
    row: Row,
    td: [Vec<f32>; 2],
    mean_td: Vec<f32>,
    g: Vec<f32>,
    /// New raw priorities of the shard's rows.
    pub priorities: Vec<f32>,
    /// Σ of the rows' shares of the critics' loss.
    pub loss: f64,
    /// Σ of the rows' shares of the policy's loss.
    pub policy_loss: f64,
    /// Σ of the mean of both critics at stored actions.
    pub q_sum: f64,
    /// Σ log π(ã) over learnt steps.
    pub log_prob_sum: f64,
    /// Σ w log π(ã) and Σ w over learnt steps.
    pub weighted: (f64, f64),
    /// TD errors and targets of all rows, [B_shard, L], for tests and histograms.
    pub all_td: Vec<f32>,
    pub all_targets: Vec<f32>,
}

/// A shard's values.
pub(super) struct ShardSoft<'a> {
    /// Critics at the stored actions; `g` gets the critics' gradients.
    pub stored: &'a mut Pair,
    /// Critics at the drawn actions; `g` gets the policy's gradients.
    pub drawn: &'a mut Pair,
    /// Target critics at the drawn actions; `g` is not used.
    pub target: &'a Pair,
    /// The drawn actions; `g_log_prob` is written.
    pub actions: &'a mut Drawn,
    /// Rows of the batch.
    pub rows: Range<usize>,
}

impl SoftRows {
    /// Losses, gradients and priorities of the rows `s.rows` of `batch`.
    pub fn run(&mut self, c: SoftConfig, batch: &SequenceBatch, n_learnt: usize, s: ShardSoft<'_>) -> Result<()> {
        self.priorities.clear();
        self.all_td.clear();
        self.all_targets.clear();
        (self.loss, self.policy_loss, self.q_sum, self.log_prob_sum) = (0.0, 0.0, 0.0, 0.0);
        self.weighted = (0.0, 0.0);
        for g in s.stored.g.iter_mut().chain(&mut s.drawn.g).chain([&mut s.actions.g_log_prob]) {
            g.fill(0.0);
        }
        let width = s.rows.len();
        for (i, row) in s.rows.clone().enumerate() {
            let at = |t: usize| t * width + i;
            self.critics(c, batch, n_learnt, row, &at, (&mut *s.stored, s.target, &s.actions.log_prob))?;
            self.policy(c, n_learnt, batch.weight[row], &at, (&mut *s.drawn, &mut *s.actions));
        }
        Ok(())
    }

    fn critics(
        &mut self,
        c: SoftConfig,
        batch: &SequenceBatch,
        n_learnt: usize,
        row: usize,
        at: &dyn Fn(usize) -> usize,
        (stored, target, log_prob): (&mut Pair, &Pair, &[f32]),
    ) -> Result<()> {
        let r = &mut self.row;
        r.gather(c.reading, batch, row);
        for t in 0..r.len() {
            if !r.reaches(t) {
                continue;
            }
            let next = at(t + 1);
            let smaller = target.q[0][next].min(target.q[1][next]);
            r.next_value[t] = c.rescaling.map_or(smaller, |eps| rescale_inverse(smaller, eps));
            // the entropy of the next action comes with this reward, so that an n-step return has one for each step
            r.reward[t] -= c.gamma * c.alpha * log_prob[next];
        }
        r.targets(c.gamma, c.n_step, c.rescaling)?;
        self.mean_td.clear();
        self.mean_td.resize(r.len(), 0.0);
        self.g.clear();
        self.g.resize(r.len(), 0.0);
        for (td, (q, g)) in self.td.iter_mut().zip(stored.q.iter().zip(&mut stored.g)) {
            td.clear();
            td.resize(r.len(), 0.0);
            for t in (0..r.len()).filter(|&t| r.learnt[t]) {
                td[t] = r.target[t] - q[at(t)];
                self.mean_td[t] += 0.5 * td[t];
                self.q_sum += 0.5 * f64::from(q[at(t)]);
            }
            let row = TdRow { td_error: &*td, learnt: &r.learnt, weight: batch.weight[row], n_learnt };
            self.loss += f64::from(td_loss(row, c.loss, &mut self.g).map_err(own_bug)?);
            for t in (0..r.len()).filter(|&t| r.learnt[t]) {
                g[at(t)] = self.g[t];
            }
        }
        self.priorities.push(sequence_priority(&self.mean_td, &r.learnt, c.eta).map_err(own_bug)?);
        self.all_td.extend_from_slice(&self.mean_td);
        self.all_targets.extend_from_slice(&r.target);
        Ok(())
    }

    /// The policy's part of the row that [`SoftRows::critics`] gathered.
    fn policy(
        &mut self,
        c: SoftConfig,
        n_learnt: usize,
        weight: f32,
        at: &dyn Fn(usize) -> usize,
        (drawn, actions): (&mut Pair, &mut Drawn),
    ) {
        let scale = weight / n_learnt.max(1) as f32;
        for at in (0..self.row.len()).filter(|&t| self.row.learnt[t]).map(at) {
            let smaller = usize::from(drawn.q[1][at] < drawn.q[0][at]);
            let log_prob = actions.log_prob[at];
            self.policy_loss += f64::from(scale * (c.alpha * log_prob - drawn.q[smaller][at]));
            drawn.g[smaller][at] = -scale;
            actions.g_log_prob[at] = scale * c.alpha;
            self.log_prob_sum += f64::from(log_prob);
            self.weighted.0 += f64::from(weight * log_prob);
            self.weighted.1 += f64::from(weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradients of Σ w log π(ã) + Σ v ã with respect to the head's outputs, against differences.
    #[test]
    fn drawn_actions_go_back_to_mean_and_raw_deviation() {
        let (rows, actions) = (3, 2);
        let mut d = Drawn::default();
        d.resize(rows, actions);
        let wave = |i: usize, s: f32| (i as f32 * s).sin();
        d.out.iter_mut().enumerate().for_each(|(i, x)| *x = wave(i, 1.3));
        d.noise.iter_mut().enumerate().for_each(|(i, x)| *x = 1.5 * wave(i, 2.1));
        d.g_action.iter_mut().enumerate().for_each(|(i, x)| *x = wave(i + 1, 0.7));
        d.g_log_prob.iter_mut().enumerate().for_each(|(i, x)| *x = wave(i + 2, 0.9));
        let loss = |d: &mut Drawn| {
            d.sample();
            let a: f64 = d.action.iter().zip(&d.g_action).map(|(a, g)| f64::from(*a) * f64::from(*g)).sum();
            a + d.log_prob.iter().zip(&d.g_log_prob).map(|(a, g)| f64::from(*a) * f64::from(*g)).sum::<f64>()
        };
        d.backward();
        for i in 0..d.out.len() {
            let (x, h) = (d.out[i], 1e-2f32);
            d.out[i] = x + h;
            let up = loss(&mut d);
            d.out[i] = x - h;
            let down = loss(&mut d);
            d.out[i] = x;
            let slope = (up - down) / f64::from(2.0 * h);
            assert!((slope - f64::from(d.g_out[i])).abs() < 2e-3, "{i}: {slope} and {}", d.g_out[i]);
        }
    }
}
