//! What a run leaves for TensorBoard beside its curves, read back from the event files.
#![cfg(all(feature = "cli", feature = "tensorboard"))]

use std::path::Path;
use std::process::Command;

use mamba_rl::logger::reader::{self, Histogram, Value};

/// Trains in `dir`, and gives the values of all events with their steps, and result.json.
fn run(dir: &Path, args: &[&str]) -> (Vec<(i64, Value)>, serde_json::Value) {
    let run_dir = dir.join("run");
    let out = Command::new(env!("CARGO_BIN_EXE_mamba-rl"))
        .args(["train", "--quiet", "--run-dir", run_dir.to_str().unwrap()])
        .args(args)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let files = reader::event_files(&run_dir).unwrap();
    let events = files.iter().flat_map(|f| reader::read(f).unwrap().events);
    let values = events.flat_map(|e| e.values.into_iter().map(move |v| (e.step, v))).collect();
    let result = std::fs::read(run_dir.join("result.json")).unwrap();
    (values, serde_json::from_slice(&result).unwrap())
}

fn histograms<'a>(values: &'a [(i64, Value)], tag: &str) -> Vec<(i64, &'a Histogram)> {
    let of_tag = values.iter().filter(|(_, v)| v.tag == format!("distributions/{tag}"));
    of_tag.filter_map(|(step, v)| Some((*step, v.histogram.as_ref()?))).collect()
}

fn check(env: &str, more: &[&str], learnt: f64) {
    let dir = tempfile::tempdir().unwrap();
    let sets = ["env.num_envs=8", "train.steps=960", "eval.every=480", "eval.episodes=4", "train.threads=1"];
    let sets = sets.iter().chain(more).flat_map(|s| ["--set", s]);
    let args: Vec<&str> = ["--env", env].into_iter().chain(sets).collect();
    let (values, result) = run(dir.path(), &args);
    for tag in ["q_values", "td_error", "grad_norm"] {
        let found = histograms(&values, tag);
        assert_eq!(found.iter().map(|h| h.0).collect::<Vec<_>>(), [480, 960], "{env}: {tag}");
        assert!(found.iter().all(|h| h.1.min < h.1.max), "{env}: {tag}: {found:?}");
    }
    // every update once, every learnt step of the last batch once
    let norms: f64 = histograms(&values, "grad_norm").iter().map(|h| h.1.num).sum();
    assert_eq!(Some(norms), result["updates"].as_f64());
    assert!(histograms(&values, "td_error").iter().all(|h| h.1.num == learnt));
    // the page by which runs are compared: a setting by its key, a metric by its tag
    let page = |tag: &str| values.iter().find(|(_, v)| v.plugin == "hparams" && v.tag.ends_with(tag)).unwrap();
    let holds = |tag: &str, text: &str| page(tag).1.content.windows(text.len()).any(|w| w == text.as_bytes());
    for key in ["learner.batch", "backbone.name", "train.seed", "env.id"] {
        assert!(holds("session_start_info", key), "{env}: {key}");
    }
    assert!(holds("experiment", "eval/return_mean") && holds("experiment", "train/mmer"));
    page("session_end_info");
    assert!(values.iter().any(|(_, v)| v.tag == "config" && v.strings[0].contains("[learner]")));
}

#[test]
fn a_run_shows_histograms_and_settings() {
    // two whole episodes of 51 steps
    check("RepeatPreviousEasy", &["learner.batch=2"], 102.0);
}

#[test]
fn so_does_one_with_continuous_actions() {
    // two windows of 10 learnt steps
    let sets =
        ["learner.batch=2", "learner.length=10", "learner.burn_in=5", "replay.period=10", "learner.replay_ratio=1"];
    check("Pendulum-v1", &sets, 20.0);
}
