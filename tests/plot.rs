//! Plotting run folders: which tag is drawn, how seeds are gathered, both formats, and errors that name the run.
#![cfg(feature = "plot")]

use mamba_rl::{
    logger::{Logger, LoggerOptions},
    plot::{By, PlotError, plot},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes a run folder with a straight curve from `from` to `to` at steps 0, 100, ..., 1000.
fn run(root: &Path, env: &str, backbone: &str, seed: u64, tag: &str, ends: (f64, f64)) -> PathBuf {
    let dir = root.join(format!("{env}__r2d2-{backbone}__s{seed}__20260101-000000"));
    fs::create_dir_all(&dir).expect("folder");
    let config = format!(
        "[env]\nid = \"{env}\"\n[agent]\nname = \"r2d2\"\n[backbone]\nname = \"{backbone}\"\n[train]\nseed = {seed}\n"
    );
    fs::write(dir.join("config.toml"), config).expect("config");
    let mut logger = Logger::new(&dir, LoggerOptions { tensorboard: false, ..Default::default() }).expect("logger");
    for step in (0..=1000).step_by(100) {
        logger.log(step, 0.1, &[(tag, ends.0 + (ends.1 - ends.0) * step as f64 / 1000.0), ("charts/SPS", 1.0)]);
    }
    dir
}

const EVAL: &str = "eval/return_mean";
const TRAIN: &str = "charts/episodic_return";

#[test]
fn seeds_share_a_curve_with_mean_band_and_interquartile_mean() {
    let root = tempfile::tempdir().expect("folder");
    let ends = [0.0, 1.0, 3.0, 100.0];
    let runs: Vec<PathBuf> =
        (0..4).map(|seed| run(root.path(), "Env", "mamba", seed as u64, EVAL, (0.0, ends[seed]))).collect();
    let report = plot(&runs, &root.path().join("curves.svg"), None).expect("plot");
    assert_eq!(report.curves.len(), 1);
    let curve = &report.curves[0];
    assert_eq!((curve.label.as_str(), curve.panel.as_str(), curve.tag.as_str()), ("r2d2-mamba", "Env", EVAL));
    assert_eq!(curve.steps, (0..=10).map(|i| f64::from(i) * 100.0).collect::<Vec<_>>());
    assert_eq!((curve.mean[10], curve.min[10], curve.max[10], curve.iqm[10]), (26.0, 0.0, 100.0, 2.0));
    let svg = fs::read_to_string(&report.out).expect("picture");
    for text in ["Env", "r2d2-mamba", "environment steps", "evaluation return", "interquartile mean", "</svg>"] {
        assert!(svg.contains(text), "{text} is not in the picture");
    }
}

#[test]
fn groups_panels_and_labels() {
    let root = tempfile::tempdir().expect("folder");
    let at = |env, backbone, seed| run(root.path(), env, backbone, seed, EVAL, (0.0, 1.0));
    let runs = [at("A", "mamba", 1), at("A", "mamba", 2), at("A", "gru", 1), at("B", "mamba", 1)];
    let picture = root.path().join("curves.svg");
    let names = |by| -> Vec<(String, String, usize)> {
        let report = plot(&runs, &picture, by).expect("plot");
        report.curves.into_iter().map(|c| (c.panel, c.label, c.runs.len())).collect()
    };
    let want = |rows: &[(&str, &str, usize)]| -> Vec<(String, String, usize)> {
        rows.iter().map(|r| (r.0.to_owned(), r.1.to_owned(), r.2)).collect()
    };
    assert_eq!(names(None), want(&[("A", "r2d2-gru", 1), ("A", "r2d2-mamba", 2), ("B", "r2d2-mamba", 1)]));
    assert_eq!(names(Some(By::Backbone)), want(&[("A", "gru", 1), ("A", "mamba", 2), ("B", "mamba", 1)]));
    assert_eq!(names(Some(By::Agent)), want(&[("A", "r2d2", 3), ("B", "r2d2", 1)]));
    assert_eq!(names(Some(By::Env)), want(&[("all environments", "A", 3), ("all environments", "B", 1)]));
    // Other settings under the same names are no further seeds.
    let config = fs::read_to_string(runs[1].join("config.toml")).expect("config");
    fs::write(runs[1].join("config.toml"), config + "[learner]\nbatch = 99\n").expect("config");
    let labels: Vec<String> = names(None).into_iter().map(|name| name.1).collect();
    assert_eq!(labels, ["r2d2-gru", "r2d2-mamba", "r2d2-mamba (learner.batch = 99)", "r2d2-mamba"]);
}

#[test]
fn the_picture_is_a_png_with_ink() {
    let root = tempfile::tempdir().expect("folder");
    let runs = [run(root.path(), "Env", "mamba", 1, TRAIN, (-1.0, 1.0))];
    let report = plot(&runs, &root.path().join("curves.PNG"), None).expect("plot");
    assert_eq!(report.curves[0].tag, TRAIN);
    let png = fs::read(&report.out).expect("picture");
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let size = |at: usize| u32::from_be_bytes([png[at], png[at + 1], png[at + 2], png[at + 3]]);
    assert_eq!(size(16), 1280);
    assert!(png.len() > 10_000, "{} bytes are a blank page", png.len());
}

#[test]
fn a_torn_last_row_and_a_missing_value_do_no_harm() {
    let root = tempfile::tempdir().expect("folder");
    let dir = run(root.path(), "Env", "mamba", 1, EVAL, (0.0, 1.0));
    let path = dir.join("metrics.jsonl");
    let rows = fs::read_to_string(&path).expect("metrics");
    let more =
        "{\"step\":1100,\"wall_s\":1.0,\"eval/return_mean\":null,\"nonfinite\":[\"eval/return_mean\"]}\n{\"step\":12";
    fs::write(&path, rows + more).expect("metrics");
    let report = plot(std::slice::from_ref(&dir), &root.path().join("curves.svg"), None).expect("plot");
    assert_eq!(report.curves[0].runs[0].len(), 11);
    fs::write(&path, "{\"step\":1,\n{\"step\":2}\n").expect("metrics");
    let error = plot(&[dir], &root.path().join("curves.svg"), None).expect_err("damage");
    assert!(matches!(error, PlotError::Row { row: 1, .. }), "{error}");
}

#[test]
#[cfg(feature = "tensorboard")]
fn event_files_stand_in_for_missing_metrics() {
    let root = tempfile::tempdir().expect("folder");
    let dir = root.path().join("Env__rsac-gru__s1__20260101-000000");
    fs::create_dir(&dir).expect("folder");
    let mut logger = Logger::new(&dir, LoggerOptions::default()).expect("logger");
    logger.log(10, 0.1, &[(EVAL, 0.25)]);
    logger.log(20, 0.1, &[(EVAL, 0.5)]);
    drop(logger);
    fs::remove_file(dir.join("metrics.jsonl")).expect("remove");
    let report = plot(&[dir], &root.path().join("curves.svg"), None).expect("plot");
    assert_eq!(report.curves[0].runs, [[(10.0, 0.25), (20.0, 0.5)]]);
    assert_eq!(report.curves[0].label, "rsac-gru");
}

#[test]
fn errors_name_what_is_wrong() {
    let root = tempfile::tempdir().expect("folder");
    let good = run(root.path(), "Env", "mamba", 1, EVAL, (0.0, 1.0));
    let empty = root.path().join("empty-run");
    fs::create_dir(&empty).expect("folder");
    let svg = root.path().join("curves.svg");
    assert!(matches!(plot(&[], &svg, None), Err(PlotError::NoRuns)));
    let error = plot(&[good.clone(), empty], &svg, None).expect_err("no data");
    assert!(matches!(error, PlotError::NoData { .. }) && error.to_string().contains("empty-run"), "{error}");
    let error = plot(&[root.path().join("gone")], &svg, None).expect_err("no folder");
    assert!(matches!(error, PlotError::NoRun { .. }) && error.to_string().contains("gone"), "{error}");
    let error = plot(std::slice::from_ref(&good), &root.path().join("curves.gif"), None).expect_err("format");
    assert!(matches!(error, PlotError::Format { .. }) && error.to_string().contains("gif"), "{error}");
    let error = plot(&[good], &root.path().join("no/such/curves.png"), None).expect_err("no folder");
    assert!(matches!(error, PlotError::Io { .. }), "{error}");
    assert!(!svg.exists(), "nothing is drawn after an error");
}
