//! From a resolved config to the parts of a run.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mamba_rl_envs::{Autoreset, BoxEnv, Dtype, EnvArgs, EnvError, EnvSpec, VecEnv};
use serde::Serialize;

use super::Stream;
use crate::actor::{Actor, ActorConfig, Exploration, TraceConfig};
use crate::backbone::{SeqShape, state_len};
use crate::checkpoint;
use crate::config::{Config, ExplorationKind, InitialStateKind, Loss, ReplayLayout, RotateKind, StateType};
#[cfg(feature = "cuda")]
use crate::device::cuda::{Cuda, CudaConfig, default_cache};
use crate::device::{Choice, Cpu, Simd};
use crate::error::{Error, Result};
use crate::learner::{ActingWeights, Learner, R2d2, R2d2Config, Rsac, RsacConfig, TargetUpdate};
use crate::network::{Description, cut};
use crate::ops::Backend;
use crate::replay::{ActionKind, InitialState, Layout, ObsKind, ReplayConfig, ReplaySpec, SequenceReplay, StateDtype};
use crate::value::td_error;

/// A replay that actors and learner share.
pub type SharedReplay = Arc<Mutex<SequenceReplay>>;

/// Streams of the actor threads' exploration start here.
const ACTOR_STREAMS: u64 = 1 << 32;

/// What a run needs memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Numbers in the network.
    pub parameters: usize,
    /// Replay at its capacity, states included.
    pub replay_bytes: u64,
    /// Tape of one batch.
    pub tape_bytes: u64,
    /// Scratch, gradients and features of one batch.
    pub scratch_bytes: u64,
    /// One stored state.
    pub state_bytes_per_sequence: u64,
}

/// The parts of a run.
pub struct Parts {
    /// The task.
    pub spec: EnvSpec,
    /// The network in words.
    pub description: Description,
    /// Device of actor and evaluation.
    pub dev: Cpu,
    /// Training copies.
    pub envs: VecEnv,
    /// Stored sequences.
    pub replay: SharedReplay,
    /// Updates, on the run's device.
    pub learner: Box<dyn Learner>,
    /// Acting.
    pub actor: Actor<Cpu>,
}

/// A task of the bundled registry.
///
/// # Errors
/// `EnvError` naming the task or argument.
pub fn make_env(id: &str, legacy: bool, args: &serde_json::Value) -> std::result::Result<BoxEnv, EnvError> {
    let args = args.as_object().cloned().unwrap_or_default().into_iter().collect();
    mamba_rl_envs::make(id, &EnvArgs { legacy, args })
}

/// The CPU with the code path that the config pins.
///
/// # Errors
/// `Device` when this CPU lacks it.
pub(super) fn cpu(config: &Config) -> Result<Cpu> {
    let simd = match config.train.simd.as_str() {
        "avx512" => Simd::Avx512,
        "avx2" => Simd::Avx2,
        "portable" => Simd::Portable,
        _ => Simd::Auto,
    };
    Cpu::with_simd(simd)
}

/// Replay settings of a run.
pub(super) fn replay_config(config: &Config) -> ReplayConfig {
    let (r, l) = (&config.replay, &config.learner);
    ReplayConfig {
        capacity: r.capacity,
        layout: match r.layout {
            ReplayLayout::Episode => Layout::Episode { max_episode: r.max_episode },
            ReplayLayout::Window => Layout::Window,
        },
        burn_in: l.burn_in,
        length: l.length,
        period: if r.period == 0 { l.length.div_ceil(2) } else { r.period },
        seams: r.seams,
        alpha: r.alpha,
        beta: r.beta,
        eta: r.eta,
        state_dtype: match r.state_dtype {
            StateType::F32 => StateDtype::F32,
            StateType::F16 => StateDtype::F16,
            StateType::Bf16 => StateDtype::Bf16,
        },
        initial_state: match r.initial_state {
            InitialStateKind::Stored => InitialState::Stored,
            InitialStateKind::Zero => InitialState::Zero,
        },
    }
}

