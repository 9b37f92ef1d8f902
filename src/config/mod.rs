//! One config tree: TOML in, TOML out. Each field says what it means, its unit, its default and where that comes from.
//! Defaults here are those of the preset `popgym`; `examples/configs/*.toml` are the presets. Unknown keys are errors.

mod defaults;
mod keys;
mod layers;
mod resolve;
mod validate;
mod write;

pub use layers::{Flags, PRESETS};
pub use validate::simd_paths;
pub use write::Difference;

use serde::{Deserialize, Serialize};

/// Everything that a run depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of the preset that this config began with. Default `popgym`.
    pub preset: String,
    /// The task.
    pub env: EnvSection,
    /// Acting.
    pub actor: ActorSection,
    /// Which agent.
    pub agent: AgentSection,
    /// Recurrent body.
    pub backbone: BackboneSection,
    /// Encoder and heads.
    pub network: NetworkSection,
    /// What goes into the network beside the observation.
    pub input: InputSection,
    /// Updates.
    pub learner: LearnerSection,
    /// Exploration.
    pub exploration: ExplorationSection,
    /// Replay.
    pub replay: ReplaySection,
    /// The run as a whole.
    pub train: TrainSection,
    /// Evaluation during the run.
    pub eval: EvalSection,
    /// Checkpoints.
    pub checkpoint: CheckpointSection,
    /// Logs.
    pub log: LogSection,
}

/// A number, or the word `suggested`: the environment's own suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Suggested<T> {
    /// This value.
    Value(T),
    /// The environment's.
    Word(SuggestedWord),
}

/// The word `suggested`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SuggestedWord {
    /// The environment's suggestion.
    Suggested,
}

/// A reward factor, or the word `unit`: 1 / the environment's unit reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RewardScale {
    /// This factor.
    Value(f64),
    /// 1 / unit_reward of the environment.
    Word(UnitWord),
}

/// The word `unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitWord {
    /// 1 / unit_reward.
    Unit,
}

/// `[env]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvSection {
    /// Id, name or alias. Default `popgym-RepeatPreviousEasy-v0`.
    pub id: String,
    /// Copies stepped together. Default 64.
    pub num_envs: usize,
    /// Rules of the published tables where release 1.0.7 changed them. Default false.
    pub legacy: bool,
    /// Episodes between two clearings of memory (meta-learning). Default 1.
    pub episodes_per_trial: usize,
    /// Arguments of the task, such as `length` of the T-maze.
    pub args: toml::Table,
}

/// `[actor]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorSection {
    /// Actor threads in async mode. Default 1.
    pub threads: usize,
    /// Vector steps that may wait for the learner in async mode. Default 64.
    pub queue: usize,
    /// Updates between two publications of the weights in async mode. Default 8.
    pub publish_every: usize,
}

/// A number, or the word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Auto<T> {
    /// This value.
    Value(T),
    /// The agent's own.
    Word(AutoWord),
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoWord {
    /// The agent's own value.
    Auto,
}

/// `[agent]`: all keys but the first are read by `rsac` alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSection {
    /// `auto` (by action space), `r2d2` or `rsac`. Default `auto`.
    pub name: String,
    /// One encoder and backbone for actor and critics, trained by the critics' loss alone. Default false: one each.
    pub shared_encoder: bool,
    /// First temperature α, the weight of the entropy. Default 0.1 (rewards of about 1).
    pub temperature: f64,
    /// Learning rate of log α; 0: α stays as it starts. Default 1e-3.
    pub lr_temperature: f64,
    /// Entropy that α is tuned to, in nats of an action in [−1, 1], or `auto`: −1 per component (Haarnoja et al., 2018).
    /// Default `auto`.
    pub target_entropy: Auto<f64>,
}

/// Do pairs of a Mamba body's states turn by a constant angle per step?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RotateKind {
    /// No: Mamba-1.
    Off,
    /// Yes, by angles that stay as they start.
    Fixed,
    /// Yes, by angles that are learnt.
    Learned,
    /// `learned` where the task suggests it and the states are even in number, else `off`.
    Suggested,
}

impl RotateKind {
    /// Do states turn? Not by a suggestion that no task has answered yet.
    pub fn turns(self) -> bool {
        matches!(self, RotateKind::Fixed | RotateKind::Learned)
    }
}

/// `[backbone]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackboneSection {
    /// `mamba`, `gru`, `lstm` or `mlp`. Default `mamba`.
    pub name: String,
    /// Width of the residual stream (hidden size for gru, lstm, mlp). Default 64.
    pub d_model: usize,
    /// Blocks. Default 1.
    pub n_layers: usize,
    /// States per channel. Default 16.
    pub d_state: usize,
    /// Rotating states, bodies `mamba` only: `off` (Mamba-1), `fixed` or `learned` angles; `d_state` must be even.
    /// Default `off`.
    pub rotate: RotateKind,
    /// Taps of the causal convolution, 1 to 128, or `suggested` (4 where the task suggests none). Default `suggested`.
    pub d_conv: Suggested<usize>,
    /// d_inner / d_model. Default 2.
    pub expand: usize,
    /// Rank of Δ's projection; 0 means ceil(d_model / 16). Default 0.
    pub dt_rank: usize,
    /// Smallest initial Δ. Default 0.001 (official code).
    pub dt_min: f64,
    /// Largest initial Δ. Default 0.1 (official code).
    pub dt_max: f64,
    /// ε of the norms. Default 1e-5.
    pub rms_eps: f64,
    /// Bias on in_proj and out_proj. Default false.
    pub proj_bias: bool,
    /// Bias on the convolution. Default true.
    pub conv_bias: bool,
}

