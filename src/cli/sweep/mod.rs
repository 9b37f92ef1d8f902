//! `mamba-rl sweep`: runs what a suite lists and what is missing of it, several at a time, each in a process of its own.
//! A run's folder is the truth about it, `results.jsonl` the account: whatever ends a sweep, the next one goes on.

mod filter;
mod plan;
mod pool;
mod suite;
mod watch;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mamba_rl::train::{RunLock, footprint};
use mamba_rl::{Error, Result};

use super::report::groups::{Cell, rows};
use super::results::{self, Record, Results};
use super::{Outcome, memory, run_dir, text, train};
use filter::Filter;
use plan::State;
use pool::{Ended, Pool};
use suite::{Job, Suite};

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TOML file of the runs: tasks, backbones, seeds, steps, settings
    #[arg(long, value_name = "FILE")]
    suite: PathBuf,
    /// Folder of the run folders [default: runs/<suite>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// File that gets a line for every finished run [default: results.jsonl in the folder]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Runs at a time [default: cores / threads of a run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Only these runs: LABEL, LABEL/BACKBONE or LABEL/BACKBONE/SEED, where `*` stands for anything; may be repeated
    #[arg(long, value_name = "LABEL/BACKBONE")]
    only: Vec<Filter>,
    /// Stop after this many minutes with everything saved
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    max_minutes: Option<f64>,
    /// Check the suite and list what would be run, what is finished and what would go on
    #[arg(long)]
    dry_run: bool,
    /// Print failures and the summary only
    #[arg(long)]
    quiet: bool,
}

/// Text that is no time.
#[derive(Debug, thiserror::Error)]
#[error("expected minutes above 0, such as 90 or 0.5")]
struct NotMinutes;

fn minutes(text: &str) -> std::result::Result<f64, NotMinutes> {
    text.parse().ok().filter(|m: &f64| m.is_finite() && *m > 0.0 && *m < 1e8).ok_or(NotMinutes)
}

/// Runs what is missing.
pub fn run(args: &Args) -> Outcome {
    let suite = suite::load(&args.suite)?;
    let jobs = chosen(&suite, &args.only)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new(run_dir::RUNS).join(&suite.name));
    let file = args.results.clone().unwrap_or_else(|| out.join(results::FILE));
    let at_once = args.jobs.map_or_else(|| per_cores(&jobs), usize::from);
    if args.dry_run {
        let results = Results::read(&file)?;
        return list(&jobs, &states(&out, &results, &jobs)?);
    }
    std::fs::create_dir_all(&out).map_err(|e| Error::io("creating folder", &out, e))?;
    let _lock = lock(&out)?;
    let mut results = Results::read(&file)?;
    results.writable()?;
    let states = states(&out, &results, &jobs)?;
    if results.torn {
        super::warn(&format!("{}: its last line was cut off and is taken away", file.display()));
    }
    let (mut todo, mut damaged) = (Vec::new(), Vec::new());
    for (job, state) in jobs.iter().copied().zip(&states) {
        match state {
            State::Recorded => {}
            State::Finished => match plan::record(&plan::folder(&out, job), job) {
                Ok(record) => record.into_iter().try_for_each(|r| results.append(r))?,
                Err(e) => damaged.push((job.title(), e.to_string())),
            },
            State::Begun(_) | State::New => todo.push(job),
        }
    }
    warn_memory(&todo, at_once)?;
    let stop = train::stop_on_signals()?;
    let until = args.max_minutes.map(|m| Instant::now() + Duration::from_secs_f64(60.0 * m));
    let pool = Pool::new(&out, &mut results, pool::Limits { at_once, until, stop }, args.quiet);
    pool.say(&format!(
        "{}: {} runs, {} finished, {} to do, {at_once} at a time; {}",
        suite.name,
        jobs.len(),
        jobs.len() - todo.len() - damaged.len(),
        todo.len(),
        out.display()
    ));
    let mut ended = pool.run(&todo)?;
    ended.failed.append(&mut damaged);
    summary(&jobs, &results, &ended)
}

/// The runs that the filters leave; each filter must leave some.
fn chosen<'a>(suite: &'a Suite, only: &[Filter]) -> Result<Vec<&'a Job>> {
    if let Some(idle) = only.iter().find(|f| !suite.jobs.iter().any(|j| f.takes(&j.title()))) {
        let mut labels: Vec<&str> = suite.jobs.iter().map(|j| j.label.as_str()).collect();
        labels.dedup();
        labels.truncate(12);
        return Err(Error::Usage(format!("--only {idle} leaves no run; labels of the suite: {}", labels.join(", "))));
    }
    let wanted = |j: &&Job| only.is_empty() || only.iter().any(|f| f.takes(&j.title()));
    Ok(suite.jobs.iter().filter(wanted).collect())
}

