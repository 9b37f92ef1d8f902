//! Greedy evaluation: its own environments, seeds and states; it changes nothing in a run. Every copy plays a number of
//! episodes that is fixed beforehand, so that short episodes are not favoured.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mamba_rl_envs::{Autoreset, EnvError, VecEnv};
use serde::{Deserialize, Serialize};

use super::Stream;
use super::setup::make_env;
use crate::device::Cpu;
use crate::error::{Error, Result};
use crate::network::{Actions, Description, Policy, Previous, Stepper};
use crate::ops::Backend;
use crate::params::Params;

/// Copies that play side by side.
const COPIES: usize = 64;

/// Steps without the end of an episode after which a task that promises no shorter end is held to have none.
const PATIENCE: usize = 100_000;

/// Returns and lengths of the episodes, by copy and then by episode.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluation {
    /// Undiscounted raw returns.
    pub returns: Vec<f64>,
    /// Steps.
    pub lengths: Vec<u32>,
}

impl Evaluation {
    /// Mean return.
    pub fn mean(&self) -> f64 {
        self.returns.iter().sum::<f64>() / self.returns.len().max(1) as f64
    }

    /// Standard deviation of the returns over episodes.
    pub fn std(&self) -> f64 {
        let mean = self.mean();
        let var = self.returns.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / self.returns.len().max(1) as f64;
        var.sqrt()
    }
}

/// The keys of `eval --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Plain name of the task.
    pub env: String,
    /// Episodes.
    pub episodes: usize,
    /// Mean return.
    pub eval_return_mean: f64,
    /// Standard deviation over episodes.
    pub eval_return_std: f64,
    /// Smallest return.
    pub eval_return_min: f64,
    /// Largest return.
    pub eval_return_max: f64,
    /// Mean length.
    pub eval_length_mean: f64,
    /// Folder of the checkpoint.
    pub checkpoint: String,
    /// Seed of the episodes.
    pub seed: u64,
}

/// Greedy episodes of a checkpoint (folder, file or run folder).
///
/// # Errors
/// `Checkpoint` naming file, tensor or field; environment errors.
pub fn evaluate(checkpoint: &Path, episodes: usize, seed: u64) -> Result<EvalReport> {
    let dir = crate::checkpoint::resolve(checkpoint)?;
    let description = Description::from_json(&dir, crate::checkpoint::load_config(&dir)?)?;
    let dev = Cpu::default();
    let net = description.build_policy::<Cpu>()?;
    let values = crate::checkpoint::load_weights(&dir, net.layout())?;
    let params = Params::new(&dev, net.layout().clone(), &values)?;
    let played = evaluate_weights(&dev, &*net, &params, &description, episodes, seed, COPIES)?;
    let (lo, hi) = played.returns.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &r| (l.min(r), h.max(r)));
    let name = make_env(&description.env, description.legacy, &description.env_args)?.spec().name.clone();
    Ok(EvalReport {
        env: name,
        episodes,
        eval_return_mean: played.mean(),
        eval_return_std: played.std(),
        eval_return_min: lo,
        eval_return_max: hi,
        eval_length_mean: played.lengths.iter().map(|&l| f64::from(l)).sum::<f64>() / episodes.max(1) as f64,
        checkpoint: dir.display().to_string(),
        seed,
    })
}

/// Greedy episodes with these weights.
///
/// # Errors
/// `Usage` for no episodes or a mask that forbids everything; environment errors, also where episodes do not end; device
/// errors.
pub fn evaluate_weights<D: Backend>(
    dev: &D,
    net: &dyn Policy<D>,
    params: &Params<D>,
    description: &Description,
    episodes: usize,
    seed: u64,
    shards: usize,
) -> Result<Evaluation> {
    let never = AtomicBool::new(false);
    evaluate_until(dev, net, params, description, Play { episodes, seed, shards }, &never)
        .map(Option::unwrap_or_default)
}

/// What to play.
#[derive(Debug, Clone, Copy)]
pub(super) struct Play {
    /// How many episodes.
    pub episodes: usize,
    /// Seed of the environments.
    pub seed: u64,
    /// Shards of the copies.
    pub shards: usize,
}

/// As [`evaluate_weights`]; None when `stop` was set before the end.
pub(super) fn evaluate_until<D: Backend>(
    dev: &D,
    net: &dyn Policy<D>,
    params: &Params<D>,
    description: &Description,
    play: Play,
    stop: &AtomicBool,
) -> Result<Option<Evaluation>> {
    let Play { episodes, seed, shards } = play;
    if episodes == 0 {
        return Err(Error::Usage("an evaluation needs at least one episode".into()));
    }
    let copies = episodes.min(COPIES);
    let quota: Vec<usize> = (0..copies).map(|i| episodes / copies + usize::from(i < episodes % copies)).collect();
    let make = |_| make_env(&description.env, description.legacy, &description.env_args);
    let mut envs = VecEnv::new(&|i| make(i), copies, Stream::Eval.seed(seed), Autoreset::SameStep)?;
    let mut stepper = Stepper::for_play(dev, net, copies, shards)?;
    let input = description.input();
    let (d, row) = (input.len(), input.observation().flat_len());
    let (mut features, mut reset) = (vec![0.0; copies * d], vec![0u8; copies]);
    let (mut actions, mut rewards) = (Actions::new(input.action(), copies)?, vec![0f32; copies]);
    let mut done: Vec<Vec<(f64, u32)>> = vec![Vec::new(); copies];
    let (patience, mut waited) = (PATIENCE.max(envs.spec().max_steps.unwrap_or(0)), 0);
    envs.reset()?;
    while done.iter().zip(&quota).any(|(d, &q)| d.len() < q) {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let batch = envs.last();
        for i in 0..copies {
            let first = batch.is_first[i];
            let previous = (!first).then_some(Previous { action: actions.row(i), reward: rewards[i] });
            input.write(batch.obs.row(i, row), previous, first, &mut features[i * d..(i + 1) * d])?;
            let trial = batch.episode_number[i].is_multiple_of(description.episodes_per_trial.max(1) as u64);
            reset[i] = u8::from(first && trial);
        }
        stepper.step(dev, net, params, &features, &reset)?;
        for i in 0..copies {
            let legal = batch.legal.as_ref().map(|l| {
                let n = l.len() / copies;
                &l[i * n..(i + 1) * n]
            });
            actions.set_greedy(i, stepper.q(i), legal)?;
        }
        if waited == patience {
            let found = format!("none did in {patience} steps: end them, or wrap the task in `TimeLimit`");
            return Err(EnvError::Contract { env: description.env.clone(), rule: "episodes end", found }.into());
        }
        let after = envs.step(actions.all())?;
        waited += 1;
        for i in 0..copies {
            rewards[i] = after.reward[i] * description.reward_scale as f32;
            if (after.terminated[i] || after.truncated[i]) && done[i].len() < quota[i] {
                done[i].push((after.episode_return[i], after.episode_length[i]));
                waited = 0;
            }
        }
    }
    let (returns, lengths) = done.into_iter().flatten().unzip();
    Ok(Some(Evaluation { returns, lengths }))
}
