//! What is still to be run: a line of `results.jsonl`, else the run's own folder, tells how far a run has come. Both hold
//! their settings, so that a changed suite is noticed and nothing old is taken for new.

use std::path::{Path, PathBuf};

use mamba_rl::config::Config;
use mamba_rl::train::{self, RunResult, Stopped};
use mamba_rl::{Error, Result};

use super::suite::Job;
use crate::cli::results::{self, Asked, Record, Results, Settings};
use crate::cli::run_dir;

/// How far a run has come.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// It has its line.
    Recorded,
    /// Its folder is finished, its line is missing.
    Finished,
    /// Its folder can go on from this step.
    Begun(u64),
    /// Nothing is there.
    New,
}

/// Folder of a run.
pub fn folder(out: &Path, job: &Job) -> PathBuf {
    out.join(job.name())
}

/// How far has it come?
///
/// # Errors
/// `Usage` naming label and key where settings have changed, and where the folder holds something else.
pub fn state(out: &Path, results: &Results, job: &Job) -> Result<State> {
    let dir = folder(out, job);
    let key = (job.label.clone(), job.config.backbone.name.clone(), job.config.train.seed);
    if let Some(record) = results.records.get(&key) {
        unchanged(job, &record.config, results.path())?;
        return Ok(State::Recorded);
    }
    let config = dir.join(run_dir::CONFIG);
    if !config.is_file() {
        run_dir::refuse_taken(&dir)?;
        return Ok(State::New);
    }
    let saved = Config::load_file(&config)?;
    if saved.train.seed != job.config.train.seed || saved.backbone.name != job.config.backbone.name {
        return Err(Error::Usage(format!("{} holds another run than `{}`; move it away", dir.display(), job.title())));
    }
    unchanged(job, &results::settings(&saved)?, &config)?;
    match RunResult::read(&dir) {
        Ok(Some(r)) if r.stopped != Stopped::Interrupted => Ok(State::Finished),
        // a damaged folder fails by itself and stops no other run
        _ => Ok(State::Begun(run_dir::newest_step(&dir).ok().flatten().unwrap_or(0))),
    }
}

/// `Usage` where a run was made with other settings than the suite has now.
fn unchanged(job: &Job, saved: &Settings, place: &Path) -> Result<()> {
    let title = job.title();
    let way = "choose another label or another --out, or remove what is there";
    if saved.is_empty() {
        let shown = place.display();
        return Err(Error::Usage(format!("{shown} has a line of `{title}` without its `config`; {way}")));
    }
    let Some((key, old, new)) = results::difference(saved, &results::settings(&job.config)?)? else { return Ok(()) };
    Err(Error::Usage(format!("`{title}`: `{key}` is {new} in the suite, but {old} in {}; {way}", place.display())))
}

/// The line of a run whose folder is finished; None where it is not.
///
/// # Errors
/// `Io` and `Checkpoint` naming the file that cannot be read.
pub fn record(dir: &Path, job: &Job) -> Result<Option<Record>> {
    let Some(result) = RunResult::read(dir)? else { return Ok(None) };
    if result.stopped == Stopped::Interrupted {
        return Ok(None);
    }
    let set = job.set_as_json();
    let asked = Asked {
        label: &job.label,
        set: &set,
        target: job.target,
        return_range: job.spec.return_range,
        config: &job.config,
    };
    Record::of_run(dir, result, &asked).map(Some)
}

/// Does another process train in this folder?
pub fn is_locked(dir: &Path) -> bool {
    dir.is_dir() && matches!(train::RunLock::take(dir), Err(e) if e.is_usage())
}
