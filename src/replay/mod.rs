//! Replay (placeholder of the error type only).

/// What the replay refuses.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Nothing to sample.
    #[error("the replay is empty")]
    Empty,
}
