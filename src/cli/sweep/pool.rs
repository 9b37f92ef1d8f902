//! Runs in processes of their own, some at a time. Each is held by its standard input: when the sweep lets go of it, or is
//! killed, the run stops and saves itself. So an interrupt of the terminal, which goes to a whole process group, must
//! not reach the runs: they have a group of their own.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mamba_rl::{Error, Result};

use super::plan;
use super::suite::Job;
use super::watch::{Screen, Watch};
use crate::cli::results::{Record, Results};
use crate::cli::{run_dir, text};

/// How often runs are looked at, and how often their progress is read.
const LOOK: Duration = Duration::from_millis(50);
const READ: Duration = Duration::from_millis(1000);

/// What bounds a sweep.
pub struct Limits {
    /// Runs at a time.
    pub at_once: usize,
    /// When to stop.
    pub until: Option<Instant>,
    /// Set from outside to stop.
    pub stop: Arc<AtomicBool>,
}

/// What a sweep came to.
#[derive(Debug, Default)]
pub struct Ended {
    /// Runs that failed, and why.
    pub failed: Vec<(String, String)>,
    /// It was stopped before its end.
    pub stopped: bool,
}

/// A run that goes on.
struct Running<'a> {
    job: &'a Job,
    dir: PathBuf,
    child: Child,
    watch: Watch,
}

/// Runs jobs and records what they come to.
pub struct Pool<'a> {
    out: &'a Path,
    results: &'a mut Results,
    limits: Limits,
    screen: Screen,
    running: Vec<Running<'a>>,
    ended: Ended,
    /// Runs that have ended, and all.
    count: (usize, usize),
}

impl<'a> Pool<'a> {
    /// Nothing runs yet.
    pub fn new(out: &'a Path, results: &'a mut Results, limits: Limits, quiet: bool) -> Self {
        let screen = Screen::new(quiet);
        Pool { out, results, limits, screen, running: Vec::new(), ended: Ended::default(), count: (0, 0) }
    }

    /// One line for people.
    pub fn say(&self, line: &str) {
        self.screen.say(line);
    }

