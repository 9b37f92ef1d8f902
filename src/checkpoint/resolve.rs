//! What a user means by a path: a checkpoint folder, its `model.safetensors`, or a run folder (its newest complete one).

use std::path::{Path, PathBuf};

use super::store::Checkpoints;
use super::{MODEL_FILE, STATE_FILE, state};
use crate::error::{Error, Result};

/// The checkpoint folder that `path` names: a folder `step-N` or its `model.safetensors`, or a run folder, which means
/// its newest complete checkpoint.
///
/// # Errors
/// `Usage` where there is no such path or it holds no checkpoint; `Checkpoint` where the named one is incomplete.
pub fn resolve(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    if path.is_file() {
        let folder = path.parent().unwrap_or(Path::new("."));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if path.file_name().is_some_and(|n| n == MODEL_FILE) {
            state::check_complete(folder)?;
            return Ok(folder.into());
        }
        return Err(Error::Usage(format!(
            "{shown} is a file, expected a run folder, a checkpoint folder `step-N` or its {MODEL_FILE}"
        )));
    }
    if !path.is_dir() {
        return Err(Error::Usage(format!("{shown} does not exist, expected a run folder or a checkpoint")));
    }
    if path.join(STATE_FILE).exists() || path.join(MODEL_FILE).exists() || is_step(path) {
        state::check_complete(path)?;
        return Ok(path.into());
    }
    let is_inner = path.file_name().is_some_and(|n| n == "checkpoints");
    let run_dir = if is_inner { path.parent().unwrap_or(path) } else { path };
    match Checkpoints::newest(run_dir)? {
        Some(found) => Ok(found),
        None => Err(Error::Usage(format!("{shown} holds no complete checkpoint (looked for checkpoints/step-N)"))),
    }
}

fn is_step(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("step-"))
}
