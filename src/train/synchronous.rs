//! The training loop: a vector step of acting, then the updates that the replay ratio allows. In mode `sync` one thread of
//! control does both: same seed, config, build and CPU model give the same bits, for any number of threads. In mode
//! `async` the steps come from actor threads (`asynchronous`), and only the order of the loop is the same.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rand_chacha::ChaCha8Rng;

use super::asynchronous::{Fleet, Next};
use super::evaluation::evaluate_weights;
use super::result::{RunResult, Stopped};
use super::setup::{Parts, lock, replay_config};
use super::snapshot::{Progress, Snapshot};
use super::{RunOptions, Stream};
use crate::checkpoint::{self, Checkpoints, FileInfo, OptimizerState, ReplayStore, SaveRequest};
use crate::config::{CheckpointReplay, Config};
use crate::device::Cpu;
use crate::error::{Error, Result};
use crate::learner::{Learner, LearnerState};
use crate::logger::console::{Console, ConsoleOptions};
use crate::logger::{Logger, LoggerOptions};
use crate::network::QNetwork;
use crate::params::Params;
use crate::replay::{SequenceBatch, SequenceReplay};

/// Recurrent states of the copies, and what the actor remembers of their episodes: f32, little-endian.
const ACTOR_FILE: &str = "actor.bin";

/// A save may take this share of the time since the last one, where it is not asked for by `checkpoint.every`.
const SAVE_SHARE: f64 = 0.02;

/// Trains until `train.steps`, `train.stop_return` or a stop request, and writes `result.json`.
///
/// # Errors
/// `Config` and `Usage` before anything starts; environment, checkpoint and device errors while running, after what
/// could be saved was saved.
pub fn run(config: &Config, options: RunOptions) -> Result<RunResult> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(config.train.threads).build();
    let pool = pool.map_err(|e| Error::config("train.threads", format!("{}: {e}", config.train.threads)))?;
    pool.install(|| Run::start(config, options)?.train())
}

struct Run<'a> {
    config: &'a Config,
    options: RunOptions,
    parts: Parts,
    /// Its own network object for evaluation; weights are those of the moment.
    eval_net: QNetwork<Cpu>,
    batch: SequenceBatch,
    replay_rng: ChaCha8Rng,
    weights: Vec<f32>,
    progress: Progress,
    logger: Logger,
    console: Console,
    checkpoints: Checkpoints,
    since: Instant,
    last_save: (Instant, f64),
    /// Actor threads, in mode `async`.
    fleet: Option<Fleet>,
}

impl<'a> Run<'a> {
    fn start(config: &'a Config, options: RunOptions) -> Result<Self> {
        let checkpoints = Checkpoints::open(&options.run_dir, config.checkpoint.keep)?;
        let from = if options.resume { Checkpoints::newest(&options.run_dir)? } else { None };
        let init = match &options.init_from {
            Some(path) if from.is_none() => Some(initial_weights(config, path)?),
            _ => None,
        };
        let mut parts = Parts::new(config, init)?;
        let eval_net = parts.description.build::<Cpu>()?;
        let (mut progress, mut replay_rng) = (Progress::default(), Stream::Replay.rng(config.train.seed));
        let mut metrics_bytes = None;
        if let Some(dir) = &from {
            let found = checkpoint::load(dir, parts.learner.layout(), Some(&parts.description.to_json()))?;
            let snapshot = restore(config, &mut parts, found)?;
            metrics_bytes = Some(snapshot.metrics_bytes);
            (progress, replay_rng) = (snapshot.progress, snapshot.replay_rng);
        } else {
            if options.resume {
                eprintln!("no complete checkpoint in {}: starting again at step 0", options.run_dir.display());
                metrics_bytes = options.run_dir.join("metrics.jsonl").exists().then_some(0);
            }
            begin(&mut parts)?;
        }
        if is_async(config) {
            eprintln!("mode async: actors and learner run side by side, so this run is not reproducible");
            // the idle copies' episodes, and those that were running when a checkpoint was written, are not whole
            (0..config.env.num_envs).for_each(|lane| lock(&parts.replay).abandon(lane));
        }
        let start_step = progress.steps;
        let logger_options = LoggerOptions { start_step, truncate_jsonl_to: metrics_bytes, ..LoggerOptions::default() };
        let mut logger = Logger::new(&options.run_dir, logger_options)?;
        if start_step == 0 {
            logger.text("config", 0, &format!("```toml\n{}\n```", config.to_toml()?));
        }
        let console = ConsoleOptions { total_steps: config.train.steps, start_step, quiet: options.quiet };
        let now = Instant::now();
        Ok(Run {
            config,
            options,
            parts,
            eval_net,
            batch: SequenceBatch::default(),
            replay_rng,
            weights: Vec::new(),
            progress,
            logger,
            console: Console::new(console),
            checkpoints,
            since: now,
            last_save: (now, 0.0),
            fleet: None,
        })
    }

