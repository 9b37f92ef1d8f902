//! `mamba-rl plot`: learning curves of runs as a picture.

use std::io::Write;
use std::path::{Path, PathBuf};

use mamba_rl::plot::{By, PlotError, PlotReport, plot};

use super::{Outcome, run_dir};

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run folders, or folders that hold run folders
    #[arg(value_name = "RUN_DIR", required = true)]
    runs: Vec<PathBuf>,
    /// Picture: .svg or .png
    #[arg(short, long, value_name = "FILE", default_value = "curves.svg")]
    output: PathBuf,
    /// Gather runs into one curve by this
    #[arg(long, value_enum)]
    by: Option<Group>,
}

/// What curves are gathered by.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Group {
    Env,
    Backbone,
    Agent,
}

/// Draws.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let mut runs = Vec::new();
    for dir in &args.runs {
        let found = expand(dir);
        if found.is_empty() {
            return Err(PlotError::NoRun { run: dir.clone() }.into());
        }
        runs.extend(found);
    }
    let by = args.by.map(|by| match by {
        Group::Env => By::Env,
        Group::Backbone => By::Backbone,
        Group::Agent => By::Agent,
    });
    let report = draw(&mut runs, &args.output, by)?;
    let (n, files) = (report.curves.len(), runs.len());
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    writeln!(out, "wrote {}: {n} curve{} of {files} run{}", report.out.display(), plural(n), plural(files))?;
    Ok(0)
}

/// Draws what has values; a run that has just begun is named and left out, unless there is no other.
fn draw(runs: &mut Vec<PathBuf>, out: &Path, by: Option<By>) -> Result<PlotReport, PlotError> {
    loop {
        match plot(runs, out, by) {
            Err(PlotError::NoData { run }) if runs.len() > 1 => {
                super::warn(&format!("run {} has no return yet and is left out", run.display()));
                runs.retain(|r| *r != run);
            }
            other => return other,
        }
    }
}

/// The runs inside a folder such as `runs`; a run folder is itself, and so is what is no folder.
fn expand(dir: &Path) -> Vec<PathBuf> {
    let is_run = |d: &Path| d.join(run_dir::CONFIG).is_file() || d.join("metrics.jsonl").is_file();
    if is_run(dir) {
        return vec![dir.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return vec![dir.to_owned()] };
    let mut inner: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(|d| is_run(d)).collect();
    inner.sort();
    inner
}
