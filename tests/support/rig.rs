//! A small actor, replay and learner over any environment, with everything that was acted kept for comparison.

use std::collections::HashMap;

use mamba_rl::actor::{Actor, ActorConfig, Exploration, TraceConfig};
use mamba_rl::backbone::state_len;
use mamba_rl::config::{BackboneSection, InputSection, NetworkSection, RotateKind, Suggested};
use mamba_rl::device::Cpu;
use mamba_rl::learner::{ActingWeights, R2d2, R2d2Config, TargetUpdate};
use mamba_rl::network::{CriticDescription, Description};
use mamba_rl::params::ParamLayout;
use mamba_rl::replay::{ActionKind, Layout, ObsKind, ReplayConfig, ReplaySpec, SequenceBatch, SequenceReplay};
use mamba_rl::value::td_error::Loss;
use mamba_rl_envs::{ActionRef, Autoreset, BoxEnv, Dtype, Env, EnvArgs, EnvSpec, Space, Step, VecEnv, erase, make};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::net::rng;

type Make = Box<dyn Fn(usize) -> mamba_rl_envs::Result<BoxEnv>>;
type Weights = Box<dyn Fn(&ParamLayout) -> Vec<f32>>;

/// What a rig is made of.
pub struct Setup {
    pub make: Make,
    pub copies: usize,
    pub replay: ReplayConfig,
    pub learner: R2d2Config,
    pub backbone: BackboneSection,
    pub network: NetworkSection,
    pub input: InputSection,
    /// What the head predicts; None: the expected return.
    pub critic: Option<CriticDescription>,
    pub exploration: Exploration,
    pub episodes_per_trial: usize,
    pub seed: u64,
    /// Own weights; drawn where None.
    pub weights: Option<Weights>,
}

/// Windows that are all drawn alike.
pub fn window(burn_in: usize, length: usize, period: usize) -> ReplayConfig {
    ReplayConfig {
        capacity: 10_000,
        layout: Layout::Window,
        burn_in,
        length,
        period,
        alpha: 0.0,
        ..ReplayConfig::default()
    }
}

impl Setup {
    /// A two-layer Mamba on three copies, whose weights stand still.
    pub fn new(make: impl Fn(usize) -> mamba_rl_envs::Result<BoxEnv> + 'static) -> Self {
        Setup {
            make: Box::new(make),
            copies: 3,
            replay: window(5, 8, 4),
            learner: R2d2Config {
                gamma: 0.9,
                n_step: 3,
                rescaling: None,
                double_q: true,
                truncation_is_terminal: false,
                loss: Loss::Squared,
                eta: 0.9,
                reward_scale: 2.0,
                lr_backbone: 0.0,
                lr_heads: 0.0,
                weight_decay: 0.0,
                betas: (0.9, 0.999),
                adam_eps: 1e-5,
                grad_clip: None,
                warmup: 0,
                target: TargetUpdate::Soft(0.005),
                acting: ActingWeights::Online,
                shards: 2,
            },
            backbone: BackboneSection {
                d_model: 12,
                n_layers: 2,
                d_state: 4,
                d_conv: Suggested::Value(4),
                ..BackboneSection::default()
            },
            network: NetworkSection { encoder_hidden: 0, head_hidden: 16, shortcut: false },
            input: InputSection { previous_action: true, previous_reward: true, is_first: true },
            critic: None,
            exploration: Exploration::Linear { start: 0.5, end: 0.5, steps: 1 },
            episodes_per_trial: 1,
            seed: 5,
            weights: None,
        }
    }

    /// On a bundled task.
    pub fn task(id: &'static str) -> Self {
        Self::new(move |_| make(id, &EnvArgs::default()))
    }

    /// On scripted episodes, one copy.
    pub fn script(script: Script) -> Self {
        Setup { copies: 1, ..Self::new(move |_| Ok(erase(Scripted::new(script.clone())))) }
    }

    /// With pairs of states that turn.
    pub fn rotating(self, rotate: RotateKind) -> Self {
        Setup { backbone: BackboneSection { rotate, ..self.backbone.clone() }, ..self }
    }

