//! `mamba-rl train --resume`: which run, whether it may go on as asked, and whether anything is left to do.

use std::io::Write;
use std::path::Path;

use mamba_rl::config::Config;
use mamba_rl::train::{self, RunResult, Stopped};
use mamba_rl::{Error, Result};

use super::train::{Args, Plan, dry_run, start};
use super::{Outcome, run_dir, text};

/// Goes on with the run in `--run-dir`.
pub fn run(args: &Args) -> Outcome {
    let Some(dir) = &args.run_dir else { return Err(Error::Usage(which()).into()) };
    if args.init_from.is_some() {
        let problem = "--init-from begins a new run, --resume goes on with one; give only one of them";
        return Err(Error::Usage(problem.into()).into());
    }
    let saved = saved(dir)?;
    let asked = Config::load_resumed(&saved, args.preset.as_deref(), args.config.as_deref(), &args.set, &args.flags())?;
    let plan = Plan::new(asked)?;
    let before = before(saved, &plan.config)?;
    if let Some(d) = Config::resume_difference(&before, &plan.config)? {
        return Err(Error::Usage(format!(
            "`{}` is {} in {}, but {} was asked for; a resumed run keeps its settings: leave it out, or start a new run",
            d.key,
            d.saved,
            dir.display(),
            d.now
        ))
        .into());
    }
    let footprint = train::footprint(&plan.config, &plan.spec)?;
    if args.dry_run {
        return dry_run(&plan, &footprint);
    }
    // Nothing is changed under a process that trains here; `train::run` takes the lock again for itself.
    let lock = train::RunLock::take(dir)?;
    if let Some(line) = nothing_left(dir, &before, &plan.config)? {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", if args.quiet { dir.display().to_string() } else { line })?;
        out.flush()?;
        return Ok(0);
    }
    if before != plan.config {
        run_dir::write_config(dir, &plan.config)?;
    }
    drop(lock);
    start(args, &plan, &footprint, dir.clone(), true)
}

/// The config of a run folder.
fn saved(dir: &Path) -> Result<Config> {
    let shown = dir.display();
    if !dir.exists() {
        return Err(Error::Usage(format!("run folder {shown} does not exist; leave out --resume for a new run")));
    }
    let file = dir.join(run_dir::CONFIG);
    if !file.is_file() {
        return Err(Error::Usage(format!("{shown} holds no {}, so it is no run; name a run folder", run_dir::CONFIG)));
    }
    Config::load_file(&file)
}

/// The saved config, resolved. Its own device may be on another machine: a run may go on elsewhere.
fn before(saved: Config, now: &Config) -> Result<Config> {
    let (device, precision) = (saved.train.device.clone(), saved.train.precision.clone());
    let mut here = saved;
    (here.train.device, here.train.precision) = (now.train.device.clone(), now.train.precision.clone());
    let mut before = Plan::new(here)?.config;
    (before.train.device, before.train.precision) = (device, precision);
    Ok(before)
}

/// The message for `--resume` without a folder.
fn which() -> String {
    let runs = run_dir::resumable();
    if runs.is_empty() {
        return format!("--resume needs --run-dir; no run in {}/ can be resumed", run_dir::RUNS);
    }
    let list: Vec<String> =
        runs.iter().map(|(dir, step)| format!("{} (step {})", dir.display(), text::thousands(*step))).collect();
    format!("--resume needs --run-dir; runs that can be resumed: {}", list.join(", "))
}

/// Why there is nothing to do, if there is nothing: the run ends at the last whole vector step within `train.steps`.
fn nothing_left(dir: &Path, before: &Config, now: &Config) -> Result<Option<String>> {
    let Some(step) = run_dir::newest_step(dir)? else { return Ok(None) };
    let result = RunResult::read(dir)?;
    let copies = now.env.num_envs as u64;
    let target = now.train.steps / copies * copies;
    let ended = result.as_ref().is_some_and(|r| r.stopped != Stopped::Interrupted && r.steps == step);
    let solved = result.is_some_and(|r| r.stopped == Stopped::StopReturn && r.steps == step);
    let done = step > target || (step == target && ended) || (solved && now.train.steps <= before.train.steps);
    if !done {
        return Ok(None);
    }
    Ok(Some(format!(
        "nothing to do: {} is at step {} of {}; to train on: {} train --resume --run-dir {} --steps {}",
        dir.display(),
        text::thousands(step),
        text::thousands(now.train.steps),
        text::program(),
        text::shell(dir),
        2 * now.train.steps.max(step)
    )))
}
