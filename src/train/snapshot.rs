//! What a checkpoint holds of a run beside weights and replay: counters, schedules, random streams, environments in
//! mid-episode, the actor. Together they make a resumed run end with the bits of one that was never stopped.

use mamba_rl_envs::VecEnvState;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::metrics::{Mmer, Since};
use crate::actor::ActorState;
use crate::learner::LossScale;

/// Counters and sums.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Environment steps.
    pub steps: u64,
    /// Episodes ended.
    pub episodes: u64,
    /// Learnt steps that are owed: the replay ratio times environment steps, less those done.
    pub credit: f64,
    /// The run stopped in a step after its acting: the rest of its updates, its evaluation, its log line are still due.
    #[serde(default)]
    pub learning: bool,
    /// The replay began empty in mid-run: no updates and no debt until it holds what a first update needs.
    #[serde(default)]
    pub refilling: bool,
    /// Seconds of training.
    pub wall_s: f64,
    /// CPU seconds of the process while it trained; None where the system does not tell.
    #[serde(default)]
    pub cpu_s: Option<f64>,
    /// Steps learnt from, all updates together.
    #[serde(default)]
    pub learnt: u64,
    /// Last evaluation: mean and standard deviation.
    pub eval: Option<(f64, f64)>,
    /// Step of the last evaluation.
    pub eval_step: Option<u64>,
    /// Largest evaluation mean, and its step.
    pub best: Option<(f64, u64)>,
    pub mmer: Mmer,
    pub since: Since,
    /// Updates done when `learner/delta_q` was last measured.
    pub delta_q_at: u64,
}

impl Progress {
    /// `steps` more environment steps, and the (return, length) of the episodes that ended in them.
    pub fn advance(&mut self, steps: u64, window: u64, ended: impl Iterator<Item = (f64, u32)>) {
        self.steps += steps;
        self.since.steps += steps;
        for (episode_return, length) in ended {
            self.episodes += 1;
            self.since.episodic_return.add(episode_return);
            self.since.episodic_length.add(f64::from(length));
            self.mmer.add(self.steps - 1, window, episode_return);
        }
        self.mmer.advance(self.steps, window);
    }
}

/// The `state` part of `state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Snapshot {
    /// The resolved config: what a resumed run must agree with.
    pub config: serde_json::Value,
    pub progress: Progress,
    pub envs: VecEnvState,
    pub actor: ActorState,
    pub replay_rng: ChaCha8Rng,
    pub updates: u64,
    pub skipped: u64,
    /// Where the device has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Length of `metrics.jsonl`; a resume cuts it back to here.
    pub metrics_bytes: u64,
    /// Is the replay in this checkpoint?
    pub replay_saved: bool,
}
