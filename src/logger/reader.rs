//! Reads event files back, independently of the writer: own framing, own checksum, own decoding of the few fields we use.
//! Record = length (u64 LE), crc(length), payload, crc(payload); crc = ((c >> 15 | c << 17) + 0xa282ead8), c = CRC-32C.
//! Source: TensorFlow's TFRecord format; RFC 3720 for CRC-32C (reversed polynomial 0x82f63b78).

use super::error::{LogError, Result};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// An event file's records in order.
#[derive(Clone, Debug, PartialEq)]
pub struct EventFile {
    /// The whole records.
    pub events: Vec<Event>,
    /// Bytes of a last record that was not written to its end (a killed writer); 0 in a file that was closed.
    pub torn: u64,
}

/// One record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Seconds since 1970.
    pub wall_time: f64,
    /// Environment step.
    pub step: i64,
    /// Set in the first record: the format's version.
    pub file_version: Option<String>,
    /// Set in a session-log record: 1 START, 2 STOP, 3 CHECKPOINT.
    pub session_status: Option<u64>,
    /// The values of a summary.
    pub values: Vec<Value>,
}

/// One tagged value of a summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// Its name.
    pub tag: String,
    /// The TensorBoard plugin it is for; empty for scalars and histograms of the old form.
    pub plugin: String,
    /// The plugin's own data.
    pub content: Vec<u8>,
    /// A scalar's value.
    pub scalar: Option<f32>,
    /// The strings of a text.
    pub strings: Vec<String>,
    /// A histogram.
    pub histogram: Option<Histogram>,
}

/// Counts per bucket; bucket i ends at `limits[i]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Number of values.
    pub num: f64,
    /// Sum of the values.
    pub sum: f64,
    /// Upper ends of the buckets.
    pub limits: Vec<f64>,
    /// Number of values in each bucket.
    pub counts: Vec<f64>,
}

/// CRC-32C of `data`, bit by bit.
pub fn crc32c(data: &[u8]) -> u32 {
    let step = |c: u32| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 };
    !data.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |c, _| step(c)))
}

/// The checksum that stands in the file: rotated, plus a constant, so that a checksum of checksums stays sound.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Reads one event file. A last record that is cut short is left out and counted in [`EventFile::torn`].
///
/// # Errors
/// [`LogError::Io`], [`LogError::Checksum`], [`LogError::Decode`].
pub fn read(path: &Path) -> Result<EventFile> {
    let io = |source| LogError::Io { action: "read", path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(io)?;
    let mut events = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let check = |part, data: &[u8], stored: [u8; 4]| {
            let (expected, found) = (u32::from_le_bytes(stored), masked(crc32c(data)));
            if expected == found {
                Ok(())
            } else {
                Err(LogError::Checksum { path: path.to_owned(), offset, part, expected, found })
            }
        };
        let torn = EventFile { events: Vec::new(), torn: rest.len() as u64 };
        let Some((length, after)) = rest.split_first_chunk::<8>() else { return Ok(EventFile { events, ..torn }) };
        let Some((crc, after)) = after.split_first_chunk::<4>() else { return Ok(EventFile { events, ..torn }) };
        check("length", length, *crc)?;
        let size = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((payload, after)) = after.split_at_checked(size) else { return Ok(EventFile { events, ..torn }) };
        let Some((crc, after)) = after.split_first_chunk::<4>() else { return Ok(EventFile { events, ..torn }) };
        check("payload", payload, *crc)?;
        events.push(event(payload).map_err(|what| LogError::Decode { path: path.to_owned(), offset, what })?);
        rest = after;
    }
    Ok(EventFile { events, torn: 0 })
}

