//! Placeholder: the replay's error.

/// Placeholder.
#[derive(Debug, thiserror::Error)]
#[error("replay")]
pub struct ReplayError;