/// What the replay stores of a task and a network.
pub(super) fn replay_spec(config: &Config, spec: &EnvSpec, masked: bool, state_len: usize) -> ReplaySpec {
    ReplaySpec {
        obs_kind: match spec.observation_space.dtype() {
            Dtype::U8 => ObsKind::U8,
            Dtype::I32 => ObsKind::I32,
            Dtype::F32 => ObsKind::F32,
        },
        obs_len: spec.observation_space.flat_len(),
        action: match spec.action_space.flat_len() {
            parts if spec.action_space.is_discrete() => ActionKind::Discrete { parts },
            len => ActionKind::Continuous { len },
        },
        legal_len: if masked { spec.action_space.n_actions().unwrap_or(0) } else { 0 },
        state_len,
        lanes: config.env.num_envs,
    }
}

/// Learner settings of a resolved config.
pub(super) fn learner_config(config: &Config) -> R2d2Config {
    let l = &config.learner;
    R2d2Config {
        gamma: config.gamma() as f32,
        n_step: config.n_step(),
        rescaling: (l.rescaling > 0.0).then_some(l.rescaling as f32),
        double_q: l.double_q,
        truncation_is_terminal: l.truncation_is_terminal,
        loss: match l.loss {
            Loss::Squared => td_error::Loss::Squared,
            Loss::Huber => td_error::Loss::Huber(1.0),
        },
        eta: config.replay.eta as f32,
        reward_scale: config.reward_scale_factor() as f32,
        lr_backbone: config.lr_backbone() as f32,
        lr_heads: l.lr_heads as f32,
        weight_decay: l.weight_decay as f32,
        betas: (0.9, 0.999),
        adam_eps: l.adam_eps as f32,
        grad_clip: (l.grad_clip > 0.0).then_some(l.grad_clip as f32),
        warmup: l.warmup,
        target: if l.target_period > 0 {
            TargetUpdate::Hard(l.target_period)
        } else {
            TargetUpdate::Soft(l.target_tau as f32)
        },
        acting: if config.acts_with_target() { ActingWeights::Target } else { ActingWeights::Online },
        shards: config.train.shards,
    }
}

/// As [`learner_config`], of agent `rsac` for actions of so many components.
fn rsac_config(config: &Config, components: usize) -> RsacConfig {
    RsacConfig {
        common: learner_config(config),
        lr_temperature: config.agent.lr_temperature as f32,
        target_entropy: config.target_entropy(components) as f32,
        seed: Stream::Updates.seed(config.train.seed),
    }
}

/// Learner and start values of the agent that `description` names.
fn learner(
    config: &Config,
    description: &Description,
    weights: Option<Vec<f32>>,
) -> Result<(Box<dyn Learner>, Vec<f32>)> {
    let device = Choice::new(&config.train.device)?;
    device.check()?;
    match device {
        #[cfg(feature = "cuda")]
        Choice::Cuda(ordinal) => learner_on(Cuda::open(cuda_config(config, ordinal)?)?, config, description, weights),
        _ => learner_on(cpu(config)?, config, description, weights),
    }
}

#[cfg(feature = "cuda")]
fn cuda_config(config: &Config, ordinal: usize) -> Result<CudaConfig> {
    let t = &config.train;
    let cache = match t.kernel_cache.as_str() {
        "home" => default_cache(),
        "off" => None,
        folder => Some(folder.into()),
    };
    Ok(CudaConfig { ordinal, precision: t.precision.parse()?, tf32: t.tf32, graphs: t.graphs, cache })
}