/// The event files of a run folder in the order in which they were begun.
///
/// # Errors
/// [`LogError::Io`] where the folder cannot be listed.
pub fn event_files(run_dir: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| LogError::Io { action: "list", path: run_dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(run_dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().contains(".tfevents.")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All scalar curves of a run folder: per tag, (step, value) in order. Points that a later session superseded are left out.
///
/// # Errors
/// As [`read`] and [`event_files`].
pub fn scalars(run_dir: &Path) -> Result<BTreeMap<String, Vec<(i64, f32)>>> {
    let mut curves: BTreeMap<String, Vec<(i64, f32)>> = BTreeMap::new();
    for path in event_files(run_dir)? {
        for event in read(&path)?.events {
            if event.session_status == Some(1) {
                curves.values_mut().for_each(|points| points.retain(|(step, _)| *step < event.step));
            }
            for value in event.values {
                if let Some(scalar) = value.scalar {
                    curves.entry(value.tag).or_default().push((event.step, scalar));
                }
            }
        }
    }
    curves.retain(|_, points| !points.is_empty());
    Ok(curves)
}

/// One field of a protobuf message.
enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

type Decoded<T> = std::result::Result<T, &'static str>;

const CUT: &str = "a field ends too early";

fn varint(rest: &mut &[u8]) -> Decoded<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(CUT)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number has more than 64 bits")
}

fn chunk<const N: usize>(rest: &mut &[u8]) -> Decoded<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or(CUT)?;
    *rest = after;
    Ok(*bytes)
}

/// Calls `each` with number and content of every field.
fn fields<'a>(mut rest: &'a [u8], mut each: impl FnMut(u64, Field<'a>) -> Decoded<()>) -> Decoded<()> {
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut rest)?),
            1 => Field::Fixed64(chunk(&mut rest)?),
            2 => {
                let size = usize::try_from(varint(&mut rest)?).map_err(|_| CUT)?;
                let (bytes, after) = rest.split_at_checked(size).ok_or(CUT)?;
                rest = after;
                Field::Bytes(bytes)
            }
            5 => Field::Fixed32(chunk(&mut rest)?),
            _ => return Err("a field has an unknown wire type"),
        };
        each(key >> 3, field)?;
    }
    Ok(())
}

fn string(bytes: &[u8]) -> Decoded<String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "a string is not UTF-8")
}

fn event(payload: &[u8]) -> Decoded<Event> {
    let mut event = Event::default();
    fields(payload, |number, field| {
        match (number, field) {
            (1, Field::Fixed64(bytes)) => event.wall_time = f64::from_le_bytes(bytes),
            (2, Field::Varint(step)) => event.step = step as i64,
            (3, Field::Bytes(bytes)) => event.file_version = Some(string(bytes)?),
            (5, Field::Bytes(bytes)) => fields(bytes, |number, field| {
                if let (1, Field::Bytes(bytes)) = (number, field) {
                    event.values.push(value(bytes)?);
                }
                Ok(())
            })?,
            (7, Field::Bytes(bytes)) => {
                event.session_status = Some(0);
                fields(bytes, |number, field| {
                    if let (1, Field::Varint(status)) = (number, field) {
                        event.session_status = Some(status);
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(event)
}

fn value(bytes: &[u8]) -> Decoded<Value> {
    let mut value = Value::default();
    fields(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => value.tag = string(bytes)?,
            (2, Field::Fixed32(bytes)) => value.scalar = Some(f32::from_le_bytes(bytes)),
            (5, Field::Bytes(bytes)) => value.histogram = Some(histogram(bytes)?),
            (8, Field::Bytes(bytes)) => fields(bytes, |number, field| {
                if let (8, Field::Bytes(bytes)) = (number, field) {
                    value.strings.push(string(bytes)?);
                }
                Ok(())
            })?,
            (9, Field::Bytes(bytes)) => fields(bytes, |number, field| {
                let (1, Field::Bytes(bytes)) = (number, field) else { return Ok(()) };
                fields(bytes, |number, field| {
                    match (number, field) {
                        (1, Field::Bytes(bytes)) => value.plugin = string(bytes)?,
                        (2, Field::Bytes(bytes)) => value.content = bytes.to_vec(),
                        _ => {}
                    }
                    Ok(())
                })
            })?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(value)
}

fn histogram(bytes: &[u8]) -> Decoded<Histogram> {
    let doubles = |bytes: &[u8]| bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    let mut out = Histogram::default();
    fields(bytes, |number, field| {
        match (number, field) {
            (1, Field::Fixed64(bytes)) => out.min = f64::from_le_bytes(bytes),
            (2, Field::Fixed64(bytes)) => out.max = f64::from_le_bytes(bytes),
            (3, Field::Fixed64(bytes)) => out.num = f64::from_le_bytes(bytes),
            (4, Field::Fixed64(bytes)) => out.sum = f64::from_le_bytes(bytes),
            (6, Field::Bytes(bytes)) => out.limits = doubles(bytes),
            (7, Field::Bytes(bytes)) => out.counts = doubles(bytes),
            _ => {}
        }
        Ok(())
    })?;
    Ok(out)
}
