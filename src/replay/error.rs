//! What can go wrong with a replay: a bad setting, a bad step, a damaged file.

use std::path::PathBuf;

/// Errors of [`super::SequenceReplay`]; each names the field, argument or file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A setting outside its range.
    #[error("`{field}` is {found}, expected {expected}")]
    Config {
        /// Name of the setting.
        field: &'static str,
        /// Its range, in words.
        expected: String,
        /// The value given.
        found: String,
    },
    /// A lane number that the replay was not built for.
    #[error("lane {lane} does not exist: the replay has {lanes}")]
    Lane {
        /// The number given.
        lane: usize,
        /// Lanes of the replay, numbered from 0.
        lanes: usize,
    },
    /// A step was pushed to a lane without a running episode.
    #[error("lane {lane} has no running episode: call `begin` first")]
    NotBegun {
        /// The lane.
        lane: usize,
    },
    /// Data of a length or type that does not fit the replay's specification.
    #[error("`{argument}` is {found}, expected {expected}")]
    Shape {
        /// Name of the argument.
        argument: &'static str,
        /// Type and length by the specification.
        expected: String,
        /// Type and length given.
        found: String,
    },
    /// A window may start at this step, and its recurrent state was not handed over.
    #[error("lane {lane}: a window may start at this step, so `state` is needed (see `wants_state`)")]
    MissingState {
        /// The lane.
        lane: usize,
    },
    /// Nothing to sample from yet.
    #[error("the replay holds no finished sequence yet")]
    Empty,
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file has another length than its checkpoint says.
    #[error("{path}: {found} bytes, expected {expected}: the file is cut short or was changed")]
    Size {
        /// The file.
        path: PathBuf,
        /// Bytes by the index.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// A file's checksum does not match.
    #[error("{path}: checksum {found:08x}, expected {expected:08x}: the file is damaged")]
    Checksum {
        /// The file.
        path: PathBuf,
        /// crc32 by the index.
        expected: u32,
        /// crc32 of the bytes there.
        found: u32,
    },
    /// A file's contents make no sense, or belong to another replay.
    #[error("{path}: `{field}` is {found}, expected {expected}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What was read.
        field: &'static str,
        /// What should stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
}

/// Result of the replay's functions.
pub type Result<T, E = ReplayError> = std::result::Result<T, E>;
