//! R2D2: recurrent replay distributed DQN. Double Q-learning on stored sequences with stored state, burn-in, n-step
//! targets, value rescaling and prioritised replay. Source: Kapturowski et al., 2019.
//!
//! L1  stored state → State for online and target        `shards`
//! L2  burn-in of both, no tape                          `burn_in`
//! L3  unroll: online with tape, target (if γ > 0) without [L, B, A] each
//! L4  a* = argmax online                                `td`
//! L5  target = h(n_step(r, γ, h⁻¹(Q_target(a*))))       `td`, `value`
//! L6  δ, masks, importance weights → loss, g_q          `td`
//! L7  backward, clip by global norm, AdamW
//! L8  target network follows                            `target_network`
//! L9  new priorities from δ                             `td`

use rayon::prelude::*;

use super::rows::{Reading, learnt_steps};
use super::shards::Shard;
use super::target_network::{self, ActingWeights, TargetUpdate};
use super::td::{ShardQ, TdConfig};
use super::td_distribution::ShardNumbers;
use super::{Learner, LearnerState, LossScale, Update, burn_in};
use crate::backbone::SeqShape;
use crate::device::{Kind, Precision, View, ViewMut};
use crate::error::{Error, Result};
use crate::network::{InputLayout, QNetwork, join_action};
use crate::ops::Backend;
use crate::ops::adamw::{Control, REPORT, UpdateBuffers, UpdateRule};
use crate::params::{Group, ParamLayout, Params};
use crate::replay::{ActionSlice, SequenceBatch};
use crate::value::td_error::Loss;

/// Settings of the learner; meanings and defaults in `config`.
#[derive(Debug, Clone, PartialEq)]
pub struct R2d2Config {
    /// γ.
    pub gamma: f32,
    /// n.
    pub n_step: usize,
    /// ε of value rescaling; None: off.
    pub rescaling: Option<f32>,
    /// Double Q.
    pub double_q: bool,
    /// Time limits end without a value.
    pub truncation_is_terminal: bool,
    /// Loss of δ.
    pub loss: Loss<f32>,
    /// Share of the largest error in a priority.
    pub eta: f32,
    /// Factor on rewards.
    pub reward_scale: f32,
    /// Learning rate of encoder and backbone.
    pub lr_backbone: f32,
    /// Learning rate of the heads.
    pub lr_heads: f32,
    /// Decoupled decay of matrices.
    pub weight_decay: f32,
    /// β₁ and β₂ of Adam.
    pub betas: (f32, f32),
    /// Adam's ε.
    pub adam_eps: f32,
    /// Global norm above which the gradient is scaled down; None: off.
    pub grad_clip: Option<f32>,
    /// Updates of linear warm-up.
    pub warmup: u64,
    /// How the target follows.
    pub target: TargetUpdate,
    /// Which network acts.
    pub acting: ActingWeights,
    /// Pieces of a batch.
    pub shards: usize,
}

/// The learner on one device.
pub struct R2d2<D: Backend> {
    dev: D,
    net: QNetwork<D>,
    input: InputLayout,
    config: R2d2Config,
    online: Params<D>,
    target: Params<D>,
    m: D::Tensor,
    v: D::Tensor,
    /// What the update depends on and what it reports, see `ops::adamw`.
    control: D::Tensor,
    report: D::Tensor,
    /// For f16 alone.
    loss_scale: Option<LossScale>,
    /// Factor on the loss of the last update.
    scaled_by: f32,
    shards: Vec<Shard<D>>,
    /// Rows and slots that the shards were made for.
    room: SeqShape,
    priorities: Vec<f32>,
    updates: u64,
    /// Factor on the learning rates.
    rate: f32,
    skipped: u64,
}

