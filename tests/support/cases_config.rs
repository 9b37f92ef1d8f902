//! CF-1 and CF-2 at the level of the library: what a config must refuse, and what the refusal must name.

#![allow(dead_code)] // each test program uses a part

use mamba_rl::config::{Config, Flags};

/// Loads the default preset with these `--set` values.
pub fn load(sets: &[&str]) -> mamba_rl::Result<Config> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    Config::load(None, None, &sets, &Flags::default())
}

/// The refusal as text; panics where the config was accepted.
pub fn refusal(sets: &[&str]) -> String {
    match load(sets) {
        Ok(_) => panic!("accepted: {sets:?}"),
        Err(e) => {
            assert!(e.is_usage(), "{sets:?}: not a usage error: {e}");
            let text = e.to_string();
            assert!(!text.contains('\n'), "more than one line: {text}");
            text
        }
    }
}

/// CF-1: a misspelt key, and a valid key in the wrong section.
pub fn cf_1_unknown_keys() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let check = |text: &str, sets: &[String], wanted: &[&str]| {
        std::fs::write(file.path(), text).expect("writing");
        let error = Config::load(None, Some(file.path()), sets, &Flags::default()).expect_err(text).to_string();
        for word in wanted {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
    };
    check("[replay]\n\ncapacaty = 1000\n", &[], &["replay.capacaty", "[replay]", "`replay.capacity`", "line 3"]);
    check(
        "[learner]\ncapacity = 1000\n",
        &[],
        &["learner.capacity", "[learner]", "another section", "`replay.capacity`"],
    );
    check("[replya]\ncapacity = 1000\n", &[], &["replya", "`replay.capacity`"]);
    check("", &["replay.capacaty=1000".into()], &["replay.capacaty", "[replay]", "`replay.capacity`", "--set"]);
    check("", &["learner.capacity=1000".into()], &["learner.capacity", "[learner]", "`replay.capacity`"]);
}

/// CF-2: each pair or value is refused, and the refusal holds every one of the words.
pub const CF_2: &[(&[&str], &[&str])] = &[
    (&["exploration.start=0.05", "exploration.end=1.0"], &["exploration.start", "exploration.end"]),
    (&["replay.capacity=119"], &["replay.capacity", "learner.burn_in", "learner.length", "120"]),
    (&["replay.capacity=1023"], &["replay.capacity", "replay.max_episode"]),
    (&["replay.seams=true"], &["replay.seams", "replay.layout"]),
    (&["learner.target_tau=1e-300"], &["learner.target_tau"]),
    (&["learner.n_step=81"], &["learner.n_step", "learner.length"]),
    (&["learner.burn_in=-1"], &["learner.burn_in", "-1"]),
    (&["learner.lr_heads=nan"], &["learner.lr_heads", "NaN"]),
    (&["learner.lr_backbone=nan"], &["learner.lr_backbone", "NaN"]),
    (&["learner.lr_heads=inf"], &["learner.lr_heads", "inf"]),
    (&["learner.batch=0"], &["learner.batch", "0"]),
    (&["learner.gamma=1.01"], &["learner.gamma", "1.01", "from 0 to 1"]),
    (&["learner.gamma=-0.1"], &["learner.gamma", "-0.1"]),
    (&["backbone.dt_min=0.1", "backbone.dt_max=0.1"], &["backbone.dt_min", "backbone.dt_max"]),
    (&["backbone.rotate=on"], &["backbone.rotate", "on", "off", "fixed", "learned"]),
    (&["backbone.rotate=learned", "backbone.d_state=15"], &["backbone.d_state", "15", "backbone.rotate", "even"]),
    (&["backbone.d_conv=0"], &["backbone.d_conv", "from 1 to 128"]),
    (&["backbone.d_conv=129"], &["backbone.d_conv", "from 1 to 128"]),
    (&["learner.target_tau=0.005", "learner.target_period=10"], &["learner.target_tau", "learner.target_period"]),
    (&["learner.target_tau=0"], &["learner.target_tau", "learner.target_period", "learner.gamma"]),
    (
        &["replay.layout=window", "replay.seams=true", "env.episodes_per_trial=2"],
        &["replay.seams", "env.episodes_per_trial"],
    ),
    (&["replay.period=81"], &["replay.period", "learner.length"]),
    (&["train.shards=0"], &["train.shards", "0"]),
    (&["env.num_envs=0"], &["env.num_envs", "0"]),
    (&["train.steps=63"], &["train.steps", "env.num_envs"]),
    (&["learner.start_after=30000"], &["learner.start_after", "train.steps"]),
    (&["backbone.name=mambo"], &["backbone.name", "mambo", "nearest: \"mamba\"", "gru", "lstm", "mlp"]),
    (&["agent.name=r2d3"], &["agent.name", "r2d3", "r2d2"]),
    (&["agent.name=rsac", "network.shortcut=true"], &["r2d2", "network.shortcut", "expected false"]),
    (&["agent.name=rsac", "network.head_hidden=0"], &["rsac", "network.head_hidden", "at least 1"]),
    (&["agent.temperature=0"], &["agent.temperature", "above 0"]),
    (&["agent.target_entropy=many"], &["agent.target_entropy", "many", "auto"]),
    (&["train.mode=asink"], &["train.mode", "asink", "async"]),
    (&["train.device=tpu"], &["train.device", "tpu", "cpu"]),
    (&["train.device=cuda:77"], &["cuda:77", "devices present: cpu"]),
    (&["train.precision=bf16"], &["train.precision", "train.device", "f32"]),
    (&["train.simd=sse"], &["train.simd", "sse", "avx2"]),
    (&["learner.reward_scale=0"], &["learner.reward_scale"]),
    (&["learner.replay_ratio=0"], &["learner.replay_ratio"]),
    (&["replay.alpha=1.5"], &["replay.alpha"]),
    (&["train.stop_return=nan"], &["train.stop_return"]),
    (&["train.seed=-1"], &["train.seed"]),
    (&["learner.batch=many"], &["learner.batch", "many", "suggested"]),
    (&["learner.double_q=1"], &["learner.double_q", "1", "true or false"]),
    (&["learner.length=80.5"], &["learner.length", "80.5", "whole number"]),
];

/// CF-2 over the whole table.
pub fn cf_2_contradictions() {
    for (sets, wanted) in CF_2 {
        let text = refusal(sets);
        for word in *wanted {
            assert!(text.contains(word), "{sets:?}: `{word}` is not in: {text}");
        }
    }
}
