//! Asynchronous acting: actor threads step their own copies while the learner's thread updates. Not reproducible: what
//! is learnt when depends on timing.
//!
//! * Steps go straight into the shared replay; a report of each vector step goes through a queue of `actor.queue`
//!   places, so actors are at most so many vector steps ahead of the learner, which accounts for every report.
//! * Weights are published after every `actor.publish_every` updates by handing over a pointer: neither side waits.
//!   An actor looks before each step, so its weights are less than `publish_every` updates older than the learner's at
//!   that moment; `actor/policy_lag` is the learner's updates less those of the weights, when the report is accounted for.
//! * To stop, the learner drops its end of the queue: a sender that waits fails at once, and the threads are joined.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mamba_rl_envs::VecEnv;

use super::setup::{SharedReplay, lock, worker_parts};
use crate::actor::Actor;
use crate::config::Config;
use crate::device::Cpu;
use crate::error::{Error, Result};
use crate::network::cut;

/// Publications after which nobody may still act with the first weights.
const PATIENCE: u64 = 10;
/// How long one wait for a report lasts before the caller may look at other things.
const WAIT: Duration = Duration::from_millis(50);

/// One vector step of one actor.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// Which actor.
    pub actor: usize,
    /// Updates behind the weights it acted with.
    pub version: u64,
    /// Publications that had been made when it acted.
    pub publications: u64,
    /// Actions chosen, one element per component, [copies, components].
    pub actions: Vec<i32>,
    /// Environment steps.
    pub steps: u64,
    /// (return, length) of the episodes that ended.
    pub ended: Vec<(f64, u32)>,
}

/// What [`Fleet::wait`] found.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// A vector step of one actor.
    Step(StepReport),
    /// Nothing within a moment.
    Nothing,
    /// All actors have made the run's steps.
    Ended,
}

/// The newest weights, with the updates behind them and how often they were replaced.
struct Published {
    publications: AtomicU64,
    newest: Mutex<(u64, Arc<Vec<f32>>)>,
}

/// Actor threads at work.
pub struct Fleet {
    queue: Option<Receiver<Result<StepReport>>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    published: Arc<Published>,
    /// Last version seen of each actor.
    versions: Vec<u64>,
    every: u64,
}

impl Fleet {
    /// Starts `actor.threads` actors, each with its share of `env.num_envs` copies, at environment step `step` of the run
    /// and with `weights` `[parameters]`, which `updates` updates made.
    ///
    /// # Errors
    /// `Config`, environment and device errors; an operating system that gives no thread.
    pub fn start(config: &Config, replay: &SharedReplay, step: u64, updates: u64, weights: &[f32]) -> Result<Fleet> {
        let (send, queue) = sync_channel(config.actor.queue.max(1));
        let newest = Mutex::new((updates, Arc::new(weights.to_vec())));
        let published = Arc::new(Published { publications: AtomicU64::new(0), newest });
        let stop = Arc::new(AtomicBool::new(false));
        let mut fleet = Fleet {
            queue: Some(queue),
            threads: Vec::new(),
            stop: stop.clone(),
            published: published.clone(),
            versions: Vec::new(),
            every: config.actor.publish_every.max(1) as u64,
        };
        for (index, copies) in cut(config.env.num_envs, config.actor.threads).into_iter().enumerate() {
            let (envs, actor) = worker_parts(config, index, copies.clone(), step, weights)?;
            let worker = Worker {
                index,
                envs,
                actor,
                total: config.env.num_envs as u64,
                limit: config.train.steps,
                step,
                replay: replay.clone(),
                published: published.clone(),
                stop: stop.clone(),
                version: updates,
            };
            let send = send.clone();
            let thread = std::thread::Builder::new().name(format!("actor-{index}")).spawn(move || worker.run(&send));
            // dropping the fleet ends the threads that run already
            fleet.threads.push(thread.map_err(|e| Error::Usage(format!("no thread for actor {index}: {e}")))?);
            fleet.versions.push(updates);
        }
        Ok(fleet)
    }

    /// Hands over weights if `actor.publish_every` updates have been made since the last time.
    pub fn publish(&mut self, updates: u64, weights: &[f32]) {
        let mut newest = self.published.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if updates >= newest.0 + self.every {
            *newest = (updates, Arc::new(weights.to_vec()));
            self.published.publications.fetch_add(1, Ordering::Release);
        }
    }

