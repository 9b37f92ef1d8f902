//! Recurrent off-policy reinforcement learning with a Mamba backbone.

pub mod checkpoint;
pub mod device;
pub mod error;
pub mod params;
pub mod replay;

pub use error::{Error, Result};