fn learner_on<D: Backend>(
    dev: D,
    config: &Config,
    description: &Description,
    weights: Option<Vec<f32>>,
) -> Result<(Box<dyn Learner>, Vec<f32>)> {
    let (input, rng) = (description.input(), &mut Stream::Weights.rng(config.train.seed));
    if description.agent == "rsac" {
        let net = description.build_actor_critic::<D>(config.agent.temperature as f32)?;
        let values = weights.unwrap_or_else(|| net.layout().initial(rng));
        let settings = rsac_config(config, description.action_space.flat_len());
        return Ok((Box::new(Rsac::new(dev, net, input, settings, &values)?), values));
    }
    let net = description.build::<D>()?;
    let values = weights.unwrap_or_else(|| net.initial(rng));
    Ok((Box::new(R2d2::new(dev, net, input, learner_config(config), &values)?), values))
}

fn actor_config(config: &Config, first: usize) -> ActorConfig {
    let (l, e) = (learner_config(config), &config.exploration);
    ActorConfig {
        exploration: match e.kind {
            ExplorationKind::Ladder => Exploration::Ladder { base: e.base, alpha: e.alpha },
            ExplorationKind::Linear => Exploration::Linear { start: e.start, end: e.end, steps: e.steps },
        },
        trace: TraceConfig {
            gamma: l.gamma,
            n_step: l.n_step,
            rescaling: l.rescaling,
            truncation_is_terminal: l.truncation_is_terminal,
            eta: l.eta,
        },
        reward_scale: l.reward_scale,
        episodes_per_trial: config.env.episodes_per_trial as u64,
        first,
        total: config.env.num_envs,
    }
}

/// Weights of another run's checkpoint for the network of a resolved config on a task. Spaces, inputs and sizes must be
/// the same; task, rewards and how weights were drawn may differ.
///
/// # Errors
/// `Usage` naming the first field that differs with both values, or for a path that is no checkpoint; `Checkpoint` for a
/// damaged one.
pub fn initial_weights(config: &Config, spec: &EnvSpec, path: &Path) -> Result<Vec<f32>> {
    let dir = checkpoint::resolve(path)?;
    let ours = Description::new(config, spec);
    let theirs = Description::from_json(&dir, checkpoint::load_config(&dir)?)?;
    let parts = |d: &Description| {
        let mut backbone = d.backbone.clone();
        (backbone.dt_min, backbone.dt_max) = (0.0, 0.0);
        if backbone.name != "mamba" {
            backbone.rotate = RotateKind::Off; // means nothing to other bodies
        }
        serde_json::json!({
            "agent": d.agent, "shared_encoder": d.shared_encoder, "observation_space": d.observation_space, "action_space": d.action_space,
            "backbone": backbone, "network": d.network, "input": d.input,
        })
    };
    if let Some((field, our, their)) = checkpoint::first_difference(&parts(&ours), &parts(&theirs)) {
        let dir = dir.display();
        return Err(Error::Usage(format!(
            "the weights in {dir} do not fit: `{field}` is {their} there, {our} in this run"
        )));
    }
    checkpoint::load_weights(&dir, ours.build_policy::<Cpu>()?.layout())
}

impl Parts {
    /// Everything at step 0, weights drawn from the seed or taken from `weights`.
    ///
    /// # Errors
    /// `Config` naming the field, environment and device errors.
    pub fn new(config: &Config, weights: Option<Vec<f32>>) -> Result<Self> {
        let args = serde_json::to_value(&config.env.args).unwrap_or_default();
        let make = |_| make_env(&config.env.id, config.env.legacy, &args);
        let masked = make(0)?.has_legal_mask();
        let seed = config.train.seed;
        let envs = VecEnv::new(&make, config.env.num_envs, Stream::Envs.seed(seed), Autoreset::SameStep)?;
        let spec = envs.spec().clone();
        let description = Description::new(config, &spec);
        let dev = cpu(config)?;
        let (learner, values) = learner(config, &description, weights)?;
        let net = description.build_policy::<Cpu>()?;
        let replay_spec = replay_spec(config, &spec, masked, state_len(net.state_layout()));
        let replay = Arc::new(Mutex::new(SequenceReplay::new(replay_spec, replay_config(config))?));
        let (copies, shards, input) = (config.env.num_envs, config.train.shards, description.input());
        let rng = Stream::Actor.rng(seed);
        let actor = Actor::new(dev, net, input, actor_config(config, 0), &values, copies, shards, rng)?;
        Ok(Parts { spec, description, dev, envs, replay, learner, actor })
    }
}

