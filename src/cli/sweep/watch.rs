//! What people see of a sweep: for each run its step, its last evaluation and the time left, read from its `metrics.jsonl`;
//! bars on a terminal, a line now and then elsewhere.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::cli::text;

/// Where there is no terminal, every run is told of after this long.
const PLAIN_EVERY: Duration = Duration::from_secs(60);
/// Rows of the metrics over which the speed is taken.
const ROWS: usize = 20;
/// More bytes of new rows than are read at once.
const MAX_READ: u64 = 1 << 22;

/// The progress of one run.
#[derive(Debug)]
pub struct Watch {
    title: String,
    path: PathBuf,
    budget: u64,
    /// Bytes read.
    at: u64,
    /// Steps and seconds of the newest rows.
    rows: VecDeque<(u64, f64)>,
    last: Option<f64>,
}

impl Watch {
    /// Of the run in `dir`, which may take `budget` steps.
    pub fn new(title: String, dir: &Path, budget: u64) -> Self {
        Watch { title, path: dir.join("metrics.jsonl"), budget, at: 0, rows: VecDeque::new(), last: None }
    }

    /// LABEL/BACKBONE/SEED.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Reads the rows that are new. What cannot be read says nothing: this is for the eye.
    pub fn read(&mut self) {
        let Some(bytes) = self.fresh() else { return };
        // a row that is being written has no newline yet
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        self.at += whole as u64;
        for line in bytes[..whole].split(|b| *b == b'\n') {
            let Ok(row) = serde_json::from_slice::<Value>(line) else { continue };
            if let (Some(step), Some(wall_s)) = (row["step"].as_u64(), row["wall_s"].as_f64()) {
                self.rows.push_back((step, wall_s));
                if self.rows.len() > ROWS {
                    self.rows.pop_front();
                }
            }
            self.last = row["eval/return_mean"].as_f64().or(self.last);
        }
    }

    fn fresh(&mut self) -> Option<Vec<u8>> {
        let mut file = File::open(&self.path).ok()?;
        if file.metadata().ok()?.len() < self.at {
            // a resumed run has cut off what its checkpoint does not know
            (self.at, self.last) = (0, None);
            self.rows.clear();
        }
        file.seek(SeekFrom::Start(self.at)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Environment steps so far.
    fn step(&self) -> u64 {
        self.rows.back().map_or(0, |r| r.0)
    }

    /// Steps per second over the newest rows.
    fn speed(&self) -> Option<f64> {
        let ((s0, t0), (s1, t1)) = (self.rows.front().copied()?, self.rows.back().copied()?);
        let (s0, t0) = if s1 > s0 { (s0, t0) } else { (0, 0.0) };
        (t1 > t0 && s1 > s0).then(|| (s1 - s0) as f64 / (t1 - t0))
    }

    /// `120,000/500,000  24%  return 0.853  1520 steps/s  eta 4 min 10 s`.
    fn status(&self) -> String {
        let step = self.step().min(self.budget);
        let (done, all) = (text::thousands(step), text::thousands(self.budget));
        let mut out = format!("{done:>width$}/{all} {:>3}%", step * 100 / self.budget.max(1), width = all.len());
        if let Some(last) = self.last {
            out += &format!("  return {last:.3}");
        }
        if let Some(speed) = self.speed() {
            let left = (self.budget - step) as f64 / speed;
            out += &format!("  {speed:.0} steps/s  eta {}", text::duration(left));
        }
        out
    }
}

/// Where it is shown.
pub struct Screen {
    quiet: bool,
    /// On a terminal.
    bars: Option<MultiProgress>,
    lines: Vec<(String, ProgressBar)>,
    shown: Instant,
}

impl Screen {
    /// Bars where stderr is a terminal.
    pub fn new(quiet: bool) -> Self {
        let bars = (!quiet && std::io::stderr().is_terminal()).then(MultiProgress::new);
        Screen { quiet, bars, lines: Vec::new(), shown: Instant::now() }
    }

    /// A line that stays; not in quiet mode.
    pub fn say(&self, line: &str) {
        if !self.quiet {
            self.complain(line);
        }
    }

    /// A line that stays, in quiet mode too. A reader that has gone away is no reason to stop.
    pub fn complain(&self, line: &str) {
        let print = || drop(writeln!(std::io::stderr(), "{line}"));
        match &self.bars {
            Some(bars) => bars.suspend(print),
            None => print(),
        }
    }

    /// A run begins.
    pub fn begin(&mut self, title: &str, resume: bool) {
        let Some(bars) = &self.bars else {
            self.say(&format!("{} {title}", if resume { "resume " } else { "begin  " }));
            return;
        };
        let bar = bars.add(ProgressBar::new(100));
        if let Ok(style) = ProgressStyle::with_template("{prefix}  {bar:16} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(title.to_owned());
        self.lines.push((title.to_owned(), bar));
    }

    /// A run has ended.
    pub fn end(&mut self, title: &str) {
        if let Some(i) = self.lines.iter().position(|l| l.0 == title) {
            self.lines.remove(i).1.finish_and_clear();
        }
    }

    /// The runs as they are now; `count`: runs ended, and all.
    pub fn show<'w>(&mut self, runs: impl Iterator<Item = &'w Watch>, count: (usize, usize)) {
        if self.bars.is_none() && self.shown.elapsed() < PLAIN_EVERY {
            return;
        }
        self.shown = Instant::now();
        for run in runs {
            let status = run.status();
            match self.lines.iter().find(|l| l.0 == run.title) {
                Some((_, bar)) => {
                    bar.set_length(run.budget);
                    bar.set_position(run.step());
                    bar.set_message(status);
                }
                None => self.say(&format!("running {}  {status}  [{}/{}]", run.title, count.0, count.1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_as_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new("a/gru/1".into(), dir.path(), 1000);
        watch.read();
        assert_eq!(watch.status(), "    0/1,000   0%");
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(
            &path,
            "{\"step\":100,\"wall_s\":1.0}\n{\"step\":300,\"wall_s\":2.0,\"eval/return_mean\":0.25}\n{\"st",
        )
        .unwrap();
        watch.read();
        assert_eq!(watch.status(), "  300/1,000  30%  return 0.250  200 steps/s  eta 3.5 s");
        std::fs::write(&path, "{\"step\":100,\"wall_s\":1.0}\n").unwrap();
        watch.read();
        assert_eq!(watch.status(), "  100/1,000  10%  100 steps/s  eta 9.0 s");
    }
}
