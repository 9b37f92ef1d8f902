//! Steps per second of the typed batched form (64 copies) and of `VecEnv`, on one thread.
//!
//! cargo run --release -p mamba-rl-envs --example throughput

use std::time::Duration;

use mamba_rl_envs::throughput::{all_rates, erased_rate};

const COPIES: usize = 64;
const BUDGET: Duration = Duration::from_millis(100);

fn main() -> mamba_rl_envs::Result<()> {
    println!("{:44} {:>8} {:>8}   million steps/s, {COPIES} copies, one thread", "task", "Batch", "VecEnv");
    let mut rates = Vec::new();
    all_rates(&[COPIES], BUDGET, &mut |id, _, rate| rates.push((id.to_owned(), rate)))?;
    for (id, batch) in rates {
        let erased = erased_rate(&id, COPIES, BUDGET)?;
        println!("{id:44} {:8.1} {:8.1}", batch / 1e6, erased / 1e6);
    }
    Ok(())
}