    /// Q = `slope` · observation + `bias`, whatever the action: one input, no memory.
    pub fn stubbed(self, slope: f32, bias: f32) -> Self {
        let weights = move |layout: &ParamLayout| {
            let mut values = vec![0.0; layout.len()];
            let mut set = |name: &str, x: f32| values[layout.slot(name).unwrap().at] = x;
            set("backbone.layers.0.weight", 1.0);
            set("head.value.weight", slope);
            set("head.value.bias", bias);
            values
        };
        Setup {
            backbone: BackboneSection { name: "mlp".into(), d_model: 4, n_layers: 1, ..self.backbone.clone() },
            network: NetworkSection { encoder_hidden: 0, head_hidden: 0, shortcut: false },
            input: InputSection { previous_action: false, previous_reward: false, is_first: false },
            weights: Some(Box::new(weights)),
            learner: R2d2Config { reward_scale: 1.0, ..self.learner.clone() },
            ..self
        }
    }
}

/// What was seen and done at one step.
#[derive(Debug, Clone)]
pub struct Acted {
    /// Q-values, [actions].
    pub q: Vec<f32>,
    /// State before the step, [state_len].
    pub state: Vec<f32>,
    /// Action and raw reward of the step before in the same episode.
    pub previous: Option<(Vec<i32>, f32)>,
    /// Action of this step.
    pub action: Vec<i32>,
    /// Raw reward that followed.
    pub reward: f32,
}

pub struct Rig {
    pub envs: VecEnv,
    pub spec: EnvSpec,
    pub description: Description,
    pub actor: Actor<Cpu>,
    pub learner: R2d2<Cpu>,
    pub replay: SequenceReplay,
    pub values: Vec<f32>,
    /// By (episode in order of `begin`, step).
    pub acted: HashMap<(u64, i32), Acted>,
    pub now: Vec<(u64, i32)>,
    last: Vec<Option<(Vec<i32>, f32)>>,
    episodes: u64,
    pub steps: u64,
    pub rng: ChaCha8Rng,
}

impl Rig {
    pub fn new(setup: &Setup) -> Self {
        let mut envs = VecEnv::new(&*setup.make, setup.copies, setup.seed, Autoreset::SameStep).unwrap();
        let spec = envs.spec().clone();
        let masked = (setup.make)(0).unwrap().has_legal_mask();
        let description = Description {
            agent: "r2d2".into(),
            shared_encoder: false,
            critic: setup.critic.clone(),
            env: spec.id.clone(),
            legacy: false,
            env_args: serde_json::json!({}),
            observation_space: spec.observation_space.clone(),
            action_space: spec.action_space.clone(),
            backbone: setup.backbone.clone(),
            network: setup.network.clone(),
            input: setup.input.clone(),
            reward_scale: f64::from(setup.learner.reward_scale),
            episodes_per_trial: setup.episodes_per_trial,
        };
        let (dev, net) = (Cpu::default(), description.build::<Cpu>().unwrap());
        let drawn = |layout: &ParamLayout| {
            let mut rng = rng(setup.seed);
            let mut values = layout.initial(&mut rng);
            values.iter_mut().for_each(|v| *v += rng.random_range(-0.2f32..0.2));
            values
        };
        let values = setup.weights.as_ref().map_or_else(|| drawn(net.layout()), |w| w(net.layout()));
        let replay_spec = ReplaySpec {
            obs_kind: match spec.observation_space.dtype() {
                Dtype::U8 => ObsKind::U8,
                Dtype::I32 => ObsKind::I32,
                Dtype::F32 => ObsKind::F32,
            },
            obs_len: spec.observation_space.flat_len(),
            action: ActionKind::Discrete { parts: spec.action_space.flat_len() },
            legal_len: if masked { spec.action_space.n_actions().unwrap() } else { 0 },
            state_len: state_len(net.state_layout()),
            lanes: setup.copies,
        };
        let mut replay = SequenceReplay::new(replay_spec, setup.replay.clone()).unwrap();
        let l = &setup.learner;
        let config = ActorConfig {
            exploration: setup.exploration,
            trace: TraceConfig {
                gamma: l.gamma,
                n_step: l.n_step,
                rescaling: l.rescaling,
                truncation_is_terminal: l.truncation_is_terminal,
                eta: l.eta,
            },
            reward_scale: l.reward_scale,
            episodes_per_trial: setup.episodes_per_trial as u64,
            first: 0,
            total: setup.copies,
        };
        let acting = description.build::<Cpu>().unwrap();
        let mut actor =
            Actor::new(dev, Box::new(acting), description.input(), config, &values, setup.copies, l.shards, rng(77))
                .unwrap();
        let learner = R2d2::new(dev, net, description.input(), l.clone(), &values).unwrap();
        actor.begin(envs.reset().unwrap(), &mut replay).unwrap();
        Rig {
            acted: HashMap::new(),
            now: (0..setup.copies).map(|i| (i as u64, 0)).collect(),
            last: vec![None; setup.copies],
            episodes: setup.copies as u64,
            steps: 0,
            rng: rng(9),
            envs,
            spec,
            description,
            actor,
            learner,
            replay,
            values,
        }
    }