/// Environments and actor of an actor thread: the copies `copies` of the run from environment step `step` on.
///
/// # Errors
/// Environment and device errors.
pub(super) fn worker_parts(
    config: &Config,
    index: usize,
    copies: std::ops::Range<usize>,
    step: u64,
    weights: &[f32],
) -> Result<(VecEnv, Actor<Cpu>)> {
    let args = serde_json::to_value(&config.env.args).unwrap_or_default();
    let make = |_| make_env(&config.env.id, config.env.legacy, &args);
    let seed = config.train.seed;
    // other actors and a resumed run play other episodes
    let base = Stream::Envs.seed(seed.wrapping_add((index as u64 + 1) << 32).wrapping_add(step));
    let envs = VecEnv::new(&make, copies.len(), base, Autoreset::SameStep)?;
    let description = Description::new(config, envs.spec());
    let (dev, net) = (cpu(config)?, description.build_policy::<Cpu>()?);
    let mut rng = Stream::Actor.rng(seed.wrapping_add(step));
    rng.set_stream(ACTOR_STREAMS + index as u64);
    // one shard: an actor thread is outside the pool
    let settings = actor_config(config, copies.start);
    let actor = Actor::new(dev, net, description.input(), settings, weights, copies.len(), 1, rng)?;
    Ok((envs, actor))
}

/// The replay, locked. A thread that panicked with it has ended the run; what is stored is whole all the same.
pub(super) fn lock(replay: &SharedReplay) -> MutexGuard<'_, SequenceReplay> {
    replay.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that a resolved config asks for.
///
/// # Errors
/// `Config` naming the field.
pub fn footprint(config: &Config, spec: &EnvSpec) -> Result<Footprint> {
    let description = Description::new(config, spec);
    let net = description.build_policy::<Cpu>()?;
    let workspace = |shape: SeqShape| -> Result<(usize, usize)> {
        if description.agent == "rsac" {
            return Ok(description.build_actor_critic::<Cpu>(1.0)?.workspace_len(shape));
        }
        let net = description.build::<Cpu>()?;
        let (tape, scratch) = net.workspace_len(shape, true);
        Ok((tape, scratch + net.workspace_len(shape, false).1))
    };
    let whole = config.replay.layout == ReplayLayout::Episode;
    let window = config.learner.burn_in + config.learner.length;
    let slots = 1 + if whole {
        spec.max_steps.unwrap_or(config.replay.max_episode).min(config.replay.max_episode)
    } else {
        window
    };
    let (mut tape, mut scratch) = (0, 0);
    for rows in cut(config.batch(), config.train.shards) {
        let shape = SeqShape { time: slots, batch: rows.len() };
        let (t, s) = workspace(shape)?;
        tape += t;
        scratch += s + net.layout().len() + shape.rows() * net.d_input();
    }
    let state = state_len(net.state_layout());
    let element = match spec.observation_space.dtype() {
        Dtype::U8 => 1,
        Dtype::I32 | Dtype::F32 => 4,
    };
    let state_bytes = state * if config.replay.state_dtype == StateType::F32 { 4 } else { 2 };
    let per_step = spec.observation_space.flat_len() * element + spec.action_space.flat_len() * 4 + 4 + 2;
    let period = replay_config(config).period.max(1);
    let states = if whole { 0 } else { config.replay.capacity / period + config.env.num_envs };
    let bytes = |n: usize| n as u64;
    let replay_bytes = bytes(config.replay.capacity) * bytes(per_step) + bytes(states) * bytes(state_bytes);
    Ok(Footprint {
        parameters: net.layout().len(),
        replay_bytes,
        tape_bytes: 4 * bytes(tape),
        scratch_bytes: 4 * bytes(scratch),
        state_bytes_per_sequence: bytes(state_bytes),
    })
}
