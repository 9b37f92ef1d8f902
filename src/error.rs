//! One error type for the library. Each variant names what was found, what was expected and where; the
//! variant says who can mend it: the user (`Config`, `Usage`), the files (`Checkpoint`, `Io`), the machine (`Device`),
//! the task (`Env`), or us (`Shape`, `Kernel`).

use std::path::PathBuf;

/// Result of everything that can fail in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value in the configuration is not usable.
    #[error("config: `{key}` {problem}")]
    Config {
        /// Key path, such as `replay.capacity`.
        key: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// The request itself cannot be carried out as stated (a wrong flag, a folder that already holds a run).
    #[error("{0}")]
    Usage(String),
    /// A buffer does not have the size that its shape asks for.
    #[error("{op}: `{arg}` has {got} elements, expected {want} = {shape}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// Its argument.
        arg: &'static str,
        /// The shape in words, such as `[T 4, B 2, d_inner 8]`.
        shape: String,
        /// Elements expected.
        want: usize,
        /// Elements found.
        got: usize,
    },
    /// The device is absent or refused.
    #[error("device {device}: {problem}")]
    Device {
        /// Its name, such as `cuda:0`.
        device: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The device has no room for a buffer.
    #[error("device {device}: out of memory: {requested} bytes were asked for, {free} of {total} are free")]
    OutOfMemory {
        /// Its name, such as `cuda:0`.
        device: String,
        /// Bytes of the buffer.
        requested: usize,
        /// Bytes free.
        free: usize,
        /// Bytes in all.
        total: usize,
    },
    /// The device failed while running.
    #[error("device {device}: {doing}: {problem}")]
    Driver {
        /// Its name, such as `cuda:0`.
        device: String,
        /// What was being done, such as `recording a graph`.
        doing: String,
        /// What the driver said.
        problem: String,
    },
    /// A kernel could not be built or launched.
    #[error("kernel {kernel}: {problem}")]
    Kernel {
        /// Name of the kernel.
        kernel: String,
        /// What the driver said.
        problem: String,
    },
    /// A checkpoint does not fit or is damaged.
    #[error("checkpoint {path}: {problem}")]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// The tensor or field, with the values found and expected.
        problem: String,
    },
    /// The environment said no.
    #[error(transparent)]
    Env(#[from] mamba_rl_envs::EnvError),
    /// The replay said no.
    #[error(transparent)]
    Replay(#[from] crate::replay::ReplayError),
    /// An argument of a formula cannot be used.
    #[error(transparent)]
    Value(#[from] crate::value::ValueError),
    /// The log could not be opened.
    #[error(transparent)]
    Log(#[from] crate::logger::LogError),
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done, such as `writing`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// A `Config` error.
    pub fn config(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Config { key: key.into(), problem: problem.into() }
    }

    /// A `Checkpoint` error.
    pub fn checkpoint(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Error::Checkpoint { path: path.into(), problem: problem.into() }
    }

    /// An `Io` error.
    pub fn io(doing: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::Io { doing, path: path.into(), source }
    }

    /// Is it the caller's to mend (exit code 2), rather than a failure while running (exit code 1)?
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Config { .. } | Error::Usage(_) | Error::Device { .. })
    }
}
