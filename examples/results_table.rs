//! A Markdown table of finished runs: cargo run --release --example results_table -- runs/quick [--threshold 0.98]
//!
//! Arguments are run folders, or folders of run folders. Runs whose folder names differ only from `__s<seed>` on are one row.
//! "steps to T" is the environment step of the first evaluation with a mean return of at least T, so an upper bound at the
//! resolution of `eval.every`; T is `--threshold`, default 0.98.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

/// What the table needs of one run.
struct Run {
    setting: String,
    env: String,
    backbone: String,
    seed: u64,
    steps: u64,
    wall_s: f64,
    greedy: Option<f64>,
    mmer: Option<f64>,
    stopped: String,
    /// (step, mean return) of every evaluation, in order.
    evaluations: Vec<(u64, f64)>,
}

impl Run {
    fn read(dir: &Path) -> Result<Run, Box<dyn std::error::Error>> {
        let result: Value = serde_json::from_str(&std::fs::read_to_string(dir.join("result.json"))?)?;
        let text = |key: &str| result[key].as_str().unwrap_or("?").to_owned();
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut evaluations = Vec::new();
        for line in std::fs::read_to_string(dir.join("metrics.jsonl"))?.lines() {
            let row: Value = serde_json::from_str(line)?;
            if let (Some(step), Some(mean)) = (row["step"].as_u64(), row["eval/return_mean"].as_f64()) {
                evaluations.push((step, mean));
            }
        }
        Ok(Run {
            setting: name.split("__s").next().unwrap_or(&name).to_owned(),
            env: text("env"),
            backbone: text("backbone"),
            seed: result["seed"].as_u64().ok_or("result.json has no seed")?,
            steps: result["steps"].as_u64().ok_or("result.json has no steps")?,
            wall_s: result["wall_s"].as_f64().ok_or("result.json has no wall_s")?,
            greedy: result["eval_return_mean"].as_f64(),
            mmer: result["train_mmer"].as_f64(),
            stopped: text("stopped"),
            evaluations,
        })
    }

    fn steps_to(&self, threshold: f64) -> Option<u64> {
        self.evaluations.iter().find(|(_, mean)| *mean >= threshold).map(|(step, _)| *step)
    }
}

/// Run folders at or below `dir`.
fn find(dir: &Path, out: &mut Vec<PathBuf>) {
    if dir.join("result.json").is_file() {
        out.push(dir.to_path_buf());
        return;
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    folders.iter().for_each(|f| find(f, out));
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(s, n), v| (s + v, n + 1));
    sum / f64::from(n)
}

/// `mean (min)` of the values that are there.
fn mean_and_min(values: &[f64]) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    if values.is_empty() { "-".into() } else { format!("{:.3} ({min:.3})", mean(values.iter().copied())) }
}

fn row(runs: &[Run], threshold: f64) -> String {
    let mut solved: Vec<u64> = runs.iter().filter_map(|r| r.steps_to(threshold)).collect();
    solved.sort_unstable();
    let to = match solved.as_slice() {
        [] => "never".to_owned(),
        s => format!("{}; {} to {}", s[s.len() / 2], s[0], s[s.len() - 1]),
    };
    let greedy: Vec<f64> = runs.iter().filter_map(|r| r.greedy).collect();
    let mmer: Vec<f64> = runs.iter().filter_map(|r| r.mmer).collect();
    let steps = runs.iter().map(|r| r.steps).max().unwrap_or(0);
    let first = &runs[0];
    let broken = runs.iter().filter(|r| r.stopped == "interrupted").count();
    let note = if broken > 0 { format!(" ({broken} interrupted)") } else { String::new() };
    format!(
        "| {} | {} | {} | {}{note} | {steps} | {} of {} | {to} | {} | {} | {:.0} |",
        first.env,
        first.backbone,
        first.setting,
        runs.len(),
        solved.len(),
        runs.len(),
        mean_and_min(&greedy),
        mean_and_min(&mmer),
        mean(runs.iter().map(|r| r.wall_s)),
    )
}

fn table(runs: Vec<Run>, threshold: f64) -> String {
    let mut settings: BTreeMap<(String, String, String), Vec<Run>> = BTreeMap::new();
    for run in runs {
        settings.entry((run.env.clone(), run.backbone.clone(), run.setting.clone())).or_default().push(run);
    }
    let mut out = format!(
        "| env | backbone | setting | seeds | steps | reached {threshold} | steps to it: median; range | greedy: mean (min) | MMER: mean (min) | wall s |\n|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for runs in settings.values_mut() {
        runs.sort_by_key(|r| r.seed);
        out += &row(runs, threshold);
        out += "\n";
    }
    out
}

fn main() -> ExitCode {
    let (mut folders, mut threshold) = (Vec::new(), 0.98);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg != "--threshold" {
            find(Path::new(&arg), &mut folders);
            continue;
        }
        let given = args.next().and_then(|t| t.parse().ok());
        let Some(t) = given else {
            eprintln!("--threshold needs a number, such as 0.98");
            return ExitCode::from(2);
        };
        threshold = t;
    }
    if folders.is_empty() {
        eprintln!("no run with a result.json; usage: results_table RUNS... [--threshold T]");
        return ExitCode::from(2);
    }
    let mut runs = Vec::new();
    for dir in folders {
        match Run::read(&dir) {
            Ok(run) => runs.push(run),
            Err(e) => {
                eprintln!("{}: {e}", dir.display());
                return ExitCode::FAILURE;
            }
        }
    }
    print!("{}", table(runs, threshold));
    ExitCode::SUCCESS
}
