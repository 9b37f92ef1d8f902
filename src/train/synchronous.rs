//! The training loop: a vector step of acting, then the updates that the replay ratio allows. In mode `sync` one thread of
//! control does both: same seed, config, build and CPU model give the same bits, for any number of threads. In mode
//! `async` the steps come from actor threads (`asynchronous`), and only the order of the loop is the same.

use std::sync::atomic::Ordering;

use rand_chacha::ChaCha8Rng;

use super::asynchronous::{Fleet, Next};
use super::clock::Clock;
use super::distributions::{Distributions, describe};
use super::evaluation::{Play, evaluate_until};
use super::lock::RunLock;
use super::restore::{newest, or_older, restore};
use super::result::{RunResult, Stopped};
use super::setup::{Parts, initial_weights, lock, make_env};
use super::snapshot::{Progress, Snapshot};
use super::{RunOptions, Stream};
use crate::checkpoint::{self, Checkpoints, FileInfo, OptimizerState, ReplayStore, SaveRequest};
use crate::config::{CheckpointReplay, Config};
use crate::device::Cpu;
use crate::error::{Error, Result};
use crate::logger::console::{Console, ConsoleOptions, say};
use crate::logger::{Logger, LoggerOptions};
use crate::network::Policy;
use crate::params::Params;
use crate::replay::{SequenceBatch, SequenceReplay};

/// Recurrent states of the copies, and what the actor remembers of their episodes: f32, little-endian.
pub(super) const ACTOR_FILE: &str = "actor.bin";

/// Trains until `train.steps`, `train.stop_return` or a stop request, and writes `result.json`.
///
/// # Errors
/// `Config` and `Usage` before anything starts, also where another process trains in the folder; environment, checkpoint
/// and device errors while running, after what was logged was written out.
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
    eval_net: Box<dyn Policy<Cpu>>,
    batch: SequenceBatch,
    distributions: Distributions,
    replay_rng: ChaCha8Rng,
    weights: Vec<f32>,
    progress: Progress,
    logger: Logger,
    console: Console,
    checkpoints: Checkpoints,
    clock: Clock,
    /// Actor threads, in mode `async`.
    fleet: Option<Fleet>,
    /// Nothing happened since the last checkpoint.
    saved: bool,
    /// No other process writes here meanwhile.
    _lock: RunLock,
}

impl<'a> Run<'a> {
    fn start(config: &'a Config, options: RunOptions) -> Result<Self> {
        let run_lock = RunLock::take(&options.run_dir)?;
        let checkpoints = Checkpoints::open(&options.run_dir, config.checkpoint.keep)?;
        let from = if options.resume { newest(&options.run_dir)? } else { None };
        let init = match &options.init_from {
            Some(path) if from.is_none() => {
                let args = serde_json::to_value(&config.env.args).unwrap_or_default();
                let env = make_env(&config.env.id, config.env.legacy, &args)?;
                Some(initial_weights(config, env.spec(), path)?)
            }
            _ => None,
        };
        let mut parts = Parts::new(config, init)?;
        let eval_net = parts.description.build_policy::<Cpu>()?;
        let (mut progress, mut replay_rng) = (Progress::default(), Stream::Replay.rng(config.train.seed));
        let mut metrics_bytes = None;
        if let Some(dir) = &from {
            let found = checkpoint::load(dir, parts.learner.layout(), Some(&parts.description.to_json()));
            let snapshot = restore(config, &mut parts, found.map_err(|e| or_older(dir, e))?)?;
            metrics_bytes = Some(snapshot.metrics_bytes);
            (progress, replay_rng) = (snapshot.progress, snapshot.replay_rng);
        } else {
            if options.resume {
                say(&format!("no complete checkpoint in {}: starting again at step 0", options.run_dir.display()));
                metrics_bytes = options.run_dir.join("metrics.jsonl").exists().then_some(0);
            }
            begin(&mut parts)?;
        }
        if is_async(config) {
            eprintln!("mode async: actors and learner run side by side, so this run is not reproducible");
            // the idle copies' episodes, and those that were running when a checkpoint was written, are not whole
            (0..config.env.num_envs).for_each(|lane| lock(&parts.replay).abandon(lane));
            progress.learning = false;
        }
        // In the middle of a step its log line is still to come.
        let start_step = if progress.learning { progress.steps - 1 } else { progress.steps };
        let logger_options = LoggerOptions { start_step, truncate_jsonl_to: metrics_bytes, ..LoggerOptions::default() };
        let mut logger = Logger::new(&options.run_dir, logger_options)?;
        if progress.steps == 0 {
            describe(&mut logger, config)?;
        }
        let console =
            ConsoleOptions { total_steps: config.train.steps, start_step: progress.steps, quiet: options.quiet };
        Ok(Run {
            config,
            options,
            parts,
            eval_net,
            batch: SequenceBatch::default(),
            distributions: Distributions::default(),
            replay_rng,
            weights: Vec::new(),
            progress,
            logger,
            console: Console::new(console),
            checkpoints,
            clock: Clock::start(),
            fleet: None,
            saved: false,
            _lock: run_lock,
        })
    }

