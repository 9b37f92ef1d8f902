//! Recurrent soft actor-critic for continuous actions: stored sequences with stored state, burn-in of all networks, twin
//! critics with targets, a squashed Gaussian policy, an automatic temperature.
//!
//! L1  stored state → states of actor, critics, target critics      `soft_shard`
//! L2  burn-in of all, no tape                                      `burn_in`
//! L3  unroll: actor and critics with tape, target critics without
//! L4  ã ~ π, Q(o, a), Q(o, ã), Q⁻(o, ã); the action enters at the critics' head, so none of this unrolls again
//! L5  y = n-step soft return; losses of critics and policy, and their gradients on the host      `soft_td`
//! L6  ∂Q/∂a → mean and log σ
//! L7  backward, clip actor and critics each by their norm, AdamW; log α by the mean of log π
//! L8  target critics follow                                        `target_network`
//! L9  new priorities from the mean δ of both critics
//!
//! Sources: Haarnoja et al., 2018; burn-in, stored state and priorities as R2D2 (Kapturowski et al., 2019).

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use super::r2d2::R2d2Config;
use super::rows::{Reading, learnt_steps};
use super::soft_shard::{Nets, SoftShard};
use super::soft_td::SoftConfig;
use super::{Learner, LearnerState, PolicyUpdate, Update, target_network};
use crate::backbone::SeqShape;
use crate::device::{Kind, Slot, View, ViewMut};
use crate::error::{Error, Result};
use crate::network::{ActionBounds, ActorCritic, InputLayout, Owner};
use crate::ops::Backend;
use crate::ops::adamw::AdamWStep;
use crate::params::{Group, ParamLayout, Params};
use crate::replay::SequenceBatch;
use crate::value::clip::clip_factor;
use crate::value::gaussian::temperature_loss;

/// Settings of the learner; meanings and defaults in `config`.
#[derive(Debug, Clone, PartialEq)]
pub struct RsacConfig {
    /// What both learners have in common; `double_q` is not read, the twin critics stand in its place.
    pub common: R2d2Config,
    /// Learning rate of log α; 0: α stays.
    pub lr_temperature: f32,
    /// H, the entropy that α is tuned to.
    pub target_entropy: f32,
    /// Seed of the actions that updates draw.
    pub seed: u64,
}

/// The learner on one device.
pub struct Rsac<D: Backend> {
    dev: D,
    net: ActorCritic<D>,
    input: InputLayout,
    bounds: ActionBounds,
    config: RsacConfig,
    /// The parameters in runs of one owner and one group.
    runs: Vec<(Owner, Group, Slot)>,
    online: Params<D>,
    /// As `online`; only the critics' part is read.
    target: Params<D>,
    m: D::Tensor,
    v: D::Tensor,
    shards: Vec<SoftShard<D>>,
    /// Rows and slots that the shards were made for.
    room: SeqShape,
    noise: Vec<f32>,
    priorities: Vec<f32>,
    updates: u64,
    /// Factor on the learning rates.
    rate: f32,
    skipped: u64,
}

impl<D: Backend> Rsac<D> {
    /// A learner whose online and target weights start at `values` `[parameters]`.
    ///
    /// # Errors
    /// `Shape` when a length differs; `Usage` for a space that is no bounded `Box`; device errors.
    pub fn new(dev: D, net: ActorCritic<D>, input: InputLayout, config: RsacConfig, values: &[f32]) -> Result<Self> {
        let bounds = ActionBounds::new(input.action())?;
        for (arg, want, got) in [("input", net.d_input(), input.len()), ("action", net.actions(), bounds.len())] {
            if want != got {
                return Err(Error::Shape { op: "rsac", arg, shape: "[features]".into(), want, got });
            }
        }
        let online = Params::new(&dev, net.layout().clone(), values)?;
        let target = Params::new(&dev, net.layout().clone(), values)?;
        let (m, v) = (dev.zeros(values.len(), Kind::Full)?, dev.zeros(values.len(), Kind::Full)?);
        Ok(Rsac {
            runs: net.runs(),
            dev,
            net,
            input,
            bounds,
            config,
            online,
            target,
            m,
            v,
            shards: Vec::new(),
            room: SeqShape { time: 0, batch: 0 },
            noise: Vec::new(),
            priorities: Vec::new(),
            updates: 0,
            rate: 1.0,
            skipped: 0,
        })
    }