    /// The next report.
    ///
    /// # Errors
    /// What ended an actor; `Usage` when an actor's weights went back, or never moved on.
    pub fn wait(&mut self) -> Result<Next> {
        let report = match self.queue.as_ref().map(|q| q.recv_timeout(WAIT)) {
            Some(Ok(report)) => report?,
            Some(Err(RecvTimeoutError::Timeout)) => return Ok(Next::Nothing),
            Some(Err(RecvTimeoutError::Disconnected)) | None => return Ok(Next::Ended),
        };
        let seen = &mut self.versions[report.actor];
        check_version(&report, *seen)?;
        *seen = report.version;
        Ok(Next::Step(report))
    }

    /// Updates behind the weights that each actor last acted with.
    pub fn versions(&self) -> &[u64] {
        &self.versions
    }
}

/// Versions only rise, and nobody acts with the first weights for ever.
fn check_version(report: &StepReport, seen: u64) -> Result<()> {
    let StepReport { actor, version, publications, .. } = report;
    if *version < seen {
        return Err(Error::Usage(format!("internal: actor {actor} went back from version {seen} to {version}")));
    }
    if *version == 0 && *publications >= PATIENCE {
        let problem = format!("internal: actor {actor} acts with version 0 after {publications} publications");
        return Err(Error::Usage(problem));
    }
    Ok(())
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // without a receiver a waiting sender fails at once
        self.queue = None;
        for thread in self.threads.drain(..) {
            // an actor that panicked has said so already, and everything else of the run is still good
            let _ = thread.join();
        }
    }
}

/// One actor thread.
struct Worker {
    index: usize,
    envs: VecEnv,
    actor: Actor<Cpu>,
    /// Copies of all actors.
    total: u64,
    /// Environment steps of the run.
    limit: u64,
    step: u64,
    replay: SharedReplay,
    published: Arc<Published>,
    stop: Arc<AtomicBool>,
    version: u64,
}

impl Worker {
    fn run(mut self, send: &SyncSender<Result<StepReport>>) {
        let mut begun = self.begin();
        while !self.stop.load(Ordering::Acquire) && self.step + self.total <= self.limit {
            let report = std::mem::replace(&mut begun, Ok(())).and_then(|()| self.one_step());
            let failed = report.is_err();
            if send.send(report).is_err() || failed {
                return;
            }
        }
    }

    fn begin(&mut self) -> Result<()> {
        let first = self.envs.reset()?;
        let mut replay = lock(&self.replay);
        self.actor.begin(first, &mut replay)
    }

    /// Newest weights, one step of all copies, into the replay.
    fn one_step(&mut self) -> Result<StepReport> {
        let publications = self.published.publications.load(Ordering::Acquire);
        {
            let newest = self.published.newest.lock().unwrap_or_else(PoisonError::into_inner);
            if newest.0 > self.version {
                let (version, weights) = (newest.0, newest.1.clone());
                drop(newest);
                self.actor.set_weights(&weights)?;
                self.version = version;
            }
        }
        let replay = || lock(&self.replay);
        self.actor.read_wanted(&replay())?;
        let actions = self.actor.act(self.envs.last(), self.step, None)?;
        let chosen = match actions {
            mamba_rl_envs::ActionRef::Discrete(parts) => parts.to_vec(),
            mamba_rl_envs::ActionRef::Continuous(_) => Vec::new(),
        };
        let after = self.envs.step(actions)?;
        let done = (0..after.reward.len()).filter(|&i| after.terminated[i] || after.truncated[i]);
        let ended = done.map(|i| (after.episode_return[i], after.episode_length[i])).collect();
        let steps = after.reward.len() as u64;
        {
            let mut replay = replay();
            self.actor.serve_waiting(&mut replay)?;
            self.actor.observe(self.envs.last(), &mut replay)?;
        }
        // the other actors advance alike
        self.step += self.total;
        let (actor, version) = (self.index, self.version);
        Ok(StepReport { actor, version, publications, actions: chosen, steps, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(version: u64, publications: u64) -> StepReport {
        StepReport { actor: 3, version, publications, actions: Vec::new(), steps: 1, ended: Vec::new() }
    }

    #[test]
    fn versions_only_rise() {
        assert!(check_version(&report(8, 2), 8).is_ok());
        assert!(check_version(&report(0, PATIENCE - 1), 0).is_ok());
        assert!(check_version(&report(7, 2), 8).unwrap_err().to_string().contains("actor 3"));
        assert!(check_version(&report(0, PATIENCE), 0).unwrap_err().to_string().contains("version 0"));
    }
}
