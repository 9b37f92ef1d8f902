//! `state.json`: one JSON object that says how long it is in its first field and what its CRC-32 is in its last, so that
//! a cut or a flipped bit anywhere is seen before anything is parsed. These two fields stand in every format version.
//!
//! `{"bytes":<20 wide>,"format_version":1,"step":N,"files":{name:{"bytes":n,"crc32":c}},"state":{...},"crc32":<10 wide>}`
//! where the CRC-32 (IEEE) covers every byte before the comma of `,"crc32":`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FORMAT_VERSION, FileInfo, STATE_FILE};
use crate::error::{Error, Result};

const HEAD: &str = "{\"bytes\":";
const TAIL: &str = ",\"crc32\":";
/// Bytes of `,"crc32":<10 wide>}` and the final newline.
const TAIL_LEN: usize = TAIL.len() + 12;
/// Bytes of the head with its number, an empty body and the tail.
const SHORTEST: usize = HEAD.len() + 20 + TAIL_LEN;

/// Size and checksum of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
    pub bytes: u64,
    pub crc32: u32,
}

/// The contents of `state.json`.
#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub step: u64,
    pub files: BTreeMap<String, Sum>,
    pub state: Value,
}

#[derive(Serialize)]
struct Body<'a> {
    format_version: u64,
    step: u64,
    files: BTreeMap<&'a str, Sum>,
    state: &'a Value,
}

#[derive(Deserialize)]
struct Version {
    format_version: u64,
}

/// The text of `state.json`.
pub(super) fn encode(path: &Path, step: u64, files: &[FileInfo], state: &Value) -> Result<Vec<u8>> {
    let files = files.iter().map(|f| (f.file.as_str(), Sum { bytes: f.bytes, crc32: f.crc32 })).collect();
    let body = serde_json::to_string(&Body { format_version: FORMAT_VERSION, step, files, state })
        .map_err(|e| Error::checkpoint(path, format!("state cannot be written as JSON: {e}")))?;
    // The body without its own braces.
    let inner = &body[1..body.len() - 1];
    let total = HEAD.len() + 20 + 1 + inner.len() + TAIL_LEN;
    let mut text = format!("{HEAD}{total:>20},{inner}");
    let crc = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("{TAIL}{crc:>10}}}\n"));
    Ok(text.into_bytes())
}

/// Is the file whole? Checks its length and checksum, parses nothing.
fn check_seal(path: &Path, text: &[u8]) -> Result<()> {
    let found = text.len();
    if found < SHORTEST {
        return Err(Error::checkpoint(path, format!("has {found} bytes, expected at least {SHORTEST}: it is cut")));
    }
    let field = |range: &[u8]| std::str::from_utf8(range).ok().and_then(|s| s.trim_start().parse::<u64>().ok());
    let declared = text.strip_prefix(HEAD.as_bytes()).and_then(|rest| field(&rest[..20]));
    let Some(declared) = declared else {
        return Err(Error::checkpoint(path, format!("does not begin with `{HEAD}` and a number: it is damaged")));
    };
    if declared != found as u64 {
        return Err(Error::checkpoint(path, format!("has {found} bytes, expected {declared}: it is cut or damaged")));
    }
    let (sealed, tail) = text.split_at(found - TAIL_LEN);
    let crc = crc32fast::hash(sealed);
    let expected = format!("{TAIL}{crc:>10}}}\n");
    if tail != expected.as_bytes() {
        let tail = String::from_utf8_lossy(tail);
        let (tail, expected) = (tail.trim_end(), expected.trim_end());
        return Err(Error::checkpoint(path, format!("is damaged: ends with `{tail}`, expected `{expected}`")));
    }
    Ok(())
}

fn read_sealed(dir: &Path) -> Result<Vec<u8>> {
    let path = dir.join(STATE_FILE);
    let text = fs::read(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::checkpoint(dir, format!("holds no `{STATE_FILE}`: not a complete checkpoint"))
        }
        _ => Error::io("reading", &path, e),
    })?;
    check_seal(&path, &text)?;
    Ok(text)
}

/// Was this checkpoint written to its end? A newer format counts: loading it says what is wrong.
pub(super) fn check_complete(dir: &Path) -> Result<()> {
    read_sealed(dir).map(|_| ())
}

/// Reads and checks `state.json`.
pub(super) fn read(dir: &Path) -> Result<State> {
    let path = dir.join(STATE_FILE);
    let text = read_sealed(dir)?;
    let json = |e: serde_json::Error| Error::checkpoint(&path, format!("JSON: {e}"));
    let found = serde_json::from_slice::<Version>(&text).map_err(json)?.format_version;
    if found > FORMAT_VERSION || found == 0 {
        let problem = format!(
            "has format version {found}, this program supports 1 to {FORMAT_VERSION}: use the version that wrote it or a newer one"
        );
        return Err(Error::checkpoint(&path, problem));
    }
    let state: State = serde_json::from_slice(&text).map_err(json)?;
    for name in state.files.keys() {
        check_name(&path, name)?;
    }
    Ok(state)
}

/// A file of a checkpoint lies in its folder: no separators, no `..`.
pub(super) fn check_name(path: &Path, name: &str) -> Result<()> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(()),
        _ => Err(Error::checkpoint(path, format!("file name `{name}`, expected a plain name without a folder"))),
    }
}
