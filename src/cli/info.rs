//! `mamba-rl info`: what a checkpoint or a run folder holds.

use std::io::Write;
use std::path::{Path, PathBuf};

use mamba_rl::checkpoint::{self, Checkpoints, MODEL_FILE, STATE_FILE};
use mamba_rl::train::RunResult;
use mamba_rl::{Error, Result};
use serde_json::Value;

use super::{Outcome, run_dir, text};

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run folder (its newest checkpoint), checkpoint folder step-N or its model.safetensors
    #[arg(value_name = "CHECKPOINT|RUN_DIR")]
    path: PathBuf,
}

/// Prints.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let path = args.path.as_path();
    if path.join(run_dir::CONFIG).is_file() {
        about_run(path, out)?;
        if run_dir::newest_step(path)?.is_none() {
            writeln!(out, "no complete checkpoint yet")?;
            return Ok(0);
        }
    }
    about_checkpoint(&checkpoint::resolve(path)?, out)?;
    Ok(0)
}

fn about_run(dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "run {}", dir.display())?;
    match RunResult::read(dir)? {
        Some(r) => {
            writeln!(
                out,
                "  {} ({}), {} with {}, preset {}, seed {}",
                r.env, r.id, r.agent, r.backbone, r.preset, r.seed
            )?;
            let stopped = serde_json::to_value(r.stopped).ok().and_then(|v| v.as_str().map(str::to_owned));
            writeln!(
                out,
                "  {} after {} steps, {} updates, {} episodes, {} on {}",
                stopped.unwrap_or_default(),
                text::thousands(r.steps),
                text::thousands(r.updates),
                text::thousands(r.episodes),
                text::duration(r.wall_s),
                r.device
            )?;
            if let Some(mean) = r.eval_return_mean {
                let std = r.eval_return_std.map_or_else(String::new, |s| format!(" ± {}", text::number(s)));
                let best = r.best_eval_return.map_or_else(String::new, |b| format!(", best {}", text::number(b)));
                writeln!(out, "  greedy return {}{std} over {} episodes{best}", text::number(mean), r.eval_episodes)?;
            }
            writeln!(out, "  config {}, version {}", r.config_hash, r.version)?;
        }
        None => writeln!(out, "  no result.json: running, or ended without one")?,
    }
    for c in Checkpoints::list(dir)? {
        let state = c.problem.as_ref().map_or_else(String::new, |p| format!(", not usable: {p}"));
        writeln!(out, "  checkpoint {}{state}", c.path.display())?;
    }
    Ok(())
}

fn about_checkpoint(dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = checkpoint::load_config(dir)?;
    let path = dir.join(STATE_FILE);
    let state: Value = serde_json::from_slice(&read(&path)?).map_err(|e| Error::checkpoint(&path, e.to_string()))?;
    writeln!(out, "checkpoint {}", dir.display())?;
    writeln!(out, "  step {}, format version {}", show(&state["step"]), show(&state["format_version"]))?;
    for (name, value) in config.get("mamba_rl").and_then(Value::as_object).into_iter().flatten() {
        writeln!(out, "  {name} {}", show(value))?;
    }
    let tensors = tensors(&dir.join(MODEL_FILE))?;
    let total: usize = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    writeln!(out, "  {} parameters in {} tensors", text::thousands(total as u64), tensors.len())?;
    for (name, shape) in tensors {
        writeln!(out, "    {name} {shape:?}")?;
    }
    for (name, sum) in state["files"].as_object().into_iter().flatten() {
        writeln!(out, "  file {name} {}", text::bytes(sum["bytes"].as_u64().unwrap_or(0)))?;
    }
    Ok(())
}

fn show(v: &Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::io("reading", path, e))
}

/// Names and shapes, by name.
fn tensors(path: &Path) -> Result<Vec<(String, Vec<usize>)>> {
    let bytes = read(path)?;
    let file = safetensors::SafeTensors::deserialize(&bytes).map_err(|e| Error::checkpoint(path, e.to_string()))?;
    let mut all: Vec<_> = file.iter().map(|(name, t)| (name.to_owned(), t.shape().to_vec())).collect();
    all.sort();
    Ok(all)
}
