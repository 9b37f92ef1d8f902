//! Inputs of a run of rows of a batch on the device: features and masks of every slot, time-major. Pads are zero here,
//! whatever replay holds there.

use std::ops::Range;

use mamba_rl_envs::{ActionRef, ObsRef};

use crate::backbone::{SeqShape, Sequence};
use crate::device::{Device, Kind, View, ViewMut};
use crate::error::Result;
use crate::network::{InputLayout, Previous};
use crate::ops::Backend;
use crate::replay::{ActionSlice, ObsSlice, SequenceBatch};

/// Inputs on the device, and the host's copy, reused.
pub(super) struct Slots<D: Device> {
    batch: usize,
    d_input: usize,
    x: D::Tensor,
    reset: D::Mask,
    valid: D::Mask,
    host_x: Vec<f32>,
    host_reset: Vec<u8>,
    host_valid: Vec<u8>,
}

impl<D: Backend> Slots<D> {
    /// Room for `shape`, rows of `d_input` features.
    pub fn new(dev: &D, shape: SeqShape, d_input: usize) -> Result<Self> {
        Ok(Slots {
            batch: shape.batch,
            d_input,
            x: dev.zeros((shape.rows() * d_input).max(1), Kind::Full)?,
            reset: dev.zero_mask(shape.rows())?,
            valid: dev.zero_mask(shape.rows())?,
            host_x: Vec::new(),
            host_reset: Vec::new(),
            host_valid: Vec::new(),
        })
    }

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

    /// Features and masks of the rows `rows` of `batch`; rewards times `scale`.
    pub fn load(
        &mut self,
        dev: &D,
        input: &InputLayout,
        batch: &SequenceBatch,
        rows: Range<usize>,
        scale: f32,
    ) -> Result<()> {
        let (b, d, s) = (rows.len(), self.d_input, batch.slots);
        self.host_x.clear();
        self.host_x.resize(s * b * d, 0.0);
        self.host_reset.clear();
        self.host_valid.clear();
        for t in 0..s {
            for (i, row) in rows.clone().enumerate() {
                let at = t * batch.batch + row;
                self.host_reset.push(batch.reset[at]);
                self.host_valid.push(batch.valid_obs[at]);
                if batch.valid_obs[at] == 0 {
                    continue;
                }
                let previous = (batch.has_prev[at] != 0).then(|| Previous {
                    action: action_ref(batch.prev_action_row(at)),
                    reward: batch.prev_reward[at] * scale,
                });
                let out = &mut self.host_x[(t * b + i) * d..][..d];
                input.write(obs_ref(batch.obs_row(at)), previous, previous.is_none(), out)?;
            }
        }
        dev.upload(&self.host_x, ViewMut::new(&mut self.x, 0, s * b * d))?;
        dev.upload_mask(&self.host_reset, &mut self.reset)?;
        dev.upload_mask(&self.host_valid, &mut self.valid)
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