    /// The networks.
    pub fn network(&self) -> &ActorCritic<D> {
        &self.net
    }

    /// Gradient of the last update before clipping, `[parameters]`.
    ///
    /// # Errors
    /// `Usage` before the first update.
    pub fn gradient(&self) -> Result<Vec<f32>> {
        let first = self.shards.first().ok_or_else(|| Error::Usage("no update has been made".into()))?;
        let mut out = vec![0.0; self.net.layout().len()];
        self.dev.download(View::new(&first.grads, 0, out.len()), &mut out)?;
        Ok(out)
    }

    /// What the last update came to, by row, [B, L] each: targets and TD errors (the mean of both critics).
    pub fn last_targets(&self) -> (Vec<f32>, Vec<f32>) {
        let mut out = (Vec::new(), Vec::new());
        for s in &self.shards {
            out.0.extend_from_slice(&s.soft.all_targets);
            out.1.extend_from_slice(&s.soft.all_td);
        }
        out
    }

    /// Recurrent states right after burn-in, by row, `[B, state_len]`: the actor's part and the critics', computed anew.
    ///
    /// # Errors
    /// Device errors.
    pub fn burnt_in_states(&mut self, batch: &SequenceBatch) -> Result<Vec<f32>> {
        let n = crate::backbone::state_len(self.net.state_layout());
        let mut out = vec![0.0; batch.batch * n];
        self.each(batch, |this, s| s.burn_in(&this.nets(), batch, this.config.common.reward_scale))?;
        for s in &self.shards {
            for (i, row) in s.rows.clone().enumerate() {
                self.net.read_state(&self.dev, &s.online_state, i, &mut out[row * n..(row + 1) * n])?;
            }
        }
        Ok(out)
    }

    /// Both critics at the stored actions from the stored states: (Q [B, L, 2], L).
    ///
    /// # Errors
    /// Device errors.
    pub fn q_values(&mut self, batch: &SequenceBatch) -> Result<(Vec<f32>, usize)> {
        self.draw_noise(batch);
        self.each(batch, |this, s| {
            s.burn_in(&this.nets(), batch, this.config.common.reward_scale)?;
            s.unroll(&this.nets(), batch, &this.noise)
        })?;
        let len = batch.slots - batch.burn_in;
        let mut out = vec![0.0; batch.batch * len * 2];
        for s in &self.shards {
            let b = s.rows.len();
            for (i, row) in s.rows.clone().enumerate() {
                for t in 0..len {
                    let to = (row * len + t) * 2;
                    (out[to], out[to + 1]) = (s.stored.q[0][t * b + i], s.stored.q[1][t * b + i]);
                }
            }
        }
        Ok((out, len))
    }

    /// α.
    ///
    /// # Errors
    /// Device errors.
    pub fn temperature(&self) -> Result<f32> {
        Ok(self.log_alpha()?.exp())
    }

    fn log_alpha(&self) -> Result<f32> {
        let mut one = [0.0];
        self.dev.download(self.online.view(self.net.log_alpha()), &mut one)?;
        Ok(one[0])
    }

