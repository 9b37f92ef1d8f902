//! A shard is the unit of storage of a training batch: a contiguous run of rows with its own inputs, states, tape,
//! scratch and gradient. One thread runs one shard; gradients are added in shard order, so bits depend on the number of
//! shards and not on the number of threads.

use mamba_rl_envs::{ActionRef, ObsRef};

use crate::backbone::{SeqShape, Sequence, State};
use crate::device::{Device, Key, Kind, View, ViewMut};
use crate::error::Result;
use crate::network::{InputLayout, Previous, QNetwork, Workspace};
use crate::ops::Backend;
use crate::replay::{ActionSlice, ObsSlice, SequenceBatch};

/// Inputs of a shard on the device, time-major.
pub(super) struct Slots<D: Device> {
    batch: usize,
    d_input: usize,
    x: D::Tensor,
    reset: D::Mask,
    valid: D::Mask,
}

impl<D: Device> Slots<D> {
    /// Slots [from, to) of all rows.
    pub fn sequence(&self, from: usize, to: usize) -> Sequence<'_, D> {
        let (b, n) = (self.batch, to - from);
        Sequence {
            shape: SeqShape { time: n, batch: b },
            x: View::new(&self.x, from * b * self.d_input, n * b * self.d_input),
            reset: Some(View::new(&self.reset, from * b, n * b)),
            valid: Some(View::new(&self.valid, from * b, n * b)),
        }
    }
}

/// Host side of a shard, reused.
#[derive(Default)]
pub(super) struct Host {
    features: Vec<f32>,
    reset: Vec<u8>,
    valid: Vec<u8>,
    /// Q of both networks, [L, B, A] for the L unrolled slots.
    pub q_online: Vec<f32>,
    pub q_target: Vec<f32>,
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
        let (b, d) = (rows.len(), net.d_input());
        let shape = SeqShape { time: slots, batch: b };
        Ok(Shard {
            rows,
            slots_n: slots,
            burn_in: 0,
            slots: Slots {
                batch: b,
                d_input: d,
                x: dev.zeros((shape.rows() * d).max(1), Kind::Full)?,
                reset: dev.zero_mask(shape.rows())?,
                valid: dev.zero_mask(shape.rows())?,
            },
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
        let (b, d, s) = (self.rows.len(), net.d_input(), batch.slots);
        (self.slots_n, self.burn_in) = (s, batch.burn_in);
        let host = &mut self.host;
        host.features.clear();
        host.features.resize(s * b * d, 0.0);
        host.reset.clear();
        host.valid.clear();
        for t in 0..s {
            for (i, row) in self.rows.clone().enumerate() {
                let at = t * batch.batch + row;
                host.reset.push(batch.reset[at]);
                host.valid.push(batch.valid_obs[at]);
                if batch.valid_obs[at] == 0 {
                    continue;
                }
                let previous = (batch.has_prev[at] != 0).then(|| Previous {
                    action: action_ref(batch.prev_action_row(at)),
                    reward: batch.prev_reward[at] * scale,
                });
                let out = &mut host.features[(t * b + i) * d..][..d];
                input.write(obs_ref(batch.obs_row(at)), previous, previous.is_none(), out)?;
            }
        }
        dev.upload(&host.features, ViewMut::new(&mut self.slots.x, 0, s * b * d))?;
        dev.upload_mask(&host.reset, &mut self.slots.reset)?;
        dev.upload_mask(&host.valid, &mut self.slots.valid)?;
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

/// Replay's rows as the environments' rows: the same numbers under another name.
pub(crate) fn obs_ref(row: ObsSlice<'_>) -> ObsRef<'_> {
    match row {
        ObsSlice::U8(v) => ObsRef::U8(v),
        ObsSlice::I32(v) => ObsRef::I32(v),
        ObsSlice::F32(v) => ObsRef::F32(v),
    }
}

/// As [`obs_ref`], for actions.
pub(crate) fn action_ref(row: ActionSlice<'_>) -> ActionRef<'_> {
    match row {
        ActionSlice::Discrete(v) => ActionRef::Discrete(v),
        ActionSlice::Continuous(v) => ActionRef::Continuous(v),
    }
}
