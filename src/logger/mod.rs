//! Where a run's numbers go: `metrics.jsonl` and a TensorBoard event file. One value per tag and step, steps strictly
//! increasing, also across a resume. A sink that cannot be written is switched off with one warning; training goes on.
//! Source of the event format: TensorBoard's event file, a TFRecord stream of `Event` messages.

mod append;
pub mod console;
mod error;
pub mod jsonl;
pub mod reader;
#[cfg(feature = "tensorboard")]
mod summary;
#[cfg(feature = "tensorboard")]
mod tensorboard;

pub use error::{LogError, Result};

use jsonl::Jsonl;
use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};
#[cfg(feature = "tensorboard")]
use tensorboard::Events;

/// Longest time between two flushes, and the default.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// Warnings kept for [`Logger::take_warnings`]; more are counted only.
const MAX_WARNINGS: usize = 1000;

/// How a run's log is opened.
#[derive(Clone, Debug)]
pub struct LoggerOptions {
    /// Also write a TensorBoard event file. Default true.
    pub tensorboard: bool,
    /// Environment step at which the run (re)starts: 0, or the checkpoint's. Only later steps are accepted after a resume.
    pub start_step: u64,
    /// Length of `metrics.jsonl` recorded in the checkpoint ([`Logger::jsonl_len`]), in bytes. `None` for a new run,
    /// `Some(0)` to start a run again from nothing.
    pub truncate_jsonl_to: Option<u64>,
    /// Longest time for which a record stays in memory, at most 5 s (the default). Zero: none does.
    pub flush_every: Duration,
}

impl Default for LoggerOptions {
    fn default() -> Self {
        Self { tensorboard: true, start_step: 0, truncate_jsonl_to: None, flush_every: FLUSH_EVERY }
    }
}

/// One setting of a run, for TensorBoard's HPARAMS page.
#[derive(Clone, Debug, PartialEq)]
pub enum HparamValue {
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
    /// On or off.
    Bool(bool),
}

/// The sinks and what keeps their series clean.
#[derive(Debug)]
struct Sinks {
    jsonl: Option<Jsonl>,
    /// Flushed length of the metrics file, also after it was switched off.
    jsonl_len: u64,
    #[cfg(feature = "tensorboard")]
    events: Option<Events>,
    /// The lowest step that is accepted: the last one, or the first after a resume.
    floor: u64,
    /// Last step of each tag.
    seen: HashMap<String, u64>,
    /// Warnings that are given once: tags that were not finite, and kinds of refused calls.
    warned: HashSet<String>,
    warnings: Vec<String>,
    dropped_warnings: usize,
}

/// The log of one run. Dropping it writes out what waits, also when the run ends by an error or a panic
/// (but not through `std::process::exit`, which drops nothing).
///
/// ```
/// use mamba_rl::logger::{Logger, LoggerOptions};
/// let run = std::env::temp_dir().join(format!("mamba-rl-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&run)?;
/// let mut logger = Logger::new(&run, LoggerOptions::default())?;
/// logger.log(10, 0.5, &[("losses/td_loss", 0.25), ("charts/SPS", 20.0)]);
/// drop(logger);
/// let rows = std::fs::read_to_string(run.join("metrics.jsonl"))?;
/// assert_eq!(rows, "{\"step\":10,\"wall_s\":0.5,\"losses/td_loss\":0.25,\"charts/SPS\":20.0}\n");
/// # std::fs::remove_dir_all(&run)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Logger {
    sinks: Arc<Mutex<Sinks>>,
    flusher: Option<Flusher>,
    /// Flush after each call: no clock does it.
    eager: bool,
}

