//! A small actor, replay and soft actor-critic on a bundled task or a scripted one, with the states that were acted with.

use std::collections::HashMap;

use mamba_rl::actor::{Actor, ActorConfig, Exploration, TraceConfig};
use mamba_rl::backbone::state_len;
use mamba_rl::config::{BackboneSection, InputSection, NetworkSection, Suggested};
use mamba_rl::device::Cpu;
use mamba_rl::learner::{ActingWeights, R2d2Config, Rsac, RsacConfig, TargetUpdate};
use mamba_rl::network::Description;
use mamba_rl::replay::{ActionKind, ObsKind, ReplayConfig, ReplaySpec, SequenceBatch, SequenceReplay};
use mamba_rl::value::td_error::Loss;
use mamba_rl_envs::{Autoreset, BoxEnv, Env, EnvArgs, EnvSpec, Space, Step, VecEnv, erase, make};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::net::rng;

/// What a rig is made of.
#[derive(Clone)]
pub struct SoftSetup {
    pub task: &'static str,
    pub copies: usize,
    pub replay: ReplayConfig,
    pub learner: RsacConfig,
    pub backbone: BackboneSection,
    pub network: NetworkSection,
    pub shared: bool,
    pub temperature: f32,
}

impl SoftSetup {
    /// A small Mamba on three copies of a pendulum, whose weights stand still.
    pub fn new(task: &'static str, replay: ReplayConfig) -> Self {
        SoftSetup {
            task,
            copies: 3,
            replay,
            learner: RsacConfig {
                common: R2d2Config {
                    gamma: 0.9,
                    n_step: 3,
                    rescaling: None,
                    double_q: false,
                    truncation_is_terminal: false,
                    loss: Loss::Squared,
                    eta: 0.9,
                    reward_scale: 20.0,
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
                lr_temperature: 0.0,
                target_entropy: -1.0,
                seed: 3,
            },
            backbone: BackboneSection {
                d_model: 8,
                n_layers: 1,
                d_state: 4,
                d_conv: Suggested::Value(4),
                ..BackboneSection::default()
            },
            network: NetworkSection { encoder_hidden: 0, head_hidden: 12, shortcut: false },
            shared: false,
            temperature: 0.3,
        }
    }

    pub fn backbone(mut self, name: &str) -> Self {
        self.backbone.name = name.into();
        self
    }
}

pub struct SoftRig {
    pub envs: VecEnv,
    pub description: Description,
    pub actor: Actor<Cpu>,
    pub learner: Rsac<Cpu>,
    pub replay: SequenceReplay,
    pub values: Vec<f32>,
    /// State before each step, by (episode in order of `begin`, step).
    pub states: HashMap<(u64, i32), Vec<f32>>,
    now: Vec<(u64, i32)>,
    episodes: u64,
    pub rng: ChaCha8Rng,
}

/// A new learner on the weights of `values`.
pub fn learner(setup: &SoftSetup, description: &Description, values: &[f32]) -> Rsac<Cpu> {
    let net = description.build_actor_critic::<Cpu>(setup.temperature).unwrap();
    Rsac::new(Cpu::default(), net, description.input(), setup.learner.clone(), values).unwrap()
}

impl SoftRig {
    pub fn new(setup: &SoftSetup) -> Self {
        let task = setup.task;
        let make = |_| if task == Bandit::NAME { Ok(Bandit::erased()) } else { make(task, &EnvArgs::default()) };
        let mut envs = VecEnv::new(&make, setup.copies, 5, Autoreset::SameStep).unwrap();
        let spec = envs.spec().clone();
        let description = Description {
            agent: "rsac".into(),
            shared_encoder: setup.shared,
            critic: None,
            env: spec.id.clone(),
            legacy: false,
            env_args: serde_json::json!({}),
            observation_space: spec.observation_space.clone(),
            action_space: spec.action_space.clone(),
            backbone: setup.backbone.clone(),
            network: setup.network.clone(),
            input: InputSection { previous_action: true, previous_reward: true, is_first: true },
            reward_scale: f64::from(setup.learner.common.reward_scale),
            episodes_per_trial: 1,
        };
        let net = description.build_actor_critic::<Cpu>(setup.temperature).unwrap();
        let (mut values, log_alpha) = (net.layout().initial(&mut rng(5)), net.log_alpha());
        let mut moved = rng(6);
        for (i, v) in values.iter_mut().enumerate() {
            *v += if i == log_alpha.at { 0.0 } else { moved.random_range(-0.2f32..0.2) };
        }
        let spec_of_replay = ReplaySpec {
            obs_kind: ObsKind::F32,
            obs_len: spec.observation_space.flat_len(),
            action: ActionKind::Continuous { len: spec.action_space.flat_len() },
            legal_len: 0,
            state_len: state_len(net.state_layout()),
            lanes: setup.copies,
        };
        let mut replay = SequenceReplay::new(spec_of_replay, setup.replay.clone()).unwrap();
        let l = &setup.learner.common;
        let config = ActorConfig {
            exploration: Exploration::Linear { start: 0.5, end: 0.5, steps: 1 },
            trace: TraceConfig {
                gamma: l.gamma,
                n_step: l.n_step,
                rescaling: l.rescaling,
                truncation_is_terminal: l.truncation_is_terminal,
                eta: l.eta,
            },
            reward_scale: l.reward_scale,
            episodes_per_trial: 1,
            first: 0,
            total: setup.copies,
        };
        let policy = description.build_policy::<Cpu>().unwrap();
        let input = description.input();
        let mut actor =
            Actor::new(Cpu::default(), policy, input, config, &values, setup.copies, l.shards, rng(77)).unwrap();
        actor.begin(envs.reset().unwrap(), &mut replay).unwrap();
        SoftRig {
            states: HashMap::new(),
            now: (0..setup.copies).map(|i| (i as u64, 0)).collect(),
            episodes: setup.copies as u64,
            learner: learner(setup, &description, &values),
            rng: rng(9),
            envs,
            description,
            actor,
            replay,
            values,
        }
    }

