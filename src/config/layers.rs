//! How a config comes together: preset < file < `--set key.path=value` < flags, each layer checked key by key.
//! The later layer wins; a repeated `--set` likewise.

use std::path::Path;

use mamba_rl_envs::Space;
use toml::{Table, Value};

use super::keys::{self, Key, Kind};
use super::{BackboneSection, Config, LearnerSection};
use crate::error::{Error, Result};

/// Shortcuts of the command for config keys; each is the last word on its key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// `env.id`.
    pub env: Option<String>,
    /// `agent.name`.
    pub agent: Option<String>,
    /// `backbone.name`.
    pub backbone: Option<String>,
    /// `train.steps`.
    pub steps: Option<u64>,
    /// `train.seed`.
    pub seed: Option<u64>,
    /// `train.mode`.
    pub mode: Option<String>,
    /// `train.device`.
    pub device: Option<String>,
    /// `train.precision`.
    pub precision: Option<String>,
}

const POPGYM: &str = include_str!("../../examples/configs/popgym.toml");
const CONTINUOUS: &str = include_str!("../../examples/configs/continuous.toml");
const R2D2_PAPER: &str = include_str!("../../examples/configs/r2d2-paper.toml");

/// Larger than any config that somebody wrote.
const MAX_FILE: u64 = 1 << 20;

/// Names of the presets in the binary.
pub const PRESETS: &[&str] = &["popgym", "continuous", "r2d2-paper"];

/// The preset where none is named.
const DEFAULT: &str = "popgym";

/// The preset where none is named, for a task with these actions.
fn default_preset(actions: &Space) -> &'static str {
    if matches!(actions, Space::Box { .. }) { "continuous" } else { DEFAULT }
}

/// Keys that a resumed run may set anew; all others are part of what the run is.
pub(super) const FREE_KEYS: &[(&str, &str)] = &[
    ("train", "steps"),
    ("train", "device"),
    ("train", "precision"),
    ("train", "graphs"),
    ("train", "kernel_cache"),
    ("train", "threads"),
    ("eval", "every"),
    ("checkpoint", "every"),
    ("log", "every"),
    ("log", "delta_q_every"),
];

impl Config {
    /// Builds a config: preset (`popgym` where none is named) < file < sets (`key.path=value`) < flags.
    /// A file may name its preset by a top-level `preset = "..."`. The result is validated.
    ///
    /// # Errors
    /// `Config` for unknown keys (with the nearest valid one), wrong types and values; `Usage` for an unknown preset, a
    /// missing file, or what this version does not have.
    pub fn load(preset: Option<&str>, file: Option<&Path>, sets: &[String], flags: &Flags) -> Result<Config> {
        load(DEFAULT, preset, file, sets, flags)
    }

    /// As [`Config::load`], for a task with these actions: where neither `preset` nor the file names one, continuous actions
    /// begin with the preset `continuous`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_for(
        actions: &Space,
        preset: Option<&str>,
        file: Option<&Path>,
        sets: &[String],
        flags: &Flags,
    ) -> Result<Config> {
        load(default_preset(actions), preset, file, sets, flags)
    }

    /// As [`Config::load`], for a run that goes on: without preset and file the saved config is the base; with one of
    /// them it is built anew, and what a resumed run may change falls back to the saved value. Compare the result with
    /// [`Config::resume_difference`].
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_resumed(
        saved: &Config,
        preset: Option<&str>,
        file: Option<&Path>,
        sets: &[String],
        flags: &Flags,
    ) -> Result<Config> {
        let default = if saved.agent.name == "rsac" { "continuous" } else { DEFAULT };
        let saved = saved.to_table()?;
        if preset.is_none() && file.is_none() {
            return finish(saved, None, sets, flags);
        }
        let file = file.map(read).transpose()?;
        let mut table = base(default, preset, file.as_ref().map(|(t, _)| t))?;
        for (section, name) in FREE_KEYS {
            if let Some(v) = saved.get(*section).and_then(|s| s.get(*name)) {
                put(&mut table, section, name, v.clone());
            }
        }
        if let Some((layer, _)) = file {
            merge(&mut table, layer);
        }
        finish(table, preset, sets, flags)
    }

    /// Reads a complete config file, such as a run folder's `config.toml`, without any preset below it: a key that was
    /// younger than the file would have had its section's default, not what a preset suggests today.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_file(path: &Path) -> Result<Config> {
        let (layer, _) = read(path)?;
        let sections =
            Config { backbone: BackboneSection::default(), learner: LearnerSection::default(), ..Config::default() };
        let mut table = sections.to_table()?;
        merge(&mut table, layer);
        from_table(table)
    }
}

