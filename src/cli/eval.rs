//! `mamba-rl eval`: greedy episodes of a trained agent. With `--render` they are played one by one and shown.

use std::io::Write;
use std::path::PathBuf;

use mamba_rl::network::Session;
use mamba_rl::train::{self, EvalReport};
use mamba_rl::{Error, checkpoint as files};

use super::play::{Policy, play, text_frames};
use super::{Outcome, checkpoint, text};

/// Arguments of `eval`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run folder (its newest checkpoint), checkpoint folder step-N or its model.safetensors
    #[arg(value_name = "RUN_DIR|CHECKPOINT")]
    path: PathBuf,
    /// Episodes [default: 100, or 1 with --render]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = super::count)]
    episodes: Option<u64>,
    /// Seed of the episodes
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Show each step as text
    #[arg(long)]
    render: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Evaluates.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let episodes = args.episodes.unwrap_or(if args.render { 1 } else { 100 });
    if episodes == 0 || episodes > 10_000_000 {
        return Err(Error::Usage(format!("--episodes is {episodes}, expected 1 to 10,000,000")).into());
    }
    let report = if args.render {
        render(args, episodes, out)?
    } else {
        train::evaluate(&args.path, episodes as usize, args.seed)?
    };
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(0);
    }
    let n = text::number;
    writeln!(
        out,
        "{}: greedy return {} ± {} over {}",
        report.env,
        n(report.eval_return_mean),
        n(report.eval_return_std),
        text::episodes(report.episodes)
    )?;
    writeln!(
        out,
        "  smallest {}, largest {}, mean length {}, seed {}",
        n(report.eval_return_min),
        n(report.eval_return_max),
        n(report.eval_length_mean),
        report.seed
    )?;
    writeln!(out, "  {}", report.checkpoint)?;
    Ok(0)
}

/// Plays with frames: to stdout, or to stderr beside `--json`.
fn render(args: &Args, episodes: u64, out: &mut dyn Write) -> anyhow::Result<EvalReport> {
    let dir = files::resolve(&args.path)?;
    let trained = checkpoint::trained(&dir)?;
    let mut env = mamba_rl_envs::make(&trained.env, &trained.args)?;
    let mut policy = Policy::Agent(Box::new(Session::from_checkpoint(&dir)?));
    let (mut returns, mut steps) = (Vec::new(), 0);
    for n in 0..episodes {
        let mut frames = String::new();
        let seed = mamba_rl_envs::episode_seed(args.seed, n, 0);
        let episode = play(&mut env, &mut policy, seed, &mut text_frames(&mut frames))?;
        returns.push(episode.rewards.iter().sum::<f64>());
        steps += episode.rewards.len();
        if args.json {
            std::io::stderr().write_all(frames.as_bytes())?;
        } else {
            writeln!(out, "episode {}\n{frames}", n + 1)?;
        }
    }
    let count = returns.len() as f64;
    let mean = returns.iter().sum::<f64>() / count;
    Ok(EvalReport {
        env: env.spec().name.clone(),
        episodes: returns.len(),
        eval_return_mean: mean,
        eval_return_std: (returns.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / count).sqrt(),
        eval_return_min: returns.iter().copied().fold(f64::INFINITY, f64::min),
        eval_return_max: returns.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        eval_length_mean: steps as f64 / count,
        checkpoint: dir.display().to_string(),
        seed: args.seed,
    })
}