/// `[network]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSection {
    /// Hidden units of the encoder before the backbone (linear, LayerNorm, ReLU); 0: none. Default 0.
    pub encoder_hidden: usize,
    /// Hidden units of the head (ReLU); 0: linear heads. Default 128.
    pub head_hidden: usize,
    /// Are the advantages of `r2d2` linear in the step's own input as well, past the body? Default false.
    pub shortcut: bool,
}

/// `[input]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InputSection {
    /// One-hot previous action. Default true.
    pub previous_action: bool,
    /// Previous reward as the learner sees it. Default false (as the published POPGym tables).
    pub previous_reward: bool,
    /// Flag of an episode's first step. Default true.
    pub is_first: bool,
}

/// Shape of the temporal-difference loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// δ²/2.
    Squared,
    /// Huber with δ = 1.
    Huber,
}

/// What a critic of `r2d2` predicts of the return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CriticKind {
    /// Its mean.
    Expected,
    /// Quantiles of its distribution (Dabney et al., 2018).
    Qr,
    /// Logits over a support, learnt from a scalar target.
    TwoHot,
    /// Logits over a support, learnt from the projected distribution (Bellemare et al., 2017).
    C51,
}

/// Which network of `r2d2` acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActingKind {
    /// The one that the gradient moves.
    Online,
    /// The target network.
    Target,
    /// `target` where the target is soft, else `online`.
    Suggested,
}

/// `[learner]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerSection {
    /// Discount in [0, 1], or `suggested` (0.99 where the task suggests none). Default `suggested`.
    pub gamma: Suggested<f64>,
    /// Rewards per return, or `suggested`: 1 where rewards are prompt, 5 elsewhere. Default `suggested`.
    pub n_step: Suggested<usize>,
    /// Sequences per update, or `suggested`. Where `r2d2` keeps episodes whole: 1 beyond 100 steps or if rewards are
    /// prompt; 8 elsewhere. Default `suggested` (updates count, not frames).
    pub batch: Suggested<usize>,
    /// Steps replayed before learning to warm up the state, layout `window`. Default 40 (R2D2).
    pub burn_in: usize,
    /// Learnt steps of a window. Default 80 (R2D2).
    pub length: usize,
    /// Learning rate of encoder and backbone, or `suggested`: 3e-3 where rewards are prompt and the discount is at most
    /// 0.5 (measured on RepeatPrevious, RepeatFirst, CountRecall), 1e-3 elsewhere. Default `suggested`.
    pub lr_backbone: Suggested<f64>,
    /// Learning rate of the heads. Default 1e-3.
    pub lr_heads: f64,
    /// Decoupled weight decay of matrices. Default 0.
    pub weight_decay: f64,
    /// Adam's ε. Default 1e-5.
    pub adam_eps: f64,
    /// Global norm above which the gradient is scaled down; 0: off. Default 1.
    pub grad_clip: f64,
    /// Updates over which the learning rates rise linearly. Default 0.
    pub warmup: u64,
    /// Share of `train.steps`, at the end, over which the learning rates fall to 0 in a straight line. Default 0: they stay.
    pub lr_decay: f64,
    /// Loss of δ. Default `squared`.
    pub loss: Loss,
    /// What the critic of `r2d2` predicts: `expected`, `qr`, `two-hot` or `c51`. Default `expected`.
    pub critic: CriticKind,
    /// Numbers per action of the other three: quantiles, or atoms of the support. Default 51 (C51).
    pub atoms: usize,
    /// Lowest atom of `two-hot` and `c51`, in scaled (and rescaled) returns. Default −10 (C51).
    pub atom_min: f64,
    /// Highest atom. Default 10 (C51).
    pub atom_max: f64,
    /// Which network acts, is evaluated and is the saved model: `online`, `target` or `suggested` (`target` where the target
    /// is soft, for `r2d2`). Default of preset `popgym`: `suggested`.
    pub acting: ActingKind,
    /// Soft target update per update; 0: off. Default 0.005.
    pub target_tau: f64,
    /// Updates between hard target copies; 0: off. Default 0. Only one of the two may be set.
    pub target_period: u64,
    /// Factor on rewards, or `unit`. Default `unit`.
    pub reward_scale: RewardScale,
    /// ε of value rescaling; 0: off. Default 0.
    pub rescaling: f64,
    /// Double Q-learning. Default true.
    pub double_q: bool,
    /// Learnt steps per environment step. Default 8.
    pub replay_ratio: f64,
    /// Environment steps before the first update. Default 0: as soon as a batch is there.
    pub start_after: u64,
    /// Treat time limits as ends without a value, as old tables did. Default false.
    pub truncation_is_terminal: bool,
}