fn load(default: &str, preset: Option<&str>, file: Option<&Path>, sets: &[String], flags: &Flags) -> Result<Config> {
    let file = file.map(read).transpose()?;
    let mut table = base(default, preset, file.as_ref().map(|(t, _)| t))?;
    if let Some((layer, _)) = file {
        merge(&mut table, layer);
    }
    finish(table, preset, sets, flags)
}

fn finish(mut table: Table, preset: Option<&str>, sets: &[String], flags: &Flags) -> Result<Config> {
    for set in sets {
        apply_set(&mut table, set)?;
    }
    apply_flags(&mut table, flags)?;
    if let Some(name) = preset {
        table.insert("preset".into(), name.into());
    }
    let config = from_table(table)?;
    config.validate()?;
    Ok(config)
}

fn from_table(table: Table) -> Result<Config> {
    Value::Table(table).try_into().map_err(|e: toml::de::Error| Error::config("config", e.message().to_owned()))
}

/// The preset named by the flag, else by the file, else `default`, complete with the defaults.
fn base(default: &str, preset: Option<&str>, file: Option<&Table>) -> Result<Table> {
    let named = preset.or_else(|| file.and_then(|t| t.get("preset")).and_then(Value::as_str)).unwrap_or(default);
    let text = match named {
        "popgym" => POPGYM,
        "continuous" => CONTINUOUS,
        "r2d2-paper" => R2D2_PAPER,
        _ => {
            let known = PRESETS.join(", ");
            return Err(Error::Usage(format!(
                "unknown preset `{named}`; there are: {known} (a file goes to --config)"
            )));
        }
    };
    let mut table = Config::default().to_table()?;
    merge(&mut table, parse(text, &format!("preset {named}"))?);
    Ok(table)
}

fn read(path: &Path) -> Result<(Table, String)> {
    let name = path.display().to_string();
    // A device or a pipe would be read without end.
    if let Ok(m) = std::fs::metadata(path)
        && !m.is_dir()
        && (!m.is_file() || m.len() > MAX_FILE)
    {
        let problem =
            format!("config file {name} is no regular file of at most {MAX_FILE} bytes; give the path of a TOML file");
        return Err(Error::Usage(problem));
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Usage(format!("config file {name} does not exist; give the path of a TOML file")));
        }
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            return Err(Error::Usage(format!("config file {name} is not UTF-8 text; give the path of a TOML file")));
        }
        Err(e) if e.kind() == std::io::ErrorKind::IsADirectory => {
            return Err(Error::Usage(format!("config file {name} is a folder; give the path of a TOML file")));
        }
        Err(e) => return Err(Error::Usage(format!("config file {name}: {e}; give the path of a TOML file"))),
    };
    Ok((parse(&text, &name)?, text))
}

/// Text to a checked table. `name` is the file's or preset's, for errors.
fn parse(text: &str, name: &str) -> Result<Table> {
    let table: Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count());
        let problem = e.message().replace('\n', ", ");
        Error::Usage(format!("{name}, line {line}: not valid TOML: {problem}"))
    })?;
    for (section, value) in &table {
        let origin = |key: &str| match line_of(text, section, key) {
            Some(line) => format!("{name}, line {line}"),
            None => name.to_owned(),
        };
        if section == "preset" {
            keys::check(keys::find("", "preset", name)?, value, &origin(section))?;
            continue;
        }
        let Value::Table(inner) = value else {
            let known = keys::SECTIONS.iter().any(|(s, _)| s == section);
            if known {
                let problem = format!("({}) is {}, expected a section", origin(section), keys::describe(value));
                return Err(Error::config(section, problem));
            }
            return Err(keys::find("", section, &origin(section))
                .err()
                .unwrap_or_else(|| Error::config(section, "is no section")));
        };
        if !keys::SECTIONS.iter().any(|(s, _)| s == section) {
            // A section that is unknown: name its first key too, which may belong elsewhere.
            let first = inner.keys().next().cloned().unwrap_or_default();
            let error = if first.is_empty() || inner[&first].is_table() {
                keys::find("", section, &origin(section))
            } else {
                keys::find(section, &first, &origin(&first))
            };
            return Err(error.err().unwrap_or_else(|| Error::config(section, "is no section")));
        }
        for (key, value) in inner {
            let origin = origin(key);
            keys::check(keys::find(section, key, &origin)?, value, &origin)?;
        }
    }
    Ok(table)
}

