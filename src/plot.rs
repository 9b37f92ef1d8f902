//! Learning curves of run folders.
//!

use std::path::{Path, PathBuf};

/// By what runs are gathered into one curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Environment.
    Env,
    /// Backbone.
    Backbone,
    /// Agent.
    Agent,
}

/// What was drawn.
#[derive(Clone, Debug)]
pub struct PlotReport {
    /// The picture.
    pub out: PathBuf,
}
