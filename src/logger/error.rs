//! Why a run's log could not be opened or read. Write errors after the start are no errors: they switch one sink off.

use std::{io, path::PathBuf};

/// What may go wrong when a log is opened or an event file is read. Each variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file system refused. `action` is a verb phrase such as `create`.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A new run would write behind the metrics of another one.
    #[error("{path} already holds {found} bytes of another run: resume it or choose an empty folder", path = path.display())]
    Exists {
        /// The metrics file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
    },
    /// The metrics file is shorter than when the checkpoint was written.
    #[error("{path} has {found} bytes, the checkpoint recorded {expected}: rows are missing; put the file back, or begin a new run from these weights (--init-from)", path = path.display())]
    Short {
        /// The metrics file.
        path: PathBuf,
        /// Length recorded in the checkpoint, in bytes.
        expected: u64,
        /// Length found, in bytes.
        found: u64,
    },
    /// The recorded length cuts a row in two, so file and checkpoint do not belong together.
    #[error("{path}: byte {at} recorded in the checkpoint is not the end of a row (expected a newline, found {found:?})", path = path.display())]
    NotARow {
        /// The metrics file.
        path: PathBuf,
        /// Length recorded in the checkpoint, in bytes.
        at: u64,
        /// The last byte before it.
        found: char,
    },
    /// A record of an event file does not have the checksum that stands beside it.
    #[error("{path}: record at byte {offset}: checksum of its {part} is {found:#010x}, expected {expected:#010x}", path = path.display())]
    Checksum {
        /// The event file.
        path: PathBuf,
        /// Where the record begins, in bytes.
        offset: u64,
        /// `length` or `payload`.
        part: &'static str,
        /// The checksum stored in the file.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// A record with a good checksum is not an event.
    #[error("{path}: record at byte {offset} is no event: {what}", path = path.display())]
    Decode {
        /// The event file.
        path: PathBuf,
        /// Where the record begins, in bytes.
        offset: u64,
        /// Which rule of the encoding is broken.
        what: &'static str,
    },
}

/// Result of opening or reading a log.
pub type Result<T, E = LogError> = std::result::Result<T, E>;
