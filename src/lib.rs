//! Recurrent off-policy reinforcement learning with a Mamba backbone: R2D2 for discrete actions, soft actor-critic for
//! bounded continuous ones, on sequences from a replay, with a recurrent state that is carried exactly through acting,
//! burn-in, backpropagation through time, target network, replay and checkpoint.
//!
//! # When to use it
//!
//! * The task is partially observable: what matters was seen some steps ago.
//! * Experience is dear, so it should be replayed, and the state in replay must be the one that acted.
//! * Training or serving happens inside a Rust program, a robot or a game: no Python, no run-time to install.
//! * A run must be repeated or resumed bit for bit.
//! * Only a part is wanted: the backbone ([`backbone::Body`]), the replay ([`replay`]), the formulas ([`value`]), the tasks
//!   (package `mamba-rl-envs`).
//!
//! # When not
//!
//! * Observations are images: there is no convolutional encoder, a feature vector goes in.
//! * PPO or another on-policy method is wanted, several agents in one world, learning from a fixed data set, or a cluster of machines.
//! * The network is large: shapes up to d_model 256 and a few layers are what the CPU code and the kernels are tuned for.
//! * Automatic differentiation of new layers is wanted: backward passes are written by hand here (a cell of your own is one step
//!   and its gradient, [`backbone::Cell`]).
//!
//! # Quick start
//!
//! ```no_run
//! use mamba_rl::{config::Flags, network::Session, train};
//! use mamba_rl_envs::{ActionRef, ObsRef};
//!
//! // Train: preset < these keys < flags. The folder gets checkpoints, metrics.jsonl, result.json.
//! let flags = Flags { env: Some("popgym-RepeatPreviousEasy-v0".into()), steps: Some(30_000), ..Flags::default() };
//! let config = train::plan(&["learner.batch=8"], &flags)?;
//! let result = train::train(&config, "runs/cards".as_ref())?;
//! println!("greedy return {:?}", result.eval_return_mean);
//!
//! // Evaluate: 100 episodes with seeds that training never saw.
//! println!("again {:.3}", train::evaluate("runs/cards".as_ref(), 100, 1000)?.eval_return_mean);
//!
//! // Serve: one observation in, one action out; the memory moves on.
//! let mut agent = Session::from_checkpoint("runs/cards")?;
//! if let ActionRef::Discrete(action) = agent.observe(ObsRef::U8(&[2]), None, 0.0, true)? {
//!     println!("action {}", action[0]);
//! }
//! # Ok::<(), mamba_rl::Error>(())
//! ```
//!
//! A task of your own is one trait, `mamba_rl_envs::Env`, and one line, `mamba_rl_envs::register`: `examples/04_custom_env.rs`.
//! `docs/embedding.md` has every part alone, `docs/training.md` every setting, `docs/api.md` every public item.
//!
//! # What is where
//!
//! | module | what |
//! |---|---|
//! | [`train`], [`config`] | a whole run, and all its settings |
//! | [`network`] | a trained agent ([`network::Session`]), Q-network, actor and critics |
//! | [`backbone`], [`params`] | recurrent bodies, their state, their weights by name |
//! | [`learner`], [`actor`] | one update from a batch of sequences; acting in many copies |
//! | [`replay`], [`value`] | sequences with priorities; formulas on slices. Neither needs the rest |
//! | [`checkpoint`], [`logger`] | what a run writes |
//! | [`device`], [`ops`] | CPU and CUDA, and the operations over them |
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | T, B, A | steps of a sequence, rows of a batch, actions; tensors are time-major, `[T, B, …]` |
//! | `d_model`, `d_inner` | width of the residual stream; width inside a block, `expand` · d_model |
//! | `d_state`, `d_conv` | SSM states per channel; taps of the causal convolution |
//! | state | what is carried from step to step: per layer the last d_conv − 1 inputs of the convolution and the SSM state h |
//! | Δ, A, B, C, D | step size, decay, input and output maps, skip of the selective scan (Mamba, section 3) |
//! | reset, valid | `reset[t, b] = 1`: an episode begins at t, the state is cleared before; `valid[t, b] = 0`: padding |
//! | burn-in | steps before the learnt ones that only warm up the state; no gradient |
//! | tape, scratch | what forward keeps for backward; buffers without meaning between calls |
//! | terminated, truncated | the task ended, nothing follows; a time limit, the value after it counts |
//! | lane, copy | one of the environments that are stepped together |
//! | greedy | without exploration, as in evaluation |

pub mod actor;
pub mod backbone;
pub mod bench;
pub mod checkpoint;
pub mod config;
pub mod device;
mod error;
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
mod young;

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
    #[doc = include_str!("../envs/README.md")]
    struct Envs;
}
