//! Burn-in: both networks replay the steps before the learnt span from the same stored state, each with its own weights,
//! without a tape. The states that come out are constants: no gradient passes. Source: R2D2, Sec. 3.

use super::shards::Shard;
use crate::error::Result;
use crate::network::QNetwork;
use crate::ops::Backend;
use crate::params::Params;

/// L2  the first `burn_in` slots through one network.
pub(super) fn burn_in<D: Backend>(
    dev: &D,
    net: &QNetwork<D>,
    online: &Params<D>,
    target: &Params<D>,
    shard: &mut Shard<D>,
) -> Result<()> {
    if shard.burn_in == 0 {
        return Ok(());
    }
    let seq = shard.slots.sequence(0, shard.burn_in);
    net.burn_in(dev, online, seq, &mut shard.online_state, &mut shard.online)?;
    net.burn_in(dev, target, seq, &mut shard.target_state, &mut shard.target)
}
