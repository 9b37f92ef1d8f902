//! Reading a checkpoint: version, description, sizes, checksums, names, shapes and types are all checked before anything
//! is returned, so that a failed load leaves the caller's weights as they were.

use std::fs::{self, File};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::durable;
use super::state::{self, State, Sum};
use super::tensors::TensorFile;
use super::{CONFIG_FILE, MODEL_FILE, ONLINE, OPTIMIZER_FILE, STATE_FILE};
use crate::error::{Error, Result};
use crate::params::ParamLayout;
use crate::young::YOUNG_KEYS;

/// Target network and moments, each in the order of the layout, `[layout.len()]`.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedOptimizerState {
    /// Weights of the target network.
    pub target: Vec<f32>,
    /// Weights of the online network, where the model's are the target's.
    pub online: Option<Vec<f32>>,
    /// First moments of AdamW.
    pub m: Vec<f32>,
    /// Second moments of AdamW.
    pub v: Vec<f32>,
}

/// A whole checkpoint.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Environment steps when it was written.
    pub step: u64,
    /// The model: weights that act, `[layout.len()]`.
    pub params: Vec<f32>,
    /// Target and moments, where they were saved.
    pub optimizer: Option<OwnedOptimizerState>,
    /// Description of the network.
    pub config: Value,
    /// Counters, schedules, RNG streams, environment states, as saved.
    pub state: Value,
    /// The folder; replay files lie in it, with sizes and checksums already checked.
    pub dir: PathBuf,
}

/// Loads a checkpoint folder into the shape of `layout`; with `expect_config`, the saved description must equal it.
///
/// # Errors
/// `Checkpoint` with the file, and: its size and the expected one; its checksum; the tensor's name, shape or type; the
/// field's path and both values; or the format version found and supported. `Io` where the system refuses a read.
pub fn load(dir: &Path, layout: &ParamLayout, expect_config: Option<&Value>) -> Result<Loaded> {
    let state = state::read(dir)?;
    for (name, sum) in &state.files {
        check_size(&dir.join(name), *sum)?;
    }
    let config = read_json(dir, &state)?;
    if let Some(expected) = expect_config {
        check_rotation(&dir.join(CONFIG_FILE), expected, &config)?;
    }
    let differ = |e: &Value| first_difference(&with_young_keys(e), &with_young_keys(&config));
    if let Some((field, expected, found)) = expect_config.and_then(differ) {
        let problem = format!("`{field}` is {found}, expected {expected}");
        return Err(Error::checkpoint(dir.join(CONFIG_FILE), problem));
    }
    let params = read_tensors(dir, MODEL_FILE, &state, layout, &[""])?.swap_remove(0);
    let optimizer = if state.files.contains_key(OPTIMIZER_FILE) {
        let mut file = open_tensors(dir, OPTIMIZER_FILE, &state)?;
        let two = file.names().iter().any(|n| n.starts_with(ONLINE));
        let prefixes = ["target.", "m.", "v.", ONLINE];
        let mut sets = file.read_layout(layout, &prefixes[..if two { 4 } else { 3 }])?.into_iter();
        match (sets.next(), sets.next(), sets.next()) {
            (Some(target), Some(m), Some(v)) => Some(OwnedOptimizerState { target, m, v, online: sets.next() }),
            _ => None,
        }
    } else {
        None
    };
    for (name, sum) in &state.files {
        if ![MODEL_FILE, CONFIG_FILE, OPTIMIZER_FILE].contains(&name.as_str()) {
            let path = dir.join(name);
            let (_, crc32) = durable::checksum(&path)?;
            check_crc(&path, crc32, *sum)?;
        }
    }
    Ok(Loaded { step: state.step, params, optimizer, config, state: state.state, dir: dir.into() })
}

/// The description of the network in a checkpoint folder.
///
/// # Errors
/// As [`load`].
pub fn load_config(dir: &Path) -> Result<Value> {
    read_json(dir, &state::read(dir)?)
}

/// The weights alone, `[layout.len()]`, from a checkpoint folder or a `model.safetensors`. Beside a `state.json` the
/// checksum is checked too; a file of its own is checked for size, names, shapes and types.
///
/// # Errors
/// As [`load`].
pub fn load_weights(dir_or_file: &Path, layout: &ParamLayout) -> Result<Vec<f32>> {
    let file = if dir_or_file.is_dir() { dir_or_file.join(MODEL_FILE) } else { dir_or_file.into() };
    let (dir, name) = (file.parent().unwrap_or(Path::new("")), file.file_name().and_then(|n| n.to_str()));
    if name == Some(MODEL_FILE) && dir.join(STATE_FILE).exists() {
        let state = state::read(dir)?;
        return Ok(read_tensors(dir, MODEL_FILE, &state, layout, &[""])?.swap_remove(0));
    }
    let len = fs::metadata(&file).map_err(|e| Error::io("reading", &file, e))?.len();
    let source = File::open(&file).map_err(|e| Error::io("opening", &file, e))?;
    Ok(TensorFile::open(&file, source, len)?.read_layout(layout, &[""])?.swap_remove(0))
}

