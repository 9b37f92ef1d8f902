//! `mamba-rl bench`: what this machine reaches: its ceilings, the network's passes beside the floor computed from them, the
//! environments' steps. Minimum and median of many runs.

use std::io::Write;

use mamba_rl::Error;
use mamba_rl::device::{Choice, Precision};
use serde_json::json;

#[cfg(feature = "cuda")]
use super::bench_gpu;
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
    /// cpu, auto, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: String,
    /// On a GPU: f32, bf16 or f16 [default: f32 and bf16]
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,
    /// On a GPU: small sizes, once each, to see that all of it runs
    #[arg(long)]
    rehearse: bool,
}

/// Measures.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let device = Choice::new(&args.device)?;
    device.check()?;
    if let Choice::Cuda(ordinal) = device {
        return gpu(args, ordinal, out);
    }
    if args.rehearse || args.precision.is_some_and(|p| p != Precision::F32) {
        return Err(Error::Usage("--precision and --rehearse are for a GPU; add --device cuda".into()).into());
    }
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

#[cfg(feature = "cuda")]
fn gpu(args: &Args, ordinal: usize, out: &mut dyn Write) -> Outcome {
    let precisions = args.precision.map_or_else(|| vec![Precision::F32, Precision::Bf16], |p| vec![p]);
    let (rehearse, json, verbose) = (args.rehearse, args.json, args.verbose);
    bench_gpu::run(&bench_gpu::Asked { ordinal, precisions, rehearse, json, verbose }, out)
}

#[cfg(not(feature = "cuda"))]
fn gpu(_: &Args, ordinal: usize, _: &mut dyn Write) -> Outcome {
    Choice::Cuda(ordinal).check()?;
    Ok(0)
}