    fn nets(&self) -> Nets<'_, D> {
        let (dev, net, input, bounds) = (&self.dev, &self.net, &self.input, &self.bounds);
        Nets { dev, net, online: &self.online, target: &self.target, input, bounds }
    }

    /// Runs one step of all shards with room for the batch; buffers only grow. The first error in shard order.
    fn each(
        &mut self,
        batch: &SequenceBatch,
        step: impl Fn(&Self, &mut SoftShard<D>) -> Result<()> + Sync,
    ) -> Result<()> {
        if batch.batch != self.room.batch || batch.slots > self.room.time {
            let time = batch.slots.max(self.room.time);
            self.shards.clear();
            for rows in crate::network::cut(batch.batch, self.dev.shards(self.config.common.shards)) {
                self.shards.push(SoftShard::new(&self.dev, &self.net, rows, time)?);
            }
            self.room = SeqShape { time, batch: batch.batch };
        }
        let mut shards = std::mem::take(&mut self.shards);
        let this = &*self;
        let one = |s: &mut SoftShard<D>| s.done = step(this, s);
        match &mut shards[..] {
            [only] => one(only),
            many => many.par_iter_mut().for_each(one),
        }
        self.shards = shards;
        self.shards.iter_mut().try_for_each(|s| std::mem::replace(&mut s.done, Ok(())))
    }

    /// ξ of this update, [L, B, A], from a stream of its own: neither threads nor a resume change it.
    fn draw_noise(&mut self, batch: &SequenceBatch) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.config.seed);
        rng.set_stream(self.updates + self.skipped);
        self.noise.clear();
        let n = (batch.slots - batch.burn_in) * batch.batch * self.net.actions();
        self.noise.extend((0..n).map(|_| -> f32 { StandardNormal.sample(&mut rng) }));
    }

    /// L7b  gradients added in shard order into the first one, log α's put in; returns the norms of actor and critics.
    fn reduce(&mut self, g_log_alpha: f32) -> Result<(f64, f64)> {
        let len = self.net.layout().len();
        let Some((sum, rest)) = self.shards.split_first_mut() else { return Ok((0.0, 0.0)) };
        for s in rest {
            self.dev.add_assign(View::new(&s.grads, 0, len), ViewMut::new(&mut sum.grads, 0, len))?;
        }
        let slot = self.net.log_alpha();
        self.dev.upload(&[g_log_alpha], ViewMut::new(&mut sum.grads, slot.at, slot.len))?;
        let (mut actor, mut critic) = (0.0, 0.0);
        for &(owner, _, slot) in &self.runs {
            let squares = || self.dev.sum_squares(slot.of(&sum.grads));
            match owner {
                Owner::Actor => actor += squares()?,
                Owner::Critic => critic += squares()?,
                Owner::Temperature => {}
            }
        }
        Ok((actor.sqrt(), critic.sqrt()))
    }

    /// L7c  clip and AdamW, run by run.
    fn optimise(&mut self, norms: (f64, f64)) -> Result<()> {
        let c = &self.config.common;
        let t = self.updates + 1;
        let warm = self.rate * if c.warmup == 0 { 1.0 } else { (t as f32 / c.warmup as f32).min(1.0) };
        let clip = |norm: f64| c.grad_clip.map_or(1.0, |max| clip_factor(norm, f64::from(max)) as f32);
        for &(owner, group, range) in &self.runs {
            let heads = matches!(group, Group::HeadsDecayed | Group::HeadsPlain);
            let decayed = matches!(group, Group::BackboneDecayed | Group::HeadsDecayed);
            let step = AdamWStep {
                lr: warm
                    * match owner {
                        Owner::Temperature => self.config.lr_temperature,
                        _ if heads => c.lr_heads,
                        _ => c.lr_backbone,
                    },
                beta1: c.betas.0,
                beta2: c.betas.1,
                eps: c.adam_eps,
                weight_decay: if decayed { c.weight_decay } else { 0.0 },
                t,
                grad_scale: match owner {
                    Owner::Actor => clip(norms.0),
                    Owner::Critic => clip(norms.1),
                    Owner::Temperature => 1.0,
                },
            };
            let grads = &self.shards[0].grads;
            self.dev.adamw(step, range, &mut self.online.flat, grads, &mut self.m, &mut self.v)?;
        }
        Ok(())
    }
}

impl<D: Backend> Learner for Rsac<D> {
    fn set_rate(&mut self, factor: f32) {
        self.rate = factor;
    }