    fn train(mut self) -> Result<RunResult> {
        let ended = if is_async(self.config) { self.steps_async() } else { self.steps() };
        self.fleet = None; // joins the actor threads
        // what was logged so far must be readable after an error too
        self.logger.flush();
        let stopped = match ended {
            Ok(stopped) => stopped,
            Err(e @ Error::Env(_)) => {
                // The step that failed is half done: no running episode goes on from here.
                let copies = self.parts.envs.save().copies;
                let broken = copies.iter().enumerate().filter(|(_, c)| c.broken);
                broken.for_each(|(i, _)| self.parts.actor.start_over(i));
                // The environments' failure is what the user must hear of; that of the save comes beside it.
                if let Err(unsaved) = self.save(false).and_then(|()| self.checkpoints.finish()) {
                    self.console.warn(&format!("the run could not be saved: {unsaved}"));
                }
                return Err(e);
            }
            Err(e) => return Err(e),
        };
        self.console.finish();
        self.finish(stopped)
    }

    /// The loop.
    fn steps(&mut self) -> Result<Stopped> {
        let copies = self.config.env.num_envs as u64;
        self.parts.learner.weights(&mut self.weights)?;
        self.parts.actor.set_weights(&self.weights)?;
        if self.options.init_from.is_some() && self.progress.steps == 0 {
            // whatever happens before the first checkpoint, a resume begins with the given weights
            self.save(false)?;
        }
        while self.progress.learning || self.progress.steps + copies <= self.config.train.steps {
            if !self.progress.learning {
                if self.stop() {
                    return Ok(Stopped::Interrupted);
                }
                self.act()?;
                self.owe(copies);
            }
            self.progress.learning = true;
            if !self.learn()? {
                return Ok(Stopped::Interrupted);
            }
            if let Some(stopped) = self.after_step(copies)? {
                return Ok(stopped);
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
            let report = match fleet.wait()? {
                Next::Step(report) => report,
                Next::Nothing => continue,
                Next::Ended => break,
            };
            self.saved = false;
            let lag = self.parts.learner.updates().saturating_sub(report.version);
            self.progress.since.policy_lag.add(lag as f64);
            self.progress.advance(report.steps, self.config.log.mmer_window, report.ended.into_iter());
            self.owe(report.steps);
            if !self.learn()? {
                return Ok(Stopped::Interrupted);
            }
            if let Some(stopped) = self.after_step(report.steps)? {
                return Ok(stopped);
            }
        }
        Ok(Stopped::Finished)
    }

    fn stop(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// One step of all copies into the replay.
    fn act(&mut self) -> Result<()> {
        self.saved = false;
        let p = &mut self.parts;
        let mut replay = lock(&p.replay);
        let actions = p.actor.act(p.envs.last(), self.progress.steps, Some(&mut replay))?;
        let after = p.envs.step(actions)?;
        let done = (0..after.reward.len()).filter(|&i| after.terminated[i] || after.truncated[i]);
        let ended = done.map(|i| (after.episode_return[i], after.episode_length[i]));
        self.progress.advance(self.config.env.num_envs as u64, self.config.log.mmer_window, ended);
        p.actor.observe(p.envs.last(), &mut replay)
    }

    /// Learnt steps that `steps` more environment steps allow.
    fn owe(&mut self, steps: u64) {
        let (c, p) = (self.config, &mut self.progress);
        if p.refilling {
            // As at the beginning of a run, and without a debt to be paid from the first few sequences.
            let replay = lock(&self.parts.replay);
            p.refilling = replay.len_sequences() < c.batch() || (replay.len_steps() as u64) < c.learner.start_after;
        }
        if p.steps > c.learner.start_after && !p.refilling {
            p.credit += c.learner.replay_ratio * steps as f64;
        }
    }

    /// The updates that are due; false when a stop request came before the last of them.
    fn learn(&mut self) -> Result<bool> {
        let (batch, begun) = (self.config.batch(), self.parts.learner.updates());
        while !self.progress.refilling && self.progress.credit > 0.0 {
            let p = &mut self.parts;
            {
                let replay = lock(&p.replay);
                if replay.len_sequences() < batch {
                    break;
                }
                if self.options.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                replay.sample(batch, &mut self.replay_rng, &mut self.batch)?;
            }
            self.saved = false;
            p.learner.set_rate(self.config.learner.rate(self.progress.steps, self.config.train.steps));
            let update = p.learner.update(&self.batch)?;
            lock(&p.replay).set_priority(&self.batch.handle, p.learner.priorities());
            self.progress.credit -= update.learnt.max(1) as f64;
            self.progress.learnt += update.learnt as u64;
            self.progress.since.update(&update);
            self.distributions.update(&update);
            if let Some(fleet) = &mut self.fleet {
                p.learner.weights(&mut self.weights)?;
                fleet.publish(p.learner.updates(), &self.weights);
            }
        }
        if self.fleet.is_none() && self.parts.learner.updates() > begun {
            self.parts.learner.weights(&mut self.weights)?;
            self.parts.actor.set_weights(&self.weights)?;
        }
        self.measure_delta_q()?;
        Ok(true)
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

    /// Evaluation, log line, checkpoint where due. A reason to stop: `train.stop_return` is reached, or a stop request cut
    /// the evaluation short, which is then still due.
    fn after_step(&mut self, copies: u64) -> Result<Option<Stopped>> {
        let (steps, c) = (self.progress.steps, self.config);
        let due = |every: u64| every > 0 && steps / every > (steps - copies) / every;
        self.console.update(steps, self.progress.eval.map(|e| e.0).or(self.progress.since.episodic_return.get()));
        let evaluated = due(c.eval.every) || steps + copies > c.train.steps;
        let mut best = false;
        if evaluated {
            let Some(new) = self.evaluate()? else { return Ok(Some(Stopped::Interrupted)) };
            best = new;
        }
        self.progress.learning = false;
        if evaluated || due(c.log.every) {
            self.log(evaluated);
        }
        if due(c.checkpoint.every) || best {
            self.save(best)?;
        }
        self.checkpoints.poll()?;
        for line in self.logger.take_warnings() {
            self.console.warn(&line);
        }
        let reached = c.train.stop_return.is_some_and(|goal| self.progress.eval.is_some_and(|e| e.0 >= goal));
        Ok((evaluated && reached).then_some(Stopped::StopReturn))
    }

    /// Greedy episodes with today's weights; true for a new best mean, None when a stop request came first.
    fn evaluate(&mut self) -> Result<Option<bool>> {
        let (c, p) = (self.config, &self.parts);
        p.learner.weights(&mut self.weights)?;
        let params = Params::new(&p.dev, self.eval_net.layout().clone(), &self.weights)?;
        let seed = c.train.seed.wrapping_add(self.progress.steps);
        let play = Play { episodes: c.eval.episodes, seed, shards: c.train.shards };
        let played = evaluate_until(&p.dev, &*self.eval_net, &params, &p.description, play, &self.options.stop)?;
        let Some(played) = played else { return Ok(None) };
        let mean = played.mean();
        self.progress.eval = Some((mean, played.std()));
        self.progress.eval_step = Some(self.progress.steps);
        let best = self.progress.best.is_none_or(|(b, _)| mean > b);
        if best {
            self.progress.best = Some((mean, self.progress.steps));
        }
        Ok(Some(best))
    }

    fn wall_s(&self) -> f64 {
        self.clock.wall_s(&self.progress)
    }

    fn log(&mut self, evaluated: bool) {
        let (wall, steps) = (self.wall_s(), self.progress.steps);
        let (s, p) = (&self.progress.since, &self.parts);
        let seconds = (wall - s.wall_s).max(1e-9);
        let replay = lock(&p.replay);
        let eval = self.progress.eval.filter(|_| evaluated);
        let cells = [
            ("charts/episodic_return", s.episodic_return.get()),
            ("charts/episodic_length", s.episodic_length.get()),
            ("charts/SPS", (s.steps > 0).then(|| s.steps as f64 / seconds)),
            ("charts/epsilon_mean", p.actor.epsilon_mean(steps)),
            ("eval/return_mean", eval.map(|e| e.0)),
            ("eval/best_return", eval.and(self.progress.best).map(|b| b.0)),
            ("train/mmer", self.progress.mmer.best()),
            ("losses/td_loss", s.value("losses/td_loss", s.td_loss)),
            ("losses/q_values", s.value("losses/q_values", s.q_values)),
            ("losses/grad_norm", s.value("losses/grad_norm", s.grad_norm)),
            ("losses/policy_loss", s.value("losses/policy_loss", s.policy_loss)),
            ("learner/entropy", s.value("learner/entropy", s.entropy)),
            ("learner/temperature", s.value("learner/temperature", s.temperature)),
            ("losses/skipped_updates", Some(p.learner.skipped() as f64)),
            ("replay/size", Some(replay.len_steps() as f64)),
            ("replay/priority_mean", Some(f64::from(replay.priority_mean()))),
            ("replay/stale_handles", Some(replay.stale_total() as f64)),
            ("learner/updates_per_s", (s.steps > 0).then(|| s.updates as f64 / seconds)),
            ("learner/delta_q", s.delta_q.get()),
            ("actor/policy_lag", s.policy_lag.get()),
        ];
        drop(replay);
        let cells: Vec<(&str, f64)> = cells.into_iter().filter_map(|(tag, v)| v.map(|v| (tag, v))).collect();
        self.logger.log(steps, wall, &cells);
        self.distributions.show(&mut self.logger, steps, &*self.parts.learner, evaluated.then_some(&self.batch));
        self.progress.since = super::metrics::Since { wall_s: wall, ..Default::default() };
    }

    /// Writes a checkpoint; it gets durable in the background.
    fn save(&mut self, best: bool) -> Result<()> {
        let (wall_s, cpu_s) = (self.wall_s(), self.clock.cpu_s(&self.progress));
        self.logger.flush();
        let p = &mut self.parts;
        let state = p.learner.save()?;
        let (actor, floats) = p.actor.save()?;
        let floats: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let full = self.config.checkpoint.replay == CheckpointReplay::Full;
        let target_acts = self.config.acts_with_target();
        let mut stored = lock(&p.replay);
        let snapshot = Snapshot {
            config: serde_json::to_value(self.config).unwrap_or_default(),
            progress: Progress { wall_s, cpu_s, ..self.progress.clone() },
            envs: p.envs.save(),
            actor,
            replay_rng: self.replay_rng.clone(),
            updates: state.updates,
            skipped: state.skipped,
            loss_scale: state.loss_scale,
            metrics_bytes: self.logger.jsonl_len(),
            replay_saved: full,
        };
        let snapshot =
            serde_json::to_value(&snapshot).map_err(|e| Error::checkpoint(&self.options.run_dir, e.to_string()))?;
        let replay: Option<&mut dyn ReplayStore> = if full { Some(&mut *stored) } else { None };
        let request = SaveRequest {
            step: self.progress.steps,
            layout: p.learner.layout(),
            params: if target_acts { &state.target } else { &state.params },
            optimizer: Some(OptimizerState {
                target: &state.target,
                online: target_acts.then_some(&*state.params),
                m: &state.m,
                v: &state.v,
            }),
            blobs: &[(ACTOR_FILE, &floats)],
            config: &p.description.to_json(),
            state: &snapshot,
            replay,
        };
        self.checkpoints.save_behind(request, best)?;
        self.saved = true;
        Ok(())
    }

    /// Last evaluation, log line, checkpoint and result.
    fn finish(mut self, mut stopped: Stopped) -> Result<RunResult> {
        let c = self.config;
        if stopped != Stopped::Interrupted && self.progress.eval_step != Some(self.progress.steps) {
            match self.evaluate()? {
                Some(_) => self.log(true),
                None => stopped = Stopped::Interrupted,
            }
            self.saved = false;
        }
        if !self.saved {
            self.save(self.progress.best.is_some_and(|(_, step)| step == self.progress.steps))?;
        }
        self.checkpoints.finish()?;
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
            cpu_s: self.clock.cpu_s(&self.progress),
            frames: self.progress.learnt,
            eval_return_mean: eval.map(|e| e.0),
            eval_return_std: eval.map(|e| e.1),
            eval_episodes: if eval.is_some() { c.eval.episodes } else { 0 },
            train_mmer: self.progress.mmer.best(),
            best_eval_return: self.progress.best.map(|b| b.0),
            config_hash: c.config_hash()?,
            version: env!("CARGO_PKG_VERSION").into(),
            device: c.train.device.clone(),
            stopped,
        };
        if result.updates == 0 && stopped != Stopped::Interrupted {
            let why = "no update was made: the replay never held `learner.batch` sequences; give more --steps, a smaller \
                       batch or more `replay.capacity`";
            self.console.warn(why);
        }
        self.logger.flush();
        result.write(&self.options.run_dir)?;
        for line in self.logger.take_warnings() {
            self.console.warn(&line);
        }
        Ok(result)
    }
}

/// First observations of all copies.
fn begin(parts: &mut Parts) -> Result<()> {
    let first = parts.envs.reset()?;
    parts.actor.begin(first, &mut lock(&parts.replay))
}

/// Do actors run beside the learner?
fn is_async(config: &Config) -> bool {
    config.train.mode == "async"
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
