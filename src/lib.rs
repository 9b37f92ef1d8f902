//! Recurrent off-policy reinforcement learning with a Mamba backbone.

pub mod backbone;
pub mod device;
pub mod error;
pub mod ops;
pub mod params;
pub mod replay;
pub mod value;

pub use error::{Error, Result};
