//! Runs as a whole, through the command: the bodies of the field cases about resume, repetition, signals and memory, and
//! what they share with `resume.rs`: starting, killing and comparing runs.
#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mamba_rl::checkpoint::Checkpoints;
use mamba_rl::config::Config;
use mamba_rl::logger::reader;
use mamba_rl::replay::SequenceReplay;
use mamba_rl::train::Parts;
use serde_json::{Map, Value};
use tempfile::TempDir;

/// A small network on episodes of 103 steps, saved every 240 steps, so that copies are in mid-episode.
pub const EPISODES: &[&str] = &[
    "env.id=popgym-CountRecallMedium-v0",
    "env.num_envs=8",
    "backbone.d_model=8",
    "network.head_hidden=8",
    "learner.batch=4",
    "learner.replay_ratio=4",
    "replay.capacity=2000",
    "eval.every=1200",
    "eval.episodes=8",
    "log.every=80",
    "checkpoint.every=240",
    "train.threads=1",
    "train.steps=4800",
];

/// The same in windows with stored states.
pub const WINDOWS: &[&str] =
    &["replay.layout=window", "learner.length=20", "learner.burn_in=10", "log.delta_q_every=7", "learner.lr_decay=0.8"];

/// Another task in windows: many short episodes.
pub const CART_POLE: &[&str] =
    &["env.id=popgym-PositionOnlyCartPoleMedium-v0", "learner.length=8", "learner.burn_in=4"];

/// Continuous actions: actor and critics in windows, states in half precision.
pub const CONTINUOUS: &[&str] = &[
    "env.id=popgym-PositionOnlyPendulumHard-v0",
    "learner.length=16",
    "learner.burn_in=8",
    "log.delta_q_every=7",
    "backbone.d_model=6",
];

/// Tags that tell of time.
const TIMED: [&str; 3] = ["wall_s", "charts/SPS", "learner/updates_per_s"];

/// A folder for runs.
pub struct Runs(TempDir);

/// What a command came to.
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Done {
    fn from(o: Output) -> Self {
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        Done { code: o.status.code().unwrap_or(-1), out: text(o.stdout), err: text(o.stderr) }
    }
}

impl Runs {
    pub fn new() -> Self {
        Runs(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `mamba-rl` in this folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_mamba-rl"));
        c.args(args).current_dir(self.0.path());
        c
    }

    pub fn run(&self, args: &[&str]) -> Done {
        self.command(args).output().expect("the command runs").into()
    }

    /// Runs and demands success.
    pub fn ok(&self, args: &[&str]) -> Done {
        let d = self.run(args);
        assert_eq!(d.code, 0, "{args:?}: {}", d.err);
        d
    }

    /// Runs and demands this exit code and one line of error with these words.
    pub fn fails(&self, args: &[&str], code: i32, words: &[&str]) -> Done {
        let d = self.run(args);
        assert_eq!(d.code, code, "{args:?}: {}{}", d.out, d.err);
        let errors: Vec<&str> = d.err.lines().filter(|l| l.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && !d.err.contains("internal failure"), "{args:?}: {}", d.err);
        for word in words {
            assert!(errors[0].contains(word), "`{word}` is not in: {}", errors[0]);
        }
        d
    }

    /// A whole run with settings over [`EPISODES`]; how long it took.
    pub fn whole(&self, dir: &str, sets: &[&str]) -> Duration {
        let begun = Instant::now();
        self.ok(&train(dir, sets));
        begun.elapsed()
    }

    /// Starts a command whose output waits in pipes.
    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path(path)).expect(path)).expect(path)
    }

    /// Waits until something is true of a run that is under way.
    pub fn wait(&self, child: &mut Child, what: &str, test: impl Fn() -> bool) {
        let begun = Instant::now();
        while !test() {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none() && begun.elapsed() < Duration::from_secs(120), "{what} did not come: {ended:?}");
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Arguments of a run with settings over [`EPISODES`].
pub fn train<'a>(dir: &'a str, sets: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", "--quiet", "--run-dir", dir];
    args.extend(EPISODES.iter().chain(sets).flat_map(|s| ["--set", s]));
    args
}

/// Arguments that go on with a run.
pub fn resume(dir: &str) -> Vec<&str> {
    vec!["train", "--quiet", "--resume", "--run-dir", dir]
}

/// Names in a folder, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Rows of `metrics.jsonl` without what tells of time; steps rise strictly.
pub fn rows(run: &Path) -> Vec<Map<String, Value>> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics.jsonl");
    let mut rows: Vec<Map<String, Value>> = text.lines().map(|l| serde_json::from_str(l).expect("a row")).collect();
    assert!(rows.is_sorted_by(|a, b| a["step"].as_u64() < b["step"].as_u64()), "steps do not rise strictly");
    rows.iter_mut().for_each(|r| TIMED.iter().for_each(|t| drop(r.remove(*t))));
    rows
}