    /// One step of every copy, remembered.
    pub fn step(&mut self) {
        let (copies, parts) = (self.now.len(), self.spec.action_space.flat_len());
        let mut states = vec![vec![0.0; self.actor.state_len()]; copies];
        states.iter_mut().enumerate().for_each(|(i, s)| self.actor.read_state(i, s).unwrap());
        let chosen = self.actor.act(self.envs.last(), self.steps, Some(&mut self.replay)).unwrap();
        let ActionRef::Discrete(actions) = chosen else { panic!("{chosen:?}") };
        let actions = actions.to_vec();
        // now: at a time limit the actor looks once more, at the final observation
        let q: Vec<Vec<f32>> = (0..copies).map(|i| self.actor.q_values(i).to_vec()).collect();
        self.envs.step(ActionRef::Discrete(&actions)).unwrap();
        let after = self.envs.last();
        self.actor.observe(after, &mut self.replay).unwrap();
        for (i, (state, q)) in states.into_iter().zip(q).enumerate() {
            let (action, reward) = (actions[i * parts..(i + 1) * parts].to_vec(), after.reward[i]);
            let previous = self.last[i].take();
            self.last[i] = Some((action.clone(), reward));
            let acted = Acted { q, state, previous, action, reward };
            let (episode, step) = self.now[i];
            self.acted.insert((episode, step), acted);
            self.now[i].1 += 1;
            if after.is_first[i] {
                self.now[i] = (self.episodes, 0);
                self.episodes += 1;
                self.last[i] = None;
            }
        }
        self.steps += copies as u64;
    }

    pub fn steps(&mut self, n: usize) {
        (0..n).for_each(|_| self.step());
    }

    /// Every sequence once.
    pub fn all(&mut self) -> SequenceBatch {
        let mut batch = SequenceBatch::new();
        self.replay.sample(self.replay.len_sequences(), &mut self.rng, &mut batch).unwrap();
        batch
    }
}

/// Episodes of given lengths, one action pair that changes nothing.
#[derive(Clone)]
pub struct Script {
    /// Steps of the episodes, in turn.
    pub lengths: Vec<usize>,
    /// (terminated, truncated) at an end.
    pub end: (bool, bool),
    /// Reward of a step by its number in the episode.
    pub reward: fn(usize) -> f64,
    /// Observation by episode and step.
    pub obs: fn(usize, usize) -> f32,
}

pub struct Scripted {
    spec: EnvSpec,
    script: Script,
    episode: usize,
    time: usize,
}

impl Scripted {
    pub fn new(script: Script) -> Self {
        let space = Space::box_f32(&[f32::NEG_INFINITY], &[f32::INFINITY]);
        let spec = EnvSpec::new("Scripted-v0", "Scripted", space, Space::Discrete(2));
        Scripted { spec, script, episode: 0, time: 0 }
    }
}

impl Env for Scripted {
    type Obs = f32;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, _: Option<u64>, obs: &mut [f32]) {
        self.episode += usize::from(self.time > 0);
        self.time = 0;
        obs[0] = (self.script.obs)(self.episode, 0);
    }

    fn step_into(&mut self, _: &[i32], obs: &mut [f32]) -> Step {
        let reward = (self.script.reward)(self.time);
        self.time += 1;
        obs[0] = (self.script.obs)(self.episode, self.time);
        let over = self.time == self.script.lengths[self.episode % self.script.lengths.len()];
        Step { reward, terminated: over && self.script.end.0, truncated: over && self.script.end.1 }
    }
}
