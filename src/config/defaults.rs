//! Default values of the config tree: the preset `popgym`.

use super::*;

impl Default for Config {
    fn default() -> Self {
        Config {
            preset: "popgym".into(),
            env: EnvSection::default(),
            actor: ActorSection::default(),
            agent: AgentSection::default(),
            backbone: BackboneSection { rotate: RotateKind::Suggested, ..BackboneSection::default() },
            network: NetworkSection::default(),
            input: InputSection::default(),
            learner: LearnerSection { acting: ActingKind::Suggested, ..LearnerSection::default() },
            exploration: ExplorationSection::default(),
            replay: ReplaySection::default(),
            train: TrainSection::default(),
            eval: EvalSection::default(),
            checkpoint: CheckpointSection::default(),
            log: LogSection::default(),
        }
    }
}

impl Default for EnvSection {
    fn default() -> Self {
        EnvSection {
            id: "popgym-RepeatPreviousEasy-v0".into(),
            num_envs: 64,
            legacy: false,
            episodes_per_trial: 1,
            args: toml::Table::new(),
        }
    }
}

impl Default for ActorSection {
    fn default() -> Self {
        ActorSection { threads: 1, queue: 64, publish_every: 8 }
    }
}

impl Default for AgentSection {
    fn default() -> Self {
        AgentSection {
            name: "auto".into(),
            shared_encoder: false,
            temperature: 0.1,
            lr_temperature: 1e-3,
            target_entropy: Auto::Word(AutoWord::Auto),
        }
    }
}

impl Default for BackboneSection {
    fn default() -> Self {
        BackboneSection {
            name: "mamba".into(),
            d_model: 64,
            n_layers: 1,
            d_state: 16,
            rotate: RotateKind::Off,
            d_conv: Suggested::Word(SuggestedWord::Suggested),
            expand: 2,
            dt_rank: 0,
            dt_min: 1e-3,
            dt_max: 0.1,
            rms_eps: 1e-5,
            proj_bias: false,
            conv_bias: true,
        }
    }
}

impl Default for NetworkSection {
    fn default() -> Self {
        NetworkSection { encoder_hidden: 0, head_hidden: 128, shortcut: false }
    }
}

impl Default for InputSection {
    fn default() -> Self {
        InputSection { previous_action: true, previous_reward: false, is_first: true }
    }
}

impl Default for LearnerSection {
    fn default() -> Self {
        LearnerSection {
            gamma: Suggested::Word(SuggestedWord::Suggested),
            n_step: Suggested::Word(SuggestedWord::Suggested),
            batch: Suggested::Word(SuggestedWord::Suggested),
            burn_in: 40,
            length: 80,
            lr_backbone: Suggested::Word(SuggestedWord::Suggested),
            lr_heads: 1e-3,
            weight_decay: 0.0,
            adam_eps: 1e-5,
            grad_clip: 1.0,
            warmup: 0,
            lr_decay: 0.0,
            loss: Loss::Squared,
            critic: CriticKind::Expected,
            atoms: 51,
            atom_min: -10.0,
            atom_max: 10.0,
            acting: ActingKind::Online,
            target_tau: 0.005,
            target_period: 0,
            reward_scale: RewardScale::Word(UnitWord::Unit),
            rescaling: 0.0,
            double_q: true,
            replay_ratio: 8.0,
            start_after: 0,
            truncation_is_terminal: false,
        }
    }
}

impl Default for ExplorationSection {
    fn default() -> Self {
        ExplorationSection {
            kind: ExplorationKind::Ladder,
            base: 0.4,
            alpha: 7.0,
            start: 1.0,
            end: 0.05,
            steps: 10_000,
        }
    }
}

impl Default for ReplaySection {
    fn default() -> Self {
        ReplaySection {
            capacity: 100_000,
            layout: ReplayLayout::Episode,
            max_episode: 1024,
            period: 0,
            seams: false,
            alpha: 0.9,
            beta: 0.6,
            eta: 0.9,
            state_dtype: StateType::F32,
            initial_state: InitialStateKind::Stored,
        }
    }
}

impl Default for TrainSection {
    fn default() -> Self {
        TrainSection {
            steps: 30_000,
            seed: 1,
            mode: "sync".into(),
            device: "cpu".into(),
            precision: "f32".into(),
            tf32: false,
            graphs: true,
            kernel_cache: "home".into(),
            threads: 0,
            simd: "auto".into(),
            shards: 4,
            stop_return: None,
        }
    }
}

impl Default for EvalSection {
    fn default() -> Self {
        EvalSection { every: 5_000, episodes: 100 }
    }
}

impl Default for CheckpointSection {
    fn default() -> Self {
        CheckpointSection { every: 50_000, keep: 2, replay: CheckpointReplay::Full }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        LogSection { every: 1_000, delta_q_every: 200, mmer_window: 10_000 }
    }
}
