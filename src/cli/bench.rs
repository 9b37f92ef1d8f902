//! `mamba-rl bench`: how fast this machine is, as a table or as JSON. Each part is measured by the library that it is
//! about and has a file of its own here.

use std::io::Write;

use serde_json::json;

use super::{Outcome, bench_shapes};

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
        let report = json!({"machine": machine.json(), "shapes": bench_shapes::measure(&machine)?});
        serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(0);
    }
    bench_shapes::print(&machine, args.verbose, out)?;
    Ok(0)
}
