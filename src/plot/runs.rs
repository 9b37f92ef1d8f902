//! Reads run folders: the curve from `metrics.jsonl` (or event files where that is missing), and what was trained from
//! `config.toml`, `result.json` or the folder's name `<env>__<agent>-<backbone>__s<seed>__<time>`.

use super::{PlotError, Result, TAGS};
use crate::logger::{jsonl, reader};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// (environment step, return), steps rising.
pub(super) type Points = Vec<(f64, f64)>;

/// Configuration by full key, values as TOML.
pub(super) type Settings = BTreeMap<String, String>;

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Name of the folder.
    pub name: String,
    pub env: String,
    pub agent: String,
    pub backbone: String,
    /// The configuration without what repeats of one experiment may differ in.
    pub settings: Settings,
    pub tag: &'static str,
    pub points: Points,
}

/// Loads all runs; each is drawn from the first tag that all of them have, or from its own best one.
pub(super) fn load(dirs: &[PathBuf]) -> Result<Vec<Run>> {
    let mut all = Vec::new();
    for dir in dirs {
        all.push((dir, returns(dir)?));
    }
    let common = (0..TAGS.len()).find(|tag| all.iter().all(|(_, curves)| !curves[*tag].is_empty()));
    let mut runs = Vec::new();
    for (dir, mut curves) in all {
        let tag = common.or_else(|| curves.iter().position(|points| !points.is_empty()));
        let tag = tag.ok_or_else(|| PlotError::NoData { run: dir.clone() })?;
        runs.push(describe(dir, TAGS[tag], std::mem::take(&mut curves[tag]))?);
    }
    Ok(runs)
}

/// The finite values of each of [`TAGS`].
fn returns(dir: &Path) -> Result<[Points; TAGS.len()]> {
    if !dir.is_dir() {
        return Err(PlotError::NoRun { run: dir.to_owned() });
    }
    let path = dir.join(jsonl::FILE_NAME);
    let mut curves: [Points; TAGS.len()] = Default::default();
    let Some(text) = read(&path)? else {
        let scalars = reader::scalars(dir)?;
        for (curve, tag) in curves.iter_mut().zip(TAGS) {
            let points = scalars.get(tag).map_or(&[][..], Vec::as_slice);
            curve.extend(points.iter().filter(|p| p.1.is_finite()).map(|p| (p.0 as f64, f64::from(p.1))));
        }
        return Ok(curves);
    };
    let mut lines = text.lines().enumerate().peekable();
    while let Some((n, line)) = lines.next() {
        let row: Value = match serde_json::from_str(line) {
            Ok(row) => row,
            // A killed writer may leave half a row at the end.
            Err(_) if lines.peek().is_none() && !text.ends_with('\n') => break,
            Err(source) => return Err(PlotError::Row { path, row: n + 1, source }),
        };
        let Some(step) = row["step"].as_f64() else { continue };
        for (curve, tag) in curves.iter_mut().zip(TAGS) {
            if let Some(value) = row[tag].as_f64() {
                curve.push((step, value));
            }
        }
    }
    Ok(curves)
}

/// The file's text, or `None` where there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PlotError::Io { action: "read", path: path.to_owned(), source }),
    }
}

fn describe(dir: &Path, tag: &'static str, points: Points) -> Result<Run> {
    let full = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let name = full.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let config_path = dir.join("config.toml");
    let mut config: toml::Table = match read(&config_path)? {
        Some(text) => {
            toml::from_str(&text).map_err(|e| PlotError::Config { path: config_path, source: Box::new(e) })?
        }
        None => toml::Table::new(),
    };
    let result_path = dir.join("result.json");
    let result: Value = match read(&result_path)? {
        Some(text) => {
            serde_json::from_str(&text).map_err(|source| PlotError::Row { path: result_path, row: 1, source })?
        }
        None => Value::Null,
    };
    let from_config = |table: &str, key: &str| Some(config.get(table)?.get(key)?.as_str()?.to_owned());
    let from_result = |key: &str| Some(result.get(key)?.as_str()?.to_owned());
    let mut parts = name.split("__");
    let (env, what) = (parts.next().map(str::to_owned), parts.next().and_then(|w| w.split_once('-')));
    let unknown = || "?".to_owned();
    let env = from_config("env", "id").or_else(|| from_result("id")).or(env).unwrap_or_else(unknown);
    let agent = from_config("agent", "name").or_else(|| from_result("agent"));
    let agent = agent.or(what.map(|w| w.0.to_owned())).unwrap_or_else(unknown);
    let backbone = from_config("backbone", "name").or_else(|| from_result("backbone"));
    let backbone = backbone.or(what.map(|w| w.1.to_owned())).unwrap_or_else(unknown);
    if let Some(train) = config.get_mut("train").and_then(toml::Value::as_table_mut) {
        for key in ["seed", "steps", "device", "threads"] {
            train.remove(key);
        }
    }
    for table in ["log", "checkpoint"] {
        config.remove(table);
    }
    let mut settings = Settings::new();
    flatten("", &config, &mut settings);
    Ok(Run { name, env, agent, backbone, settings, tag, points })
}

fn flatten(prefix: &str, table: &toml::Table, settings: &mut Settings) {
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => flatten(&format!("{prefix}{key}."), inner, settings),
            _ => {
                settings.insert(format!("{prefix}{key}"), value.to_string());
            }
        }
    }
}
