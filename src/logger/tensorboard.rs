//! The TensorBoard event file: version `brain.Event:2`, then one record per event, each buffered whole. Framing and checksums
//! come from `tensorboard-rs`, messages from `tensorboard-proto`.
//! Source: TensorBoard's `event.proto`; a session-log START at step s hides earlier points with step >= s.

use super::{
    append::AppendFile,
    error::{LogError, Result},
    summary::{self, Histogram, HparamValues},
};
use protobuf::Message;
use std::{
    fs::OpenOptions,
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use tensorboard_proto::{
    event::{Event, SessionLog, SessionLog_SessionStatus},
    summary::{Summary, Summary_Value},
};
use tensorboard_rs::record_writer::RecordWriter;

/// First record of every event file.
const VERSION: &str = "brain.Event:2";

/// What every event file's name begins with.
const PREFIX: &str = "events.out.tfevents.";

/// How many names are tried when others take them at the same moment.
const NAMES: u32 = 10_000;

/// The open event file.
#[derive(Debug)]
pub(super) struct Events {
    out: AppendFile,
    /// The run was described, so its end is to be told.
    described: bool,
}

impl Events {
    /// Makes a new file that sorts behind those already there, because readers take them in order of their names.
    /// `restart`: the first step whose older points are superseded.
    pub fn create(run_dir: &Path, restart: Option<u64>) -> Result<Self> {
        let io = |action, source| LogError::Io { action, path: run_dir.to_owned(), source };
        let newest = newest_second(run_dir).map_err(|e| io("list", e))?;
        let second = (now() as u64).max(newest.map_or(0, |s| s.saturating_add(1)));
        let (host, pid) = (host_name(), std::process::id());
        let mut n = 0;
        let (file, path) = loop {
            let path = run_dir.join(format!("{PREFIX}{second}.{host}.{pid}.{n}.mamba-rl"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < NAMES => n += 1,
                Err(error) => return Err(LogError::Io { action: "create", path, source: error }),
            }
        };
        let begin = || -> io::Result<Self> {
            let mut events = Self { out: AppendFile::new(file, path.clone(), 0)?, described: false };
            let mut version = Event::new();
            version.set_file_version(VERSION.into());
            events.write(version)?;
            if let Some(step) = restart {
                let mut log = SessionLog::new();
                log.set_status(SessionLog_SessionStatus::START);
                let mut start = at_step(step);
                start.set_session_log(log);
                events.write(start)?;
            }
            events.flush()?;
            Ok(events)
        };
        begin().map_err(|source| LogError::Io { action: "begin", path: path.clone(), source })
    }

    /// One event with a value per tag. NaN and inf stay what they are.
    pub fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> io::Result<()> {
        self.summary(step, scalars.iter().map(|&(tag, value)| summary::scalar(tag, value)).collect())
    }

    pub fn text(&mut self, tag: &str, step: u64, markdown: &str) -> io::Result<()> {
        self.summary(step, vec![summary::text(tag, markdown)])
    }

    /// Nothing is written where no value is finite.
    pub fn histogram(&mut self, tag: &str, step: u64, values: &[f32]) -> io::Result<()> {
        match Histogram::of(values) {
            Some(histogram) => self.summary(step, vec![histogram.value(tag)]),
            None => Ok(()),
        }
    }

    /// The run's settings and the tags of its metrics; the first call only.
    pub fn hparams(&mut self, config: HparamValues<'_>, metrics: &[(&str, f64)]) -> io::Result<()> {
        if std::mem::replace(&mut self.described, true) {
            return Ok(());
        }
        let values = vec![summary::experiment(config, metrics)?, summary::session_start(config, now())?];
        self.summary(0, values)
    }

    /// Tells how a described run ended.
    pub fn end(&mut self, success: bool) -> io::Result<()> {
        if self.described { self.summary(0, vec![summary::session_end(success, now())?]) } else { Ok(()) }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub fn path(&self) -> &Path {
        self.out.path()
    }

    fn summary(&mut self, step: u64, values: Vec<Summary_Value>) -> io::Result<()> {
        let mut summary = Summary::new();
        summary.set_value(values.into());
        let mut event = at_step(step);
        event.set_summary(summary);
        self.write(event)
    }

    fn write(&mut self, mut event: Event) -> io::Result<()> {
        event.set_wall_time(now());
        let payload = event.write_to_bytes().map_err(io::Error::other)?;
        self.out.record(|out| RecordWriter::new(out).write(&payload))
    }
}

fn at_step(step: u64) -> Event {
    let mut event = Event::new();
    event.set_step(i64::try_from(step).unwrap_or(i64::MAX));
    event
}

/// Seconds since 1970; 0 on a clock before that.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
}

/// The highest second in the names of the folder's event files.
fn newest_second(run_dir: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    for entry in std::fs::read_dir(run_dir)? {
        let name = entry?.file_name();
        let second = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|n| n.split('.').next()?.parse().ok());
        newest = newest.max(second);
    }
    Ok(newest)
}

/// The machine's name as far as it is fit for a file name.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    if name.is_empty() { "localhost".into() } else { name }
}