    /// One step of every copy, its states remembered.
    pub fn step(&mut self) {
        for i in 0..self.now.len() {
            let mut state = vec![0.0; self.actor.state_len()];
            self.actor.read_state(i, &mut state).unwrap();
            self.states.insert(self.now[i], state);
        }
        let actions = self.actor.act(self.envs.last(), 0, Some(&mut self.replay)).unwrap();
        self.envs.step(actions).unwrap();
        self.actor.observe(self.envs.last(), &mut self.replay).unwrap();
        for (now, &first) in self.now.iter_mut().zip(&self.envs.last().is_first) {
            now.1 += 1;
            if first {
                *now = (self.episodes, 0);
                self.episodes += 1;
            }
        }
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

/// One step; the reward is −4 (a − 0.3)² for the action a in [−1, 1].
pub struct Bandit(EnvSpec);

impl Bandit {
    pub const NAME: &str = "Bandit-v0";

    fn erased() -> BoxEnv {
        let space = Space::box_f32(&[-1.0], &[1.0]);
        erase(Bandit(EnvSpec::new(Self::NAME, "Bandit", space.clone(), space)))
    }
}

impl Env for Bandit {
    type Obs = f32;
    type Act = f32;

    fn spec(&self) -> &EnvSpec {
        &self.0
    }

    fn reset_into(&mut self, _: Option<u64>, obs: &mut [f32]) {
        obs[0] = 1.0;
    }

    fn step_into(&mut self, action: &[f32], obs: &mut [f32]) -> Step {
        obs[0] = 0.0;
        Step { reward: -4.0 * f64::from(action[0] - 0.3).powi(2), terminated: true, truncated: false }
    }
}
