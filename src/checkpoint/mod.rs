//! Checkpoints: everything a run needs to go on with the same bits, in one folder that is either whole or not there.
//!
//! ```text
//! RUN/checkpoints/
//!   best.json                  {"step": N}, the best one, kept besides the newest K
//!   step-N/
//!     model.safetensors        weights that act under their layout names, F32 (readable by `transformers`)
//!     config.json              what the network is
//!     optimizer.safetensors    target.*, m.*, v.* under the same names; online.* where the target network acts
//!     replay-*                 append-only segments, hard-linked between checkpoints
//!     state.json               counters, RNG streams, size and CRC-32 of every file above, its own CRC-32
//! ```
//! Writing: F1 stage everything in a hidden sibling folder, F2 sync each file once, F3 sync the folder, F4 rename it,
//! F5 sync the parent, F6 delete what is no longer kept. A kill at any moment leaves the previous checkpoint untouched.
//! Reading checks every size, checksum, name, shape and type before it returns anything.
//!
//! ```
//! use mamba_rl::checkpoint::{Checkpoints, SaveRequest, load};
//! use mamba_rl::params::{Group, Init, ParamLayout, ParamSpec};
//! use serde_json::json;
//!
//! let run = tempfile::tempdir()?;
//! let layout = ParamLayout::new(vec![ParamSpec::new("head.weight", &[2, 3], Group::HeadsDecayed, Init::Zeros)])?;
//! let (config, state) = (json!({"d_model": 3}), json!({"updates": 12}));
//! let mut checkpoints = Checkpoints::open(run.path(), 3)?;
//! checkpoints.save(SaveRequest {
//!     step: 1000,
//!     layout: &layout,
//!     params: &[0.5; 6],
//!     optimizer: None,
//!     config: &config,
//!     state: &state,
//!     blobs: &[],
//!     replay: None,
//! })?;
//! let newest = Checkpoints::newest(run.path())?.expect("one was saved");
//! let loaded = load(&newest, &layout, Some(&config))?;
//! assert_eq!((loaded.step, loaded.params, loaded.state), (1000, vec![0.5; 6], state));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Source: safetensors format (huggingface.co/docs/safetensors); names as in the state-spaces/mamba checkpoints.

mod durable;
mod huggingface;
mod load;
mod resolve;
mod state;
mod store;
mod tensors;

pub use huggingface::{HfConfig, HfMamba, huggingface_config, load_huggingface};
pub use load::{Loaded, OwnedOptimizerState, first_difference, load, load_config, load_weights};
pub use resolve::resolve;
pub use store::{Checkpoints, Listed};

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Result;
use crate::params::ParamLayout;

/// The folder format that this version writes, and the newest it reads.
pub const FORMAT_VERSION: u64 = 1;

/// The model: weights that act.
pub const MODEL_FILE: &str = "model.safetensors";
/// Description of the network.
pub const CONFIG_FILE: &str = "config.json";
/// Names of the online network's weights begin so where the target network acts.
const ONLINE: &str = "online.";

/// Target network and AdamW moments.
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
/// Counters and checksums; its presence makes a checkpoint complete.
pub const STATE_FILE: &str = "state.json";

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Plain name, without a folder.
    pub file: String,
    /// Size in bytes.
    pub bytes: u64,
    /// CRC-32 (IEEE) of the contents.
    pub crc32: u32,
}

/// A replay that can write itself into a checkpoint, paying only for what is new.
pub trait ReplayStore {
    /// Writes what no earlier checkpoint holds into `dir` and returns every file that a load will need. A file that is
    /// returned but was not written is hard-linked from an earlier checkpoint of the run, so its name must be unique.
    /// Files need not be synced.
    ///
    /// # Errors
    /// `Io` with the file that could not be written.
    fn save_segments(&mut self, dir: &Path) -> Result<Vec<FileInfo>>;

    /// The files of the last `save_segments` are gone, because the checkpoint could not be finished: the next call must
    /// write their contents again.
    fn save_failed(&mut self);
}

/// Target network and moments, each in the order of the layout, `[layout.len()]`.
#[derive(Debug, Clone, Copy)]
pub struct OptimizerState<'a> {
    /// Weights of the target network.
    pub target: &'a [f32],
    /// Weights of the online network, where the target's are the model's.
    pub online: Option<&'a [f32]>,
    /// First moments of AdamW.
    pub m: &'a [f32],
    /// Second moments of AdamW.
    pub v: &'a [f32],
}

/// What goes into a checkpoint.
pub struct SaveRequest<'a> {
    /// Environment steps so far; names the folder.
    pub step: u64,
    /// Names and shapes of the weights.
    pub layout: &'a ParamLayout,
    /// The model: weights that act, `[layout.len()]`.
    pub params: &'a [f32],
    /// Target and moments; `None` for a network without a learner.
    pub optimizer: Option<OptimizerState<'a>>,
    /// Description of the network, written as `config.json`; see [`huggingface_config`].
    pub config: &'a Value,
    /// Counters, schedules, RNG streams, environment states. JSON has no NaN or infinity: they would come back as null.
    pub state: &'a Value,
    /// Other files, such as the actor's recurrent states: name and contents.
    pub blobs: &'a [(&'a str, &'a [u8])],
    /// The replay, where it is saved.
    pub replay: Option<&'a mut dyn ReplayStore>,
}

/// What a save did.
#[derive(Debug, Clone)]
pub struct SaveReport {
    /// The new folder `step-N`.
    pub path: PathBuf,
    /// Bytes written (hard-linked segments cost none).
    pub bytes: u64,
    /// Wall time of the save, in seconds.
    pub seconds: f64,
}
