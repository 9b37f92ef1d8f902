//! Burn-in: all networks replay the steps before the learnt span from the same stored state, each with its own weights,
//! without a tape. The states that come out are constants: no gradient passes. Source: R2D2, Sec. 3.
//!
//! A row with a short burn-in is padded on the left, and padding moves a state. Nearly always the row's first real step
//! clears it; where memory was carried into the episode (trials) the stored state is put back at that step.

use std::ops::Range;

use super::shards::Shard;
use crate::error::Result;
use crate::network::QNetwork;
use crate::ops::Backend;
use crate::params::Params;
use crate::replay::SequenceBatch;

/// A piece of burn-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// Run the slots from the first to before the second.
    Run(usize, usize),
    /// Put the stored state of this row (of the rows that burn in) back.
    Restore(usize),
}

/// L2  the first `burn_in` slots of the rows `rows` of `batch`, piece by piece.
pub(super) fn pieces(
    rows: Range<usize>,
    burn_in: usize,
    batch: &SequenceBatch,
    each: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let late = late_starts(rows, burn_in, batch);
    let mut from = 0;
    for &(slot, _) in late.iter().chain([&(burn_in, 0)]) {
        if slot > from {
            each(Piece::Run(from, slot))?;
            from = slot;
        }
        for &(_, i) in late.iter().filter(|l| l.0 == slot) {
            each(Piece::Restore(i))?;
        }
    }
    Ok(())
}

/// Does no row need its state put back on the way, so that burn-in is the same work for every batch of these sizes?
pub(super) fn in_one_piece(rows: Range<usize>, burn_in: usize, batch: &SequenceBatch) -> bool {
    late_starts(rows, burn_in, batch).is_empty()
}

/// Burn-in of a Q-network and its target.
pub(super) fn burn_in<D: Backend>(
    dev: &D,
    net: &QNetwork<D>,
    [online, target]: [&Params<D>; 2],
    shard: &mut Shard<D>,
    batch: &SequenceBatch,
) -> Result<()> {
    pieces(shard.rows.clone(), shard.burn_in, batch, &mut |piece| match piece {
        Piece::Run(from, to) => {
            let seq = shard.slots.sequence(from, to);
            net.burn_in(dev, online, seq, &mut shard.online_state, &mut shard.online)?;
            net.burn_in(dev, target, seq, &mut shard.target_state, &mut shard.target)
        }
        Piece::Restore(i) => shard.write_state(dev, net, batch, i),
    })
}

/// (first real slot, row of `rows`) of rows that are padded on the left and not cleared there, by slot.
fn late_starts(rows: Range<usize>, burn_in: usize, batch: &SequenceBatch) -> Vec<(usize, usize)> {
    let mut late = Vec::new();
    for (i, row) in rows.enumerate() {
        let first = (0..=burn_in).find(|&t| batch.valid_obs[batch.at(t, row)] != 0);
        if let Some(slot) = first.filter(|&t| t > 0 && batch.reset[batch.at(t, row)] == 0) {
            late.push((slot, i));
        }
    }
    late.sort_unstable();
    late
}