impl<D: Backend> R2d2<D> {
    /// A learner whose online and target weights start at `values` `[parameters]`.
    ///
    /// # Errors
    /// `Shape` when the length differs; device errors.
    pub fn new(dev: D, net: QNetwork<D>, input: InputLayout, config: R2d2Config, values: &[f32]) -> Result<Self> {
        if input.len() != net.d_input() {
            let (want, got) = (net.d_input(), input.len());
            return Err(Error::Shape { op: "r2d2", arg: "input", shape: "[features]".into(), want, got });
        }
        let online = Params::new(&dev, net.layout().clone(), values)?;
        let target = Params::new(&dev, net.layout().clone(), values)?;
        let (m, v) = (dev.zeros(values.len(), Kind::Full)?, dev.zeros(values.len(), Kind::Full)?);
        let (control, report) = (dev.zeros(Control::LEN, Kind::Full)?, dev.zeros(REPORT, Kind::Full)?);
        Ok(R2d2 {
            loss_scale: (dev.precision() == Precision::F16).then(LossScale::default),
            dev,
            net,
            input,
            config,
            online,
            target,
            m,
            v,
            control,
            report,
            scaled_by: 1.0,
            shards: Vec::new(),
            room: SeqShape { time: 0, batch: 0 },
            priorities: Vec::new(),
            updates: 0,
            rate: 1.0,
            skipped: 0,
        })
    }

    /// The network.
    pub fn network(&self) -> &QNetwork<D> {
        &self.net
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.dev
    }

    /// Online weights on the device.
    pub fn online(&self) -> &Params<D> {
        &self.online
    }

    /// Target weights on the device.
    pub fn target(&self) -> &Params<D> {
        &self.target
    }

    /// Replaces the target weights, `[parameters]`.
    ///
    /// # Errors
    /// `Shape` when the length differs.
    pub fn set_target(&mut self, values: &[f32]) -> Result<()> {
        self.target = Params::new(&self.dev, self.net.layout().clone(), values)?;
        // recordings hold the old place
        self.shards.iter_mut().for_each(Shard::forget);
        Ok(())
    }

    /// Gradient of the last update before clipping, `[parameters]`.
    ///
    /// # Errors
    /// `Usage` before the first update.
    pub fn gradient(&self) -> Result<Vec<f32>> {
        let first = self.shards.first().ok_or_else(|| Error::Usage("no update has been made".into()))?;
        let mut out = vec![0.0; self.net.layout().len()];
        self.dev.download(View::new(&first.grads, 0, out.len()), &mut out)?;
        let scale = self.scaled_by;
        out.iter_mut().for_each(|g| *g /= scale);
        Ok(out)
    }

    /// What the last update unrolled, by row: (Q online, Q target, targets, TD errors), Q [B, L, A], the others [B, L].
    pub fn last_unroll(&self) -> (Vec<f32>, Vec<f32>, Vec<f32>, Vec<f32>) {
        let a = self.net.actions();
        let mut out = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for s in &self.shards {
            let (b, len) = (s.rows.len(), s.slots_n - s.burn_in);
            for i in 0..b {
                for t in 0..len {
                    let at = (t * b + i) * a;
                    out.0.extend_from_slice(&s.host.q_online[at..at + a]);
                    out.1.extend_from_slice(&s.host.q_target[at..at + a]);
                }
            }
            out.2.extend_from_slice(&s.td.all_targets);
            out.3.extend_from_slice(&s.td.all_td);
        }
        out
    }

    /// Recurrent state rows after burn-in and unroll of the last update are not kept; these are the states right after
    /// burn-in, by row, for (online, target), computed anew.
    ///
    /// # Errors
    /// Device errors.
    pub fn burnt_in_states(&mut self, batch: &SequenceBatch) -> Result<(Vec<f32>, Vec<f32>)> {
        self.make_room_for(batch, 0..batch.batch)?;
        let n = crate::backbone::state_len(self.net.state_layout());
        let (mut a, mut b) = (vec![0.0; batch.batch * n], vec![0.0; batch.batch * n]);
        for s in &mut self.shards {
            s.load(&self.dev, &self.net, &self.input, batch, self.config.reward_scale)?;
            burn_in::burn_in(&self.dev, &self.net, [&self.online, &self.target], s, batch)?;
            for (i, row) in s.rows.clone().enumerate() {
                let at = row * n..(row + 1) * n;
                s.online_state.read_row(&self.dev, self.net.state_layout(), i, &mut a[at.clone()])?;
                s.target_state.read_row(&self.dev, self.net.state_layout(), i, &mut b[at])?;
            }
        }
        Ok((a, b))
    }

