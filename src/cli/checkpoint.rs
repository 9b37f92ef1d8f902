//! What the command needs to know of a checkpoint: the task it was trained on.

use std::path::Path;

use mamba_rl::{Error, Result, checkpoint};
use mamba_rl_envs::EnvArgs;
use serde_json::Value;

/// Task and spaces of a trained agent.
#[derive(Debug)]
pub struct Trained {
    /// Registered id.
    pub env: String,
    /// Legacy rules and arguments.
    pub args: EnvArgs,
    /// Observation and action space as stored.
    pub spaces: [Value; 2],
}

/// Reads the description in a checkpoint's `config.json`.
///
/// # Errors
/// `Usage` for a path that is no checkpoint, `Checkpoint` for a damaged or foreign one.
pub fn trained(path: &Path) -> Result<Trained> {
    let dir = checkpoint::resolve(path)?;
    let config = checkpoint::load_config(&dir)?;
    let part = config.get("mamba_rl").cloned().unwrap_or_default();
    let missing = |field: &str| Error::checkpoint(dir.join("config.json"), format!("has no field `mamba_rl.{field}`"));
    let env = part.get("env").and_then(Value::as_str).ok_or_else(|| missing("env"))?.to_owned();
    let get = |field: &str| part.get(field).cloned().ok_or_else(|| missing(field));
    let args = part.get("env_args").and_then(Value::as_object).cloned().unwrap_or_default();
    let legacy = part.get("legacy").and_then(Value::as_bool).unwrap_or(false);
    let spaces = [get("observation_space")?, get("action_space")?];
    Ok(Trained { env, args: EnvArgs { legacy, args: args.into_iter().collect() }, spaces })
}