/// The first field, in the order of keys, where two descriptions differ: its path such as `backbone.d_model` or
/// `space[1].n`, the value expected and the value found. A missing field counts as null; 1 equals 1.0.
pub fn first_difference(expected: &Value, found: &Value) -> Option<(String, Value, Value)> {
    fn walk(at: &str, expected: &Value, found: &Value) -> Option<(String, Value, Value)> {
        match (expected, found) {
            (Value::Object(e), Value::Object(f)) => {
                let mut keys: Vec<&String> = e.keys().chain(f.keys()).collect();
                keys.sort();
                keys.dedup();
                keys.into_iter().find_map(|key| {
                    let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                    walk(&path, e.get(key).unwrap_or(&Value::Null), f.get(key).unwrap_or(&Value::Null))
                })
            }
            (Value::Array(e), Value::Array(f)) => (0..e.len().max(f.len())).find_map(|i| {
                walk(&format!("{at}[{i}]"), e.get(i).unwrap_or(&Value::Null), f.get(i).unwrap_or(&Value::Null))
            }),
            (Value::Number(e), Value::Number(f)) if e == f || e.as_f64() == f.as_f64() && e.is_f64() != f.is_f64() => {
                None
            }
            _ if expected == found => None,
            _ => Some((at.into(), expected.clone(), found.clone())),
        }
    }
    walk("", expected, found)
}

/// A description with the keys that are younger than the format, where it has none: what they do was off then.
fn with_young_keys(config: &Value) -> Value {
    let mut config = config.clone();
    for (section, key, off) in YOUNG_KEYS {
        if let Some(Value::Object(part)) = config.pointer_mut(&format!("/mamba_rl/{section}")) {
            part.entry(key).or_insert_with(|| off.into());
        }
    }
    config
}

/// A body of Mamba-1 and one with a rotating state differ in many fields and tensors: one line names both kinds.
fn check_rotation(path: &Path, expected: &Value, found: &Value) -> Result<()> {
    let of = |config: &Value| {
        let backbone = config.pointer("/mamba_rl/backbone").filter(|b| b["name"] == "mamba")?;
        Some(backbone["rotate"].as_str().unwrap_or("off").to_owned())
    };
    let (Some(expected), Some(found)) = (of(expected), of(found)) else { return Ok(()) };
    if (expected == "off") == (found == "off") {
        return Ok(());
    }
    let named = |rotate: &str| if rotate == "off" { "Mamba-1" } else { "a rotating state" };
    let problem = format!(
        "`mamba_rl.backbone.rotate` is \"{found}\" ({}), expected \"{expected}\" ({})",
        named(&found),
        named(&expected)
    );
    Err(Error::checkpoint(path, problem))
}

fn check_size(path: &Path, sum: Sum) -> Result<()> {
    match fs::metadata(path) {
        Ok(m) if !m.is_file() => Err(Error::checkpoint(path, "is not a file")),
        Ok(m) if m.len() != sum.bytes => {
            Err(Error::checkpoint(path, format!("has {} bytes, expected {}", m.len(), sum.bytes)))
        }
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::checkpoint(path, format!("is missing, expected {} bytes", sum.bytes)))
        }
        Err(e) => Err(Error::io("reading", path, e)),
    }
}

fn check_crc(path: &Path, found: u32, sum: Sum) -> Result<()> {
    if found == sum.crc32 {
        return Ok(());
    }
    Err(Error::checkpoint(path, format!("is damaged: checksum {found:08x}, expected {:08x}", sum.crc32)))
}

/// A file of the checkpoint, with its size and checksum checked.
fn read_checked(dir: &Path, name: &str, state: &State) -> Result<Vec<u8>> {
    let path = dir.join(name);
    let Some(&sum) = state.files.get(name) else {
        return Err(Error::checkpoint(dir.join(STATE_FILE), format!("lists no file `{name}`, expected one")));
    };
    check_size(&path, sum)?;
    let bytes = fs::read(&path).map_err(|e| Error::io("reading", &path, e))?;
    check_crc(&path, crc32fast::hash(&bytes), sum)?;
    Ok(bytes)
}

fn read_json(dir: &Path, state: &State) -> Result<Value> {
    let bytes = read_checked(dir, CONFIG_FILE, state)?;
    serde_json::from_slice(&bytes).map_err(|e| Error::checkpoint(dir.join(CONFIG_FILE), format!("JSON: {e}")))
}

fn read_tensors(
    dir: &Path,
    name: &str,
    state: &State,
    layout: &ParamLayout,
    prefixes: &[&str],
) -> Result<Vec<Vec<f32>>> {
    open_tensors(dir, name, state)?.read_layout(layout, prefixes)
}

fn open_tensors(dir: &Path, name: &str, state: &State) -> Result<TensorFile<Cursor<Vec<u8>>>> {
    let bytes = read_checked(dir, name, state)?;
    let len = bytes.len() as u64;
    TensorFile::open(&dir.join(name), Cursor::new(bytes), len)
}