/// All curves of the event files, every record of which is whole or the torn last one; steps rise strictly.
pub fn curves(run: &Path) -> BTreeMap<String, Vec<(i64, u32)>> {
    let mut curves = reader::scalars(run).expect("event files");
    TIMED.iter().for_each(|t| drop(curves.remove(*t)));
    for (tag, points) in &curves {
        assert!(points.is_sorted_by(|a, b| a.0 < b.0), "{tag}: {points:?}");
    }
    curves.into_iter().map(|(t, p)| (t, p.into_iter().map(|(s, v)| (s, v.to_bits())).collect())).collect()
}

/// Rows and event files tell the same.
pub fn assert_logs_agree(run: &Path) {
    let mut from_rows: BTreeMap<String, Vec<(i64, u32)>> = BTreeMap::new();
    for row in rows(run) {
        let step = row["step"].as_i64().expect("a step");
        for (tag, v) in row.iter().filter(|(t, _)| t.contains('/')) {
            from_rows.entry(tag.clone()).or_default().push((step, (v.as_f64().expect("a number") as f32).to_bits()));
        }
    }
    assert_eq!(from_rows, curves(run), "metrics.jsonl and event files differ");
}

/// JSON without what tells of time.
fn timeless(mut v: Value) -> Value {
    fn walk(v: &mut Value) {
        match v {
            Value::Object(map) => {
                ["wall_s", "cpu_s", "metrics_bytes"].iter().for_each(|k| drop(map.remove(*k)));
                map.values_mut().for_each(walk);
            }
            Value::Array(list) => list.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut v);
    v
}

/// `state.json` without what tells of time; its own length and checksum depend on that.
fn state(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("state.json")).expect("state.json");
    let mut v = timeless(serde_json::from_slice(&text).expect("JSON"));
    let top = v.as_object_mut().expect("an object");
    ["bytes", "crc32"].iter().for_each(|k| drop(top.remove(*k)));
    // settings that a run may be resumed or repeated with at another value
    if let Some(train) = v.pointer_mut("/state/config/train").and_then(Value::as_object_mut) {
        ["steps", "threads"].iter().for_each(|k| assert!(train.remove(*k).is_some(), "{k}"));
    }
    v
}

fn result(run: &Path) -> Value {
    timeless(serde_json::from_slice(&std::fs::read(run.join("result.json")).expect("result.json")).expect("JSON"))
}

/// Two runs left the same: every file of every checkpoint, metrics, curves and result; times aside.
pub fn assert_same(a: &Path, b: &Path) {
    assert_eq!(rows(a), rows(b), "metrics.jsonl");
    assert_eq!(curves(a), curves(b), "event files");
    assert_logs_agree(b);
    assert_eq!(result(a), result(b), "result.json");
    let (a, b) = (a.join("checkpoints"), b.join("checkpoints"));
    assert_eq!(names(&a), names(&b), "checkpoints");
    for folder in names(&a) {
        let (a, b) = (a.join(&folder), b.join(&folder));
        assert_eq!(names(&a), names(&b), "{folder}");
        for name in names(&a) {
            if name == "state.json" {
                assert_eq!(state(&a), state(&b), "{folder}/{name}");
            } else {
                let read = |dir: &Path| std::fs::read(dir.join(&name)).expect("a file");
                assert!(read(&a) == read(&b), "{folder}/{name} differs");
            }
        }
    }
}

/// The newest checkpoint in a form that does not depend on when earlier ones were made: all of its files, with the replay
/// written anew as one segment.
pub fn newest(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let dir = Checkpoints::newest(run).expect("a readable folder").expect("a checkpoint");
    let mut config = Config::load_file(&run.join("config.toml")).expect("config.toml");
    let env = mamba_rl_envs::make(&config.env.id, &config.env_args().expect("arguments")).expect("a task");
    config.resolve(env.spec()).expect("a config");
    let parts = Parts::new(&config, None).expect("parts");
    let empty = parts.replay.lock().expect("no thread failed");
    let (spec, settings) = (empty.spec().clone(), empty.config().clone());
    let mut replay = SequenceReplay::load(spec, settings, &dir).expect("a replay");
    replay.keep_segments(&[]);
    let again = tempfile::tempdir().expect("a temporary folder");
    replay.save_segments(again.path()).expect("saved");
    let mut files = BTreeMap::new();
    for (folder, replays) in [(dir.as_path(), false), (again.path(), true)] {
        for name in names(folder) {
            if name.starts_with("replay-") == replays && name != "state.json" {
                files.insert(name.clone(), std::fs::read(folder.join(&name)).expect("a file"));
            }
        }
    }
    let mut state = state(&dir);
    drop(state.as_object_mut().expect("an object").remove("files"));
    files.insert("state.json".into(), state.to_string().into_bytes());
    files
}