/// Line of `key = ` under `[section]`, counted from 1. Best effort: a dotted or inline form has none.
fn line_of(text: &str, section: &str, key: &str) -> Option<usize> {
    let mut inside = section == key;
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(head) = line.strip_prefix('[') {
            inside = head.split(']').next().is_some_and(|h| h.trim() == section);
            if inside && section == key {
                return Some(n + 1);
            }
        } else if inside && line.split('=').next().is_some_and(|k| k.trim() == key) {
            return Some(n + 1);
        }
    }
    None
}

fn merge(into: &mut Table, layer: Table) {
    for (name, value) in layer {
        match (into.get_mut(&name), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

fn put(table: &mut Table, section: &str, name: &str, value: Value) {
    if section.is_empty() {
        table.insert(name.to_owned(), value);
        return;
    }
    let entry = table.entry(section.to_owned()).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = entry {
        inner.insert(name.to_owned(), value);
    }
}

/// One `key.path=value`. The value is TOML; where the key takes text, quotes may be left out.
fn apply_set(table: &mut Table, set: &str) -> Result<()> {
    let origin = format!("--set {set}");
    let Some((path, raw)) = set.split_once('=') else {
        return Err(Error::Usage(format!(
            "{origin}: no `=`; write --set key.path=value, such as --set learner.batch=16"
        )));
    };
    let (path, raw) = (path.trim(), raw.trim());
    let (section, name) = path.split_once('.').unwrap_or(("", path));
    if let ("env", Some(arg)) = (section, name.strip_prefix("args.")) {
        if arg.is_empty() || arg.contains('.') {
            return Err(Error::Usage(format!("{origin}: write --set env.args.NAME=value")));
        }
        let value = raw.parse::<Value>().unwrap_or_else(|_| Value::String(raw.to_owned()));
        let mut args = Table::new();
        args.insert(arg.to_owned(), value);
        let layer = Table::from_iter([(
            "env".to_owned(),
            Value::Table(Table::from_iter([("args".to_owned(), Value::Table(args))])),
        )]);
        merge(table, layer);
        return Ok(());
    }
    if section.is_empty() && keys::SECTIONS.iter().any(|(s, _)| *s == name) {
        return Err(Error::Usage(format!("{origin}: `{name}` is a section; write --set {name}.KEY=value")));
    }
    let key = keys::find(section, name, &origin)?;
    if section.is_empty() {
        return Err(Error::Usage(format!("{origin}: the preset lies below all settings; write --preset {raw}")));
    }
    let value = set_value(key, raw);
    keys::check(key, &value, &origin)?;
    put(table, section, name, value);
    Ok(())
}

fn set_value(key: &Key, raw: &str) -> Value {
    let text = || Value::String(raw.to_owned());
    let parsed = raw.parse::<Value>().ok();
    match (key.kind, parsed) {
        (Kind::Text | Kind::OneOf(_) | Kind::Backbone | Kind::Device, Some(Value::String(s))) => Value::String(s),
        (Kind::Text | Kind::OneOf(_) | Kind::Backbone | Kind::Device, _) => text(),
        // 1e6 is a whole number on a command line.
        (Kind::Int(..) | Kind::IntOr(..), Some(Value::Float(f))) if f.fract() == 0.0 && f.abs() < 9e15 => {
            Value::Integer(f as i64)
        }
        (_, Some(value)) => value,
        (_, None) => raw.parse::<f64>().map_or_else(|_| text(), Value::Float),
    }
}

fn apply_flags(table: &mut Table, flags: &Flags) -> Result<()> {
    let mut set = |flag: &str, section: &str, name: &str, value: Option<Value>| -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        keys::check(keys::find(section, name, flag)?, &value, flag)?;
        put(table, section, name, value);
        Ok(())
    };
    let text = |v: &Option<String>| v.clone().map(Value::String);
    // A number beyond TOML's is passed on as text, which no range takes and the message shows as it was given.
    let int =
        |v: Option<u64>| v.map(|v| i64::try_from(v).map_or_else(|_| Value::String(v.to_string()), Value::Integer));
    set("--env", "env", "id", text(&flags.env))?;
    set("--agent", "agent", "name", text(&flags.agent))?;
    set("--backbone", "backbone", "name", text(&flags.backbone))?;
    set("--steps", "train", "steps", int(flags.steps))?;
    set("--seed", "train", "seed", int(flags.seed))?;
    set("--mode", "train", "mode", text(&flags.mode))?;
    set("--device", "train", "device", text(&flags.device))?;
    set("--precision", "train", "precision", text(&flags.precision))
}
