//! `mamba-rl bench`: how fast this machine is, as a table or as JSON. Each part is measured by the library that it is
//! about and has a file of its own here.

use std::io::Write;

use serde_json::{Value, json};

use super::{Outcome, bench_envs, devices};

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let machine = machine();
    if args.json {
        let report = json!({"machine": machine, "envs": bench_envs::measure(&mut |_, _, _| Ok(()))?});
        serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(0);
    }
    let words = |key: &str| machine.get(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    writeln!(out, "{}, {} threads", words("cpu").unwrap_or_default(), words("threads").unwrap_or_default())?;
    bench_envs::print(out)?;
    Ok(0)
}

/// The machine that the numbers belong to.
fn machine() -> Value {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    json!({"cpu": devices::cpu_name(), "threads": threads})
}
