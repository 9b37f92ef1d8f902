//! Placeholder: the environments' error.

/// Placeholder.
#[derive(Debug, thiserror::Error)]
#[error("env")]
pub struct EnvError;