/// As many runs as there are cores for.
fn per_cores(jobs: &[&Job]) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = jobs.iter().map(|j| j.config.train.threads).max().unwrap_or(1);
    // 0 threads are as many as there are cores
    cores.checked_div(threads).unwrap_or(1).max(1)
}

/// A warning where the largest runs that may come together do not fit into memory.
fn warn_memory(todo: &[&Job], at_once: usize) -> Result<()> {
    let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut sizes = Vec::new();
    for job in todo {
        let kind = (job.label.as_str(), job.config.backbone.name.as_str());
        let size = match kinds.get(&kind) {
            Some(size) => *size,
            None => memory::needed(&footprint(&job.config, &job.spec)?),
        };
        kinds.insert(kind, size);
        sizes.push(size);
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let needed: u64 = sizes.iter().take(at_once).sum();
    if let Some(free) = memory::available().filter(|free| needed > *free) {
        let (needed, free) = (text::bytes(needed), text::bytes(free));
        super::warn(&format!("runs at a time may need {needed} of memory, {free} are free; lower --jobs"));
    }
    Ok(())
}

fn lock(out: &Path) -> Result<RunLock> {
    RunLock::take(out).map_err(|e| match e {
        Error::Usage(_) => {
            let shown = out.display();
            Error::Usage(format!("another sweep works in {shown}; wait until it ends, or choose another --out"))
        }
        e => e,
    })
}

fn states(out: &Path, results: &Results, jobs: &[&Job]) -> Result<Vec<State>> {
    jobs.iter().map(|job| plan::state(out, results, job)).collect()
}

/// `--dry-run`.
fn list(jobs: &[&Job], states: &[State]) -> Outcome {
    let mut out = std::io::stdout().lock();
    for (job, state) in jobs.iter().zip(states) {
        let what = match state {
            State::Recorded => "finished".to_owned(),
            State::Finished => "finished, not yet recorded".to_owned(),
            State::Begun(step) => format!("goes on at step {}", text::thousands(*step)),
            State::New => "new".to_owned(),
        };
        let steps = text::thousands(job.config.train.steps);
        writeln!(out, "{:<48} {:<32} {steps:>10} steps  {what}", job.title(), job.spec.name)?;
    }
    let left = states.iter().filter(|s| matches!(s, State::Begun(_) | State::New)).count();
    writeln!(out, "{} runs, {left} to do", jobs.len())?;
    out.flush()?;
    Ok(0)
}

/// What it came to, and the exit code: 3 where something is left because the sweep was stopped, 1 where a run failed.
fn summary(jobs: &[&Job], results: &Results, ended: &Ended) -> Outcome {
    let mut out = std::io::stdout().lock();
    let key = |j: &Job| (j.label.clone(), j.config.backbone.name.clone(), j.config.train.seed);
    let records: Vec<&Record> = jobs.iter().filter_map(|j| results.records.get(&key(j))).collect();
    let finished = records.len();
    for row in rows(records.into_iter()) {
        // greedy return of the last evaluation, mean over seeds, and the seeds
        let cell = |c: &Cell<'_>| {
            let mean = c.greedy().map_or_else(|| "-".to_owned(), |g| format!("{:.3}", g.mean()));
            format!("  {} {mean} ({})", c.backbone, c.runs.len())
        };
        writeln!(out, "{:<40}{}", row.label, row.cells.iter().map(cell).collect::<String>())?;
    }
    for (title, why) in &ended.failed {
        writeln!(out, "failed: {title}: {why}")?;
    }
    let left = jobs.len() - finished - ended.failed.len();
    let mut line = format!("{finished} of {} runs finished", jobs.len());
    if !ended.failed.is_empty() {
        line += &format!(", {} failed", ended.failed.len());
    }
    if left > 0 {
        line += &format!(", {left} left: the same command goes on");
    }
    writeln!(out, "{line}")?;
    if finished > 0 {
        writeln!(out, "tables and curves: {} report {}", text::program(), text::shell(results.path()))?;
    }
    out.flush()?;
    Ok(if ended.stopped && left > 0 {
        3
    } else if ended.failed.is_empty() && left == 0 {
        0
    } else {
        1
    })
}
