//! A shard is the unit of storage of a training batch: a contiguous run of rows with its own inputs, states, tape,
//! scratch and gradient. One thread runs one shard; gradients are added in shard order, so bits depend on the number of
//! shards and not on the number of threads.

use super::slots::Slots;
use crate::backbone::{SeqShape, State};
use crate::device::{Key, Kind};
use crate::error::Result;
use crate::network::{InputLayout, QNetwork, Workspace};
use crate::ops::Backend;
use crate::replay::SequenceBatch;

/// Host side of a shard, reused.
#[derive(Default)]
pub(super) struct Host {
    /// Expected returns by both networks, [L, B, A] for the L unrolled slots.
    pub q_online: Vec<f32>,
    pub q_target: Vec<f32>,
    /// The numbers of a distributional critic, [L, B, N, A]; else empty.
    pub numbers_online: Vec<f32>,
    pub numbers_target: Vec<f32>,
    /// Gradient of what the networks gave, [L, B, N, A].
    pub g_q: Vec<f32>,
    spare: Vec<f32>,
}

/// One run of rows.
pub(super) struct Shard<D: Backend> {
    /// Rows of the batch.
    pub rows: std::ops::Range<usize>,
    /// Slots in all, and those of burn-in.
    pub slots_n: usize,
    pub burn_in: usize,
    pub slots: Slots<D>,
    pub online_state: State<D>,
    pub target_state: State<D>,
    pub online: Workspace<D>,
    pub target: Workspace<D>,
    pub grads: D::Tensor,
    pub host: Host,
    pub td: super::td::TdRows,
    /// L2 and L3 as the device recorded them.
    pub unrolling: D::Recording,
    /// L7 likewise.
    pub learning: D::Recording,
    /// How the last step ended.
    pub done: Result<()>,
}

impl<D: Backend> Shard<D> {
    /// Buffers for these rows and at most `slots` slots.
    pub fn new(dev: &D, net: &QNetwork<D>, rows: std::ops::Range<usize>, slots: usize) -> Result<Self> {
        let b = rows.len();
        let shape = SeqShape { time: slots, batch: b };
        Ok(Shard {
            rows,
            slots_n: slots,
            burn_in: 0,
            slots: Slots::new(dev, shape, net.d_input())?,
            online_state: net.zero_state(dev, b)?,
            target_state: net.zero_state(dev, b)?,
            online: net.workspace(dev, shape, true)?,
            target: net.workspace(dev, shape, false)?,
            grads: dev.zeros(net.layout().len(), Kind::Full)?,
            host: Host::default(),
            td: super::td::TdRows::default(),
            unrolling: D::Recording::default(),
            learning: D::Recording::default(),
            done: Ok(()),
        })
    }

    /// L1  features, masks and stored states of this shard's rows. Pads are zero here, whatever replay holds there.
    pub fn load(
        &mut self,
        dev: &D,
        net: &QNetwork<D>,
        input: &InputLayout,
        batch: &SequenceBatch,
        scale: f32,
    ) -> Result<()> {
        (self.slots_n, self.burn_in) = (batch.slots, batch.burn_in);
        self.slots.load(dev, input, batch, self.rows.clone(), scale)?;
        let n = crate::backbone::state_len(net.state_layout());
        let rows = self.rows.clone().map(|row| &batch.state[row * n..(row + 1) * n]);
        self.online_state.write_rows(dev, net.state_layout(), rows.clone(), &mut self.host.spare)?;
        self.target_state.write_rows(dev, net.state_layout(), rows, &mut self.host.spare)
    }

    /// Forgets what was recorded: a buffer has moved.
    pub fn forget(&mut self) {
        (self.unrolling, self.learning) = (D::Recording::default(), D::Recording::default());
    }

    /// What tells one recording of this shard from another.
    pub fn key(&self) -> Key {
        [self.slots_n, self.burn_in, self.rows.len(), 0]
    }

    /// The stored state of the shard's row i into both networks' states.
    pub fn write_state(&mut self, dev: &D, net: &QNetwork<D>, batch: &SequenceBatch, i: usize) -> Result<()> {
        let (n, row) = (crate::backbone::state_len(net.state_layout()), self.rows.start + i);
        let state = &batch.state[row * n..(row + 1) * n];
        self.online_state.write_row(dev, net.state_layout(), i, state)?;
        self.target_state.write_row(dev, net.state_layout(), i, state)
    }
}
