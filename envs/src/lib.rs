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

mod batch;
mod buffer;
pub mod classic;
mod conformance;
mod copies;
mod env;
mod error;
#[cfg(feature = "render")]
mod font;
#[cfg(feature = "gymnasium")]
pub mod gymnasium;
mod hidden;
pub mod picture;
pub mod popgym;
pub mod probe;
mod python;
mod registry;
#[cfg(feature = "render")]
pub mod render;
mod seed;
mod space;
pub mod throughput;
pub mod trace;
mod vector;
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
pub use vector::{Autoreset, CopyState, StepBatch, VecEnv, VecEnvState};
