//! `mamba-rl report`: tables and curves from `results.jsonl` alone; the run folders may be gone.

pub mod groups;
mod published;
mod statistics;
mod tables;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use mamba_rl::plot::{Series, plot_series};
use mamba_rl::train::Stopped;
use mamba_rl::{Error, Result};

use super::Outcome;
use super::results::{self, Record, Results};
use groups::{Row, rows};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files that `sweep` wrote, or the folders of sweeps; of one run's lines the last counts
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write report.md and a picture for every task into this folder [default: tables on standard output]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Format of the pictures
    #[arg(long, value_enum, default_value_t = Format::Svg)]
    format: Format,
}

/// Format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Svg,
    Png,
}

/// Reads, counts and writes.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let records = read(&args.files)?;
    let rows = rows(records.values());
    let published = published::table()?;
    let Some(dir) = &args.out else {
        write!(out, "{}", report(&args.files, &rows, &published, &|_| None))?;
        return Ok(0);
    };
    std::fs::create_dir_all(dir).map_err(|e| Error::io("creating folder", dir, e))?;
    let mut pictures = BTreeMap::new();
    for (task, series) in series(&rows) {
        let extension = if args.format == Format::Svg { "svg" } else { "png" };
        let name = format!("curves-{}.{extension}", file_name(&task));
        plot_series(&series, &dir.join(&name))?;
        pictures.insert(task, name);
    }
    let text = report(&args.files, &rows, &published, &|task| pictures.get(task).cloned());
    let path = dir.join("report.md");
    std::fs::write(&path, text).map_err(|e| Error::io("writing", &path, e))?;
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let (runs, n) = (records.len(), pictures.len());
    writeln!(out, "wrote {}: {runs} run{}, {n} picture{}", path.display(), plural(runs), plural(n))?;
    Ok(0)
}

/// All lines of all files, later ones over earlier ones.
fn read(files: &[PathBuf]) -> Result<BTreeMap<results::Key, Record>> {
    let mut records = BTreeMap::new();
    for file in files {
        let path = if file.is_dir() { file.join(results::FILE) } else { file.clone() };
        if !path.is_file() {
            let problem = format!("{} is no file of results; `mamba-rl sweep` writes one", path.display());
            return Err(Error::Usage(problem));
        }
        let found = Results::read(&path)?;
        if found.torn {
            super::warn(&format!("{}: its last line is cut off and left out", path.display()));
        }
        records.extend(found.records);
    }
    if records.is_empty() {
        return Err(Error::Usage("there is no result in these files yet".into()));
    }
    Ok(records)
}

fn report(
    files: &[PathBuf],
    rows: &[Row<'_>],
    published: &[published::Published],
    picture: &dyn Fn(&str) -> Option<String>,
) -> String {
    let shown = |p: &PathBuf| p.display().to_string();
    let named = files.iter().map(shown).collect::<Vec<_>>().join(" ");
    let n: usize = rows.iter().flat_map(|r| &r.cells).map(|c| c.runs.len()).sum();
    let mut out = format!("# Results\n\n{n} runs in {} rows. Made by `mamba-rl report {named}`.\n\n", rows.len());
    out += &tables::summary(rows, published);
    out += &tables::overall(rows);
    out += &tables::time(rows);
    out += &tables::against(rows, published);
    out += &tables::details(rows, picture);
    if rows.iter().any(|r| picture(&r.env).is_some()) {
        out += "\nCurves: greedy return by environment steps, thick the mean over seeds, the band from the worst to the best seed. A \
                run that stopped at its target keeps its last return.\n";
    }
    out
}

/// Curves by task, one for each backbone; where a task has several labels one for each label, in a panel for each backbone.
fn series(rows: &[Row<'_>]) -> BTreeMap<String, Vec<Series>> {
    let mut out: BTreeMap<String, Vec<Series>> = BTreeMap::new();
    for row in rows {
        let of_task = || rows.iter().filter(|r| r.env == row.env);
        let runs = of_task().flat_map(|r| &r.cells).flat_map(|c| &c.runs);
        let end = runs.filter_map(|r| r.curve.steps.last().copied()).max().unwrap_or(0);
        for cell in &row.cells {
            let (panel, label) = if of_task().count() > 1 {
                (format!("{}, {}", row.env, cell.backbone), &row.label)
            } else {
                (row.env.clone(), &cell.backbone)
            };
            for run in &cell.runs {
                let points = points(run, end);
                if !points.is_empty() {
                    out.entry(row.env.clone()).or_default().push(Series {
                        panel: panel.clone(),
                        label: label.clone(),
                        points,
                    });
                }
            }
        }
    }
    out
}

/// A run's evaluations; one that stopped at its target keeps its last return up to `end`.
fn points(run: &Record, end: u64) -> Vec<(f64, f64)> {
    let all = run.curve.steps.iter().zip(&run.curve.returns);
    let mut points: Vec<(f64, f64)> = all.filter_map(|(s, r)| r.map(|r| (*s as f64, r))).collect();
    if let Some((step, value)) = points.last().copied().filter(|_| run.stopped == Stopped::StopReturn)
        && step < end as f64
    {
        points.push((end as f64, value));
    }
    points
}

/// A task's name as part of a file name.
fn file_name(task: &str) -> String {
    task.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}