impl Logger {
    /// Opens the log in `run_dir`, which must exist. On a resume the metrics file is cut to the recorded length and a new
    /// event file is begun that hides the points after `start_step`.
    ///
    /// # Errors
    /// [`LogError::Io`] where a file cannot be made; [`LogError::Exists`], [`LogError::Short`] and
    /// [`LogError::NotARow`] where the metrics file is not the one that the options speak of.
    pub fn new(run_dir: &Path, opts: LoggerOptions) -> Result<Self> {
        let jsonl = Jsonl::open(run_dir, opts.truncate_jsonl_to)?;
        let resumed = opts.start_step > 0 || opts.truncate_jsonl_to.is_some_and(|len| len > 0);
        #[cfg(feature = "tensorboard")]
        let events = match (opts.tensorboard, resumed, opts.truncate_jsonl_to.is_some()) {
            (false, ..) => None,
            (true, true, _) => Some(Events::create(run_dir, Some(opts.start_step.saturating_add(1)))?),
            // Started again from nothing: every older point is superseded, step 0 included.
            (true, false, true) => Some(Events::create(run_dir, Some(0))?),
            (true, false, false) => Some(Events::create(run_dir, None)?),
        };
        let mut sinks = Sinks {
            jsonl_len: jsonl.flushed(),
            jsonl: Some(jsonl),
            #[cfg(feature = "tensorboard")]
            events,
            floor: if resumed { opts.start_step.saturating_add(1) } else { 0 },
            seen: HashMap::new(),
            warned: HashSet::new(),
            warnings: Vec::new(),
            dropped_warnings: 0,
        };
        if cfg!(not(feature = "tensorboard")) && opts.tensorboard {
            sinks.warn("no event file: this build lacks the feature `tensorboard`".into());
        }
        let sinks = Arc::new(Mutex::new(sinks));
        let period = opts.flush_every.min(FLUSH_EVERY);
        let flusher = if period.is_zero() { None } else { Flusher::start(period, &sinks) };
        Ok(Self { eager: flusher.is_none(), sinks, flusher })
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&mut self, call: impl FnOnce(&mut Sinks)) {
        let mut sinks = self.sinks();
        call(&mut sinks);
        if self.eager {
            sinks.flush();
        }
    }

    /// Logs scalars at an environment step; `wall_s` = seconds of training so far. Calls for the same step join one row.
    /// Refused with one warning each: a step below the last one, a tag that the step already has, a row that a checkpoint
    /// counts on ([`Logger::jsonl_len`] was called since). NaN and inf are kept (null in JSON) and named in one
    /// warning per tag.
    pub fn log(&mut self, step: u64, wall_s: f64, scalars: &[(&str, f64)]) {
        self.with(|sinks| sinks.log(step, wall_s, scalars));
    }

    /// Shows a text (Markdown) in TensorBoard.
    pub fn text(&mut self, tag: &str, step: u64, markdown: &str) {
        #[cfg(feature = "tensorboard")]
        self.with(|sinks| sinks.event(|events| events.text(tag, step, markdown)));
        #[cfg(not(feature = "tensorboard"))]
        let _ = (tag, step, markdown);
    }

    /// Shows the distribution of `values` in TensorBoard. Values that are not finite are left out, with one warning per tag.
    pub fn histogram(&mut self, tag: &str, step: u64, values: &[f32]) {
        self.with(|sinks| {
            let bad = values.iter().filter(|v| !v.is_finite()).count();
            if bad > 0 {
                let line = format!("{tag}: {bad} of {} values at step {step} are not finite", values.len());
                sinks.warn_once(&format!("nonfinite histogram {tag}"), line);
            }
            #[cfg(feature = "tensorboard")]
            sinks.event(|events| events.histogram(tag, step, values));
        });
    }

    /// Describes the run on TensorBoard's HPARAMS page: its settings and the tags by which runs are compared. A metric
    /// that was logged as a scalar is taken from there; another one is logged here at the last step, if finite. Only the
    /// first call of a run counts. Whether the run succeeded is added when the logger is dropped.
    pub fn hparams(&mut self, config: &[(String, HparamValue)], metrics: &[(&str, f64)]) {
        #[cfg(feature = "tensorboard")]
        self.with(|sinks| {
            let step = sinks.floor;
            let fresh: Vec<(&str, f64)> =
                metrics.iter().filter(|(tag, v)| v.is_finite() && !sinks.seen.contains_key(*tag)).copied().collect();
            sinks.event(|events| {
                events.hparams(config, metrics)?;
                if fresh.is_empty() { Ok(()) } else { events.scalars(step, &fresh) }
            });
            sinks.seen.extend(fresh.iter().map(|(tag, _)| (tag.to_string(), step)));
        });
        #[cfg(not(feature = "tensorboard"))]
        let _ = (config, metrics);
    }

    /// Keeps a warning for [`Logger::take_warnings`].
    pub fn warn(&mut self, line: &str) {
        self.sinks().warn(line.to_owned());
    }

    /// Length of `metrics.jsonl` in bytes, all rows so far on the disk: what a checkpoint records for
    /// [`LoggerOptions::truncate_jsonl_to`]. The last row is complete from now on, so log a step before it is saved.
    pub fn jsonl_len(&self) -> u64 {
        self.sinks().seal()
    }

    /// Hands everything that waits to the system.
    pub fn flush(&mut self) {
        self.sinks().flush();
    }

    /// The warnings since the last call, oldest first. Those that nobody takes are printed to stderr at the end.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.sinks().take_warnings()
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        self.flusher = None;
        let mut sinks = self.sinks();
        #[cfg(feature = "tensorboard")]
        sinks.event(|events| events.end(!std::thread::panicking()));
        sinks.flush();
        for line in sinks.take_warnings() {
            console::say(&format!("warning: {line}"));
        }
    }
}