impl LearnerSection {
    /// Factor on the learning rates after `steps` of `total` environment steps.
    pub fn rate(&self, steps: u64, total: u64) -> f32 {
        let left = total.saturating_sub(steps) as f64;
        if self.lr_decay == 0.0 { 1.0 } else { (left / (self.lr_decay * total as f64)).min(1.0) as f32 }
    }
}

/// How ε is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExplorationKind {
    /// ε_i = base^(1 + alpha i / (N − 1)), one per copy (Ape-X).
    Ladder,
    /// From `start` to `end` over `steps` environment steps, the same for all copies.
    Linear,
}

/// `[exploration]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExplorationSection {
    /// Default `ladder`.
    pub kind: ExplorationKind,
    /// Ladder base. Default 0.4 (Ape-X).
    pub base: f64,
    /// Ladder exponent. Default 7 (Ape-X).
    pub alpha: f64,
    /// Linear: first ε. Default 1.
    pub start: f64,
    /// Linear: last ε. Default 0.05.
    pub end: f64,
    /// Linear: environment steps. Default 10000.
    pub steps: u64,
}

/// How replay cuts episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayLayout {
    /// Whole episodes from their zero state.
    Episode,
    /// Spans of `learner.length` after `learner.burn_in`, from stored states.
    Window,
}

/// Stored type of recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateType {
    /// 32 bits.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
}

/// Where a window's initial state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialStateKind {
    /// The actor's, stored.
    Stored,
    /// Zero, as DRQN.
    Zero,
}

/// `[replay]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplaySection {
    /// Environment steps kept. Default 100000.
    pub capacity: usize,
    /// Default `episode`.
    pub layout: ReplayLayout,
    /// Longest episode kept whole in layout `episode`. Default 1024.
    pub max_episode: usize,
    /// Steps between window starts; 0: half of `learner.length`. Default 0 (R2D2: 40 of 80).
    pub period: usize,
    /// May a window hold two episodes? Default false.
    pub seams: bool,
    /// Exponent of priorities. Default 0.9 (R2D2).
    pub alpha: f64,
    /// Exponent of importance weights. Default 0.6 (R2D2).
    pub beta: f64,
    /// Share of the largest error in a sequence's priority. Default 0.9 (R2D2).
    pub eta: f64,
    /// Storage of recurrent states. Default `f32`.
    pub state_dtype: StateType,
    /// Default `stored`.
    pub initial_state: InitialStateKind,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSection {
    /// Environment steps, all copies together. Default 30000.
    pub steps: u64,
    /// Base seed. Default 1.
    pub seed: u64,
    /// `sync` (act, then learn; reproducible) or `async`. Default `sync`.
    pub mode: String,
    /// `cpu`, `auto`, `cuda` or `cuda:N`. Default `cpu`.
    pub device: String,
    /// `f32`, `bf16` or `f16`; the last two on CUDA alone. Default `f32`.
    pub precision: String,
    /// On CUDA: may f32 products round their operands to 11 bits? Default false.
    pub tf32: bool,
    /// On CUDA: record an update's steps as graphs? Same bits either way. Default true.
    pub graphs: bool,
    /// On CUDA: folder for compiled kernels; `home`: below the home folder; `off`: compile at each start. Default `home`.
    pub kernel_cache: String,
    /// Threads; 0: all cores. Default 0. Bits do not depend on it.
    pub threads: usize,
    /// Code path: `auto`, `avx512`, `avx2` or `portable`. Default `auto`.
    pub simd: String,
    /// Pieces that a batch is cut into. Default 4. Bits depend on it.
    pub shards: usize,
    /// Stop when an evaluation reaches this mean return. Default none.
    pub stop_return: Option<f64>,
}

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSection {
    /// Environment steps between evaluations; 0: only at the end. Default 5000.
    pub every: u64,
    /// Episodes of one evaluation. Default 100.
    pub episodes: usize,
}

/// What a checkpoint holds of the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointReplay {
    /// Everything: resume is exact.
    Full,
    /// Nothing: resume refills it first.
    None,
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSection {
    /// Environment steps between checkpoints; 0: only at the end. Default 50000.
    pub every: u64,
    /// Newest ones kept (the best is kept besides). Default 2.
    pub keep: usize,
    /// Default `full`.
    pub replay: CheckpointReplay,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// Environment steps between log lines. Default 1000.
    pub every: u64,
    /// Updates between measurements of `learner/delta_q`, layout `window`; 0: never. Default 200.
    pub delta_q_every: u64,
    /// Environment steps of one window of `train/mmer`. Default 10000.
    pub mmer_window: u64,
}
