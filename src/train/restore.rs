//! Going on from a checkpoint: which one, and how it is put into freshly made parts.

use std::path::{Path, PathBuf};

use super::setup::{Parts, lock, replay_config};
use super::snapshot::Snapshot;
use super::synchronous::ACTOR_FILE;
use crate::checkpoint::{self, Checkpoints};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::learner::LearnerState;
use crate::logger::console::say;
use crate::replay::SequenceReplay;

/// The newest complete checkpoint, with a warning where a newer one is damaged.
pub(super) fn newest(run_dir: &Path) -> Result<Option<PathBuf>> {
    let mut damaged = Vec::new();
    for found in Checkpoints::list(run_dir)? {
        match found.problem {
            None => {
                for problem in damaged {
                    say(&format!("warning: {problem}; going on from {}", found.path.display()));
                }
                return Ok(Some(found.path));
            }
            Some(problem) => damaged.push(problem),
        }
    }
    Ok(None)
}

/// An error of loading `dir`, with the way out if there is an older checkpoint.
pub(super) fn or_older(dir: &Path, e: Error) -> Error {
    let (Error::Checkpoint { path, problem }, Some(run_dir)) = (&e, dir.parent().and_then(Path::parent)) else {
        return e;
    };
    let older = Checkpoints::list(run_dir).unwrap_or_default();
    let Some(older) = older.iter().find(|l| l.problem.is_none() && l.path != dir) else { return e };
    let way = format!("to go on from {}, delete {}", older.path.display(), dir.display());
    Error::checkpoint(path, format!("{problem}; {way}"))
}

/// Puts a loaded checkpoint into freshly made parts.
pub(super) fn restore(config: &Config, parts: &mut Parts, found: checkpoint::Loaded) -> Result<Snapshot> {
    let bad = |problem: String| Error::checkpoint(&found.dir, problem);
    let snapshot: Snapshot =
        serde_json::from_value(found.state.clone()).map_err(|e| bad(format!("state.json: {e}")))?;
    let saved: Config =
        serde_json::from_value(snapshot.config.clone()).map_err(|e| bad(format!("state.json, config: {e}")))?;
    if let Some(d) = Config::resume_difference(&saved, config)? {
        let problem = format!("is {}, but the run was saved with {}; a resumed run keeps its settings", d.now, d.saved);
        return Err(Error::config(d.key, problem));
    }
    let optimizer =
        found.optimizer.ok_or_else(|| bad("has no optimizer.safetensors: it can be evaluated, not resumed".into()))?;
    let floats = read_floats(&found.dir.join(ACTOR_FILE))?;
    parts.learner.restore(&LearnerState {
        params: optimizer.online.unwrap_or(found.params),
        target: optimizer.target,
        m: optimizer.m,
        v: optimizer.v,
        updates: snapshot.updates,
        skipped: snapshot.skipped,
        loss_scale: snapshot.loss_scale,
    })?;
    parts.actor.restore(&snapshot.actor, &floats)?;
    if snapshot.replay_saved {
        let mut replay = lock(&parts.replay);
        *replay = SequenceReplay::load(replay.spec().clone(), replay_config(config), &found.dir)?;
    }
    let lost = parts.envs.restore(&snapshot.envs)?;
    if !lost.is_empty() {
        say(&format!(
            "warning: environment copies {lost:?} did not repeat their episode; they start a new one and the run is no longer exact"
        ));
    }
    resume_lanes(parts, &lost, snapshot.replay_saved)?;
    let mut snapshot = snapshot;
    if !snapshot.replay_saved && snapshot.progress.steps > 0 {
        eprintln!(
            "warning: {} holds no replay (checkpoint.replay = none): it starts empty, and updates wait until it holds a batch",
            found.dir.display()
        );
        (snapshot.progress.refilling, snapshot.progress.learning) = (true, false);
    }
    Ok(snapshot)
}

/// Copies whose running episode is not in the replay store their next one; a copy that did not repeat is at a first
/// observation already.
fn resume_lanes(parts: &mut Parts, lost: &[usize], saved: bool) -> Result<()> {
    let len = parts.spec.observation_space.flat_len();
    let batch = parts.envs.last();
    let n = batch.legal.as_ref().map_or(0, |l| l.len() / batch.is_first.len());
    for i in 0..batch.is_first.len() {
        if !saved {
            parts.actor.skip_episode(i);
        }
        if lost.contains(&i) {
            lock(&parts.replay).abandon(i);
            parts.actor.start_over(i);
            let legal = batch.legal.as_ref().map(|l| &l[i * n..(i + 1) * n]);
            let carried = parts.actor.carries(batch.episode_number[i]);
            lock(&parts.replay).begin_with(i, crate::actor::obs_slice(batch.obs.row(i, len)), legal, carried)?;
        }
    }
    Ok(())
}

fn read_floats(path: &Path) -> Result<Vec<f32>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("reading", path, e))?;
    Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}
