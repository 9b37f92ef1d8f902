//! `mamba-rl rollout`: episodes of a random policy or a trained agent, as a table, as text frames, as JSON lines, as pictures.

use std::io::Write;
use std::path::{Path, PathBuf};

use mamba_rl::Error;
use mamba_rl::config::{Config, Flags};
use mamba_rl::network::Session;
use mamba_rl_envs::{BoxEnv, DynEnv, EnvArgs, render};

use super::play::{At, Policy, play, text_frames};
use super::{Outcome, checkpoint, text};

/// Arguments of `rollout`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task by id, name or alias [default: the one that the checkpoint was trained on]
    #[arg(long, value_name = "ID")]
    env: Option<String>,
    /// random, or a checkpoint or run folder
    #[arg(long, value_name = "random|CHECKPOINT", default_value = "random")]
    policy: String,
    /// Episodes
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value = "1", value_parser = super::count)]
    episodes: u64,
    /// Seed of the first episode; episode i has seed + i
    #[arg(long, allow_negative_numbers = true, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// A setting of the task, such as env.args.length=20 or env.legacy=true
    #[arg(long, value_name = "ENV.KEY=VALUE")]
    set: Vec<String>,
    /// One JSON object per episode
    #[arg(long)]
    jsonl: bool,
    /// Show each step as text
    #[arg(long)]
    render: bool,
    /// Write the episodes as an animation
    #[arg(long, value_name = "FILE")]
    gif: Option<PathBuf>,
    /// Write the last frame as a picture
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

/// Plays.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (mut env, env_args, mut policy) = prepare(args)?;
    let mut returns = Vec::new();
    let mut pictures = Pictures { gif: args.gif.as_deref(), png: args.png.as_deref(), frames: Vec::new(), left_out: 0 };
    if !args.jsonl && !args.render {
        writeln!(out, "{}, policy {}", env.spec().id, args.policy)?;
    }
    for n in 0..args.episodes {
        let seed = args.seed.wrapping_add(n);
        let mut frames = args.render.then(String::new);
        let mut episode = play(&mut env, &mut policy, seed, &mut |env, at| {
            if let Some(text) = &mut frames {
                text_frames(text)(env, at);
            }
            pictures.look(env, at);
        })?;
        episode.args.clone_from(&env_args.args);
        let total = episode.rewards.iter().sum::<f64>();
        let length = episode.rewards.len();
        if let Some(frames) = frames {
            // Frames and records do not mix: beside --jsonl they go to stderr.
            let head = format!("episode {}, seed {seed}\n{frames}\n", n + 1);
            if args.jsonl { std::io::stderr().write_all(head.as_bytes())? } else { out.write_all(head.as_bytes())? }
        }
        if args.jsonl {
            serde_json::to_writer(&mut *out, &episode).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            writeln!(out, "episode {}  seed {seed}  length {length}  return {}", n + 1, text::number(total))?;
        }
        returns.push(total);
    }
    pictures.write()?;
    if !args.jsonl && returns.len() > 1 {
        let mean = returns.iter().sum::<f64>() / returns.len() as f64;
        writeln!(out, "mean return {} over {} episodes", text::number(mean), returns.len())?;
    }
    Ok(0)
}

/// Frames of an animation; more would need too much memory.
const MOST_FRAMES: usize = 1_000;
/// Hundredths of a second from frame to frame.
const DELAY: u16 = 12;

/// What `--gif` and `--png` ask for.
struct Pictures<'a> {
    gif: Option<&'a Path>,
    png: Option<&'a Path>,
    frames: Vec<mamba_rl_envs::render::Image>,
    left_out: usize,
}

impl Pictures<'_> {
    fn look(&mut self, env: &dyn DynEnv, at: At) {
        if self.gif.is_none() && self.png.is_none() {
            return;
        }
        if self.gif.is_none() {
            self.frames.clear();
        }
        if self.frames.len() < MOST_FRAMES {
            self.frames.push(render::frame(env, &format!("{}  {}", env.spec().name, at.words(Some(4)))));
        } else {
            self.left_out += 1;
        }
    }

    fn write(&self) -> anyhow::Result<()> {
        if let (Some(file), Some(last)) = (self.png, self.frames.last()) {
            render::write_png(file, last)?;
        }
        if let Some(file) = self.gif {
            render::write_gif(file, &self.frames, DELAY)?;
        }
        if self.left_out > 0 {
            writeln!(
                std::io::stderr(),
                "warning: the first {MOST_FRAMES} frames were drawn, {} left out",
                self.left_out
            )?;
        }
        Ok(())
    }
}

fn prepare(args: &Args) -> anyhow::Result<(BoxEnv, EnvArgs, Policy)> {
    let of_the_task = |s: &String| ["env.legacy", "env.args."].iter().any(|key| s.trim_start().starts_with(key));
    if let Some(set) = args.set.iter().find(|s| !of_the_task(s)) {
        let problem =
            format!("--set {set}: a rollout has only env.legacy=true and env.args.NAME=value; the task is --env");
        return Err(Error::Usage(problem).into());
    }
    if args.episodes == 0 {
        return Err(Error::Usage("--episodes is 0, expected at least 1".into()).into());
    }
    let trained = if args.policy == "random" { None } else { Some(checkpoint::trained(Path::new(&args.policy))?) };
    let id = match (&args.env, &trained) {
        (Some(id), _) => id.clone(),
        (None, Some(t)) => t.env.clone(),
        (None, None) => {
            let problem = "--env is missing: a random policy needs a task (`mamba-rl envs` lists them)";
            return Err(Error::Usage(problem.into()).into());
        }
    };
    let config = Config::load(None, None, &args.set, &Flags { env: Some(id.clone()), ..Flags::default() })?;
    let mut env_args = config.env_args()?;
    if let Some(t) = trained.as_ref().filter(|t| t.env == id) {
        // The task as it was trained on, where the command says nothing else.
        if !args.set.iter().any(|s| s.trim_start().starts_with("env.legacy")) {
            env_args.legacy = t.args.legacy;
        }
        for (name, value) in &t.args.args {
            env_args.args.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    let env = mamba_rl_envs::make(&id, &env_args)?;
    let Some(trained) = trained else { return Ok((env, env_args, Policy::random(args.seed))) };
    let spec = env.spec();
    let spaces = [("observation", &spec.observation_space), ("action", &spec.action_space)];
    for ((kind, space), stored) in spaces.into_iter().zip(&trained.spaces) {
        if serde_json::to_value(space).ok().as_ref() != Some(stored) {
            return Err(Error::Usage(format!(
                "--env {id} has {kind} space {space}, but {} was trained on {} with another one ({stored})",
                args.policy, trained.env
            ))
            .into());
        }
    }
    let session = Session::from_checkpoint(Path::new(&args.policy))?;
    Ok((env, env_args, Policy::Agent(Box::new(session))))
}