    /// Q-values of a batch by the online network from its stored states: (Q [B, L, A], L).
    ///
    /// # Errors
    /// Device errors.
    pub fn q_values(&mut self, batch: &SequenceBatch) -> Result<(Vec<f32>, usize)> {
        self.make_room_for(batch, 0..batch.batch)?;
        let (len, a) = (batch.slots - batch.burn_in, self.net.actions());
        let mut out = vec![0.0; batch.batch * len * a];
        for s in &mut self.shards {
            s.load(&self.dev, &self.net, &self.input, batch, self.config.reward_scale)?;
            unroll(&self.dev, &self.net, [&self.online, &self.target], s, batch, self.config.gamma > 0.0)?;
            let b = s.rows.len();
            for (i, row) in s.rows.clone().enumerate() {
                for t in 0..len {
                    let from = &s.host.q_online[(t * b + i) * a..][..a];
                    out[(row * len + t) * a..][..a].copy_from_slice(from);
                }
            }
        }
        Ok((out, len))
    }

    /// Shards with room for this device's rows of the batch. Buffers only grow.
    fn make_room(&mut self, batch: &SequenceBatch) -> Result<()> {
        match self.dev.place() {
            (_, 1) => self.make_room_for(batch, 0..batch.batch),
            (place, of) => {
                let share = crate::network::cut(batch.batch, of).get(place).cloned();
                self.make_room_for(batch, share.ok_or_else(|| super::parallel::too_few(batch.batch, of))?)
            }
        }
    }

    /// As [`R2d2::make_room`], for the rows `share`.
    fn make_room_for(&mut self, batch: &SequenceBatch, share: std::ops::Range<usize>) -> Result<()> {
        let made = self.shards.first().zip(self.shards.last()).map(|(a, z)| a.rows.start..z.rows.end);
        if made == Some(share.clone()) && batch.slots <= self.room.time {
            return Ok(());
        }
        let time = batch.slots.max(self.room.time);
        self.shards.clear();
        for rows in crate::network::cut(share.len(), self.dev.shards(self.config.shards)) {
            let rows = share.start + rows.start..share.start + rows.end;
            self.shards.push(Shard::new(&self.dev, &self.net, rows, time)?);
        }
        self.room = SeqShape { time, batch: batch.batch };
        Ok(())
    }

    fn td_config(&self) -> TdConfig {
        let c = &self.config;
        TdConfig {
            gamma: c.gamma,
            n_step: c.n_step,
            rescaling: c.rescaling,
            double_q: c.double_q,
            reading: Reading { truncation_is_terminal: c.truncation_is_terminal, reward_scale: c.reward_scale },
            loss: c.loss,
            eta: c.eta,
        }
    }

    /// L1 to L6 of one shard, and L9; with its gradient where it is one of many.
    fn shard_step(&self, shard: &mut Shard<D>, batch: &SequenceBatch, n_learnt: usize, many: bool) -> Result<()> {
        let (dev, net) = (&self.dev, &self.net);
        shard.load(dev, net, &self.input, batch, self.config.reward_scale)?; // L1
        unroll(dev, net, [&self.online, &self.target], shard, batch, self.config.gamma > 0.0)?; // L2, L3
        let space = self.input.action();
        let join = |at: usize| match batch.action_row(at) {
            ActionSlice::Discrete(parts) => join_action(space, parts),
            ActionSlice::Continuous(_) => Err(Error::Usage("agent r2d2 needs discrete actions".into())),
        };
        let host = &mut shard.host;
        let q =
            ShardQ { online: &host.q_online, target: &host.q_target, actions: net.actions(), rows: shard.rows.clone() };
        // L4 to L6, L9
        let (config, g_q) = (self.td_config(), &mut host.g_q);
        match net.critic().prediction() {
            None => shard.td.run(config, batch, n_learnt, q, g_q, &join)?,
            Some(prediction) => {
                let (online, target) = (&host.numbers_online[..], &host.numbers_target[..]);
                let numbers = ShardNumbers { online, target, n: net.critic().numbers(), prediction };
                shard.td.run_distribution(config, batch, n_learnt, q, numbers, g_q, &join)?;
            }
        }
        if self.scaled_by != 1.0 {
            host.g_q.iter_mut().for_each(|g| *g *= self.scaled_by);
        }
        let n = host.g_q.len();
        dev.upload(&host.g_q, ViewMut::new(&mut shard.online.g_q, 0, n))?;
        if many { backward(dev, net, &self.online, shard) } else { Ok(()) }
    }

    /// What the next update depends on.
    fn next_control(&self) -> Control {
        let (c, t) = (&self.config, self.updates + 1);
        let warm = self.rate * if c.warmup == 0 { 1.0 } else { (t as f32 / c.warmup as f32).min(1.0) };
        Control { lr_backbone: warm * c.lr_backbone, lr_heads: warm * c.lr_heads, t, loss_scale: self.scaled_by }
    }