    /// Runs all of them, or as many as there is time for.
    ///
    /// # Errors
    /// `Io` where the results cannot be written; the runs have stopped and are saved by then.
    pub fn run(mut self, todo: &[&'a Job]) -> Result<Ended> {
        self.count.1 = todo.len();
        let outcome = self.work(todo.iter().copied().collect());
        // whatever happened, no run is left behind
        self.let_go();
        while !self.running.is_empty() {
            std::thread::sleep(LOOK);
            if let Err(e) = self.collect()
                && outcome.is_ok()
            {
                return Err(e);
            }
        }
        outcome.map(|()| self.ended)
    }

    fn work(&mut self, mut queue: VecDeque<&'a Job>) -> Result<()> {
        let (mut read_at, mut told) = (Instant::now(), false);
        while !queue.is_empty() || !self.running.is_empty() {
            if self.limits.stop.load(Ordering::Relaxed) || self.limits.until.is_some_and(|t| Instant::now() >= t) {
                self.ended.stopped = true;
                self.screen.say(&format!("stopping: {} running, each saves itself", self.running.len()));
                return Ok(());
            }
            // a run whose folder another process still holds comes later
            let mut held = 0;
            while self.running.len() < self.limits.at_once && held < queue.len() {
                let Some(job) = queue.pop_front() else { break };
                if plan::is_locked(&plan::folder(self.out, job)) {
                    queue.push_back(job);
                    held += 1;
                } else {
                    self.start(job)?;
                }
            }
            if held > 0 && !told && self.running.is_empty() {
                self.screen.say("waiting for processes that still train in folders of this sweep");
                told = true;
            }
            std::thread::sleep(LOOK);
            self.collect()?;
            if read_at.elapsed() >= READ {
                read_at = Instant::now();
                self.running.iter_mut().for_each(|r| r.watch.read());
                self.screen.show(self.running.iter().map(|r| &r.watch), self.count);
            }
        }
        Ok(())
    }

    /// Starts one run, or notes why it cannot be started.
    fn start(&mut self, job: &'a Job) -> Result<()> {
        let dir = plan::folder(self.out, job);
        let resume = dir.join(run_dir::CONFIG).is_file();
        let log = log_file(&dir);
        let file =
            OpenOptions::new().create(true).append(true).open(&log).map_err(|e| Error::io("opening", &log, e))?;
        let again = file.try_clone().map_err(|e| Error::io("opening", &log, e))?;
        let mut command = program()?;
        command.args(job.arguments()).arg("--run-dir").arg(&dir).args(["--quiet", "--leash"]);
        if resume {
            command.arg("--resume");
        }
        command.stdin(Stdio::piped()).stdout(file).stderr(again);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        match command.spawn() {
            Ok(child) => {
                self.screen.begin(&job.title(), resume);
                let watch = Watch::new(job.title(), &dir, job.config.train.steps);
                self.running.push(Running { job, dir, child, watch });
            }
            Err(e) => self.fail(job, format!("cannot be started: {e}")),
        }
        Ok(())
    }

    fn let_go(&mut self) {
        self.running.iter_mut().for_each(|r| drop(r.child.stdin.take()));
    }

    /// Takes in the runs that have ended.
    fn collect(&mut self) -> Result<()> {
        let mut i = 0;
        while i < self.running.len() {
            let ended = self.running[i].child.try_wait();
            let status = match ended {
                Ok(None) => {
                    i += 1;
                    continue;
                }
                Ok(Some(status)) => Some(status),
                Err(_) => None,
            };
            let run = self.running.swap_remove(i);
            self.screen.end(run.watch.title());
            self.take_in(run, status)?;
        }
        Ok(())
    }

    fn take_in(&mut self, run: Running<'a>, status: Option<ExitStatus>) -> Result<()> {
        let code = status.and_then(|s| s.code());
        if code == Some(0) {
            match plan::record(&run.dir, run.job) {
                Ok(Some(record)) => {
                    self.count.0 += 1;
                    self.screen.say(&done(&run.job.title(), &record, self.count));
                    return self.results.append(record);
                }
                Ok(None) => self.fail(run.job, "it ended without a result".into()),
                Err(e) => self.fail(run.job, e.to_string()),
            }
        } else if code == Some(3) {
            let why = if self.ended.stopped { "saved" } else { "interrupted from outside, saved" };
            self.screen.say(&format!("stopped {}: {why}", run.job.title()));
        } else {
            let log = log_file(&run.dir);
            let how = status.map_or_else(|| "its process is lost".to_owned(), |s| s.to_string());
            let why = last_words(&log).unwrap_or(how);
            self.fail(run.job, format!("{why} ({})", log.display()));
        }
        Ok(())
    }

    fn fail(&mut self, job: &Job, why: String) {
        self.count.0 += 1;
        self.screen.complain(&format!("FAILED  {}: {why}", job.title()));
        self.ended.failed.push((job.title(), why));
    }
}

/// What a run says beside its folder.
fn log_file(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".log");
    dir.with_file_name(name)
}

/// The last error in a log, else its last line.
fn last_words(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(log).ok()?).into_owned();
    let lines = || text.lines().rev().map(str::trim).filter(|l| !l.is_empty());
    let line = lines().take(20).find(|l| l.starts_with("error: ")).or_else(|| lines().next())?;
    Some(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

/// This program as it runs, also where its file has been replaced meanwhile: all runs of a sweep are of one version.
fn program() -> Result<Command> {
    #[cfg(target_os = "linux")]
    if Path::new("/proc/self/exe").exists() {
        let mut command = Command::new("/proc/self/exe");
        std::os::unix::process::CommandExt::arg0(&mut command, text::program());
        return Ok(command);
    }
    let path = std::env::current_exe().map_err(|e| Error::io("finding", "this program", e))?;
    Ok(Command::new(path))
}

/// The line of a finished run.
fn done(title: &str, r: &Record, count: (usize, usize)) -> String {
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.3}"));
    let reached = match (r.target, r.reached_at) {
        (Some(t), Some(at)) => format!("  reached {} at {}", text::number(t), text::thousands(at)),
        (Some(t), None) => format!("  did not reach {}", text::number(t)),
        _ => String::new(),
    };
    format!(
        "done    {title}  greedy {}  MMER {}{reached}  {} steps  {}  [{}/{}]",
        number(r.greedy_mean),
        number(r.mmer),
        text::thousands(r.steps),
        text::duration(r.wall_s),
        count.0,
        count.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_what_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let log = log_file(&dir.path().join("a__gru__s1"));
        assert_eq!(log.file_name().unwrap(), "a__gru__s1.log");
        assert_eq!(last_words(&log), None);
        std::fs::write(&log, "error: old\nwarning: x\nerror: no room left\nbye\n\n").unwrap();
        assert_eq!(last_words(&log).unwrap(), "no room left");
        std::fs::write(&log, "Killed\n").unwrap();
        assert_eq!(last_words(&log).unwrap(), "Killed");
    }
}
