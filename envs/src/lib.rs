//! Environments (placeholder of the error type only).

/// What an environment refuses.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// Not known.
    #[error("unknown environment {0}")]
    Unknown(String),
}