    fn update(&mut self, batch: &SequenceBatch) -> Result<Update> {
        let n_learnt = learnt_steps(batch);
        let log_alpha = self.log_alpha()?;
        let c = &self.config.common;
        let soft = SoftConfig {
            gamma: c.gamma,
            n_step: c.n_step,
            rescaling: c.rescaling,
            reading: Reading { truncation_is_terminal: c.truncation_is_terminal, reward_scale: c.reward_scale },
            loss: c.loss,
            eta: c.eta,
            alpha: log_alpha.exp(),
        };
        self.draw_noise(batch);
        self.each(batch, |this, s| {
            let nets = this.nets();
            s.burn_in(&nets, batch, soft.reading.reward_scale)?; // L1, L2
            s.unroll(&nets, batch, &this.noise)?; // L3, L4
            s.backward(&nets, soft, batch, n_learnt) // L5 to L7
        })?;
        self.priorities.clear();
        let mut update = Update { learnt: n_learnt, ..Update::default() };
        let mut policy = PolicyUpdate { temperature: f64::from(soft.alpha), ..PolicyUpdate::default() };
        let mut weighted = (0.0, 0.0);
        for s in &self.shards {
            self.priorities.extend_from_slice(&s.soft.priorities);
            update.loss += s.soft.loss;
            update.q_mean += s.soft.q_sum;
            policy.loss += s.soft.policy_loss;
            policy.entropy -= s.soft.log_prob_sum;
            weighted = (weighted.0 + s.soft.weighted.0, weighted.1 + s.soft.weighted.1);
        }
        let n = n_learnt.max(1) as f64;
        update.q_mean /= n;
        policy.entropy /= n;
        update.policy = Some(policy);
        // nothing learnt: α stays
        let mean = if weighted.1 > 0.0 { (weighted.0 / weighted.1) as f32 } else { -self.config.target_entropy };
        let (_, g_log_alpha) = temperature_loss(log_alpha, mean, self.config.target_entropy);
        let norms = self.reduce(g_log_alpha)?;
        update.grad_norm = norms.0.hypot(norms.1);
        if !update.grad_norm.is_finite() || !g_log_alpha.is_finite() {
            // a bad batch must not poison weights, moments or target
            self.skipped += 1;
            update.skipped = true;
            return Ok(update);
        }
        self.optimise(norms)?;
        self.updates += 1;
        target_network::follow(&self.dev, self.config.common.target, self.updates, &self.online, &mut self.target)?;
        Ok(update)
    }

    fn priorities(&self) -> &[f32] {
        &self.priorities
    }

    fn errors(&self) -> (Vec<f32>, Vec<f32>) {
        let all = |of: fn(&SoftShard<D>) -> &Vec<f32>| self.shards.iter().flat_map(of).copied().collect();
        (all(|s| &s.soft.all_td), all(|s| &s.soft.all_targets))
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn layout(&self) -> &ParamLayout {
        self.net.layout()
    }

    fn weights(&self, out: &mut Vec<f32>) -> Result<()> {
        out.resize(self.net.layout().len(), 0.0);
        self.dev.download(View::new(&self.online.flat, 0, out.len()), out)
    }

    fn save(&self) -> Result<LearnerState> {
        let from = [&self.online.flat, &self.target.flat, &self.m, &self.v];
        let state = LearnerState::read(&self.dev, from, self.net.layout().len())?;
        Ok(LearnerState { updates: self.updates, skipped: self.skipped, ..state })
    }

    fn restore(&mut self, state: &LearnerState) -> Result<()> {
        let to = [&mut self.online.flat, &mut self.target.flat, &mut self.m, &mut self.v];
        state.write(&self.dev, to, self.net.layout().len())?;
        (self.updates, self.skipped) = (state.updates, state.skipped);
        Ok(())
    }

    fn delta_q(&mut self, windows: &SequenceBatch, prefixes: &SequenceBatch) -> Result<Option<f64>> {
        super::delta_q::delta_q(&mut |batch| Ok((self.q_values(batch)?, 2)), windows, prefixes)
    }
}
