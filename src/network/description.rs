//! All that is needed to build a network again: spaces, inputs, sizes. It is the `mamba_rl` part of a checkpoint's
//! `config.json`; the other keys there are Hugging Face's, so that their tools read the backbone.

use std::path::Path;

use mamba_rl_envs::{EnvSpec, Space};
use serde::{Deserialize, Serialize};

use super::{
    ActionBounds, ActorCritic, ActorCriticParts, Critic, DuelingHead, Encoder, InputLayout, MlpEncoder, Policy,
    QNetwork, TrunkParts,
};
use crate::backbone::{self, BackboneConfig, CustomConfig, MambaConfig, MlpConfig, RnnConfig, Rotate};
use crate::checkpoint::{HfConfig, huggingface_config};
use crate::config::{
    BackboneSection, Config, CriticKind, InputSection, LearnerSection, NetworkSection, RotateKind, Suggested,
};
use crate::error::{Error, Result};
use crate::ops::Backend;

/// Key of this description inside `config.json`.
const KEY: &str = "mamba_rl";
/// `model_type` of a body with a rotating state: no model type of others.
const ROTATING_TYPE: &str = "mamba_rl_rotating";

/// A distributional critic in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CriticDescription {
    /// What its numbers mean.
    pub kind: CriticKind,
    /// Numbers per action.
    pub atoms: usize,
    /// Lowest atom of a support.
    pub atom_min: f64,
    /// Highest atom.
    pub atom_max: f64,
}

/// A network in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Agent: `r2d2` or `rsac`.
    pub agent: String,
    /// Does the actor of `rsac` read the critics' trunk?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared_encoder: bool,
    /// What the head of `r2d2` predicts; None: the expected return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critic: Option<CriticDescription>,
    /// Registered id of the task.
    pub env: String,
    /// Were the published tables' rules on?
    pub legacy: bool,
    /// Arguments of the task.
    pub env_args: serde_json::Value,
    /// What is observed.
    pub observation_space: Space,
    /// What can be done.
    pub action_space: Space,
    /// Recurrent body, every size a number.
    pub backbone: BackboneSection,
    /// Encoder and head.
    pub network: NetworkSection,
    /// Inputs beside the observation.
    pub input: InputSection,
    /// Factor on rewards before they go in.
    pub reward_scale: f64,
    /// Episodes between two clearings of memory.
    pub episodes_per_trial: usize,
}

impl CriticDescription {
    /// Of a config; None for expected returns.
    fn new(config: &Config) -> Option<Self> {
        let LearnerSection { critic: kind, atoms, atom_min, atom_max, .. } = config.learner;
        (kind != CriticKind::Expected).then_some(CriticDescription { kind, atoms, atom_min, atom_max })
    }
}

impl Description {
    /// Of the network that a resolved config asks for on a task.
    pub fn new(config: &Config, spec: &EnvSpec) -> Self {
        Description {
            agent: config.agent.name.clone(),
            shared_encoder: config.agent.shared_encoder,
            critic: CriticDescription::new(config),
            env: spec.id.clone(),
            legacy: config.env.legacy,
            env_args: serde_json::to_value(&config.env.args).unwrap_or_default(),
            observation_space: spec.observation_space.clone(),
            action_space: spec.action_space.clone(),
            backbone: config.backbone.clone(),
            network: config.network.clone(),
            input: config.input.clone(),
            reward_scale: config.reward_scale_factor(),
            episodes_per_trial: config.env.episodes_per_trial,
        }
    }

    /// Reads it from a checkpoint's `config.json`; `dir` is for the message.
    ///
    /// # Errors
    /// `Checkpoint` naming the field.
    pub fn from_json(dir: &Path, config: serde_json::Value) -> Result<Self> {
        let mut config = config;
        let part = config.get_mut(KEY).map(serde_json::Value::take);
        let part = part.ok_or_else(|| Error::checkpoint(dir.join("config.json"), format!("has no `{KEY}` part")))?;
        serde_json::from_value(part).map_err(|e| Error::checkpoint(dir.join("config.json"), format!("`{KEY}`: {e}")))
    }

    /// As a checkpoint's `config.json`, with Hugging Face's keys beside it where the body is Mamba-1. A body with a
    /// rotating state has a model type of its own there, which other programs refuse.
    pub fn to_json(&self) -> serde_json::Value {
        let rotates = self.backbone.name == "mamba" && self.backbone.rotate.turns();
        let mut own = serde_json::to_value(self).unwrap_or_default();
        if let (false, Some(backbone)) = (rotates, own.get_mut("backbone").and_then(|b| b.as_object_mut())) {
            backbone.remove("rotate"); // absent means off: checkpoints of Mamba-1 have one form
        }
        let mut out = match self.huggingface() {
            Ok(theirs) => huggingface_config(&theirs),
            Err(_) if rotates => serde_json::json!({ "model_type": ROTATING_TYPE }),
            Err(_) => serde_json::json!({}),
        };
        if let Some(map) = out.as_object_mut() {
            map.insert(KEY.into(), own);
        }
        out
    }