    fn train(mut self) -> Result<RunResult> {
        let ended = if is_async(self.config) { self.steps_async() } else { self.steps() };
        self.fleet = None; // joins the actor threads
        // what was logged so far must be readable after an error too
        self.logger.flush();
        let stopped = ended?;
        self.console.finish();
        self.finish(stopped)
    }

    /// The loop.
    fn steps(&mut self) -> Result<Stopped> {
        let copies = self.config.env.num_envs as u64;
        self.parts.learner.weights(&mut self.weights)?;
        self.parts.actor.set_weights(&self.weights)?;
        while self.progress.steps + copies <= self.config.train.steps {
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(Stopped::Interrupted);
            }
            self.act()?;
            self.learn(copies)?;
            if self.after_step(copies)? {
                return Ok(Stopped::StopReturn);
            }
        }
        Ok(Stopped::Finished)
    }

    /// The loop over the reports of actor threads.
    fn steps_async(&mut self) -> Result<Stopped> {
        let p = &mut self.parts;
        p.learner.weights(&mut self.weights)?;
        let updates = p.learner.updates();
        self.fleet = Some(Fleet::start(self.config, &p.replay, self.progress.steps, updates, &self.weights)?);
        while let Some(fleet) = &mut self.fleet {
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(Stopped::Interrupted);
            }
            let report = match fleet.next()? {
                Next::Step(report) => report,
                Next::Nothing => continue,
                Next::Ended => break,
            };
            let lag = self.parts.learner.updates().saturating_sub(report.version);
            self.progress.since.policy_lag.add(lag as f64);
            self.progress.advance(report.steps, self.config.log.mmer_window, report.ended.into_iter());
            self.learn(report.steps)?;
            if self.after_step(report.steps)? {
                return Ok(Stopped::StopReturn);
            }
        }
        Ok(Stopped::Finished)
    }

    /// One step of all copies into the replay.
    fn act(&mut self) -> Result<()> {
        let p = &mut self.parts;
        let mut replay = lock(&p.replay);
        let actions = p.actor.act(p.envs.last(), self.progress.steps, Some(&mut replay))?;
        let after = p.envs.step(actions)?;
        let done = (0..after.reward.len()).filter(|&i| after.terminated[i] || after.truncated[i]);
        let ended = done.map(|i| (after.episode_return[i], after.episode_length[i]));
        self.progress.advance(self.config.env.num_envs as u64, self.config.log.mmer_window, ended);
        p.actor.observe(p.envs.last(), &mut replay)
    }

    /// The updates that are due after `steps` more environment steps.
    fn learn(&mut self, steps: u64) -> Result<()> {
        let (c, p) = (self.config, &mut self.parts);
        if self.progress.steps <= c.learner.start_after {
            return Ok(());
        }
        self.progress.credit += c.learner.replay_ratio * steps as f64;
        let mut updated = false;
        while self.progress.credit > 0.0 {
            if self.options.stop.load(Ordering::Relaxed) && updated {
                break;
            }
            {
                let replay = lock(&p.replay);
                if replay.len_sequences() < c.batch() {
                    break;
                }
                replay.sample(c.batch(), &mut self.replay_rng, &mut self.batch)?;
            }
            let update = p.learner.update(&self.batch)?;
            lock(&p.replay).set_priority(&self.batch.handle, p.learner.priorities());
            self.progress.credit -= update.learnt.max(1) as f64;
            self.progress.since.update(&update);
            updated = true;
            if let Some(fleet) = &mut self.fleet {
                p.learner.weights(&mut self.weights)?;
                fleet.publish(p.learner.updates(), &self.weights);
            }
        }
        if updated {
            if self.fleet.is_none() {
                p.learner.weights(&mut self.weights)?;
                p.actor.set_weights(&self.weights)?;
            }
            self.measure_delta_q()?;
        }
        Ok(())
    }

    /// `learner/delta_q`, every so many updates; it draws from its own stream and changes nothing.
    fn measure_delta_q(&mut self) -> Result<()> {
        let (every, p) = (self.config.log.delta_q_every, &mut self.parts);
        let updates = p.learner.updates();
        let replay = lock(&p.replay);
        if every == 0 || updates < self.progress.delta_q_at + every || !replay.keeps_windows() {
            return Ok(());
        }
        self.progress.delta_q_at = updates;
        let mut rng = Stream::DeltaQ.rng(self.config.train.seed ^ updates);
        let (mut windows, mut prefixes) = (SequenceBatch::default(), SequenceBatch::default());
        let found = replay.sample_prefixes(4, 1_000, &mut rng, &mut windows, &mut prefixes)?;
        drop(replay);
        if found > 0
            && let Some(delta) = p.learner.delta_q(&windows, &prefixes)?
        {
            self.progress.since.delta_q.add(delta);
        }
        Ok(())
    }

    /// Evaluation, log line, checkpoint where due. True when `train.stop_return` is reached.
    fn after_step(&mut self, copies: u64) -> Result<bool> {
        let (steps, c) = (self.progress.steps, self.config);
        let due = |every: u64| every > 0 && steps / every > (steps - copies) / every;
        self.console.update(steps, self.progress.eval.map(|e| e.0).or(self.progress.since.episodic_return.get()));
        let evaluated = due(c.eval.every);
        let mut best = false;
        if evaluated {
            best = self.evaluate()?;
        }
        if evaluated || due(c.log.every) {
            self.log(evaluated);
        }
        let cheap = self.last_save.1 <= SAVE_SHARE * self.last_save.0.elapsed().as_secs_f64();
        if due(c.checkpoint.every) || (best && cheap) {
            self.save()?;
            if best {
                self.checkpoints.mark_best(steps)?;
            }
        }
        for line in self.logger.take_warnings() {
            self.console.warn(&line);
        }
        Ok(evaluated && c.train.stop_return.is_some_and(|goal| self.progress.eval.is_some_and(|e| e.0 >= goal)))
    }

    /// Greedy episodes with today's weights; true for a new best mean.
    fn evaluate(&mut self) -> Result<bool> {
        let (c, p) = (self.config, &self.parts);
        p.learner.weights(&mut self.weights)?;
        let params = Params::new(&p.dev, self.eval_net.layout().clone(), &self.weights)?;
        let seed = c.train.seed.wrapping_add(self.progress.steps);
        let shards = c.train.shards;
        let played = evaluate_weights(&p.dev, &self.eval_net, &params, &p.description, c.eval.episodes, seed, shards)?;
        let mean = played.mean();
        self.progress.eval = Some((mean, played.std()));
        self.progress.eval_step = Some(self.progress.steps);
        let best = self.progress.best.is_none_or(|(b, _)| mean > b);
        if best {
            self.progress.best = Some((mean, self.progress.steps));
        }
        Ok(best)
    }

    fn wall_s(&self) -> f64 {
        self.progress.wall_s + self.since.elapsed().as_secs_f64()
    }

    fn log(&mut self, evaluated: bool) {
        let (wall, steps) = (self.wall_s(), self.progress.steps);
        let (s, p) = (&self.progress.since, &self.parts);
        let seconds = (wall - s.wall_s).max(1e-9);
        let replay = lock(&p.replay);
        let copies = self.config.env.num_envs;
        let epsilon = p.actor.exploration().mean(copies, steps);
        let eval = self.progress.eval.filter(|_| evaluated);
        let cells = [
            ("charts/episodic_return", s.episodic_return.get()),
            ("charts/episodic_length", s.episodic_length.get()),
            ("charts/SPS", Some(s.steps as f64 / seconds)),
            ("charts/epsilon_mean", Some(epsilon)),
            ("eval/return_mean", eval.map(|e| e.0)),
            ("eval/best_return", eval.and(self.progress.best).map(|b| b.0)),
            ("train/mmer", self.progress.mmer.best()),
            ("losses/td_loss", s.value("losses/td_loss", s.td_loss)),
            ("losses/q_values", s.value("losses/q_values", s.q_values)),
            ("losses/grad_norm", s.value("losses/grad_norm", s.grad_norm)),
            ("losses/skipped_updates", Some(p.learner.skipped() as f64)),
            ("replay/size", Some(replay.len_steps() as f64)),
            ("replay/priority_mean", Some(f64::from(replay.priority_mean()))),
            ("replay/stale_handles", Some(replay.stale_total() as f64)),
            ("learner/updates_per_s", Some(s.updates as f64 / seconds)),
            ("learner/delta_q", s.delta_q.get()),
            ("actor/policy_lag", s.policy_lag.get()),
        ];
        drop(replay);
        let cells: Vec<(&str, f64)> = cells.into_iter().filter_map(|(tag, v)| v.map(|v| (tag, v))).collect();
        self.logger.log(steps, wall, &cells);
        self.progress.since = super::metrics::Since { wall_s: wall, ..Default::default() };
    }

    fn save(&mut self) -> Result<()> {
        let begun = Instant::now();
        let wall_s = self.wall_s();
        self.logger.flush();
        let p = &mut self.parts;
        let state = p.learner.save()?;
        let (actor, floats) = p.actor.save()?;
        let floats: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let full = self.config.checkpoint.replay == CheckpointReplay::Full;
        let mut stored = lock(&p.replay);
        let snapshot = Snapshot {
            progress: Progress { wall_s, ..self.progress.clone() },
            envs: p.envs.save(),
            actor,
            replay_rng: self.replay_rng.clone(),
            updates: state.updates,
            skipped: state.skipped,
            metrics_bytes: self.logger.jsonl_len(),
            replay_saved: full,
        };
        let snapshot =
            serde_json::to_value(&snapshot).map_err(|e| Error::checkpoint(&self.options.run_dir, e.to_string()))?;
        let replay: Option<&mut dyn ReplayStore> = if full { Some(&mut *stored) } else { None };
        self.checkpoints.save(SaveRequest {
            step: self.progress.steps,
            layout: p.learner.layout(),
            params: &state.params,
            optimizer: Some(OptimizerState { target: &state.target, m: &state.m, v: &state.v }),
            blobs: &[(ACTOR_FILE, &floats)],
            config: &p.description.to_json(),
            state: &snapshot,
            replay,
        })?;
        self.last_save = (Instant::now(), begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Last evaluation, log line, checkpoint and result.
    fn finish(mut self, stopped: Stopped) -> Result<RunResult> {
        let c = self.config;
        if stopped != Stopped::Interrupted && self.progress.eval_step != Some(self.progress.steps) {
            self.evaluate()?;
            self.log(true);
        }
        self.save()?;
        if self.progress.best.is_some_and(|(_, step)| step == self.progress.steps) {
            self.checkpoints.mark_best(self.progress.steps)?;
        }
        let p = &self.parts;
        let eval = self.progress.eval;
        let result = RunResult {
            env: p.spec.name.clone(),
            id: p.spec.id.clone(),
            agent: c.agent.name.clone(),
            backbone: c.backbone.name.clone(),
            preset: self.options.preset.clone(),
            seed: c.train.seed,
            steps: self.progress.steps,
            updates: p.learner.updates(),
            episodes: self.progress.episodes,
            wall_s: self.wall_s(),
            eval_return_mean: eval.map(|e| e.0),
            eval_return_std: eval.map(|e| e.1),
            eval_episodes: if eval.is_some() { c.eval.episodes } else { 0 },
            train_mmer: self.progress.mmer.best(),
            best_eval_return: self.progress.best.map(|b| b.0),
            config_hash: c.config_hash()?,
            version: env!("CARGO_PKG_VERSION").into(),
            device: "cpu".into(),
            stopped,
        };
        self.logger.flush();
        result.write(&self.options.run_dir)?;
        for line in self.logger.take_warnings() {
            self.console.warn(&line);
        }
        Ok(result)
    }
}

/// Weights of another run's checkpoint for a network of this config.
fn initial_weights(config: &Config, path: &std::path::Path) -> Result<Vec<f32>> {
    let dir = checkpoint::resolve(path)?;
    let net = Parts::new(config, None)?.description.build::<Cpu>()?;
    checkpoint::load_weights(&dir, net.layout())
}

/// First observations of all copies.
fn begin(parts: &mut Parts) -> Result<()> {
    let len = parts.spec.observation_space.flat_len();
    let first = parts.envs.reset()?;
    let n = first.legal.as_ref().map_or(0, |l| l.len() / first.is_first.len());
    for i in 0..first.is_first.len() {
        let legal = first.legal.as_ref().map(|l| &l[i * n..(i + 1) * n]);
        lock(&parts.replay).begin(i, crate::actor::obs_slice(first.obs.row(i, len)), legal)?;
    }
    Ok(())
}

/// Do actors run beside the learner?
fn is_async(config: &Config) -> bool {
    config.train.mode == "async"
}

/// Puts a loaded checkpoint into freshly made parts.
fn restore(config: &Config, parts: &mut Parts, found: checkpoint::Loaded) -> Result<Snapshot> {
    let bad = |problem: String| Error::checkpoint(&found.dir, problem);
    let snapshot: Snapshot =
        serde_json::from_value(found.state.clone()).map_err(|e| bad(format!("state.json: {e}")))?;
    let optimizer =
        found.optimizer.ok_or_else(|| bad("has no optimizer.safetensors: it can be evaluated, not resumed".into()))?;
    let floats = read_floats(&found.dir.join(ACTOR_FILE))?;
    parts.learner.restore(&LearnerState {
        params: found.params,
        target: optimizer.target,
        m: optimizer.m,
        v: optimizer.v,
        updates: snapshot.updates,
        skipped: snapshot.skipped,
    })?;
    parts.actor.restore(&snapshot.actor, &floats)?;
    if snapshot.replay_saved {
        let mut replay = lock(&parts.replay);
        *replay = SequenceReplay::load(replay.spec().clone(), replay_config(config), &found.dir)?;
    }
    let lost = parts.envs.restore(&snapshot.envs)?;
    if !lost.is_empty() {
        eprintln!(
            "warning: environment copies {lost:?} did not repeat their episode; they start a new one and the run is no longer exact"
        );
    }
    resume_lanes(parts, &lost, snapshot.replay_saved)?;
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
            lock(&parts.replay).begin(i, crate::actor::obs_slice(batch.obs.row(i, len)), legal)?;
        }
    }
    Ok(())
}

fn read_floats(path: &std::path::Path) -> Result<Vec<f32>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("reading", path, e))?;
    Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

impl ReplayStore for SequenceReplay {
    fn save_segments(&mut self, dir: &std::path::Path) -> Result<Vec<FileInfo>> {
        let list = SequenceReplay::save_segments(self, dir)?;
        Ok(list.into_iter().map(|s| FileInfo { file: s.file, bytes: s.bytes, crc32: s.crc32 }).collect())
    }

    fn save_failed(&mut self) {
        // the next save writes everything again: nothing of an unfinished checkpoint is relied on
        self.keep_segments(&[]);
    }
}