/// Two runs ended the same, though they may have saved at other moments.
pub fn assert_same_end(a: &Path, b: &Path) {
    assert_eq!(rows(a), rows(b), "metrics.jsonl");
    assert_eq!(curves(a), curves(b), "event files");
    assert_eq!(result(a), result(b), "result.json");
    assert_same_files(&newest(a), &newest(b));
}

fn assert_same_files(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in a {
        assert!(b[name] == *bytes, "{name} differs");
    }
}

/// CK-1: 1,000 updates in one go, and 500, a save, a new process, 500.
pub fn ck_1_a_new_process_in_the_middle_changes_nothing() {
    ["backbone.rotate=off", "backbone.rotate=learned"].into_iter().for_each(a_new_process_changes_nothing);
}

fn a_new_process_changes_nothing(rotate: &str) {
    let runs = Runs::new();
    // Episodes have 51 learnt steps, a batch of 4 has 204: an update every second step.
    let sets = ["env.id=popgym-RepeatPreviousEasy-v0", "env.num_envs=1", "learner.replay_ratio=102", "eval.every=500"];
    let sets = [&sets[..], &["checkpoint.every=500", "log.every=50", "replay.capacity=1100", rotate]].concat();
    runs.whole("one", &[&sets[..], &["train.steps=2000"]].concat());
    runs.whole("two", &[&sets[..], &["train.steps=1000"]].concat());
    assert_eq!(runs.json("two/result.json")["updates"], 500);
    runs.ok(&[&resume("two")[..], &["--steps", "2000"]].concat());
    assert_eq!(runs.json("two/result.json")["updates"], 1000);
    assert_same(&runs.path("one"), &runs.path("two"));
}

/// CK-2: one copy, a budget of 10,000 steps, stopped and resumed at 5,000.
pub fn ck_2_a_budget_is_met_exactly_across_a_stop() {
    let runs = Runs::new();
    let sets =
        ["env.num_envs=1", "learner.replay_ratio=1", "eval.every=2500", "checkpoint.every=2500", "log.every=100"];
    runs.whole("one", &[&sets[..], &["train.steps=10000"]].concat());
    runs.whole("two", &[&sets[..], &["train.steps=5000"]].concat());
    let half = runs.json("two/result.json");
    assert_eq!(half["steps"], 5_000);
    runs.ok(&[&resume("two")[..], &["--steps", "10000"]].concat());
    let whole = runs.json("two/result.json");
    assert_eq!(whole["steps"], 10_000);
    for key in ["updates", "episodes", "wall_s"] {
        assert!(whole[key].as_f64() > half[key].as_f64(), "{key}: {} then {}", half[key], whole[key]);
    }
    let steps: Vec<u64> = rows(&runs.path("two")).iter().filter_map(|r| r["step"].as_u64()).collect();
    assert_eq!(steps, (1..=100).map(|k| 100 * k).collect::<Vec<_>>(), "a gap or a double");
    let text = std::fs::read_to_string(runs.path("two/metrics.jsonl")).expect("metrics.jsonl");
    let walls: Vec<f64> = text
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).expect("a row"))
        .map(|r| r["wall_s"].as_f64().expect("s"))
        .collect();
    assert!(walls.is_sorted() && walls[99] > walls[49], "wall_s starts over: {walls:?}");
    assert_same(&runs.path("one"), &runs.path("two"));
}

/// CF-3: the same seed gives the same bits, with any number of threads; another seed gives others.
pub fn cf_3_a_seed_repeats_with_any_number_of_threads() {
    let runs = Runs::new();
    let sets = [WINDOWS, &["train.steps=1600"]].concat();
    for (dir, more) in
        [("a", "train.threads=1"), ("b", "train.threads=1"), ("c", "train.threads=2"), ("d", "train.threads=3")]
    {
        runs.whole(dir, &[&sets[..], &[more]].concat());
        if dir != "a" {
            assert_same(&runs.path("a"), &runs.path(dir));
        }
    }
    runs.whole("e", &[&sets[..], &["train.seed=2"]].concat());
    let (a, e) = (newest(&runs.path("a")), newest(&runs.path("e")));
    for name in ["model.safetensors", "optimizer.safetensors", "actor.bin", "state.json"] {
        assert!(a[name] != e[name], "{name} does not depend on the seed");
    }
    assert_ne!(rows(&runs.path("a")), rows(&runs.path("e")));
}

