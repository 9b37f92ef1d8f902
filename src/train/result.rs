//! `result.json`: what a finished or interrupted run came to.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// All steps done.
    Finished,
    /// `train.stop_return` was reached.
    StopReturn,
    /// Asked to stop; everything is saved.
    Interrupted,
}

/// The keys of `result.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Plain name of the task.
    pub env: String,
    /// Its registered id.
    pub id: String,
    /// Agent.
    pub agent: String,
    /// Recurrent body.
    pub backbone: String,
    /// Preset that the config started from.
    pub preset: String,
    /// Base seed.
    pub seed: u64,
    /// Environment steps done.
    pub steps: u64,
    /// Updates done.
    pub updates: u64,
    /// Training episodes ended.
    pub episodes: u64,
    /// Seconds of training, interruptions left out.
    pub wall_s: f64,
    /// CPU seconds of the process while it trained, all threads; None where the system does not tell.
    #[serde(default)]
    pub cpu_s: Option<f64>,
    /// Steps learnt from: valid steps in the loss, all updates together.
    #[serde(default)]
    pub frames: u64,
    /// Greedy return of the last evaluation.
    pub eval_return_mean: Option<f64>,
    /// Its standard deviation over episodes.
    pub eval_return_std: Option<f64>,
    /// Its episodes.
    pub eval_episodes: usize,
    /// Maximum over windows of the mean training return.
    pub train_mmer: Option<f64>,
    /// Largest mean return of any evaluation.
    pub best_eval_return: Option<f64>,
    /// Hash of the config without steps, device, threads and cadences.
    pub config_hash: String,
    /// Version of this program.
    pub version: String,
    /// Device of the learner.
    pub device: String,
    /// Why it ended.
    pub stopped: Stopped,
}

impl RunResult {
    /// Writes `result.json` aside and renames it.
    ///
    /// # Errors
    /// `Io` naming the file.
    pub fn write(&self, run_dir: &Path) -> Result<()> {
        let path = run_dir.join("result.json");
        let aside = run_dir.join(".result.json.tmp");
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, &path)).map_err(|e| {
            // a part of a file helps no one
            let _ = std::fs::remove_file(&aside);
            Error::io("writing", &path, e)
        })
    }

    /// Reads a run's `result.json`; None where there is none.
    ///
    /// # Errors
    /// `Checkpoint` when the file is damaged, `Io` when it cannot be read.
    pub fn read(run_dir: &Path) -> Result<Option<Self>> {
        let path = run_dir.join("result.json");
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| Error::checkpoint(path, e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", path, e)),
        }
    }
}
