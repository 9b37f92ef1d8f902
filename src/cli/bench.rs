//! `mamba-rl bench`: what this machine reaches: its ceilings, the network's passes beside the floor computed from them, the
//! environments' steps. Minimum and median of many runs.

use std::io::Write;

use serde_json::json;

use super::{Outcome, bench_envs, bench_shapes};

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print the counted work of every op as well
    #[arg(short, long)]
    verbose: bool,
}

/// Measures.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let machine = bench_shapes::machine()?;
    if args.json {
        let shapes = bench_shapes::measure(&machine)?;
        let envs = bench_envs::measure(&mut |_, _, _| Ok(()))?;
        let report = json!({"machine": machine.json(), "shapes": shapes, "envs": envs});
        serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(0);
    }
    bench_shapes::print(&machine, args.verbose, out)?;
    bench_envs::print(out)?;
    Ok(0)
}