    /// L7  gradients of all shards, added in their order; clip and AdamW. The global norm, and whether the update was skipped.
    fn learn(&mut self) -> Result<(f64, bool)> {
        let c = &self.config;
        let (beta1, beta2) = c.betas;
        let rule = UpdateRule { beta1, beta2, eps: c.adam_eps, weight_decay: c.weight_decay, grad_clip: c.grad_clip };
        let control = self.next_control();
        self.dev.upload(&control.numbers(&rule), ViewMut::new(&mut self.control, 0, Control::LEN))?;
        let (dev, net) = (&self.dev, &self.net);
        let groups = Group::ALL.map(|g| net.layout().group(g));
        let Some((first, rest)) = self.shards.split_first_mut() else { return Ok((0.0, false)) };
        let (mut recording, key) = (std::mem::take(&mut first.learning), first.key());
        let (together, len) = (dev.place().1 > 1, net.layout().len());
        let (online, m, v) = (&mut self.online, &mut self.m, &mut self.v);
        let (numbers, report) = (&self.control, &mut self.report);
        let mut step = |online: &mut Params<D>, grads: &D::Tensor| {
            let params = &mut online.flat;
            dev.update(rule, control, groups, UpdateBuffers { params, grads, m, v, control: numbers, report })
        };
        let mut done = dev.repeat(&mut recording, key, || {
            if rest.is_empty() {
                backward(dev, net, online, first)?; // of many, each thread made its own
            }
            for s in rest {
                dev.add_assign(View::new(&s.grads, 0, len), ViewMut::new(&mut first.grads, 0, len))?;
            }
            if together { Ok(()) } else { step(online, &first.grads) }
        });
        if together && done.is_ok() {
            let [slots, burn_in, rows, _] = key;
            done = dev
                .all_reduce(ViewMut::new(&mut first.grads, 0, len))
                .and_then(|()| dev.repeat(&mut recording, [slots, burn_in, rows, 1], || step(online, &first.grads)));
        }
        first.learning = recording;
        done?;
        let mut report = [0.0; REPORT];
        self.dev.download(View::new(&self.report, 0, REPORT), &mut report)?;
        Ok((f64::from(report[0]), report[1] != 0.0))
    }

    fn update_alone(&mut self, batch: &SequenceBatch) -> Result<Update> {
        self.make_room(batch)?;
        let n_learnt = learnt_steps(batch);
        self.scaled_by = self.loss_scale.map_or(1.0, |s| s.scale);
        let mut shards = std::mem::take(&mut self.shards);
        let this = &*self;
        let many = shards.len() > 1;
        let each = |s: &mut Shard<D>| s.done = this.shard_step(s, batch, n_learnt, many);
        match &mut shards[..] {
            [only] => each(only),
            many => many.par_iter_mut().for_each(each),
        }
        self.shards = shards;
        self.shards.iter_mut().try_for_each(|s| std::mem::replace(&mut s.done, Ok(())))?;
        self.priorities.clear();
        let mut update = Update { learnt: n_learnt, ..Update::default() };
        for s in &self.shards {
            self.priorities.extend_from_slice(&s.td.priorities);
            update.loss += s.td.loss;
            update.q_mean += s.td.q_sum;
        }
        update.q_mean /= n_learnt.max(1) as f64;
        (update.grad_norm, update.skipped) = self.learn()?;
        self.loss_scale = self.loss_scale.map(|s| s.after(update.skipped));
        if update.skipped {
            // a bad batch must not poison weights, moments or target
            self.skipped += 1;
            return Ok(update);
        }
        self.updates += 1;
        target_network::follow(&self.dev, self.config.target, self.updates, &self.online, &mut self.target)?;
        Ok(update)
    }
}

/// Leaves the group of GPUs on the way out of an update that failed, by a panic too: the others would wait for ever.
struct Leave<D: Backend> {
    dev: D,
    armed: bool,
}

impl<D: Backend> Drop for Leave<D> {
    fn drop(&mut self) {
        if self.armed {
            self.dev.leave_group();
        }
    }
}