/// CC-2: signals save, exit with 3 within 10 s, and the end is that of an uninterrupted run, also when the stop came among
/// the updates of one step; a second signal ends at once.
pub fn cc_2_signals_save_and_the_end_is_the_same() {
    let runs = Runs::new();
    // Many updates are due at the end of each episode.
    let sets = ["learner.replay_ratio=40", "train.steps=2400", "checkpoint.every=800"];
    let all = runs.whole("one", &sets);
    let mut args = train("two", &sets);
    for (k, name) in ["INT", "TERM", "INT"].into_iter().enumerate() {
        let mut child = runs.spawn(&args);
        runs.wait(&mut child, "config.toml", || runs.path("two/config.toml").exists());
        std::thread::sleep(Duration::from_millis(20) + all.mul_f64(0.2));
        let begun = Instant::now();
        signal(&child, &format!("kill -{name} PID"));
        let d = Done::from(child.wait_with_output().expect("ends"));
        assert!(begun.elapsed() < Duration::from_secs(10), "took {:?}", begun.elapsed());
        assert!(d.code == 3 || (k > 0 && d.code == 0), "{}: {}{}", d.code, d.out, d.err);
        let (step, result) = (newest_step(&runs.path("two")), runs.json("two/result.json"));
        assert_eq!(result["steps"], step);
        assert_eq!(result["stopped"], if d.code == 3 { "interrupted" } else { "finished" });
        args = resume("two");
    }
    // A second signal: at once, with 130; what was complete stays so. It may come too late, after the first one's save.
    let mut args = train("three", &sets);
    let code = (0..10).find_map(|_| {
        let mut child = runs.spawn(&args);
        runs.wait(&mut child, "config.toml", || runs.path("three/config.toml").exists());
        std::thread::sleep(Duration::from_millis(20) + all.mul_f64(0.05));
        signal(&child, "kill -INT PID; kill -TERM PID");
        args = resume("three");
        let d = Done::from(child.wait_with_output().expect("ends"));
        assert!(d.code == 130 || d.code == 3, "{}{}", d.out, d.err);
        (d.code == 130).then_some(d.code)
    });
    assert_eq!(code, Some(130));
    for dir in ["two", "three"] {
        runs.ok(&resume(dir));
        assert_same_end(&runs.path("one"), &runs.path(dir));
    }
}

/// SH-8: evaluation changes nothing: 5,000 steps with and without it.
pub fn sh_8_evaluation_changes_nothing() {
    let runs = Runs::new();
    runs.whole("with", &[WINDOWS, &["eval.every=500", "train.steps=5000"]].concat());
    runs.whole("without", &[WINDOWS, &["eval.every=0", "train.steps=5000"]].concat());
    let [with, without] = ["with", "without"].map(|dir| {
        let mut files = newest(&runs.path(dir));
        let mut state: Value = serde_json::from_slice(&files["state.json"]).expect("JSON");
        let progress = state["state"]["progress"].as_object_mut().expect("progress");
        ["best", "eval", "eval_step"].iter().for_each(|k| drop(progress.remove(*k)));
        files.insert("state.json".into(), state.to_string().into_bytes());
        files
    });
    assert_same_files(&with, &without);
    assert!(rows(&runs.path("with")).iter().filter(|r| r.contains_key("eval/return_mean")).count() == 10);
}

/// RP-9: 100,000 acting steps with stored states take no more memory than 10,000, once the replay is full.
pub fn rp_9_acting_does_not_grow() {
    let peak = |steps: u64| {
        let runs = Runs::new();
        // One update, in the last step.
        let (all, before) = (format!("train.steps={steps}"), format!("learner.start_after={}", steps - 1));
        let sets = [&all[..], &before, "replay.capacity=10000", "eval.every=0", "checkpoint.every=0"];
        let mut child = runs.spawn(&train("r", &[WINDOWS, &sets].concat()));
        let mut peak = None;
        while child.try_wait().expect("a child").is_none() {
            peak = peak.max(resident_kib(child.id()));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(child.wait().expect("ends").code(), Some(0));
        peak
    };
    let (short, long) = (peak(20_000), peak(120_000));
    // Where the system does not tell, there is nothing to compare.
    if let (Some(short), Some(long)) = (short, long) {
        assert!(long < short + 8 * 1024, "{short} KiB after 20,000 steps, {long} KiB after 120,000");
    }
}

/// Most memory that a process has had resident so far.
fn resident_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find(|l| l.starts_with("VmHWM:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a line of shell with the process's id for PID.
pub fn signal(child: &Child, script: &str) {
    let script = script.replace("PID", &child.id().to_string());
    assert!(Command::new("sh").args(["-c", &script]).status().expect("sh").success());
}

/// Step of a run's newest complete checkpoint.
pub fn newest_step(run: &Path) -> u64 {
    let found = Checkpoints::list(run).expect("a readable folder");
    found.iter().find(|c| c.problem.is_none()).expect("a checkpoint").step
}
