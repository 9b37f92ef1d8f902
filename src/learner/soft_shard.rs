//! A shard of a soft actor-critic's batch: a contiguous run of rows with its own inputs, states, tapes, scratch and
//! gradient (see `shards`), and the steps from its rows to its gradient.

use std::ops::Range;

use super::burn_in::{Piece, pieces};
use super::slots::Slots;
use super::soft_td::{Drawn, Pair, ShardSoft, SoftConfig, SoftRows};
use crate::backbone::{SeqShape, State, state_len};
use crate::device::{Kind, View, ViewMut};
use crate::error::{Error, Result};
use crate::network::{AcState, ActionBounds, ActorCritic, InputLayout, Online, Target};
use crate::ops::Backend;
use crate::params::Params;
use crate::replay::{ActionSlice, SequenceBatch};

/// One run of rows.
pub(super) struct SoftShard<D: Backend> {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Slots in all, and those of burn-in.
    pub slots_n: usize,
    pub burn_in: usize,
    slots: Slots<D>,
    pub online_state: AcState<D>,
    pub target_state: State<D>,
    online: Online<D>,
    target: Target<D>,
    pub grads: D::Tensor,
    /// Stored actions in [−1, 1], [L, B_shard, A].
    stored_action: Vec<f32>,
    pub actions: Drawn,
    pub stored: Pair,
    drawn: Pair,
    target_q: Pair,
    pub soft: SoftRows,
    /// How the last step ended.
    pub done: Result<()>,
}

/// Networks and weights that a step reads.
pub(super) struct Nets<'a, D: Backend> {
    pub dev: &'a D,
    pub net: &'a ActorCritic<D>,
    pub online: &'a Params<D>,
    pub target: &'a Params<D>,
    pub input: &'a InputLayout,
    pub bounds: &'a ActionBounds,
}

impl<D: Backend> SoftShard<D> {
    /// Buffers for these rows and at most `slots` slots.
    pub fn new(dev: &D, net: &ActorCritic<D>, rows: Range<usize>, slots: usize) -> Result<Self> {
        let shape = SeqShape { time: slots, batch: rows.len() };
        Ok(SoftShard {
            slots_n: slots,
            burn_in: 0,
            slots: Slots::new(dev, shape, net.d_input())?,
            online_state: net.states(dev, rows.len())?,
            target_state: net.critic_states(dev, rows.len())?,
            online: net.online(dev, shape)?,
            target: net.target(dev, shape)?,
            grads: dev.zeros(net.layout().len(), Kind::Full)?,
            stored_action: Vec::new(),
            actions: Drawn::default(),
            stored: Pair::default(),
            drawn: Pair::default(),
            target_q: Pair::default(),
            soft: SoftRows::default(),
            done: Ok(()),
            rows,
        })
    }

    /// L1, L2  inputs and stored states of this shard's rows, and burn-in of all networks.
    pub fn burn_in(&mut self, n: &Nets<'_, D>, batch: &SequenceBatch, scale: f32) -> Result<()> {
        (self.slots_n, self.burn_in) = (batch.slots, batch.burn_in);
        self.slots.load(n.dev, n.input, batch, self.rows.clone(), scale)?;
        (0..self.rows.len()).try_for_each(|i| self.write_state(n, batch, i))?;
        pieces(self.rows.clone(), self.burn_in, batch, &mut |piece| match piece {
            Piece::Run(from, to) => {
                let seq = self.slots.sequence(from, to);
                n.net.burn_in(n.dev, n.online, seq, &mut self.online_state, &mut self.online)?;
                n.net.target_trunk(n.dev, n.target, seq, &mut self.target_state, &mut self.target)
            }
            Piece::Restore(i) => self.write_state(n, batch, i),
        })
    }

    fn write_state(&mut self, n: &Nets<'_, D>, batch: &SequenceBatch, i: usize) -> Result<()> {
        let (len, row) = (state_len(n.net.state_layout()), self.rows.start + i);
        let stored = &batch.state[row * len..(row + 1) * len];
        n.net.write_state(n.dev, &mut self.online_state, i, stored)?;
        n.net.write_critic_state(n.dev, &mut self.target_state, i, stored)
    }

