//! The command as its users meet it: exit codes, the one line of an error, run folders, resume, signals.

#![cfg(feature = "cli")]

#[path = "support/cases_config.rs"]
mod cases_config;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mamba_rl::config::Config;
use mamba_rl_envs::Registry;
use serde_json::Value;
use tempfile::TempDir;

/// A small run of 512 steps, well under a second.
const SMALL: &[&str] = &[
    "train",
    "--steps",
    "512",
    "--set",
    "env.num_envs=8",
    "--set",
    "backbone.d_model=8",
    "--set",
    "network.head_hidden=8",
    "--set",
    "eval.episodes=4",
    "--set",
    "learner.replay_ratio=0.5",
];

struct Place(TempDir);

struct Done {
    code: i32,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_mamba-rl"));
        // a GPU of this machine must not change what the tests see
        c.args(args).current_dir(self.0.path()).env("CUDA_VISIBLE_DEVICES", "");
        c
    }

    fn run(&self, args: &[&str]) -> Done {
        done(self.command(args).output().expect("the command runs"))
    }

    /// Runs and demands success.
    fn ok(&self, args: &[&str]) -> Done {
        let d = self.run(args);
        assert_eq!(d.code, 0, "{args:?}: {}", d.err);
        d
    }

    /// Runs and demands this exit code and one line of error that holds the words.
    fn fails(&self, args: &[&str], code: i32, words: &[&str]) -> Done {
        let d = self.run(args);
        assert_eq!(d.code, code, "{args:?}: {}{}", d.out, d.err);
        let errors: Vec<&str> = d.err.lines().filter(|l| l.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{args:?}: not one line of error: {}", d.err);
        assert!(!d.err.contains("panicked") && !d.err.contains("internal failure"), "{args:?}: {}", d.err);
        for word in words {
            assert!(errors[0].contains(word), "{args:?}: `{word}` is not in: {}", errors[0]);
        }
        d
    }

    fn small(&self, dir: &str) -> Done {
        self.ok(&[SMALL, &["--run-dir", dir]].concat())
    }

    fn json(&self, path: &str) -> Value {
        let text = std::fs::read_to_string(self.path(path)).expect(path);
        serde_json::from_str(&text).expect(path)
    }

    fn nothing_made(&self) {
        let made: Vec<_> =
            std::fs::read_dir(self.0.path()).expect("readable").flatten().map(|e| e.file_name()).collect();
        assert!(made.is_empty(), "a refused command made {made:?}");
    }
}

fn done(o: Output) -> Done {
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    Done { code: o.status.code().unwrap_or(-1), out: text(o.stdout), err: text(o.stderr) }
}

