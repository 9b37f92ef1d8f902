//! Partially observable tasks for reinforcement learning: POPGym, classic control and memory probes.
//!
//! Two forms of every task: the typed one (`Env`, run N at a time by `Batch`, no allocation per step) and the erased
//! one (`DynEnv` in a `BoxEnv`, for the registry, wrappers and `VecEnv`). The package stands alone.
//!
//! ```
//! use mamba_rl_envs::{ActionRef, Autoreset, EnvArgs, VecEnv, make};
//! let task = |_| make("popgym-RepeatPreviousEasy-v0", &EnvArgs::default());
//! let mut envs = VecEnv::new(&task, 2, 7, Autoreset::SameStep)?;
//! envs.reset()?;
//! let batch = envs.step(ActionRef::Discrete(&[0, 3]))?;
//! assert_eq!(batch.obs.len(), 2);
//! # Ok::<(), mamba_rl_envs::EnvError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod batch;
pub mod buffer;
pub mod classic;
pub mod conformance;
mod copies;
pub mod env;
pub mod error;
#[cfg(feature = "render")]
mod font;
#[cfg(feature = "gymnasium")]
pub mod gymnasium;
mod hidden;
pub mod picture;
pub mod popgym;
pub mod probe;
pub mod python;
pub mod registry;
#[cfg(feature = "render")]
pub mod render;
pub mod seed;
pub mod space;
pub mod throughput;
pub mod trace;
pub mod vector;
pub mod wrapper;

pub use batch::Batch;
pub use buffer::{ActElem, ActionBuffer, ActionRef, ObsBuffer, ObsElem, ObsMut, ObsRef};
pub use conformance::{Options, Report, VectorSteps, check, check_copies, check_with, random_action};
pub use env::{BoxEnv, DynEnv, Env, EnvSpec, Erased, Step, erase, joint_action, split_action};
pub use error::{EnvError, Result};
pub use picture::Picture;
pub use python::PythonError;
pub use registry::{ArgDoc, Entry, EnvArgs, Registry, bundled_registry, list, make, register};
pub use seed::{Stream, episode_seed};
pub use space::{Dtype, Element, Part, Space, write_features};
pub use trace::{Policy, TraceEpisode, read_traces, record_episode, replay};
pub use vector::{Autoreset, CopyState, StepBatch, VecEnv, VecEnvState};