    /// L3, L4  unrolls all networks behind burn-in, draws actions with `noise` [L, B, A] of the whole batch, and values them
    /// and the stored ones.
    pub fn unroll(&mut self, n: &Nets<'_, D>, batch: &SequenceBatch, noise: &[f32]) -> Result<()> {
        let seq = self.slots.sequence(self.burn_in, self.slots_n);
        let (rows, a, b) = (seq.shape.rows(), n.net.actions(), self.rows.len());
        n.net.unroll(n.dev, n.online, seq, &mut self.online_state, &mut self.online)?;
        n.net.target_trunk(n.dev, n.target, seq, &mut self.target_state, &mut self.target)?;
        self.actions.resize(rows, a);
        n.dev.download(View::new(&self.online.policy.out, 0, rows * 2 * a), &mut self.actions.out)?;
        for (t, own) in self.actions.noise.chunks_exact_mut(b * a).enumerate() {
            own.copy_from_slice(&noise[(t * batch.batch + self.rows.start) * a..][..b * a]);
        }
        self.actions.sample();
        self.read_actions(n, batch)?;
        n.dev.upload(&self.actions.action, ViewMut::new(&mut self.online.drawn_action, 0, rows * a))?;
        n.dev.upload(&self.stored_action, ViewMut::new(&mut self.online.stored_action, 0, rows * a))?;
        n.net.values(n.dev, n.online, rows, &mut self.online)?;
        n.net.target_values(n.dev, n.target, rows, &self.online.drawn_action, &mut self.target)?;
        let sets = [
            (&mut self.stored, &self.online.stored),
            (&mut self.drawn, &self.online.drawn),
            (&mut self.target_q, &self.target.drawn),
        ];
        for (pair, memory) in sets {
            pair.resize(rows);
            for (q, memory) in pair.q.iter_mut().zip(memory) {
                n.dev.download(View::new(&memory.q, 0, rows), q)?;
            }
        }
        Ok(())
    }

    /// Stored actions of the unrolled slots in [−1, 1]; zeros where there is none.
    fn read_actions(&mut self, n: &Nets<'_, D>, batch: &SequenceBatch) -> Result<()> {
        let (a, b) = (n.net.actions(), self.rows.len());
        self.stored_action.clear();
        self.stored_action.resize((self.slots_n - self.burn_in) * b * a, 0.0);
        for t in self.burn_in..self.slots_n {
            for (i, row) in self.rows.clone().enumerate() {
                let at = batch.at(t, row);
                if batch.valid[at] == 0 {
                    continue;
                }
                let ActionSlice::Continuous(action) = batch.action_row(at) else {
                    return Err(Error::Usage(
                        "agent rsac needs continuous actions, but the batch's are discrete".into(),
                    ));
                };
                let to = ((t - self.burn_in) * b + i) * a;
                n.bounds.from_env(action, &mut self.stored_action[to..to + a])?;
            }
        }
        Ok(())
    }

    /// L5 to L7a, L9  losses on the host, then the gradient of the shard's rows; log α has none here.
    pub fn backward(
        &mut self,
        n: &Nets<'_, D>,
        config: SoftConfig,
        batch: &SequenceBatch,
        n_learnt: usize,
    ) -> Result<()> {
        let (rows, a) = ((self.slots_n - self.burn_in) * self.rows.len(), n.net.actions());
        let values = ShardSoft {
            stored: &mut self.stored,
            drawn: &mut self.drawn,
            target: &self.target_q,
            actions: &mut self.actions,
            rows: self.rows.clone(),
        };
        self.soft.run(config, batch, n_learnt, values)?;
        for (pair, memory) in [(&self.stored, &mut self.online.stored), (&self.drawn, &mut self.online.drawn)] {
            for (g, memory) in pair.g.iter().zip(memory) {
                n.dev.upload(g, ViewMut::new(&mut memory.g_q, 0, rows))?;
            }
        }
        // the policy's gradient reaches it through the drawn actions
        n.net.action_gradient(n.dev, n.online, rows, &mut self.online)?;
        n.dev.download(View::new(&self.online.g_drawn, 0, rows * a), &mut self.actions.g_action)?;
        self.actions.backward();
        n.dev.upload(&self.actions.g_out, ViewMut::new(&mut self.online.policy.g_out, 0, rows * 2 * a))?;
        let len = n.net.layout().len();
        n.dev.fill(ViewMut::new(&mut self.grads, 0, len), 0.0)?;
        let seq = self.slots.sequence(self.burn_in, self.slots_n);
        n.net.backward(n.dev, n.online, seq, &mut self.online, &mut self.grads)
    }
}