impl Sinks {
    fn log(&mut self, step: u64, wall_s: f64, scalars: &[(&str, f64)]) {
        if step < self.floor {
            let line = format!("step {step} was logged when steps from {} were due: ignored", self.floor);
            return self.warn_once("step", line);
        }
        let mut cells: Vec<(&str, f64)> = Vec::with_capacity(scalars.len());
        for &(tag, value) in scalars {
            if tag.is_empty() || jsonl::RESERVED.contains(&tag) {
                self.warn_once(&format!("name {tag}"), format!("`{tag}` cannot be the tag of a scalar: ignored"));
            } else if self.seen.get(tag) == Some(&step) || cells.iter().any(|(t, _)| *t == tag) {
                self.warn_once("twice", format!("{tag} was logged twice at step {step}: the first value stays"));
            } else {
                cells.push((tag, value));
            }
        }
        if cells.is_empty() {
            return;
        }
        let written = self.jsonl.as_mut().map_or(Ok(true), |jsonl| jsonl.log(step, wall_s, &cells));
        if matches!(written, Ok(false)) {
            let tags: Vec<&str> = cells.iter().map(|(tag, _)| *tag).collect();
            let line = format!("{} at step {step} came after the checkpoint of that step: ignored", tags.join(", "));
            return self.warn_once("sealed", line);
        }
        self.settle_jsonl(written.map(|_| ()));
        for &(tag, value) in cells.iter().filter(|(_, v)| !v.is_finite()) {
            self.warn_once(&format!("nonfinite {tag}"), format!("{tag} is {value} at step {step}"));
        }
        self.floor = step;
        for (tag, _) in &cells {
            match self.seen.get_mut(*tag) {
                Some(last) => *last = step,
                None => drop(self.seen.insert(tag.to_string(), step)),
            }
        }
        #[cfg(feature = "tensorboard")]
        self.event(|events| events.scalars(step, &cells));
    }

    fn flush(&mut self) {
        let done = self.jsonl.as_mut().map_or(Ok(()), Jsonl::flush);
        self.settle_jsonl(done);
        #[cfg(feature = "tensorboard")]
        self.event(Events::flush);
    }

    fn seal(&mut self) -> u64 {
        let done = self.jsonl.as_mut().map_or(Ok(()), Jsonl::seal);
        self.settle_jsonl(done);
        self.jsonl_len
    }

    /// Notes the length, or switches the file off after an error.
    fn settle_jsonl(&mut self, done: io::Result<()>) {
        let Some(jsonl) = &self.jsonl else { return };
        self.jsonl_len = jsonl.flushed();
        if let Err(error) = done {
            let line = format!("no more metrics in {}: {error}", jsonl.path().display());
            self.jsonl = None;
            self.warn(line);
        }
    }

    /// Does something with the event file, and switches it off after an error.
    #[cfg(feature = "tensorboard")]
    fn event(&mut self, call: impl FnOnce(&mut Events) -> io::Result<()>) {
        let Some(events) = &mut self.events else { return };
        if let Err(error) = call(events) {
            let line = format!("no more events in {}: {error}", events.path().display());
            self.events = None;
            self.warn(line);
        }
    }

    fn warn(&mut self, line: String) {
        if self.warnings.len() < MAX_WARNINGS { self.warnings.push(line) } else { self.dropped_warnings += 1 }
    }

    fn warn_once(&mut self, kind: &str, line: String) {
        if self.warned.insert(kind.to_owned()) {
            self.warn(line);
        }
    }

    fn take_warnings(&mut self) -> Vec<String> {
        if self.dropped_warnings > 0 {
            self.warnings.push(format!("{} more warnings were not kept", self.dropped_warnings));
            self.dropped_warnings = 0;
        }
        std::mem::take(&mut self.warnings)
    }
}

/// A thread that flushes on a clock, so that a record gets old in memory neither while the trainer computes nor while it waits.
#[derive(Debug)]
struct Flusher {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// `None` where the system gives no thread.
    fn start(period: Duration, sinks: &Arc<Mutex<Sinks>>) -> Option<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (sinks, seen) = (Arc::clone(sinks), Arc::clone(&stop));
        // Half the period: a record waits for the next tick and for the thread to be scheduled.
        let run = move || {
            let mut stopped = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*stopped {
                let waited = seen.1.wait_timeout(stopped, period / 2).unwrap_or_else(PoisonError::into_inner);
                stopped = waited.0;
                if waited.1.timed_out() {
                    sinks.lock().unwrap_or_else(PoisonError::into_inner).flush();
                }
            }
        };
        let thread = std::thread::Builder::new().name("mamba-rl-log".into()).spawn(run).ok()?;
        Some(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