fn steps_of(dir: &Path) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(dir.join("checkpoints")) else { return Vec::new() };
    let name = |e: std::fs::DirEntry| e.file_name().to_string_lossy().strip_prefix("step-")?.parse().ok();
    let mut steps: Vec<u64> = entries.flatten().filter_map(name).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn wrong_requests_are_exit_code_2_and_make_nothing() {
    let p = Place::new();
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["train", "--env", "RepeatPreviosEasy"],
            &["RepeatPreviosEasy", "popgym-RepeatPreviousEasy-v0", "mamba-rl envs"],
        ),
        (&["train", "--env", "Pendulum-v1", "--agent", "r2d2"], &["Pendulum-v1", "rsac", "Box"]),
        (&["train", "--backbone", "mambo"], &["backbone.name", "mambo", "mamba"]),
        (&["train", "--agent", "rsac"], &["rsac", "Discrete(4)", "r2d2"]),
        (&["train", "--agent", "dqn"], &["agent.name", "dqn", "r2d2"]),
        (&["train", "--preset", "atari"], &["atari", "popgym, continuous, r2d2-paper"]),
        (&["train", "--config", "no.toml"], &["no.toml", "does not exist"]),
        (&["train", "--device", "cuda"], &["cuda", "cpu"]),
        (&["train", "--device", "cuda:7"], &["cuda:7", "devices present: cpu"]),
        (&["train", "--device", "tpu"], &["train.device", "tpu"]),
        (&["train", "--precision", "bf16"], &["train.precision", "f32"]),
        (&["train", "--set", "env.args.length=3"], &["length"]),
        (&["train", "--set", "learner.batch"], &["key.path=value"]),
        (&["train", "--steps", "many"], &["--steps", "many"]),
        (&["train", "--steps", "-5"], &["--steps", "-5"]),
        (&["train", "--seed", "18446744073709551615"], &["train.seed"]),
        (&["train", "--steps", "5"], &["train.steps", "env.num_envs"]),
        (&["train", "--init-from", "nowhere"], &["nowhere"]),
        (&["train", "--resume"], &["--run-dir"]),
        (&["train", "--resume", "--run-dir", "nowhere"], &["nowhere", "does not exist"]),
        (&["train", "--frobnicate"], &["--frobnicate"]),
        (&["trian"], &["trian", "train"]),
        (&["eval", "nowhere"], &["nowhere"]),
        (&["eval"], &["RUN_DIR|CHECKPOINT"]),
        (&["info", "nowhere"], &["nowhere"]),
        (&["plot", "nowhere"], &["nowhere"]),
        (&["rollout"], &["--env"]),
        (&["rollout", "--env", "Nope"], &["Nope"]),
        (&["rollout", "--env", "CartPole-v1", "--policy", "nowhere"], &["nowhere"]),
        (&["rollout", "--env", "CartPole-v1", "--set", "learner.batch=3"], &["env.args"]),
        (&["rollout", "--env", "CartPole-v1", "--set", "env.num_envs=9"], &["env.args"]),
        (
            &["train", "--set", "replay.capacity=1024", "--set", "learner.batch=200"],
            &["replay.capacity", "learner.batch"],
        ),
        (&["train", "--steps", "18446744073709551615"], &["train.steps", "18446744073709551615"]),
        (&["train", "--config", "/dev/zero"], &["/dev/zero"]),
        (&["rollout", "--env", "CartPole-v1", "--episodes", "0"], &["--episodes"]),
    ];
    for (args, words) in cases {
        p.fails(args, 2, words);
    }
    p.nothing_made();
}

#[test]
fn cf_1_a_wrong_key_ends_before_training() {
    let p = Place::new();
    let words = ["replay.capacaty", "[replay]", "`replay.capacity`"];
    p.fails(&["train", "--set", "replay.capacaty=1000"], 2, &words);
    p.fails(&["train", "--set", "learner.capacity=1000"], 2, &["learner.capacity", "[learner]", "`replay.capacity`"]);
    p.nothing_made();
    std::fs::write(p.path("c.toml"), "[replay]\ncapacaty = 1000\n").expect("writing");
    p.fails(&["train", "--config", "c.toml"], 2, &[&words[..], &["line 2"]].concat());
    std::fs::write(p.path("c.toml"), "[replay\ncapacity = 1000\n").expect("writing");
    p.fails(&["train", "--config", "c.toml"], 2, &["c.toml", "line 1", "TOML"]);
    assert!(!p.path("runs").exists());
}

#[test]
fn cf_2_contradictions_end_before_training() {
    let p = Place::new();
    for (sets, words) in cases_config::CF_2 {
        let mut args = vec!["train"];
        sets.iter().for_each(|s| args.extend(["--set", s]));
        p.fails(&args, 2, words);
    }
    p.nothing_made();
}

#[test]
fn help_and_version_are_no_errors() {
    let p = Place::new();
    assert!(p.ok(&["--help"]).out.contains("train"));
    assert!(p.ok(&["train", "--help"]).out.contains("--resume"));
    assert!(p.ok(&["--version"]).out.contains(env!("CARGO_PKG_VERSION")));
    assert_eq!(p.run(&[]).code, 2);
}