/// L2 and L3  burn-in, then the slots after it: online with tape, target without; Q-values to the host.
fn unroll<D: Backend>(
    dev: &D,
    net: &QNetwork<D>,
    [online, target]: [&Params<D>; 2],
    shard: &mut Shard<D>,
    batch: &SequenceBatch,
    discounted: bool,
) -> Result<()> {
    let work = |shard: &mut Shard<D>| {
        burn_in::burn_in(dev, net, [online, target], shard, batch)?; // L2
        let seq = shard.slots.sequence(shard.burn_in, shard.slots_n);
        net.forward(dev, online, seq, &mut shard.online_state, &mut shard.online, true)?;
        // with γ = 0 nothing is made of the target's values, which stay the zeros that they were made as
        if discounted {
            net.forward(dev, target, seq, &mut shard.target_state, &mut shard.target, false)
        } else {
            Ok(())
        }
    };
    if burn_in::in_one_piece(shard.rows.clone(), shard.burn_in, batch) {
        let (mut recording, key) = (std::mem::take(&mut shard.unrolling), shard.key());
        let done = dev.repeat(&mut recording, key, || work(shard));
        shard.unrolling = recording;
        done?;
    } else {
        work(shard)?; // states are put in on the way
    }
    let rows = (shard.slots_n - shard.burn_in) * shard.rows.len();
    let (n, wide) = (rows * net.actions(), rows * net.d_output());
    let host = &mut shard.host;
    host.g_q.resize(wide, 0.0);
    let sides = [
        (&shard.online.q, &mut host.q_online, &mut host.numbers_online),
        (&shard.target.q, &mut host.q_target, &mut host.numbers_target),
    ];
    for (from, q, numbers) in sides {
        q.resize(n, 0.0);
        if n == wide {
            dev.download(View::new(from, 0, n), q)?;
            continue;
        }
        numbers.resize(wide, 0.0);
        dev.download(View::new(from, 0, wide), numbers)?;
        net.critic().expected(numbers, net.actions(), q);
    }
    Ok(())
}

/// L7a  gradient of one shard.
fn backward<D: Backend>(dev: &D, net: &QNetwork<D>, online: &Params<D>, shard: &mut Shard<D>) -> Result<()> {
    dev.fill(ViewMut::new(&mut shard.grads, 0, net.layout().len()), 0.0)?;
    let seq = shard.slots.sequence(shard.burn_in, shard.slots_n);
    net.backward(dev, online, seq, &mut shard.online, &mut shard.grads)
}

impl<D: Backend> Learner for R2d2<D> {
    fn set_rate(&mut self, factor: f32) {
        self.rate = factor;
    }

    fn update(&mut self, batch: &SequenceBatch) -> Result<Update> {
        let mut leave = Leave { dev: self.dev.clone(), armed: true };
        let done = self.update_alone(batch);
        leave.armed = done.is_err();
        done
    }

    fn priorities(&self) -> &[f32] {
        &self.priorities
    }

    fn errors(&self) -> (Vec<f32>, Vec<f32>) {
        let all = |of: fn(&Shard<D>) -> &Vec<f32>| self.shards.iter().flat_map(of).copied().collect();
        (all(|s| &s.td.all_td), all(|s| &s.td.all_targets))
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
        let from = match self.config.acting {
            ActingWeights::Online => &self.online,
            ActingWeights::Target => &self.target,
        };
        self.dev.download(View::new(&from.flat, 0, out.len()), out)
    }

    fn save(&self) -> Result<LearnerState> {
        let from = [&self.online.flat, &self.target.flat, &self.m, &self.v];
        let state = LearnerState::read(&self.dev, from, self.net.layout().len())?;
        Ok(LearnerState { updates: self.updates, skipped: self.skipped, loss_scale: self.loss_scale, ..state })
    }

    fn restore(&mut self, state: &LearnerState) -> Result<()> {
        let to = [&mut self.online.flat, &mut self.target.flat, &mut self.m, &mut self.v];
        state.write(&self.dev, to, self.net.layout().len())?;
        (self.updates, self.skipped) = (state.updates, state.skipped);
        // a run may go on with another precision
        self.loss_scale = self.loss_scale.map(|start| state.loss_scale.unwrap_or(start));
        Ok(())
    }

    fn delta_q(&mut self, windows: &SequenceBatch, prefixes: &SequenceBatch) -> Result<Option<f64>> {
        let actions = self.net.actions();
        super::delta_q::delta_q(&mut |batch| Ok((self.q_values(batch)?, actions)), windows, prefixes)
    }
}
