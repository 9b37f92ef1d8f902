//! `mamba-rl sweep` and `mamba-rl report` as their users meet them: suites, what is missing, interruptions, tables.

#![cfg(feature = "cli")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mamba_rl::train::RunLock;
use serde_json::Value;
use tempfile::TempDir;

/// Runs well under a second.
const TINY: &str = r#"
[defaults]
seeds = [1, 2]
steps = 512
set = { env.num_envs = 8, backbone.d_model = 8, network.head_hidden = 8, eval.episodes = 4, eval.every = 128, log.every = 64, learner.replay_ratio = 0.5 }
"#;

/// Two backbones, two seeds.
const FOUR: &str =
    "[[run]]\nlabel = \"a\"\nenv = \"RepeatFirstEasy\"\nbackbones = [\"mamba\", \"gru\"]\ntarget = -10\n";

struct Place(TempDir);

struct Done {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Done {
    fn from(o: Output) -> Self {
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        Done { code: o.status.code().unwrap_or(-1), out: text(o.stdout), err: text(o.stderr) }
    }
}

impl Place {
    /// With `s.toml`: the tiny defaults and these runs.
    fn new(runs: &str) -> Self {
        let place = Place(tempfile::tempdir().expect("a temporary folder"));
        place.suite(runs);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn suite(&self, runs: &str) {
        std::fs::write(self.path("s.toml"), format!("{TINY}{runs}")).expect("the suite is written");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_mamba-rl"));
        c.args(args).current_dir(self.0.path()).env("CUDA_VISIBLE_DEVICES", "");
        c
    }

    /// Runs and demands this exit code, and on errors words of the one line.
    fn run(&self, args: &[&str], code: i32, words: &[&str]) -> Done {
        let d = Done::from(self.command(args).output().expect("the command runs"));
        assert_eq!(d.code, code, "{args:?}: {}{}", d.out, d.err);
        for word in words {
            assert!(format!("{}{}", d.out, d.err).contains(word), "{args:?}: `{word}` is not in: {}{}", d.out, d.err);
        }
        d
    }

    fn sweep(&self, code: i32, words: &[&str]) -> Done {
        self.run(&["sweep", "--suite", "s.toml", "--out", "o", "--jobs", "2"], code, words)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The lines of o/results.jsonl, by label/backbone/seed.
    fn lines(&self) -> Vec<(String, Value)> {
        let line = |l: &str| serde_json::from_str::<Value>(l).unwrap_or_else(|e| panic!("{l}: {e}"));
        let mut lines: Vec<(String, Value)> =
            self.text("o/results.jsonl").lines().map(line).map(|v| (title(&v), v)).collect();
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        lines
    }

    fn titles(&self) -> Vec<String> {
        self.lines().into_iter().map(|l| l.0).collect()
    }

    /// A sweep that goes on while the test looks; ends by `end`.
    fn begin(&self) -> Child {
        let args = ["sweep", "--suite", "s.toml", "--out", "o", "--jobs", "2"];
        let mut c = self.command(&args);
        c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the sweep starts")
    }
}

fn title(v: &Value) -> String {
    format!("{}/{}/{}", v["label"].as_str().unwrap_or("?"), v["backbone"].as_str().unwrap_or("?"), v["seed"])
}

fn wait(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < Duration::from_secs(120), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without what tells of time.
fn timeless(mut v: Value) -> Value {
    let map = v.as_object_mut().expect("an object");
    ["wall_s", "cpu_s"].iter().for_each(|k| drop(map.remove(*k)));
    v
}

#[test]
fn the_suites_of_the_repository_are_right() {
    let p = Place::new("");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/suites");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("tools/suites").flatten() {
        let path = entry.path();
        assert_eq!(path.extension().and_then(|e| e.to_str()), Some("toml"), "{}", path.display());
        let d = p.run(&["sweep", "--dry-run", "--suite", &path.to_string_lossy()], 0, &["to do"]);
        if path.ends_with("popgym.toml") {
            assert!(d.out.ends_with("264 runs, 264 to do\n"), "{}", d.out);
        }
        seen += 1;
    }
    assert!(seen >= 6, "{seen} suites");
    // and so is the one in the document
    let text = std::fs::read_to_string(folder.join("../../docs/sweep.md")).expect("docs/sweep.md");
    let block = text.split("```toml\n").nth(1).and_then(|t| t.split("```").next()).expect("a block of TOML");
    std::fs::write(p.path("d.toml"), block).expect("written");
    // one task with four backbones and two tasks with four, three seeds each
    p.run(
        &["sweep", "--dry-run", "--suite", "d.toml"],
        0,
        &["36 runs, 36 to do", "short_window-RepeatPreviousMedium/lstm/3"],
    );
    assert!(!p.path("runs").exists(), "a dry run made something");
}

#[test]
fn what_is_missing_is_run_and_nothing_else() {
    let p = Place::new(FOUR);
    let all = ["a/gru/1", "a/gru/2", "a/mamba/1", "a/mamba/2"];
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--dry-run"], 0, &["a/mamba/1", "new", "4 runs, 4 to do"]);
    assert!(!p.path("o").exists());
    let d = p.sweep(0, &["4 runs, 0 finished, 4 to do, 2 at a time", "[4/4]", "4 of 4 runs finished", "report"]);
    assert_eq!(d.err.matches("done    a/").count(), 4, "{}", d.err);
    assert_eq!(p.titles(), all);
    let first = p.lines();
    // the summary: mean over the two seeds, mamba before gru
    let mean = |body: &str| {
        let of = first.iter().filter(|l| l.1["backbone"] == body).filter_map(|l| l.1["greedy_mean"].as_f64());
        of.sum::<f64>() / 2.0
    };
    let line = format!("a{:39}  mamba {:.3} (2)  gru {:.3} (2)", "", mean("mamba"), mean("gru"));
    assert!(d.out.lines().any(|l| l == line), "no line `{line}` in: {}", d.out);
    for (name, v) in &first {
        assert_eq!((v["steps"].as_u64(), v["budget"].as_u64()), (Some(512), Some(512)), "{name}");
        assert_eq!((v["env"].as_str(), v["id"].as_str()), (Some("RepeatFirstEasy"), Some("popgym-RepeatFirstEasy-v0")));
        assert!(v["updates"].as_u64() > Some(0) && v["frames"].as_u64() > v["updates"].as_u64(), "{name}: {v}");
        assert_eq!(v["curve"]["steps"], serde_json::json!([128, 256, 384, 512]), "{name}");
        assert_eq!(v["curve"]["returns"].as_array().map(Vec::len), Some(4), "{name}");
        assert_eq!((v["reached_at"].as_u64(), v["target"].as_f64()), (Some(128), Some(-10.0)), "{name}");
        assert_eq!(v["return_range"], serde_json::json!([-1.0, 1.0]), "{name}");
        assert_eq!(
            (v["set"]["backbone.d_model"].as_u64(), v["config"]["learner.lr_heads"].as_f64()),
            (Some(8), Some(1e-3))
        );
    }
    // again: nothing is touched
    let before = p.text("o/results.jsonl");
    p.sweep(0, &["4 finished, 0 to do"]);
    assert_eq!(p.text("o/results.jsonl"), before);
    // folders may go: the lines are enough
    std::fs::remove_dir_all(p.path("o/a__gru__s1")).expect("removed");
    p.sweep(0, &["0 to do"]);
    assert_eq!(p.text("o/results.jsonl"), before);
    // lines may go: the folders are enough, and are not run again
    std::fs::write(
        p.path("o/results.jsonl"),
        before.lines().filter(|l| !l.contains("\"mamba\"")).collect::<Vec<_>>().join("\n"),
    )
    .expect("written");
    let d = p.sweep(0, &["4 finished, 0 to do"]);
    assert!(!d.err.contains("begin"), "{}", d.err);
    assert_eq!(p.lines(), first);
    // both are gone: run again, with the same outcome
    let without: Vec<String> = p.text("o/results.jsonl").lines().filter(|l| !l.contains("\"a\",\"env\":\"RepeatFirstEasy\",\"id\":\"popgym-RepeatFirstEasy-v0\",\"backbone\":\"gru\",\"agent\":\"r2d2\",\"seed\":1,")).map(str::to_owned).collect();
    assert_eq!(without.len(), 3, "{}", p.text("o/results.jsonl"));
    std::fs::write(p.path("o/results.jsonl"), without.join("\n") + "\n").expect("written");
    p.sweep(0, &["3 finished, 1 to do", "done    a/gru/1"]);
    let again: Vec<Value> = p.lines().into_iter().map(|l| timeless(l.1)).collect();
    assert_eq!(again, first.into_iter().map(|l| timeless(l.1)).collect::<Vec<_>>());
}

#[test]
fn filters_and_another_results_file() {
    let p = Place::new(FOUR);
    let args = ["sweep", "--suite", "s.toml", "--out", "o", "--quiet", "--results", "kept.jsonl", "--only"];
    p.run(&[&args[..], &["*/gru/2"]].concat(), 0, &["1 of 1 runs finished", "kept.jsonl"]);
    assert_eq!(p.text("kept.jsonl").lines().count(), 1);
    assert!(!p.path("o/results.jsonl").exists());
    std::fs::write(p.path("file"), "").expect("written");
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--results", "file/r.jsonl"], 1, &["file/r.jsonl"]);
    p.run(&[&args[..], &["b"]].concat(), 2, &["--only b", "labels of the suite: a"]);
    p.run(&[&args[..], &["a//1"]].concat(), 2, &["LABEL/BACKBONE"]);
    p.run(&["sweep", "--suite", "s.toml", "--max-minutes", "0"], 2, &["minutes"]);
    p.run(&["sweep", "--suite", "none.toml"], 2, &["none.toml", "does not exist"]);
    p.run(&["sweep", "--suite", "s.toml", "--jobs", "0"], 2, &["jobs"]);
}

#[test]
fn wrong_suites_make_nothing() {
    let p = Place::new("[[run]]\nenv = \"RepeatFirstEasy\"\nset = { learner.bach = 3 }\n");
    p.sweep(2, &["s.toml, line 8", "learner.bach", "learner.batch"]);
    p.suite("[[run]]\nenv = \"RepeatFirstEasi\"\n");
    p.sweep(2, &["s.toml, line 6", "RepeatFirstEasi"]);
    assert!(!p.path("o").exists());
}

/// Long enough to be caught in the middle.
const LONG: &str = "[[run]]\nlabel = \"l\"\nenv = \"RepeatFirstEasy\"\nbackbones = [\"mamba\", \"gru\"]\nseeds = [1]\nsteps = 100_000\n\
                    set = { eval.every = 20000, learner.replay_ratio = 8, checkpoint.every = 20000 }\n";

/// Both runs of [`LONG`] have begun.
fn both_begun(p: &Place) -> bool {
    let rows = |name: &str| {
        std::fs::read_to_string(p.path(&format!("o/l__{name}__s1/metrics.jsonl"))).is_ok_and(|t| t.len() > 200)
    };
    rows("mamba") && rows("gru")
}

/// What one uninterrupted `train` with the same settings comes to.
fn uninterrupted(p: &Place) -> Value {
    let sets = "env.num_envs=8 backbone.d_model=8 network.head_hidden=8 eval.episodes=4 eval.every=20000 log.every=64 \
                learner.replay_ratio=8 checkpoint.every=20000 train.threads=1";
    let mut args = vec!["train", "--env", "RepeatFirstEasy", "--steps", "100000", "--run-dir", "whole", "--quiet"];
    sets.split_whitespace().for_each(|s| args.extend(["--set", s]));
    p.run(&args, 0, &[]);
    serde_json::from_str(&p.text("whole/result.json")).expect("a result")
}

fn same(line: &Value, whole: &Value) {
    for (ours, theirs) in [
        ("steps", "steps"),
        ("updates", "updates"),
        ("frames", "frames"),
        ("episodes", "episodes"),
        ("greedy_mean", "eval_return_mean"),
        ("greedy_std", "eval_return_std"),
        ("mmer", "train_mmer"),
    ] {
        assert!(!line[ours].is_null(), "{ours}");
        assert_eq!(line[ours], whole[theirs], "{ours}");
    }
}

#[test]
fn a_killed_sweep_loses_nothing() {
    let p = Place::new(LONG);
    let mut torn = false;
    for _ in 0..2 {
        let mut sweep = p.begin();
        wait("both runs", || both_begun(&p) || sweep.try_wait().expect("a child").is_some());
        // a torn line, as a crash in the middle of a write leaves it
        sweep.kill().expect("killed");
        sweep.wait().expect("gone");
        if std::fs::read(p.path("o/results.jsonl")).is_ok_and(|t| t.is_empty()) {
            std::fs::write(p.path("o/results.jsonl"), "{\"label\":\"l\",\"env\":\"Repe").expect("written");
            torn = true;
        }
    }
    // the runs are left without their sweep, and stop by themselves; the next sweep waits for them
    let d = p.sweep(0, &["2 of 2 runs finished"]);
    assert_eq!(d.err.contains("cut off"), torn, "{}", d.err);
    assert_eq!(p.titles(), ["l/gru/1", "l/mamba/1"]);
    same(&p.lines()[1].1, &uninterrupted(&p));
}

#[cfg(unix)]
#[test]
fn a_signal_stops_a_sweep_and_the_next_one_goes_on() {
    let p = Place::new(LONG);
    let mut sweep = p.begin();
    wait("both runs", || both_begun(&p) || sweep.try_wait().expect("a child").is_some());
    let sent = Command::new("sh").arg("-c").arg(format!("kill -INT {}", sweep.id())).status().expect("sh");
    assert!(sent.success());
    let d = Done::from(sweep.wait_with_output().expect("ended"));
    assert_eq!(d.code, 3, "{}{}", d.out, d.err);
    assert!(
        d.err.contains("stopped l/mamba/1: saved") && d.out.contains("2 left: the same command goes on"),
        "{}{}",
        d.out,
        d.err
    );
    for name in ["mamba", "gru"] {
        let dir = p.path(&format!("o/l__{name}__s1"));
        let result: Value =
            serde_json::from_str(&std::fs::read_to_string(dir.join("result.json")).expect("saved")).expect("JSON");
        assert_eq!(result["stopped"], "interrupted");
        RunLock::take(&dir).expect("nobody trains there any more");
    }
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--dry-run"], 0, &["goes on at step", "2 to do"]);
    // there is a limit of time, too
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--max-minutes", "0.0001"], 3, &["2 left"]);
    p.sweep(0, &["resume  l/mamba/1", "2 of 2 runs finished"]);
    same(&p.lines()[1].1, &uninterrupted(&p));
}

#[test]
fn one_sweep_at_a_time() {
    let p = Place::new(FOUR);
    std::fs::create_dir(p.path("o")).expect("made");
    let _lock = RunLock::take(&p.path("o")).expect("free");
    p.sweep(2, &["another sweep works in o"]);
}

#[test]
fn changed_settings_are_no_old_results() {
    let p = Place::new(FOUR);
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--only", "a/gru/1"], 0, &[]);
    let changed = |set: &str| format!("{FOUR}{set}\n");
    let refused = |set: &str, words: &[&str]| {
        p.suite(&changed(set));
        p.sweep(2, &[&["a/gru/1", "results.jsonl"], words].concat());
    };
    refused("set = { learner.lr_heads = 0.5 }", &["`learner.lr_heads` is 0.5 in the suite, but 0.001"]);
    refused("steps = 1024", &["`train.steps` is 1024 in the suite, but 512"]);
    refused("set = { train.stop_return = 0.5 }", &["`train.stop_return` is 0.5 in the suite, but null"]);
    refused("set = { eval.every = 64 }", &["`eval.every`"]);
    p.suite(&FOUR.replace("RepeatFirstEasy", "RepeatPreviousEasy"));
    p.sweep(2, &["a/gru/1", "`env.id`", "popgym-RepeatFirstEasy-v0"]);
    // a folder without a line is no other run's either
    std::fs::remove_file(p.path("o/results.jsonl")).expect("removed");
    p.suite(&changed("set = { learner.lr_heads = 0.5 }"));
    p.sweep(2, &["a/gru/1", "`learner.lr_heads`", "config.toml"]);
    // how it is carried out is no setting
    p.suite(&changed("set = { log.every = 128, train.shards = 4 }\nthreads = 2"));
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--only", "a/gru/1"], 0, &["1 finished, 0 to do"]);
}

#[test]
fn a_failing_run_stops_no_other() {
    let p = Place::new(FOUR);
    p.run(&["sweep", "--suite", "s.toml", "--out", "o", "--only", "a/gru/1"], 0, &[]);
    // the run was interrupted and something has damaged its folder
    std::fs::remove_file(p.path("o/results.jsonl")).expect("removed");
    std::fs::remove_file(p.path("o/a__gru__s1/result.json")).expect("removed");
    std::fs::remove_dir_all(p.path("o/a__gru__s1/checkpoints")).expect("removed");
    std::fs::write(p.path("o/a__gru__s1/checkpoints"), "no folder").expect("written");
    let d = p.sweep(
        1,
        &["FAILED  a/gru/1: ", "failed: a/gru/1: ", "checkpoints", "a__gru__s1.log", "3 of 4 runs finished, 1 failed"],
    );
    assert_eq!(d.err.matches("done    a/").count(), 3, "{}", d.err);
    assert_eq!(p.titles(), ["a/gru/2", "a/mamba/1", "a/mamba/2"]);
    std::fs::remove_dir_all(p.path("o/a__gru__s1")).expect("removed");
    p.sweep(0, &["3 finished, 1 to do", "4 of 4 runs finished"]);
    // neither does a finished folder that cannot be read
    let text = p.text("o/results.jsonl");
    let (gone, kept): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|l| l.contains("\"mamba\"") && l.contains("\"seed\":2"));
    assert_eq!((gone.len(), kept.len()), (1, 3));
    std::fs::write(p.path("o/results.jsonl"), kept.join("\n") + "\n").expect("written");
    std::fs::write(p.path("o/a__mamba__s2/metrics.jsonl"), "?\n").expect("written");
    p.sweep(1, &["failed: a/mamba/2: ", "metrics.jsonl", "3 of 4 runs finished, 1 failed"]);
}

/// One line of results by hand; `more` are further fields.
fn result(label: &str, env: &str, backbone: &str, seed: u64, greedy: f64, mmer: f64, more: &str) -> String {
    format!(
        "{{\"label\":\"{label}\",\"env\":\"{env}\",\"backbone\":\"{backbone}\",\"seed\":{seed},\"preset\":\"popgym\",\"budget\":1000,\
         \"greedy_mean\":{greedy},\"mmer\":{mmer},\"return_range\":[-1,1],\"stopped\":\"finished\",\"version\":\"0.1.0\",{more}}}\n"
    )
}

/// Three tasks: one with all numbers, one won by steps, one with a single seed of a single backbone.
fn by_hand() -> String {
    let mut text = String::new();
    let hard = [(1.0, 0.30, 100), (0.98, 0.35, 300), (0.99, 0.40, 200)];
    for (i, (greedy, mmer, at)) in hard.into_iter().enumerate() {
        let n = i + 1;
        let more = format!(
            "\"set\":{{\"backbone.d_conv\":64}},\"steps\":400,\"updates\":{n}0,\"frames\":{n}500,\"wall_s\":{n}.0,\"cpu_s\":{n}0.0,\
             \"target\":0.95,\"reached_at\":{at},\"curve\":{{\"steps\":[100,400],\"returns\":[0.5,{greedy}]}}"
        );
        text += &result("hard", "RepeatPreviousHard", "mamba", n as u64, greedy, mmer, &more);
    }
    for (seed, greedy, mmer) in [(1, -0.5, -0.45), (2, -0.3, -0.44), (3, -0.6, -0.46)] {
        let more = "\"steps\":800,\"target\":0.95,\"curve\":{\"steps\":[400,800],\"returns\":[-0.5,-0.4]}";
        text += &result("hard", "RepeatPreviousHard", "gru", seed, greedy, mmer, more);
    }
    for (seed, mmer) in [(1, 0.995), (2, 0.996), (3, 0.997)] {
        let more = |at: u64| format!("\"steps\":400,\"target\":0.98,\"reached_at\":{at}");
        text += &result("RepeatFirstEasy", "RepeatFirstEasy", "gru", seed, 1.0, mmer - 0.5, &more(100 * seed + 300));
        text += &result("RepeatFirstEasy", "RepeatFirstEasy", "mamba", seed, 0.995, mmer, &more(100 * seed));
    }
    text + &result("MineSweeperEasy", "MineSweeperEasy", "mamba", 1, 0.25, 0.125, "\"steps\":64")
}

#[test]
fn a_report_has_the_numbers_by_hand() {
    let p = Place::new("");
    std::fs::write(p.path("r.jsonl"), by_hand()).expect("written");
    let d = p.run(&["report", "r.jsonl"], 0, &[]);
    let has = |line: &str| assert!(d.out.lines().any(|l| l == line), "no line `{line}` in:\n{}", d.out);
    has("13 runs in 3 rows. Made by `mamba-rl report r.jsonl`.");
    has(
        "| task | target | mamba | gru | first | MMER, mamba | published best (MMER) | mamba by MMER | by greedy return |",
    );
    has("| MineSweeperEasy | - | 0.250 | - | - | 0.125 | - | - | - |");
    // equal within 0.01; gru's median is 500 steps, mamba's 200
    has(
        "| RepeatFirstEasy | 0.98 in 1,000 | **0.995** (3 of 3) | 1.000 (3 of 3) | mamba (fewer steps) | 0.996 | 1.000 (GRU) | tied | tied |",
    );
    // the interval of three seeds is from the worst to the best: 0.30 to 0.40, above 0.191 by more than 0.01
    has(
        "| RepeatPreviousHard (`hard`) | 0.95 in 1,000 | **0.990** (3 of 3) | -0.467 (0 of 3) | mamba | 0.350 | 0.191 (LMU) | beaten | beaten |",
    );
    assert!(d.out.contains("First in 2 rows with more than one backbone: mamba 2, gru 0; shared 0."), "{}", d.out);
    let tally =
        "Published rows, mamba: by MMER 1 beaten, 1 tied, 0 missed; by greedy return 1 beaten, 1 tied, 0 missed.";
    assert!(d.out.contains(tally), "{}", d.out);
    has("Fewer than 3 seeds, so hints and no results: MineSweeperEasy mamba.");
    // scaled to 0..1: mamba 0.9975 x 3, 1, 0.99, 0.995, gru 1 x 3, 0.25, 0.35, 0.2; one of six left out at either end
    assert!(d.out.contains("\n| mamba | 6 | 0.997 ["), "{}", d.out);
    assert!(d.out.contains("\n| gru | 6 | 0.650 ["), "{}", d.out);
    // 1, 2 and 3 s, of the CPU ten times as many, for 400 steps each
    has("| RepeatPreviousHard (`hard`) | 2.0 / 20.0 (20) | - |");
    assert!(d.out.contains("Targets reached by the mean over seeds: mamba 2 of 2, gru 1 of 2.\n"), "{}", d.out);
    // beside published values
    has(
        "| RepeatPreviousHard (`hard`) | gru | 3 | 800 | -0.450 [-0.460 to -0.440] | 0.191 (LMU) | missed | -0.467 [-0.600 to -0.300] | missed | -0.502 | - |",
    );
    has(
        "| MineSweeperEasy | mamba | 1 | 64 | 0.125 [0.125 to 0.125] | - | - | 0.250 [0.250 to 0.250] | - | -0.242 | 0.770 (exact least-risk click) |",
    );
    assert!(d.out.contains("Morad et al., ICLR 2023"), "{}", d.out);
    // details: deviation of 1, 0.98, 0.99 is 0.01; of 0.30, 0.35, 0.40 it is 0.05
    has(
        "| `hard` | mamba | 3 | 0.990 ± 0.010 | 0.980 | 0.990 [0.980 to 1.000] | 0.350 ± 0.050 | - | 0.95: 3 of 3 | 200; 100 to 300 | 400 | 20 | 2,500 | 2 | 20 |",
    );
    has(
        "| `hard` | gru | 3 | -0.467 ± 0.153 | -0.600 | -0.467 [-0.600 to -0.300] | -0.450 ± 0.010 | - | 0.95: 0 of 3 | - | 800 | 0 | 0 | 0 | - |",
    );
    assert!(
        d.out.contains("`hard`, mamba: preset popgym, at most 1,000 steps, backbone.d_conv = 64, version 0.1.0."),
        "{}",
        d.out
    );
}

/// Seeds that a backbone has alone do not count over all rows.
#[test]
fn a_report_weighs_backbones_alike() {
    let p = Place::new("");
    let of = |label, backbone, seed, greedy| result(label, label, backbone, seed, greedy, 0.0, "\"steps\":64");
    let text: String = ["RepeatFirstEasy", "RepeatPreviousHard"]
        .map(|l| of(l, "mamba", 1, 0.5) + &of(l, "mamba", 2, 1.0) + &of(l, "mamba", 3, 1.0) + &of(l, "gru", 1, 0.0))
        .concat();
    std::fs::write(p.path("r.jsonl"), text).expect("written");
    let d = p.run(&["report", "r.jsonl"], 0, &["Over 2 rows"]);
    // scaled to 0..1 from -1..1
    assert!(d.out.contains("\n| mamba | 2 | 0.750 [0.750 to 0.750]"), "{}", d.out);
    assert!(d.out.contains("\n| gru | 2 | 0.500 ["), "{}", d.out);
}

/// Several settings of a task: a panel for each backbone, a curve for each setting.
#[test]
fn a_report_draws_settings_side_by_side() {
    let p = Place::new("");
    let curve = "\"steps\":400,\"curve\":{\"steps\":[100,400],\"returns\":[0.5,0.75]}";
    let runs = ["first_setting", "second_setting"].map(|label| {
        let of = |backbone| result(label, "RepeatPreviousHard", backbone, 1, 0.75, 0.5, curve);
        of("mamba") + &of("gru")
    });
    std::fs::write(p.path("r.jsonl"), runs.concat()).expect("written");
    p.run(&["report", "r.jsonl", "--out", "site"], 0, &["4 runs, 1 picture"]);
    let picture = p.text("site/curves-RepeatPreviousHard.svg");
    let times = |text: &str| picture.matches(text).count();
    let texts = ["RepeatPreviousHard, mamba", "RepeatPreviousHard, gru", "first_setting", "second_setting"];
    assert_eq!(texts.map(times), [1, 1, 1, 1]);
}

#[test]
fn a_report_takes_several_files_and_draws() {
    let p = Place::new("");
    std::fs::write(p.path("r.jsonl"), by_hand() + "{\"label\":\"cut").expect("written");
    let later = result("MineSweeperEasy", "MineSweeperEasy", "mamba", 1, 0.75, 0.5, "\"steps\":64");
    std::fs::create_dir(p.path("more")).expect("made");
    std::fs::write(p.path("more/results.jsonl"), later).expect("written");
    p.run(
        &["report", "r.jsonl", "more", "--out", "site"],
        0,
        &["cut off", "wrote site/report.md: 13 runs, 1 picture\n"],
    );
    let text = p.text("site/report.md");
    assert!(text.contains("| MineSweeperEasy | - | 0.750 | - |"), "{text}");
    assert!(text.contains("![Curves of RepeatPreviousHard](curves-RepeatPreviousHard.svg)"), "{text}");
    let picture = p.text("site/curves-RepeatPreviousHard.svg");
    assert!(picture.contains("mamba") && picture.contains("gru") && picture.contains("RepeatPreviousHard"));
    p.run(&["report", "none.jsonl"], 2, &["none.jsonl", "mamba-rl sweep"]);
    std::fs::write(p.path("bad.jsonl"), "{\"label\":\"a\"}\n").expect("written");
    p.run(&["report", "bad.jsonl"], 1, &["bad.jsonl", "line 1", "env"]);
    std::fs::write(p.path("empty.jsonl"), "").expect("written");
    p.run(&["report", "empty.jsonl"], 2, &["no result"]);
}
