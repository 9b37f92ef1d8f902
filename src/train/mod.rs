//! The outer loop: act, store, learn, evaluate, log, save; and what the command asks of a run.

mod asynchronous;
mod clock;
mod distributions;
mod evaluation;
mod folder;
mod lock;
mod metrics;
mod restore;
mod result;
mod setup;
mod snapshot;
mod synchronous;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use asynchronous::{Fleet, Next, StepReport};
pub use evaluation::{EvalReport, Evaluation, evaluate, evaluate_weights};
pub use folder::{CONFIG, plan, refuse_taken, resume, train, write_config};
pub use lock::RunLock;
pub use result::{RunResult, Stopped};
pub use setup::{Footprint, Parts, SharedReplay, footprint, initial_weights, make_env};
pub use synchronous::run;

/// How a run is started.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The run's folder; it exists and holds `config.toml`.
    pub run_dir: PathBuf,
    /// Continue from the newest complete checkpoint.
    pub resume: bool,
    /// Start from the weights of this checkpoint.
    pub init_from: Option<PathBuf>,
    /// Set from outside to end the run after the current update, with everything saved.
    pub stop: Arc<AtomicBool>,
    /// No progress bar.
    pub quiet: bool,
    /// Name of the preset, for `result.json`.
    pub preset: String,
}

/// Seeds of a run's independent streams, from the base seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Stream {
    /// Initial weights.
    Weights = 0,
    /// Exploration.
    Actor = 1,
    /// Replay sampling.
    Replay = 2,
    /// Environments of training.
    Envs = 3,
    /// Environments of evaluation.
    Eval = 4,
    /// Windows for `learner/delta_q`.
    DeltaQ = 5,
    /// Actions that updates draw.
    Updates = 6,
}

impl Stream {
    /// The stream's generator.
    pub(crate) fn rng(self, seed: u64) -> rand_chacha::ChaCha8Rng {
        use rand::SeedableRng;
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(self as u64);
        rng
    }

    /// A number for others to seed with.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        use rand::RngExt;
        self.rng(seed).random()
    }
}
