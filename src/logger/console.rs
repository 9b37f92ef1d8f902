//! Progress for people: a bar with steps/s, time left and return on a terminal (feature `cli`), plain lines elsewhere.

use std::time::{Duration, Instant};

/// A plain line is printed after this long, and for the first and the last step.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// The bar's text changes after this long.
#[cfg(feature = "cli")]
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Weight of the newest measurement in the speed shown.
const NEWEST: f64 = 0.3;

/// One line on stderr. A reader that has gone away is no reason to stop a run.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// How progress is shown.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    /// The run's last environment step.
    pub total_steps: u64,
    /// Step at which this process begins: 0, or the checkpoint's.
    pub start_step: u64,
    /// Show warnings only.
    pub quiet: bool,
}

/// Progress of one run on stderr.
#[derive(Debug)]
pub struct Console {
    opts: ConsoleOptions,
    face: Face,
    /// Time and step of the last measurement of the speed.
    mark: (Instant, u64),
    /// Steps per second, smoothed; `None` before the first measurement.
    speed: Option<f64>,
    shown: Option<Instant>,
}

#[derive(Debug)]
enum Face {
    Quiet,
    Plain,
    #[cfg(feature = "cli")]
    Bar(indicatif::ProgressBar),
}

impl Console {
    /// Takes a bar where stderr is a terminal.
    pub fn new(opts: ConsoleOptions) -> Self {
        let face = if opts.quiet { Face::Quiet } else { Self::face(&opts) };
        Self { mark: (Instant::now(), opts.start_step), opts, face, speed: None, shown: None }
    }

    #[cfg(feature = "cli")]
    fn face(opts: &ConsoleOptions) -> Face {
        use std::io::IsTerminal;
        if !std::io::stderr().is_terminal() {
            return Face::Plain;
        }
        let bar = indicatif::ProgressBar::new(opts.total_steps).with_position(opts.start_step);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:16} {human_pos}/{human_len} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Face::Bar(bar)
    }

    #[cfg(not(feature = "cli"))]
    fn face(_: &ConsoleOptions) -> Face {
        Face::Plain
    }

    /// Shows that the run is at `step`; `mean_return` is the newest return, if there is one. Cheap enough for every step.
    pub fn update(&mut self, step: u64, mean_return: Option<f64>) {
        let now = Instant::now();
        let seconds = (now - self.mark.0).as_secs_f64();
        if seconds >= 0.5 {
            let fresh = step.saturating_sub(self.mark.1) as f64 / seconds;
            self.speed = Some(self.speed.map_or(fresh, |old| old + NEWEST * (fresh - old)));
            self.mark = (now, step);
        }
        let period = match &self.face {
            Face::Quiet => return,
            Face::Plain => PLAIN_EVERY,
            #[cfg(feature = "cli")]
            Face::Bar(_) => BAR_EVERY,
        };
        if self.shown.is_some_and(|then| now - then < period) && step < self.opts.total_steps {
            return;
        }
        self.shown = Some(now);
        let status = self.status(step, mean_return);
        match &self.face {
            #[cfg(feature = "cli")]
            Face::Bar(bar) => {
                bar.set_position(step);
                bar.set_message(status);
            }
            _ => say(&format!("step {step}/{}  {status}", self.opts.total_steps)),
        }
    }

    /// Percent, speed, time left and return: `40%  1520 steps/s  eta 0:12  return 0.850`.
    fn status(&self, step: u64, mean_return: Option<f64>) -> String {
        let left = self.opts.total_steps.saturating_sub(step);
        let mut text = format!("{}%", step.min(self.opts.total_steps) * 100 / self.opts.total_steps.max(1));
        if let Some(speed) = self.speed.filter(|speed| *speed > 0.0) {
            text.push_str(&format!("  {speed:.0} steps/s  eta {}", clock(left as f64 / speed)));
        }
        if let Some(value) = mean_return {
            text.push_str(&format!("  return {value:.3}"));
        }
        text
    }

    /// Prints a line that stays, above the bar. Not in quiet mode.
    pub fn message(&self, line: &str) {
        if !matches!(self.face, Face::Quiet) {
            self.print(line);
        }
    }

    /// Prints a warning, in quiet mode too.
    pub fn warn(&self, line: &str) {
        self.print(&format!("warning: {line}"));
    }

    fn print(&self, line: &str) {
        match &self.face {
            #[cfg(feature = "cli")]
            Face::Bar(bar) => bar.suspend(|| say(line)),
            _ => say(line),
        }
    }

    /// Takes the bar away; the terminal is as before.
    pub fn finish(&mut self) {
        #[cfg(feature = "cli")]
        if let Face::Bar(bar) = &self.face {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.finish();
    }
}

/// `m:ss`, or `h:mm:ss` from an hour on.
fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_line_by_hand() {
        let opts = ConsoleOptions { total_steps: 30_000, start_step: 0, quiet: true };
        let mut console = Console::new(opts);
        console.speed = Some(1500.0);
        assert_eq!(console.status(12_000, Some(0.85)), "40%  1500 steps/s  eta 0:12  return 0.850");
        console.speed = Some(1.0);
        assert_eq!(console.status(0, None), "0%  1 steps/s  eta 8:20:00");
    }
}
