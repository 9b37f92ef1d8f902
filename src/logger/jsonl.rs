//! `metrics.jsonl`: one JSON object per log step, `{"step":s,"wall_s":w,tag:value,...}`. A value that is not finite is
//! `null` and its tag stands in `"nonfinite":[...]`, because JSON has no NaN.

use super::{
    append::AppendFile,
    error::{LogError, Result},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// Name of the file in the run folder.
pub const FILE_NAME: &str = "metrics.jsonl";

/// Keys of a row that are no tags.
pub(super) const RESERVED: [&str; 3] = ["step", "wall_s", "nonfinite"];

/// The last row, kept so that a second call for the same step joins it.
#[derive(Debug)]
struct Row {
    step: u64,
    wall_s: f64,
    cells: Vec<(String, f64)>,
    /// Where the row begins in the file, in bytes.
    start: u64,
    /// A checkpoint counts on the row as it is.
    sealed: bool,
}

/// The open metrics file.
#[derive(Debug)]
pub(super) struct Jsonl {
    out: AppendFile,
    row: Option<Row>,
}

impl Jsonl {
    /// Opens `run_dir/metrics.jsonl`: cut to `truncate_to` bytes, or new (or empty) where that is `None`.
    pub fn open(run_dir: &Path, truncate_to: Option<u64>) -> Result<Self> {
        let path = run_dir.join(FILE_NAME);
        let io = |action, source| LogError::Io { action, path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| io("open", e))?;
        let found = file.metadata().map_err(|e| io("read the length of", e))?.len();
        match truncate_to {
            None if found > 0 => return Err(LogError::Exists { path, found }),
            None => {}
            Some(expected) if found < expected => return Err(LogError::Short { path, expected, found }),
            Some(at) => {
                if let Some(found) = last_byte(&mut file, at).map_err(|e| io("read", e))?.filter(|b| *b != b'\n') {
                    return Err(LogError::NotARow { path, at, found: found as char });
                }
                file.set_len(at).map_err(|e| io("truncate", e))?;
            }
        }
        let out = AppendFile::new(file, path.clone(), truncate_to.unwrap_or(0)).map_err(|e| io("seek in", e))?;
        Ok(Self { out, row: None })
    }

    /// Appends a row, or adds its cells to the last row of the same step. `false`: that row is sealed, nothing is
    /// written. Steps do not fall and tags do not repeat: the caller has seen to it.
    pub fn log(&mut self, step: u64, wall_s: f64, cells: &[(&str, f64)]) -> io::Result<bool> {
        let cells = cells.iter().map(|(tag, value)| (tag.to_string(), *value));
        match &mut self.row {
            Some(row) if row.step == step && row.sealed => return Ok(false),
            Some(row) if row.step == step => {
                row.cells.extend(cells);
                self.out.replace(row.start, &line(row))?;
            }
            last => {
                let row = Row { step, wall_s, cells: cells.collect(), start: self.out.len(), sealed: false };
                let line = line(&row);
                *last = Some(row);
                self.out.record(|out| {
                    out.extend_from_slice(&line);
                    Ok(())
                })?;
            }
        }
        Ok(true)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Puts every row on the disk and leaves them as they are from now on.
    pub fn seal(&mut self) -> io::Result<()> {
        if let Some(row) = &mut self.row {
            row.sealed = true;
        }
        self.out.sync()
    }

    pub fn flushed(&self) -> u64 {
        self.out.flushed()
    }

    pub fn path(&self) -> &Path {
        self.out.path()
    }
}

/// The byte before position `end`, if there is one.
fn last_byte(file: &mut File, end: u64) -> io::Result<Option<u8>> {
    let Some(at) = end.checked_sub(1) else { return Ok(None) };
    let mut byte = [0];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut byte)?;
    Ok(Some(byte[0]))
}

/// The row as a line of JSON; tags in the order in which they were logged.
fn line(row: &Row) -> Vec<u8> {
    let mut text = format!("{{\"step\":{},\"wall_s\":{}", row.step, number(row.wall_s));
    for (tag, value) in &row.cells {
        text.push_str(&format!(",{}:{}", string(tag), number(*value)));
    }
    let nonfinite: Vec<String> = row.cells.iter().filter(|(_, v)| !v.is_finite()).map(|(tag, _)| string(tag)).collect();
    if !nonfinite.is_empty() {
        text.push_str(&format!(",\"nonfinite\":[{}]", nonfinite.join(",")));
    }
    text.push_str("}\n");
    text.into_bytes()
}

fn number(value: f64) -> String {
    serde_json::Value::from(value).to_string()
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