#[test]
fn envs_list_every_task() {
    let p = Place::new();
    let text = p.ok(&["envs"]).out;
    let list: Vec<Value> = serde_json::from_str(&p.ok(&["envs", "--json"]).out).expect("JSON");
    assert_eq!(list.len(), Registry::bundled().list().len());
    for env in &list {
        assert!(text.contains(env["id"].as_str().expect("id")));
        for key in [
            "name",
            "aliases",
            "observation_space",
            "action_space",
            "max_steps",
            "hidden",
            "unit_reward",
            "prompt_rewards",
            "suggested_gamma",
            "suggested_batch",
            "suggested_d_conv",
            "suggested_rotate",
            "doc",
        ] {
            assert!(env.get(key).is_some(), "{key} is missing in {env}");
        }
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let p = Place::new();
    let mut child =
        p.command(&["envs", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let d = done(child.wait_with_output().expect("ends"));
    assert_eq!((d.code, d.err.as_str()), (0, ""));
}

#[test]
fn cu_3_devices_without_a_gpu() {
    let p = Place::new();
    let out = p.ok(&["devices"]).out;
    assert!(
        out.contains("cpu")
            && out.contains("cores")
            && out.contains("portable")
            && out.contains("cuda  not available: "),
        "{out}"
    );
    let d = p.ok(&[SMALL, &["--run-dir", "r", "--device", "auto"]].concat());
    let lines: Vec<&str> = d.out.lines().filter(|l| l.contains("device cpu") && l.contains("CUDA")).collect();
    assert_eq!(lines.len(), 1, "one line says why: {}", d.out);
    assert_eq!(Config::load_file(&p.path("r/config.toml")).expect("config").train.device, "cpu");
    assert_eq!(p.json("r/result.json")["device"], "cpu");
}

#[test]
fn rollouts_repeat_and_replay() {
    let p = Place::new();
    for env in ["RepeatPreviousEasy", "BattleshipEasy", "CartPole-v1", "PositionOnlyPendulumEasy"] {
        let args = ["rollout", "--env", env, "--policy", "random", "--episodes", "2", "--seed", "5", "--jsonl"];
        let out = p.ok(&args).out;
        assert_eq!(out, p.ok(&args).out, "{env}: the same seed, the same episodes");
        let file = p.path("e.jsonl");
        std::fs::write(&file, &out).expect("writing");
        let episodes = mamba_rl_envs::trace::read_traces(&file).expect("readable");
        assert_eq!(episodes.iter().map(|e| e.seed).collect::<Vec<_>>(), [5, 6]);
        for episode in &episodes {
            mamba_rl_envs::trace::replay(&Registry::bundled(), episode).expect(env);
        }
    }
    assert!(p.ok(&["rollout", "--env", "CartPole-v1", "--render"]).out.contains("step 1"));
    let long = p.ok(&["rollout", "--env", "TMaze-v0", "--set", "env.args.length=20", "--jsonl"]).out;
    assert_eq!(serde_json::from_str::<Value>(&long).expect("JSON")["args"]["length"], 20);
}

#[test]
fn a_run_leaves_its_config_and_result() {
    let p = Place::new();
    let d = p.ok(SMALL);
    let runs: Vec<PathBuf> = std::fs::read_dir(p.path("runs")).expect("runs").flatten().map(|e| e.path()).collect();
    assert_eq!(runs.len(), 1);
    let name = runs[0].file_name().expect("name").to_string_lossy().into_owned();
    assert!(name.starts_with("RepeatPreviousEasy__r2d2-mamba__s1__"), "{name}");
    for word in [
        &name,
        "RepeatPreviousEasy",
        "gamma 0.5 (suggested by the task)",
        "greedy return",
        "tensorboard --logdir runs",
        "plot",
        "eval",
    ] {
        assert!(d.out.contains(word), "`{word}` is not in: {}", d.out);
    }
    let config = Config::load_file(&runs[0].join("config.toml")).expect("config");
    assert_eq!((config.gamma(), config.d_conv(), config.train.steps), (0.5, 4, 512));
    let text = std::fs::read_to_string(runs[0].join("config.toml")).expect("config");
    assert!(!text.contains("\"suggested\"") && !text.contains("\"unit\""), "{text}");
    let result = p.json(&format!("runs/{name}/result.json"));
    assert_eq!(
        (&result["env"], &result["steps"], &result["stopped"]),
        (&"RepeatPreviousEasy".into(), &512.into(), &"finished".into())
    );
    assert_eq!(result["config_hash"], config.config_hash().expect("hash"));
    assert_eq!(result["preset"], "popgym");
    // The config is enough to repeat the run: same hash, and a plain plan again.
    let file = format!("runs/{name}/config.toml");
    p.ok(&["train", "--config", &file, "--run-dir", "again"]);
    assert_eq!(p.json("again/result.json")["config_hash"], result["config_hash"]);
    assert_eq!(p.json("again/result.json")["eval_return_mean"], result["eval_return_mean"]);
    assert!(p.ok(&["info", &format!("runs/{name}")]).out.contains("step 512"));
}

#[test]
fn steps_are_never_exceeded() {
    let p = Place::new();
    p.ok(&[SMALL, &["--run-dir", "r", "--steps", "203"]].concat());
    assert_eq!(p.json("r/result.json")["steps"], 200);
    assert_eq!(steps_of(&p.path("r")).last(), Some(&200));
    let d = p.ok(&["train", "--resume", "--run-dir", "r"]);
    assert!(d.out.contains("nothing to do"), "{}", d.out);
}

#[test]
fn quiet_prints_the_folder_alone() {
    let p = Place::new();
    let d = p.ok(&[SMALL, &["--run-dir", "r", "--quiet"]].concat());
    assert_eq!((d.out.as_str(), d.err.as_str()), ("r\n", ""));
}

#[test]
fn a_dry_run_prints_and_makes_nothing() {
    let p = Place::new();
    let d = p.ok(&["train", "--dry-run"]);
    for word in ["[learner]", "gamma = 0.5", "# parameters ", "# replay ", "# tape ", "# scratch "] {
        assert!(d.out.contains(word), "`{word}` is not in: {}", d.out);
    }
    p.fails(&["train", "--dry-run", "--set", "replay.capacity=1e12"], 2, &["memory", "replay.capacity"]);
    p.nothing_made();
}

#[test]
fn a_taken_folder_is_refused_and_a_file_in_its_place_is_a_failure() {
    let p = Place::new();
    p.small("r");
    let before = std::fs::read(p.path("r/config.toml")).expect("config");
    p.fails(&[SMALL, &["--run-dir", "r", "--seed", "2"]].concat(), 2, &["already holds a run", "--resume"]);
    assert_eq!(std::fs::read(p.path("r/config.toml")).expect("config"), before);
    std::fs::write(p.path("file"), "").expect("writing");
    p.fails(&[SMALL, &["--run-dir", "file"]].concat(), 1, &["file"]);
    std::fs::create_dir(p.path("empty")).expect("creating");
    p.small("empty");
}

#[test]
fn resume_names_what_can_be_resumed() {
    let p = Place::new();
    p.ok(SMALL);
    p.fails(&["train", "--resume"], 2, &["--run-dir", "runs/RepeatPreviousEasy__r2d2-mamba__s1__", "step 512"]);
    std::fs::create_dir(p.path("empty")).expect("creating");
    p.fails(&["train", "--resume", "--run-dir", "empty"], 2, &["config.toml"]);
}

#[test]
fn a_finished_run_does_nothing_and_more_steps_extend_it() {
    let p = Place::new();
    p.small("r");
    let result = std::fs::read(p.path("r/result.json")).expect("result");
    assert!(p.ok(&["train", "--resume", "--run-dir", "r"]).out.contains("nothing to do"));
    assert!(p.ok(&["train", "--resume", "--run-dir", "r", "--steps", "512"]).out.contains("nothing to do"));
    assert_eq!(std::fs::read(p.path("r/result.json")).expect("result"), result);
    p.ok(&["train", "--resume", "--run-dir", "r", "--steps", "1024"]);
    assert_eq!(p.json("r/result.json")["steps"], 1024);
    assert_eq!(Config::load_file(&p.path("r/config.toml")).expect("config").train.steps, 1024);
    assert!(p.ok(&["train", "--resume", "--run-dir", "r"]).out.contains("nothing to do"));
}

#[test]
fn a_resumed_run_keeps_its_settings() {
    let p = Place::new();
    p.small("r");
    let resume = ["train", "--resume", "--run-dir", "r", "--steps", "576"];
    let with = |more: &[&'static str]| [&resume[..], more].concat();
    p.fails(&with(&["--set", "learner.gamma=0.9"]), 2, &["learner.gamma", "0.5", "0.9"]);
    p.fails(&with(&["--seed", "2"]), 2, &["train.seed", "1", "2"]);
    p.fails(&with(&["--backbone", "gru"]), 2, &["backbone.name", "mamba", "gru"]);
    p.fails(&with(&["--env", "RepeatFirstEasy"]), 2, &["env.id", "RepeatPreviousEasy", "RepeatFirstEasy"]);
    p.fails(&with(&["--preset", "r2d2-paper"]), 2, &["r"]);
    p.fails(&with(&["--init-from", "r"]), 2, &["--init-from", "--resume"]);
    assert_eq!(p.json("r/result.json")["steps"], 512, "nothing was trained");
    // Equal flags, the short name, and what may differ.
    p.ok(&with(&["--seed", "1", "--env", "RepeatPreviousEasy", "--agent", "auto", "--set", "learner.gamma=suggested"]));
    assert_eq!(p.json("r/result.json")["steps"], 576);
    let free = [
        "--device",
        "auto",
        "--precision",
        "f32",
        "--set",
        "train.threads=1",
        "--set",
        "log.every=64",
        "--set",
        "eval.every=128",
        "--set",
        "checkpoint.every=64",
        "--steps",
        "640",
    ];
    p.ok(&[&["train", "--resume", "--run-dir", "r"], &free[..]].concat());
    assert_eq!(p.json("r/result.json")["steps"], 640);
    // The whole first command again, with more steps.
    p.ok(&[SMALL, &["--run-dir", "r", "--resume", "--steps", "704", "--preset", "popgym"]].concat());
    assert_eq!(p.json("r/result.json")["steps"], 704);
}

#[test]
fn a_run_without_a_checkpoint_starts_again_and_says_so() {
    let p = Place::new();
    p.small("r");
    std::fs::remove_dir_all(p.path("r/checkpoints")).expect("removing");
    let d = p.ok(&["train", "--resume", "--run-dir", "r"]);
    assert!(format!("{}{}", d.out, d.err).contains("starting again at step 0"), "{}{}", d.out, d.err);
    assert_eq!(steps_of(&p.path("r")).last(), Some(&512));
}

#[test]
fn weights_can_begin_a_new_run() {
    let p = Place::new();
    p.small("a");
    p.ok(&[SMALL, &["--run-dir", "b", "--init-from", "a", "--seed", "2"]].concat());
    assert_eq!(p.json("b/result.json")["steps"], 512);
    let d = p.run(&[SMALL, &["--run-dir", "c", "--init-from", "a", "--set", "backbone.d_model=16"]].concat());
    assert!(d.code == 1 || d.code == 2, "{}", d.err);
    assert!(d.err.contains("error: ") && !d.err.contains("panicked"), "{}", d.err);
}

#[test]
fn evaluation_reports_and_repeats() {
    let p = Place::new();
    p.small("r");
    let args = ["eval", "r", "--episodes", "6", "--seed", "3", "--json"];
    let d = p.ok(&args);
    let report: Value = serde_json::from_str(&d.out).expect("JSON");
    for key in [
        "env",
        "episodes",
        "eval_return_mean",
        "eval_return_std",
        "eval_return_min",
        "eval_return_max",
        "eval_length_mean",
        "checkpoint",
        "seed",
    ] {
        assert!(report.get(key).is_some(), "{key} is missing in {report}");
    }
    assert_eq!(
        (&report["episodes"], &report["seed"], &report["eval_length_mean"]),
        (&6.into(), &3.into(), &51.0.into())
    );
    assert_eq!(d.out, p.ok(&args).out);
    for path in ["r/checkpoints/step-512", "r/checkpoints/step-512/model.safetensors"] {
        let same: Value =
            serde_json::from_str(&p.ok(&["eval", path, "--episodes", "6", "--seed", "3", "--json"]).out).expect("JSON");
        assert_eq!(same["eval_return_mean"], report["eval_return_mean"]);
    }
    assert!(p.ok(&["eval", "r", "--episodes", "6"]).out.contains("greedy return"));
    let d = p.ok(&["eval", "r", "--render"]);
    assert!(d.out.contains("step 51") && d.out.contains("end"), "{}", d.out);
    let d = p.ok(&["rollout", "--policy", "r", "--episodes", "2", "--jsonl"]);
    assert_eq!(d.out.lines().count(), 2);
    p.fails(&["rollout", "--policy", "r", "--env", "CartPole-v1"], 2, &["CartPole-v1", "observation space"]);
    p.fails(&["eval", "r", "--episodes", "0"], 2, &["--episodes"]);
}

#[test]
fn curves_are_drawn() {
    let p = Place::new();
    p.small("runs/a");
    p.ok(&[SMALL, &["--run-dir", "runs/b", "--seed", "2"]].concat());
    for (out, head) in [("c.svg", &b"<svg"[..]), ("c.png", b"\x89PNG")] {
        p.ok(&["plot", "runs", "-o", out]);
        assert!(std::fs::read(p.path(out)).expect(out).starts_with(head));
    }
    p.fails(&["plot", "runs", "-o", "c.gif"], 2, &[".svg", ".png", "gif"]);
}

/// CK-4: each kind of damage is exit code 1, names the file, and is no panic.
#[test]
fn ck_4_damaged_checkpoints_are_refused() {
    let p = Place::new();
    p.small("r");
    let path = p.path("r/checkpoints/step-512/model.safetensors");
    let whole = std::fs::read(&path).expect("weights");
    for cut in [0, 7, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).expect("writing");
        let sizes = [cut.to_string(), whole.len().to_string()];
        p.fails(
            &["eval", "r/checkpoints/step-512", "--episodes", "2"],
            1,
            &["model.safetensors", &sizes[0], &sizes[1]],
        );
    }
    let mut flipped = whole.clone();
    let last = flipped.len() - 3;
    flipped[last] ^= 1;
    std::fs::write(&path, &flipped).expect("writing");
    p.fails(&["eval", "r/checkpoints/step-512", "--episodes", "2"], 1, &["model.safetensors", "checksum"]);
    p.fails(&["train", "--resume", "--run-dir", "r", "--steps", "1024"], 1, &["model.safetensors"]);
}

/// Starts a run that would take days, and waits until it trains.
fn endless(p: &Place) -> Child {
    let args = [SMALL, &["--run-dir", "r", "--steps", "1e9", "--set", "log.every=64"]].concat();
    let child = p.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let start = Instant::now();
    let trains = || std::fs::metadata(p.path("r/metrics.jsonl")).is_ok();
    while !trains() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(trains(), "the run did not begin within a minute");
    std::thread::sleep(Duration::from_millis(300));
    child
}

fn signal(child: &Child, script: &str) {
    let script = script.replace("PID", &child.id().to_string());
    assert!(Command::new("sh").args(["-c", &script]).status().expect("sh").success());
}

/// CC-2: the first signal saves and exits with 3 within 10 s; resume goes on from there.
#[test]
#[cfg(unix)]
fn cc_2_a_signal_saves_and_the_run_goes_on() {
    for name in ["INT", "TERM"] {
        let p = Place::new();
        let child = endless(&p);
        let start = Instant::now();
        signal(&child, &format!("kill -{name} PID"));
        let d = done(child.wait_with_output().expect("ends"));
        assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
        assert_eq!(d.code, 3, "{}{}", d.out, d.err);
        assert!(d.out.contains("--resume --run-dir r"), "{}", d.out);
        let result = p.json("r/result.json");
        assert_eq!(result["stopped"], "interrupted");
        let step = result["steps"].as_u64().expect("steps");
        assert_eq!(steps_of(&p.path("r")).last(), Some(&step));
        let more = (step + 64).to_string();
        p.ok(&["train", "--resume", "--run-dir", "r", "--steps", &more]);
        assert_eq!(p.json("r/result.json")["steps"], step + 64);
    }
}

/// CC-2: a second signal ends at once with 130 and leaves no half-written checkpoint in the way.
#[test]
#[cfg(unix)]
fn cc_2_a_second_signal_ends_at_once() {
    let p = Place::new();
    let child = endless(&p);
    signal(&child, "kill -INT PID; kill -TERM PID");
    let d = done(child.wait_with_output().expect("ends"));
    assert_eq!(d.code, 130, "{}{}", d.out, d.err);
    p.ok(&["train", "--resume", "--run-dir", "r", "--steps", "1e9", "--dry-run"]);
    p.ok(&["info", "r"]);
}
