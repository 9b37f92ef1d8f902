//! Layers, refusals, suggestions, TOML in and out.

#[path = "support/cases_config.rs"]
mod cases_config;

use std::path::Path;

use cases_config::{load, refusal};
use mamba_rl::config::{ActingKind, Config, Flags, LearnerSection, RewardScale, RotateKind, Suggested};
use mamba_rl_envs::{EnvSpec, Space};

fn spec(action_space: Space) -> EnvSpec {
    EnvSpec::new("popgym-TestEasy-v0", "TestEasy", Space::Discrete(4), action_space)
}

fn flags() -> Flags {
    Flags::default()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn learning_rates_fall_at_the_end() {
    let at = |lr_decay| {
        let learner = LearnerSection { lr_decay, ..LearnerSection::default() };
        [0, 250, 500, 750, 1_000, 2_000].map(|steps| learner.rate(steps, 1_000))
    };
    assert_eq!(at(0.0), [1.0; 6]);
    assert_eq!(at(1.0), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
    assert_eq!(at(0.5), [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]);
}

#[test]
fn popgym_is_the_default_tree() {
    assert_eq!(load(&[]).unwrap(), Config::default());
    assert_eq!(Config::load(Some("popgym"), None, &[], &flags()).unwrap(), Config::default());
    // Every key is written out in the preset, so that it can serve as a template.
    let preset = include_str!("../examples/configs/popgym.toml").parse::<toml::Table>().unwrap();
    let whole = Config::default().to_toml().unwrap().parse::<toml::Table>().unwrap();
    for (section, keys) in whole.iter().filter_map(|(s, v)| v.as_table().map(|t| (s, t))) {
        for key in keys.keys().filter(|k| *k != "args") {
            assert!(preset[section].get(key).is_some(), "popgym.toml lacks {section}.{key}");
        }
    }
}

#[test]
fn r2d2_paper_has_the_published_values() {
    let c = Config::load(Some("r2d2-paper"), None, &[], &flags()).unwrap();
    assert_eq!((c.gamma(), c.n_step(), c.batch()), (0.997, 5, 64));
    assert_eq!((c.learner.length, c.learner.burn_in, c.period()), (80, 40, 40));
    assert_eq!((c.lr_backbone(), c.learner.lr_heads, c.learner.adam_eps), (1e-4, 1e-4, 1e-3));
    assert_eq!((c.learner.target_period, c.learner.target_tau, c.learner.rescaling), (2500, 0.0, 1e-3));
    assert_eq!((c.replay.eta, c.replay.alpha, c.replay.beta, c.replay.capacity), (0.9, 0.9, 0.6, 4_000_000));
    assert_eq!((c.exploration.base, c.exploration.alpha, c.reward_scale_factor()), (0.4, 7.0, 1.0));
    assert!(c.input.previous_reward);
    assert_eq!(c.preset, "r2d2-paper");
}

#[test]
fn cf_1_unknown_keys() {
    cases_config::cf_1_unknown_keys();
}

#[test]
fn cf_2_contradictions() {
    cases_config::cf_2_contradictions();
}

#[test]
fn later_layers_win() {
    let f = file("[learner]\nbatch = 3\ngamma = 0.9\nn_step = 2\n[train]\nseed = 5\n");
    let sets =
        ["learner.batch=4".to_owned(), "learner.gamma=0.8".into(), "learner.batch=5".into(), "train.seed=6".into()];
    let c = Config::load(None, Some(f.path()), &sets, &Flags { seed: Some(7), ..flags() }).unwrap();
    assert_eq!((c.n_step(), c.gamma(), c.batch(), c.train.seed), (2, 0.8, 5, 7));
    assert_eq!(c.learner.length, 80, "the preset lies below");
}

#[test]
fn a_file_may_name_its_preset_and_the_flag_wins() {
    let f = file("preset = \"r2d2-paper\"\n[learner]\nbatch = 3\n");
    let c = Config::load(None, Some(f.path()), &[], &flags()).unwrap();
    assert_eq!((c.preset.as_str(), c.learner.target_period, c.batch()), ("r2d2-paper", 2500, 3));
    let c = Config::load(Some("popgym"), Some(f.path()), &[], &flags()).unwrap();
    assert_eq!((c.preset.as_str(), c.learner.target_period, c.batch()), ("popgym", 0, 3));
}

#[test]
fn set_takes_text_numbers_and_task_arguments() {
    let c = load(&[
        "env.id=TMaze-v0",
        "env.args.length=20",
        "env.args.kind=wide",
        "replay.capacity=1e6",
        "backbone.name=\"gru\"",
    ])
    .unwrap();
    assert_eq!((c.env.id.as_str(), c.replay.capacity, c.backbone.name.as_str()), ("TMaze-v0", 1_000_000, "gru"));
    assert_eq!(c.env.args["length"].as_integer(), Some(20));
    let args = c.env_args().unwrap();
    assert_eq!((args.args["length"].as_u64(), args.args["kind"].as_str()), (Some(20), Some("wide")));
    assert_eq!(load(&["learner.gamma=suggested"]).unwrap().learner.gamma, Config::default().learner.gamma);
    assert_eq!(load(&["learner.gamma=0"]).unwrap().gamma(), 0.0, "a whole number serves as a number");
    assert_eq!(load(&["train.stop_return=0.9"]).unwrap().train.stop_return, Some(0.9));
    assert!(load(&["learner.target_tau=0", "learner.gamma=0"]).is_ok(), "nothing is bootstrapped");
}

#[test]
fn a_set_that_is_none_is_refused() {
    assert!(refusal(&["learner.batch"]).contains("key.path=value"));
    assert!(refusal(&["learner=5"]).contains("section"));
    assert!(refusal(&["bach=5"]).contains("learner.batch"));
    assert!(refusal(&["gamma=0.5"]).contains("`learner.gamma`"));
    assert!(refusal(&["preset=r2d2-paper"]).contains("--preset"));
    assert!(refusal(&["backbone.d_modle=1"]).contains("backbone.d_model"));
    assert!(refusal(&["learner.lr=0.1"]).contains("`learner.lr_"));
    assert!(load(&["env.args.x=nan"]).unwrap().env_args().unwrap_err().to_string().contains("env.args.x"));
}

#[test]
fn wrong_types_name_key_found_and_expected() {
    let f = file("[learner]\nbatch = true\n");
    let e = Config::load(None, Some(f.path()), &[], &flags()).unwrap_err().to_string();
    assert!(
        e.contains("learner.batch") && e.contains("true") && e.contains("whole number") && e.contains("line 2"),
        "{e}"
    );
    let f = file("learner = 3\n");
    let e = Config::load(None, Some(f.path()), &[], &flags()).unwrap_err().to_string();
    assert!(e.contains("learner") && e.contains('3') && e.contains("section"), "{e}");
}

#[test]
fn syntax_errors_have_a_line_and_missing_files_a_name() {
    let f = file("[learner]\nbatch = 3\n\ngamma = = 2\n");
    let e = Config::load(None, Some(f.path()), &[], &flags()).unwrap_err();
    assert!(e.is_usage() && e.to_string().contains("line 4"), "{e}");
    let e = Config::load(None, Some(Path::new("no/such.toml")), &[], &flags()).unwrap_err();
    assert!(e.is_usage() && e.to_string().contains("no/such.toml"), "{e}");
    let e = Config::load(Some("atari"), None, &[], &flags()).unwrap_err();
    assert!(e.is_usage() && e.to_string().contains("popgym, continuous, r2d2-paper"), "{e}");
}

#[test]
fn numbers_beyond_range_are_refused_in_the_tree_too() {
    let refuse = |change: fn(&mut Config), key: &str| {
        let mut c = Config::default();
        change(&mut c);
        let e = c.validate().unwrap_err().to_string();
        assert!(e.contains(key), "{key} is not in: {e}");
    };
    refuse(|c| c.learner.gamma = Suggested::Value(f64::NAN), "learner.gamma");
    refuse(|c| c.learner.weight_decay = f64::INFINITY, "learner.weight_decay");
    refuse(|c| c.backbone.rms_eps = 0.0, "backbone.rms_eps");
    refuse(|c| c.learner.reward_scale = RewardScale::Value(f64::NAN), "learner.reward_scale");
    let mut c = Config::default();
    c.train.seed = u64::MAX;
    assert!(c.validate().is_err());
}

/// Every numeric key has a range: far below and NaN are refused for each of them.
#[test]
fn no_numeric_key_takes_nonsense() {
    let whole = Config::default().to_toml().unwrap().parse::<toml::Table>().unwrap();
    let word = |v: &toml::Value| matches!(v.as_str(), Some("suggested" | "unit" | "auto"));
    let mut seen = 0;
    for (section, keys) in whole.iter().filter_map(|(s, v)| v.as_table().map(|t| (s, t))) {
        let number = |(key, v): &(&String, &toml::Value)| {
            v.is_integer() || v.is_float() || word(v) && *key != "kernel_cache" // a folder: any text
        };
        for (key, value) in keys.iter().filter(number) {
            for nonsense in ["-1000000", "nan", "inf", "-inf", "1e400", "text"] {
                let set = format!("{section}.{key}={nonsense}");
                let e = load(&[&set]).expect_err(&set).to_string();
                assert!(e.contains(&format!("{section}.{key}")), "{set}: {value}: {e}");
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} numeric keys were found");
}

#[test]
fn suggestions_are_resolved_and_printed() {
    let mut c = Config::default();
    let mut s = spec(Space::Discrete(4));
    (s.suggested_gamma, s.prompt_rewards) = (Some(0.5), true);
    s.suggested_d_conv = Some(32);
    s.suggested_rotate = true;
    s.unit_reward = 1.0 / 48.0;
    s.max_steps = Some(415);
    let lines = c.resolve(&s).unwrap();
    assert_eq!((c.gamma(), c.n_step(), c.batch(), c.lr_backbone(), c.d_conv()), (0.5, 1, 1, 3e-3, 32));
    assert_eq!(c.backbone.rotate, RotateKind::Learned);
    assert!((c.reward_scale_factor() - 48.0).abs() < 1e-9);
    assert_eq!((c.replay.period, c.backbone.dt_rank, c.agent.name.as_str()), (40, 4, "r2d2"));
    assert_eq!(c.env.id, "popgym-TestEasy-v0");
    assert!(lines.contains(&"gamma 0.5 (suggested by the task)".to_owned()), "{lines:?}");
    assert!(lines.contains(&"d_conv 32 (suggested by the task)".to_owned()), "{lines:?}");
    assert!(lines.contains(&"rotate learned (suggested by the task)".to_owned()), "{lines:?}");
    let text = c.to_toml().unwrap();
    assert!(!text.contains("suggested") && !text.contains("auto\"\nd"), "{text}");
    let again = c.clone();
    assert!(c.resolve(&s).unwrap().is_empty(), "nothing is left to resolve");
    assert_eq!(c, again);
}

/// Whole episodes of answers: many small updates; of tasks that their actions change: fewer where episodes are long.
#[test]
fn the_batch_follows_length_and_kind_of_the_episodes() {
    let batch = |prompt, steps, sets: &[&str]| {
        let mut s = spec(Space::Discrete(4));
        (s.prompt_rewards, s.max_steps) = (prompt, steps);
        let mut c = load(sets).unwrap();
        c.resolve(&s).unwrap();
        c.batch()
    };
    assert_eq!([51, 100, 101, 831].map(|t| batch(true, Some(t), &[])), [1; 4]);
    assert_eq!([51, 100, 101, 831].map(|t| batch(false, Some(t), &[])), [8, 8, 1, 1]);
    assert_eq!((batch(false, None, &[]), batch(true, None, &[])), (8, 1));
    assert_eq!(batch(true, Some(831), &["replay.layout=window"]), 8);
    assert_eq!(batch(true, Some(831), &["learner.batch=5"]), 5);
    let noisy = |sets: &[&str]| {
        let mut c = load(sets).unwrap();
        c.resolve(&EnvSpec { suggested_batch: Some(4), max_steps: Some(600), ..spec(Space::Discrete(4)) }).unwrap();
        c.batch()
    };
    assert_eq!([noisy(&[]), noisy(&["learner.batch=2"]), noisy(&["replay.layout=window"])], [4, 2, 8]);
}

/// The target network acts where it is an average.
#[test]
fn a_soft_target_acts() {
    let acts = |sets: &[&str]| {
        let mut c = load(sets).unwrap();
        c.resolve(&spec(Space::Discrete(4))).unwrap();
        c.acts_with_target()
    };
    let hard = ["learner.target_tau=0", "learner.target_period=100"];
    assert!(acts(&[]) && !acts(&hard) && !acts(&["learner.acting=online"]));
    assert!(acts(&[&hard[..], &["learner.acting=target"]].concat()));
    let soft = load(&["agent.name=rsac", "learner.acting=target"]).unwrap_err().to_string();
    assert!(soft.contains("learner.acting") && soft.contains("rsac"), "{soft}");
}

/// A state turns where the task suggests it and can: pairs need an even number, and other bodies have none.
#[test]
fn a_state_turns_where_the_task_suggests_it() {
    let kind = |suggests, sets: &[&str]| {
        let s = EnvSpec { suggested_rotate: suggests, ..spec(Space::Discrete(4)) };
        let mut c = load(sets).unwrap();
        c.resolve(&s).unwrap();
        c.backbone.rotate
    };
    assert_eq!(kind(true, &[]), RotateKind::Learned);
    assert_eq!(kind(false, &[]), RotateKind::Off);
    for sets in [["backbone.rotate=off"], ["backbone.d_state=15"], ["backbone.name=gru"]] {
        assert_eq!(kind(true, &sets), RotateKind::Off, "{sets:?}");
    }
    assert_eq!(kind(false, &["backbone.rotate=fixed"]), RotateKind::Fixed);
}

#[test]
fn without_suggestions_the_agent_has_its_own() {
    let mut c = load(&["train.device=auto"]).unwrap();
    let lines = c.resolve(&spec(Space::MultiDiscrete(vec![2, 3]))).unwrap();
    assert_eq!((c.gamma(), c.n_step(), c.batch(), c.lr_backbone(), c.d_conv()), (0.99, 5, 8, 1e-3, 4));
    assert_eq!((c.train.device.as_str(), c.reward_scale_factor()), ("cpu", 1.0));
    assert!(lines.iter().any(|l| l.contains("device cpu") && l.contains("CUDA")), "{lines:?}");
}

#[test]
fn the_agent_follows_the_actions() {
    let continuous = spec(Space::box_f32(&[-1.0; 2], &[1.0; 2]));
    let mut c = Config::default();
    let lines = c.resolve(&continuous).unwrap();
    assert_eq!((c.agent.name.as_str(), c.n_step(), c.target_entropy(2)), ("rsac", 1, -2.0));
    assert!(lines.iter().any(|l| l.contains("n_step 1") && l.contains("rsac")), "{lines:?}");
    assert!(c.to_toml().unwrap().contains("target_entropy = -2.0"));
    for (name, space) in [("r2d2", continuous.action_space.clone()), ("rsac", Space::Discrete(3))] {
        let e = load(&[&format!("agent.name={name}")]).unwrap().resolve(&spec(space.clone())).unwrap_err();
        let text = e.to_string();
        assert!(e.is_usage() && text.contains(name) && text.contains(&space.to_string()), "{e}");
    }
    let e = Config::default().resolve(&spec(Space::Tuple(vec![Space::Discrete(2)]))).unwrap_err();
    assert!(e.is_usage() && e.to_string().contains("Tuple"), "{e}");
}

#[test]
fn continuous_actions_have_a_preset_of_their_own() {
    let continuous = Space::box_f32(&[-1.0], &[1.0]);
    let of = |space: &Space, preset| Config::load_for(space, preset, None, &[], &flags()).unwrap();
    assert_eq!(of(&continuous, None), of(&Space::Discrete(2), Some("continuous")));
    assert_eq!(of(&continuous, None).preset, "continuous");
    assert_eq!(of(&Space::Discrete(2), None), Config::default());
    assert_eq!(of(&continuous, Some("popgym")), Config::default());
    let named = file("preset = \"r2d2-paper\"");
    let c = Config::load_for(&continuous, None, Some(named.path()), &[], &flags()).unwrap();
    assert_eq!(c.preset, "r2d2-paper");
    // a run of that preset that goes on over a file of a few keys
    let few = file("[log]\nevery = 5\n");
    let mut saved = of(&continuous, None);
    saved.resolve(&spec(continuous)).unwrap();
    let c = Config::load_resumed(&saved, None, Some(few.path()), &[], &flags()).unwrap();
    assert_eq!((c.preset.as_str(), c.log.every, c.replay.capacity), ("continuous", 5, saved.replay.capacity));
}

#[test]
fn toml_out_is_toml_in() {
    let mut c = load(&["env.args.length=20", "train.stop_return=0.5", "learner.gamma=0.1"]).unwrap();
    c.resolve(&spec(Space::Discrete(2))).unwrap();
    let text = c.to_toml().unwrap();
    let f = file(&text);
    assert_eq!(Config::load_file(f.path()).unwrap(), c);
    // A run folder from before there were these keys: the online network acted, no state turned.
    let without = |key: &str, text: &str| -> String {
        text.lines().filter(|l| !l.starts_with(&format!("{key} ="))).map(|l| format!("{l}\n")).collect()
    };
    let old = file(&without("acting", &without("rotate", &text)));
    let old = Config::load_file(old.path()).unwrap();
    assert_eq!((old.learner.acting, old.backbone.rotate), (ActingKind::Online, RotateKind::Off));
    assert_eq!(Config::load(None, Some(f.path()), &[], &flags()).unwrap(), c);
    for section in ["env", "learner", "replay", "train", "log"] {
        let at = text.find(&format!("\n[{section}]")).unwrap();
        let before = text[..at].lines().last().unwrap();
        assert!(before.starts_with("# "), "[{section}] has no comment: {before}");
    }
}

#[test]
fn the_hash_ignores_what_does_not_change_the_result() {
    let hash = |sets: &[&str]| load(sets).unwrap().config_hash().unwrap();
    let base = hash(&[]);
    assert_eq!(base.len(), 8);
    assert_eq!(
        base,
        hash(&[
            "train.steps=64",
            "train.threads=2",
            "train.device=auto",
            "log.every=7",
            "eval.every=1",
            "checkpoint.every=3"
        ])
    );
    assert_ne!(base, hash(&["train.seed=2"]));
    assert_ne!(base, hash(&["learner.gamma=0.5"]));
    assert_ne!(base, hash(&["env.args.length=5"]));
}

#[test]
fn a_resumed_run_may_change_little() {
    let saved = load(&[]).unwrap();
    let differs = |sets: &[&str]| Config::resume_difference(&saved, &load(sets).unwrap()).unwrap();
    assert_eq!(
        differs(&[
            "train.steps=90000",
            "train.device=auto",
            "train.threads=1",
            "log.every=5",
            "eval.every=5",
            "checkpoint.every=9"
        ]),
        None
    );
    let d = differs(&["learner.gamma=0.5"]).unwrap();
    assert_eq!((d.key.as_str(), d.saved.as_str(), d.now.as_str()), ("learner.gamma", "\"suggested\"", "0.5"));
    assert_eq!(differs(&["train.seed=2"]).unwrap().key, "train.seed");
    assert_eq!(differs(&["train.stop_return=2"]).unwrap().saved, "none");
    assert_eq!(differs(&["env.args.length=2"]).unwrap().key, "env.args");
}

#[test]
fn resumed_flags_lie_over_the_saved_config() {
    let saved = load(&["learner.gamma=0.3", "train.steps=5000"]).unwrap();
    let c = Config::load_resumed(&saved, None, None, &[], &Flags { steps: Some(9000), ..flags() }).unwrap();
    assert_eq!((c.gamma(), c.train.steps), (0.3, 9000));
    let c = Config::load_resumed(&saved, Some("popgym"), None, &["learner.gamma=0.3".into()], &flags()).unwrap();
    assert_eq!((c.gamma(), c.train.steps), (0.3, 5000), "steps stay as saved where no one sets them");
    assert_eq!(Config::resume_difference(&saved, &c).unwrap(), None);
}
