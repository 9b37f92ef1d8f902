//! A run folder begins with its config, written before anything else.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{RunLock, RunOptions, RunResult, Stopped};
use crate::config::{Config, Flags};
use crate::error::{Error, Result};

/// The resolved config.
pub const CONFIG: &str = "config.toml";

/// The resolved config of a run: preset by the task's actions, then `sets` (`key.path=value`), then `flags`; what depends
/// on the task is filled in.
///
/// # Errors
/// `Config` naming the key; `Env` for an unknown task.
pub fn plan(sets: &[&str], flags: &Flags) -> Result<Config> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    let named = Config::load(None, None, &sets, flags)?;
    let spec = mamba_rl_envs::make(&named.env.id, &named.env_args()?)?.spec().clone();
    let mut config = Config::load_for(&spec.action_space, None, None, &sets, flags)?;
    config.resolve(&spec)?;
    Ok(config)
}

/// Trains in a new folder `run_dir` what `mamba-rl train` with the same config would, without a progress bar.
///
/// ```no_run
/// use mamba_rl::config::Flags;
/// use mamba_rl::train;
///
/// let flags = Flags { env: Some("RepeatFirstEasy".into()), steps: Some(20_000), ..Flags::default() };
/// let result = train::train(&train::plan(&["backbone.d_model=32"], &flags)?, "runs/mine".as_ref())?;
/// println!("{:?} after {} steps", result.eval_return_mean, result.steps);
/// # Ok::<(), mamba_rl::Error>(())
/// ```
///
/// # Errors
/// `Usage` where the folder holds a run; everything that [`run`](super::run) reports.
pub fn train(config: &Config, run_dir: &Path) -> Result<RunResult> {
    std::fs::create_dir_all(run_dir).map_err(|e| Error::io("creating run folder", run_dir, e))?;
    {
        let _lock = RunLock::take(run_dir)?;
        refuse_taken(run_dir)?;
        write_config(run_dir, config)?;
    }
    super::run(config, options(run_dir, config, false))
}

/// Goes on with the run in `run_dir` from its newest complete checkpoint, with the settings that it has; `steps` are new
/// `train.steps`. A run that is done with them is left as it is, and its result returned.
///
/// ```no_run
/// let result = mamba_rl::train::resume("runs/mine".as_ref(), Some(40_000))?;
/// println!("{:?} after {} steps", result.eval_return_mean, result.steps);
/// # Ok::<(), mamba_rl::Error>(())
/// ```
///
/// # Errors
/// `Usage` where the folder holds no run; everything that [`run`](super::run) reports.
pub fn resume(run_dir: &Path, steps: Option<u64>) -> Result<RunResult> {
    let file = run_dir.join(CONFIG);
    if !file.is_file() {
        return Err(Error::Usage(format!("{} holds no {CONFIG}, so there is no run to go on with", run_dir.display())));
    }
    let saved = Config::load_file(&file)?;
    let mut config = saved.clone();
    config.train.steps = steps.unwrap_or(saved.train.steps);
    config.resolve(mamba_rl_envs::make(&config.env.id, &config.env_args()?)?.spec())?;
    if let Some(done) = RunResult::read(run_dir)? {
        let copies = config.env.num_envs as u64;
        let target = config.train.steps / copies * copies;
        let solved = done.stopped == Stopped::StopReturn && config.train.steps <= saved.train.steps;
        let ended = done.stopped != Stopped::Interrupted && (done.steps == target || solved);
        if ended || done.steps > target {
            return Ok(done);
        }
    }
    {
        let _lock = RunLock::take(run_dir)?;
        write_config(run_dir, &config)?;
    }
    super::run(&config, options(run_dir, &config, true))
}

fn options(run_dir: &Path, config: &Config, resume: bool) -> RunOptions {
    let stop = Arc::new(AtomicBool::new(false));
    RunOptions { run_dir: run_dir.into(), resume, init_from: None, stop, quiet: true, preset: config.preset.clone() }
}

/// `Usage` if a folder already holds a run.
pub fn refuse_taken(dir: &Path) -> Result<()> {
    let taken = [CONFIG, "checkpoints", "metrics.jsonl", "result.json"].iter().any(|f| dir.join(f).exists());
    if !taken {
        return Ok(());
    }
    let shown = dir.display();
    let problem = "already holds a run; continue it by --resume (`train::resume`), or choose another --run-dir";
    Err(Error::Usage(format!("{shown} {problem}")))
}

/// Writes `config.toml` aside, syncs it and renames it.
///
/// # Errors
/// `Io` naming the file.
pub fn write_config(dir: &Path, config: &Config) -> Result<()> {
    let path = dir.join(CONFIG);
    let aside = dir.join(".config.toml.tmp");
    let text = config.to_toml()?;
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, &path)
    };
    write().map_err(|e| {
        // a part of a file helps no one
        let _ = std::fs::remove_file(&aside);
        Error::io("writing", &path, e)
    })
}