    /// Sizes of the body for Hugging Face's `transformers`, to be written by [`huggingface_config`].
    ///
    /// # Errors
    /// `Usage` where the body is not Mamba-1: another one, or one with a rotating state.
    pub fn huggingface(&self) -> Result<HfConfig> {
        let b = &self.backbone;
        if b.name != "mamba" {
            let problem = format!("a `{}` body cannot be exported to transformers: only Mamba-1 can", b.name);
            return Err(Error::Usage(problem));
        }
        if b.rotate.turns() {
            let problem = "a body with a rotating state (`backbone.rotate`) cannot be exported to transformers: it is not \
                           Mamba-1, and no model there has its recurrence; train with backbone.rotate=off to export";
            return Err(Error::Usage(problem.into()));
        }
        let m = self.mamba(0);
        Ok(HfConfig {
            d_model: b.d_model,
            n_layers: b.n_layers,
            d_state: b.d_state,
            d_conv: m.d_conv,
            expand: b.expand,
            dt_rank: m.rank(),
            rms_eps: b.rms_eps,
            proj_bias: b.proj_bias,
            conv_bias: b.conv_bias,
        })
    }

    /// Places of the input's parts.
    pub fn input(&self) -> InputLayout {
        InputLayout::new(&self.observation_space, &self.action_space, &self.input)
    }

    /// Joint actions.
    ///
    /// # Errors
    /// `Usage` where the action space is not discrete.
    pub fn actions(&self) -> Result<usize> {
        let none =
            || Error::Usage(format!("agent r2d2 needs discrete actions, but {} has {}", self.env, self.action_space));
        self.action_space.n_actions().ok_or_else(none)
    }

    fn mamba(&self, d_input: usize) -> MambaConfig {
        let b = &self.backbone;
        MambaConfig {
            d_input,
            input_proj: true,
            d_model: b.d_model,
            n_layers: b.n_layers,
            d_state: b.d_state,
            rotate: match b.rotate {
                RotateKind::Off | RotateKind::Suggested => Rotate::Off,
                RotateKind::Fixed => Rotate::Fixed,
                RotateKind::Learned => Rotate::Learned,
            },
            d_conv: match b.d_conv {
                Suggested::Value(k) => k,
                Suggested::Word(_) => 4,
            },
            expand: b.expand,
            dt_rank: (b.dt_rank > 0).then_some(b.dt_rank),
            dt_min: b.dt_min as f32,
            dt_max: b.dt_max as f32,
            rms_eps: b.rms_eps,
            proj_bias: b.proj_bias,
            conv_bias: b.conv_bias,
        }
    }

    /// The backbone's own config for this many input features.
    pub fn backbone(&self, d_input: usize) -> BackboneConfig {
        let b = &self.backbone;
        let rnn = RnnConfig { d_input, d_model: b.d_model, n_layers: b.n_layers };
        match b.name.as_str() {
            "mamba" => BackboneConfig::Mamba(self.mamba(d_input)),
            "gru" => BackboneConfig::Gru(rnn),
            "lstm" => BackboneConfig::Lstm(rnn),
            "mlp" => BackboneConfig::Mlp(MlpConfig { d_input, d_model: b.d_model, n_layers: b.n_layers }),
            other => {
                let body = other.into();
                BackboneConfig::Custom(CustomConfig { body, d_input, d_model: b.d_model, n_layers: b.n_layers })
            }
        }
    }

    fn trunk<D: Backend>(&self) -> Result<TrunkParts<D>> {
        let (d_input, hidden) = (self.input().len(), self.network.encoder_hidden);
        let encoder = (hidden > 0).then(|| Box::new(MlpEncoder::new(d_input, hidden)) as Box<dyn Encoder<D>>);
        Ok((encoder, backbone::build::<D>(&self.backbone(if hidden > 0 { hidden } else { d_input }))?))
    }

    /// The Q-network of `r2d2` on a device, its parameters not yet drawn.
    ///
    /// # Errors
    /// `Config` naming the field; `Usage` where actions are not discrete.
    pub fn build<D: Backend>(&self) -> Result<QNetwork<D>> {
        let (encoder, backbone) = self.trunk::<D>()?;
        let head = DuelingHead::new(backbone.d_output(), self.network.head_hidden, self.actions()?);
        let critic = self
            .critic
            .as_ref()
            .map_or(Critic::Expected, |c| Critic::new(c.kind, c.atoms, (c.atom_min as f32, c.atom_max as f32)));
        let head = head.predicting(critic);
        let head = if self.network.shortcut { head.with_shortcut(self.input().len()) } else { head };
        QNetwork::new(self.input().len(), encoder, backbone, head)
    }

    /// The networks of `rsac` on a device, their parameters not yet drawn; the temperature starts at `temperature`, which a
    /// trained one has in its weights.
    ///
    /// # Errors
    /// `Config` naming the field; `Usage` where actions are not continuous with bounds.
    pub fn build_actor_critic<D: Backend>(&self, temperature: f32) -> Result<ActorCritic<D>> {
        let actor = if self.shared_encoder { None } else { Some(self.trunk::<D>()?) };
        ActorCritic::new(ActorCriticParts {
            d_input: self.input().len(),
            critic: self.trunk::<D>()?,
            actor,
            head_hidden: self.network.head_hidden,
            actions: ActionBounds::new(&self.action_space)?.len(),
            temperature,
        })
    }

    /// What acts, of whichever agent.
    ///
    /// # Errors
    /// As [`Description::build`] and [`Description::build_actor_critic`]; `Config` for an unknown agent.
    pub fn build_policy<D: Backend>(&self) -> Result<Box<dyn Policy<D>>> {
        match self.agent.as_str() {
            "r2d2" => Ok(Box::new(self.build::<D>()?)),
            "rsac" => Ok(Box::new(self.build_actor_critic::<D>(1.0)?)),
            other => Err(Error::config("agent.name", format!("is `{other}`, expected r2d2 or rsac"))),
        }
    }
}
