//! Replaces every `suggested`, `unit` and `auto` by the value that this run has, and reads such values back.

use mamba_rl_envs::{EnvArgs, EnvSpec, Space};

use super::{ActingKind, Auto, Config, ReplayLayout, RewardScale, RotateKind, Suggested};
use crate::device::Choice;
use crate::error::{Error, Result};

/// Discount where neither config nor task says otherwise.
const GAMMA: f64 = 0.99;
/// Taps of the convolution where neither says otherwise (official code).
const D_CONV: usize = 4;

impl Config {
    /// Fills in what depends on the task, and gives one line for each such value, to be printed. The id becomes the
    /// registered one, the agent follows the action space, the device becomes a concrete one. Ends with a validation.
    ///
    /// # Errors
    /// `Usage` for a task whose actions do not suit the agent; otherwise as [`Config::validate`].
    pub fn resolve(&mut self, spec: &EnvSpec) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        self.env.id.clone_from(&spec.id);
        self.resolve_agent(spec)?;
        self.resolve_backbone(spec, &mut lines);
        self.resolve_learner(spec, &mut lines);
        if self.replay.period == 0 {
            self.replay.period = (self.learner.length / 2).max(1);
        }
        if self.train.device == "auto" {
            let (device, why) = Choice::auto();
            self.train.device = device.to_string();
            lines.push(why);
        } else {
            self.train.device = Choice::new(&self.train.device)?.to_string();
        }
        self.validate()?;
        self.check_batch(spec.max_steps.unwrap_or(0))?;
        Ok(lines)
    }

    fn resolve_agent(&mut self, spec: &EnvSpec) -> Result<()> {
        let fitting = match &spec.action_space {
            Space::Discrete(_) | Space::MultiDiscrete(_) => "r2d2",
            Space::Box { .. } => "rsac",
            Space::Tuple(_) => {
                let (id, space) = (&spec.id, &spec.action_space);
                let problem = format!("task {id} has actions in {space}; agents act in Discrete, MultiDiscrete or Box");
                return Err(Error::Usage(problem));
            }
        };
        if self.agent.name == "auto" {
            self.agent.name = fitting.into();
        }
        if self.agent.name != fitting {
            return Err(Error::Usage(format!(
                "task {} has actions in {}, which need agent {fitting}, but `agent.name` is {}",
                spec.id, spec.action_space, self.agent.name
            )));
        }
        if fitting == "rsac" {
            self.agent.target_entropy = Auto::Value(self.target_entropy(spec.action_space.flat_len()));
        }
        Ok(())
    }

    fn resolve_backbone(&mut self, spec: &EnvSpec, lines: &mut Vec<String>) {
        let b = &mut self.backbone;
        if matches!(b.d_conv, Suggested::Word(_)) {
            let value = spec.suggested_d_conv.unwrap_or(D_CONV);
            b.d_conv = Suggested::Value(value);
            if b.name == "mamba" {
                lines.push(format!("d_conv {value} ({})", origin(spec.suggested_d_conv.is_some())));
            }
        }
        if b.rotate == RotateKind::Suggested {
            let turns = b.name == "mamba" && spec.suggested_rotate && b.d_state.is_multiple_of(2);
            b.rotate = if turns { RotateKind::Learned } else { RotateKind::Off };
            if turns {
                lines.push(format!("rotate learned ({})", origin(true)));
            }
        }
        if b.dt_rank == 0 {
            b.dt_rank = b.d_model.div_ceil(16);
        }
    }

    fn resolve_learner(&mut self, spec: &EnvSpec, lines: &mut Vec<String>) {
        let whole = self.replay.layout == ReplayLayout::Episode;
        let longer = spec.max_steps.is_some_and(|t| t > 100);
        let prompt = spec.prompt_rewards;
        let soft = self.agent.name == "rsac";
        let l = &mut self.learner;
        if matches!(l.gamma, Suggested::Word(_)) {
            let value = spec.suggested_gamma.unwrap_or(GAMMA);
            l.gamma = Suggested::Value(value);
            lines.push(format!("gamma {value} ({})", origin(spec.suggested_gamma.is_some())));
        }
        let why = if prompt { "the task's rewards are prompt" } else { "default: the task's rewards may come late" };
        if matches!(l.n_step, Suggested::Word(_)) {
            let value = if prompt || soft { 1 } else { 5 }.min(l.length);
            l.n_step = Suggested::Value(value);
            lines.push(format!("n_step {value} ({})", if soft { "agent rsac" } else { why }));
        }
        if matches!(l.lr_backbone, Suggested::Word(_)) {
            let near = prompt && l.gamma.value_or(GAMMA) <= 0.5;
            let value = if near { 3e-3 } else { 1e-3 };
            l.lr_backbone = Suggested::Value(value);
            let why = if near { "prompt rewards, a discount up to 0.5" } else { "default" };
            lines.push(format!("lr_backbone {value} ({why})"));
        }
        if matches!(l.batch, Suggested::Word(_)) {
            let (value, why) = match (spec.suggested_batch.filter(|_| whole && !soft), whole && !soft, longer, prompt) {
                (Some(n), ..) => (n, origin(true)),
                (None, true, true, _) => (1, "whole episodes of more than 100 steps"),
                (None, true, false, true) => (1, "whole episodes, prompt rewards"),
                _ => (8, "default"),
            };
            l.batch = Suggested::Value(value);
            lines.push(format!("batch {value} ({why})"));
        }
        if l.acting == ActingKind::Suggested {
            let target = !soft && l.target_tau > 0.0;
            l.acting = if target { ActingKind::Target } else { ActingKind::Online };
            if target {
                lines.push("acting target (an average: its update is soft)".to_owned());
            }
        }
        if let RewardScale::Word(_) = l.reward_scale {
            let value = 1.0 / spec.unit_reward;
            l.reward_scale = RewardScale::Value(value);
            if value != 1.0 {
                let unit = (spec.unit_reward * 1e6).round() / 1e6;
                lines.push(format!("reward_scale {} (1 / the task's unit reward {unit})", (value * 1e6).round() / 1e6));
            }
        }
    }

    /// Entropy that the temperature of `rsac` is tuned to, for actions of so many components.
    pub fn target_entropy(&self, components: usize) -> f64 {
        match self.agent.target_entropy {
            Auto::Value(h) => h,
            Auto::Word(_) => -(components as f64),
        }
    }

    /// Does the target network act? Not by a suggestion that no task has answered yet.
    pub fn acts_with_target(&self) -> bool {
        self.learner.acting == ActingKind::Target && self.agent.name != "rsac"
    }

    /// γ; the default 0.99 before [`Config::resolve`].
    pub fn gamma(&self) -> f64 {
        self.learner.gamma.value_or(GAMMA)
    }

    /// Rewards per return; 5 before [`Config::resolve`].
    pub fn n_step(&self) -> usize {
        self.learner.n_step.value_or(5)
    }

    /// Sequences per update; 8 before [`Config::resolve`].
    pub fn batch(&self) -> usize {
        self.learner.batch.value_or(8)
    }

    /// Learning rate of encoder and backbone; 1e-3 before [`Config::resolve`].
    pub fn lr_backbone(&self) -> f64 {
        self.learner.lr_backbone.value_or(1e-3)
    }

    /// Taps of the causal convolution; 4 before [`Config::resolve`].
    pub fn d_conv(&self) -> usize {
        self.backbone.d_conv.value_or(D_CONV)
    }

    /// Factor on rewards before they are learnt from; 1 before [`Config::resolve`].
    pub fn reward_scale_factor(&self) -> f64 {
        match self.learner.reward_scale {
            RewardScale::Value(factor) => factor,
            RewardScale::Word(_) => 1.0,
        }
    }

    /// Rank of Δ's projection: `dt_rank`, or ceil(d_model / 16) where it is 0.
    pub fn dt_rank(&self) -> usize {
        if self.backbone.dt_rank == 0 { self.backbone.d_model.div_ceil(16) } else { self.backbone.dt_rank }
    }

    /// Steps between window starts: `replay.period`, or half of `learner.length` where it is 0.
    pub fn period(&self) -> usize {
        if self.replay.period == 0 { (self.learner.length / 2).max(1) } else { self.replay.period }
    }

    /// Arguments for the registry: `env.legacy` and `env.args`.
    ///
    /// # Errors
    /// `Config` for a value that JSON cannot hold, such as NaN.
    pub fn env_args(&self) -> Result<EnvArgs> {
        let args = self.env.args.iter().map(|(name, value)| {
            let key = || format!("env.args.{name}");
            if value.as_float().is_some_and(|f| !f.is_finite()) {
                return Err(Error::config(key(), format!("is {value}, expected a finite number")));
            }
            let json = serde_json::to_value(value).map_err(|e| Error::config(key(), e.to_string()))?;
            Ok((name.clone(), json))
        });
        Ok(EnvArgs { legacy: self.env.legacy, args: args.collect::<Result<_>>()? })
    }
}

impl<T: Copy> Suggested<T> {
    /// The value, or `fallback` where the word still stands.
    pub fn value_or(&self, fallback: T) -> T {
        match self {
            Suggested::Value(v) => *v,
            Suggested::Word(_) => fallback,
        }
    }
}

fn origin(suggested: bool) -> &'static str {
    if suggested { "suggested by the task" } else { "default: the task suggests none" }
}
