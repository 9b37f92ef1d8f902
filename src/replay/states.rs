//! Stored recurrent states: one cell per window start, in f32 or half the size. Plain host numbers.

use super::config::StateDtype;
use super::error::Result;
use super::format::{Reader, Writer};
use half::{bf16, f16};

/// No stored state: the window starts from zeros.
pub(super) const NO_STATE: u32 = u32::MAX;

#[derive(Debug)]
enum Cells {
    Full(Vec<Box<[f32]>>),
    Half(Vec<Box<[u16]>>),
}

/// Cells of equal length that are used again when freed.
#[derive(Debug)]
pub(super) struct StateStore {
    dtype: StateDtype,
    len: usize,
    cells: Cells,
    free: Vec<u32>,
}

impl StateStore {
    pub fn new(dtype: StateDtype, len: usize) -> Self {
        let cells = if dtype == StateDtype::F32 { Cells::Full(Vec::new()) } else { Cells::Half(Vec::new()) };
        StateStore { dtype, len, cells, free: Vec::new() }
    }

    /// Bytes of all cells, used or free.
    pub fn bytes(&self) -> usize {
        match &self.cells {
            Cells::Full(cells) => cells.len() * self.len * 4,
            Cells::Half(cells) => cells.len() * self.len * 2,
        }
    }

    fn take(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            return id;
        }
        let n = match &mut self.cells {
            Cells::Full(cells) => {
                cells.push(vec![0.0; self.len].into());
                cells.len()
            }
            Cells::Half(cells) => {
                cells.push(vec![0; self.len].into());
                cells.len()
            }
        };
        n as u32 - 1
    }

    /// Keeps a state of `len` numbers.
    pub fn store(&mut self, state: &[f32]) -> u32 {
        let id = self.take();
        match &mut self.cells {
            Cells::Full(cells) => cells[id as usize].copy_from_slice(state),
            Cells::Half(cells) => {
                for (cell, &x) in cells[id as usize].iter_mut().zip(state) {
                    *cell = encode(self.dtype, x);
                }
            }
        }
        id
    }

    /// Frees a cell; [`NO_STATE`] is ignored.
    pub fn release(&mut self, id: u32) {
        if id != NO_STATE {
            self.free.push(id);
        }
    }

    /// Decodes a state into `out`; zeros for [`NO_STATE`].
    pub fn read(&self, id: u32, out: &mut [f32]) {
        if id == NO_STATE {
            return out.fill(0.0);
        }
        match &self.cells {
            Cells::Full(cells) => out.copy_from_slice(&cells[id as usize]),
            Cells::Half(cells) => {
                for (out, &cell) in out.iter_mut().zip(&cells[id as usize]) {
                    *out = decode(self.dtype, cell);
                }
            }
        }
    }

    /// Writes a cell as it is kept.
    pub fn write(&self, id: u32, out: &mut Writer) -> Result<()> {
        match &self.cells {
            Cells::Full(cells) => out.f32s(&cells[id as usize]),
            Cells::Half(cells) => out.u16s(&cells[id as usize]),
        }
    }

    /// Reads what [`Self::write`] wrote into a cell of its own.
    pub fn read_from(&mut self, file: &mut Reader) -> Result<u32> {
        let id = self.take();
        match &mut self.cells {
            Cells::Full(cells) => file.f32s(&mut cells[id as usize])?,
            Cells::Half(cells) => file.u16s(&mut cells[id as usize])?,
        }
        Ok(id)
    }
}

fn encode(dtype: StateDtype, x: f32) -> u16 {
    match dtype {
        StateDtype::Bf16 => bf16::from_f32(x).to_bits(),
        // Beyond f16's range the largest number is closer to the truth than infinity.
        _ => f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32())).to_bits(),
    }
}

fn decode(dtype: StateDtype, bits: u16) -> f32 {
    match dtype {
        StateDtype::Bf16 => bf16::from_bits(bits).to_f32(),
        _ => f16::from_bits(bits).to_f32(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_keep_a_state() {
        let mut back = [0.0; 3];
        for (dtype, bytes, expected) in [
            (StateDtype::F32, 12, [1.0 / 3.0, 1e6, -2.0]),
            (StateDtype::F16, 6, [0.333_251_95, 65504.0, -2.0]),
            (StateDtype::Bf16, 6, [0.333_984_38, 999_424.0, -2.0]),
        ] {
            let mut store = StateStore::new(dtype, 3);
            let id = store.store(&[1.0 / 3.0, 1e6, -2.0]);
            store.read(id, &mut back);
            assert_eq!((back, store.bytes()), (expected, bytes));
            store.release(id);
            assert_eq!(store.store(&[0.0; 3]), id);
            store.read(NO_STATE, &mut back);
            assert_eq!(back, [0.0; 3]);
        }
    }
}
