//! Burn-in: both networks replay the steps before the learnt span from the same stored state, each with its own weights,
//! without a tape. The states that come out are constants: no gradient passes. Source: R2D2, Sec. 3.
//!
//! A row with a short burn-in is padded on the left, and padding moves a state. Nearly always the row's first real step
//! clears it; where memory was carried into the episode (trials) the stored state is put back at that step.

use super::shards::Shard;
use crate::error::Result;
use crate::network::QNetwork;
use crate::ops::Backend;
use crate::params::Params;
use crate::replay::SequenceBatch;

/// L2  the first `burn_in` slots through both networks. `late` is of [`late_starts`].
pub(super) fn burn_in<D: Backend>(
    dev: &D,
    net: &QNetwork<D>,
    [online, target]: [&Params<D>; 2],
    shard: &mut Shard<D>,
    batch: &SequenceBatch,
    late: &[(usize, usize)],
) -> Result<()> {
    let mut from = 0;
    for &(slot, _) in late.iter().chain([&(shard.burn_in, 0)]) {
        if slot > from {
            let seq = shard.slots.sequence(from, slot);
            net.burn_in(dev, online, seq, &mut shard.online_state, &mut shard.online)?;
            net.burn_in(dev, target, seq, &mut shard.target_state, &mut shard.target)?;
            from = slot;
        }
        for &(_, i) in late.iter().filter(|l| l.0 == slot) {
            shard.write_state(dev, net, batch, i)?;
        }
    }
    Ok(())
}

/// (first real slot, row of the shard) of rows that are padded on the left and not cleared there, by slot.
pub(super) fn late_starts<D: Backend>(shard: &Shard<D>, batch: &SequenceBatch) -> Vec<(usize, usize)> {
    let mut late = Vec::new();
    for (i, row) in shard.rows.clone().enumerate() {
        let first = (0..=shard.burn_in).find(|&t| batch.valid_obs[batch.at(t, row)] != 0);
        if let Some(slot) = first.filter(|&t| t > 0 && batch.reset[batch.at(t, row)] == 0) {
            late.push((slot, i));
        }
    }
    late.sort_unstable();
    late
}
