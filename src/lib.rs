//! Recurrent off-policy reinforcement learning with a Mamba backbone.

pub mod actor;
pub mod backbone;
pub mod bench;
pub mod checkpoint;
pub mod config;
pub mod device;
pub mod error;
pub mod learner;
pub mod logger;
pub mod network;
pub mod ops;
pub mod params;
#[cfg(feature = "plot")]
pub mod plot;
pub mod replay;
pub mod train;
pub mod value;

pub use error::{Error, Result};

/// The examples of the documents, run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/environments.md")]
    struct Environments;
    #[doc = include_str!("../docs/cuda.md")]
    struct Cuda;
}
