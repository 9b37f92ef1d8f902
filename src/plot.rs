//! Learning curves of run folders as SVG or PNG: x = environment steps, y = `eval/return_mean`, or
//! `charts/episodic_return` where a run has no evaluation. Runs that differ in nothing but their seed share one curve: the
//! mean, a band from the lowest to the highest run, and from four runs on the interquartile mean (IQM).
//! Source of the IQM: Agarwal et al., 2021, "Deep RL at the Edge of the Statistical Precipice".

mod curves;
mod draw;
mod runs;

pub use curves::{Curve, interquartile_mean};

use crate::logger::LogError;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Tags that hold a return, best first.
const TAGS: [&str; 2] = ["eval/return_mean", "charts/episodic_return"];

/// By what runs are gathered into one curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Environment: one panel, one curve for each environment.
    Env,
    /// Backbone: one panel for each environment.
    Backbone,
    /// Agent: one panel for each environment.
    Agent,
}

/// What was drawn.
#[derive(Clone, Debug)]
pub struct PlotReport {
    /// The picture.
    pub out: PathBuf,
    /// The curves, panel by panel.
    pub curves: Vec<Curve>,
}

/// Why nothing was drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// No run was named.
    #[error("no run folder to plot")]
    NoRuns,
    /// A run folder is missing.
    #[error("{run} is not a run folder: expected a folder with metrics.jsonl or event files", run = run.display())]
    NoRun {
        /// The path that was given.
        run: PathBuf,
    },
    /// A run has logged no return yet.
    #[error("run {run} has no value of {} or {}", TAGS[0], TAGS[1], run = run.display())]
    NoData {
        /// The run folder.
        run: PathBuf,
    },
    /// The picture's name ends in neither `.svg` nor `.png`.
    #[error("{out}: expected a name that ends in .svg or .png, found {found:?}", out = out.display())]
    Format {
        /// The path that was given.
        out: PathBuf,
        /// Its extension.
        found: String,
    },
    /// A file of a run cannot be read, or the picture cannot be written.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A row of the metrics is damaged.
    #[error("{path}, row {row}: {source}", path = path.display())]
    Row {
        /// The metrics file.
        path: PathBuf,
        /// Number of the row, from 1.
        row: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// `config.toml` is damaged.
    #[error("{path}: {source}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<toml::de::Error>,
    },
    /// Event files, read in place of a missing metrics file, are damaged.
    #[error(transparent)]
    Events(#[from] LogError),
    /// The drawing library refused.
    #[error("cannot draw {out}: {what}", out = out.display())]
    Draw {
        /// The picture.
        out: PathBuf,
        /// The library's words.
        what: String,
    },
}

/// Result of plotting.
pub type Result<T, E = PlotError> = std::result::Result<T, E>;

/// Draws the runs' curves into `out` (`.svg` or `.png`). With `by`, runs that agree in that one thing share a curve;
/// without, those that agree in all of their configuration but the seed.
///
/// # Errors
/// Any [`PlotError`]; a run without data is named and nothing is drawn.
pub fn plot(runs: &[PathBuf], out: &Path, by: Option<By>) -> Result<PlotReport> {
    if runs.is_empty() {
        return Err(PlotError::NoRuns);
    }
    let format = format(out)?;
    picture(&runs::load(runs)?, by, out, format)
}

/// Returns of one run, from wherever they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Title of the panel.
    pub panel: String,
    /// Runs of one panel with the same label share a curve.
    pub label: String,
    /// (environment step, return), steps rising.
    pub points: Vec<(f64, f64)>,
}

/// Draws series as [`plot`] draws run folders.
///
/// # Errors
/// Any [`PlotError`]; a series without points is named and nothing is drawn.
pub fn plot_series(series: &[Series], out: &Path) -> Result<PlotReport> {
    if series.is_empty() {
        return Err(PlotError::NoRuns);
    }
    let format = format(out)?;
    if let Some(empty) = series.iter().find(|s| s.points.is_empty()) {
        return Err(PlotError::NoData { run: format!("{} of {}", empty.label, empty.panel).into() });
    }
    let run = |s: &Series| runs::Run {
        name: s.label.clone(),
        env: s.panel.clone(),
        agent: String::new(),
        backbone: s.label.clone(),
        settings: runs::Settings::new(),
        tag: TAGS[0],
        points: s.points.clone(),
    };
    picture(&series.iter().map(run).collect::<Vec<_>>(), Some(By::Backbone), out, format)
}

fn format(out: &Path) -> Result<draw::Format> {
    let extension = out.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    match extension.as_str() {
        "svg" => Ok(draw::Format::Svg),
        "png" => Ok(draw::Format::Png),
        _ => Err(PlotError::Format { out: out.to_owned(), found: extension }),
    }
}

fn picture(runs: &[runs::Run], by: Option<By>, out: &Path, format: draw::Format) -> Result<PlotReport> {
    let panels = curves::panels(runs, by);
    draw::draw(&panels, out, format)?;
    Ok(PlotReport { out: out.to_owned(), curves: panels.into_iter().flat_map(|panel| panel.curves).collect() })
}
