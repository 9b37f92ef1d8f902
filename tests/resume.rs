//! A run that is stopped, killed, starved or disturbed, and goes on: the end is that of a run that nothing happened to,
//! bit by bit, or a clear line says why not.

#![cfg(all(feature = "cli", unix))]

#[path = "support/cases_run.rs"]
mod cases_run;

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use cases_run::{
    CART_POLE, CONTINUOUS, Done, Runs, WINDOWS, assert_same, names, newest_step, resume, rows, signal, train,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::SafeTensors;

/// A run killed at random moments and resumed each time.
fn killed(sets: &[&str], kills: usize) {
    let runs = Runs::new();
    let whole = runs.whole("one", sets);
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let args = |runs: &Runs| if runs.path("two/config.toml").exists() { resume("two") } else { train("two", sets) };
    for _ in 0..kills {
        let mut child = runs.spawn(&args(&runs));
        std::thread::sleep(whole.mul_f64(rng.random_range(0.0..0.8)));
        child.kill().expect("killed");
        child.wait().expect("ends");
    }
    runs.ok(&args(&runs));
    println!("{kills} kills, seed {seed}");
    assert_same(&runs.path("one"), &runs.path("two"));
}

#[test]
fn kills_in_whole_episodes() {
    killed(&[], 2);
}

#[test]
fn kills_in_windows() {
    killed(WINDOWS, 2);
}

#[test]
fn kills_in_short_episodes() {
    killed(&[WINDOWS, CART_POLE].concat(), 1);
}

/// Where the target network acts it is the model, and the online weights lie beside the moments.
#[test]
fn the_saved_model_is_what_acts() {
    let runs = Runs::new();
    runs.ok(&train("one", &[WINDOWS, CART_POLE].concat()));
    let step = newest_step(&runs.path("one"));
    let dir = runs.path(&format!("one/checkpoints/step-{step}"));
    let bytes = |file: &str| std::fs::read(dir.join(file)).unwrap();
    let (model, rest) = (bytes("model.safetensors"), bytes("optimizer.safetensors"));
    let (model, rest) = (SafeTensors::deserialize(&model).unwrap(), SafeTensors::deserialize(&rest).unwrap());
    assert_eq!(rest.len(), 4 * model.len());
    for (name, weights) in model.tensors() {
        let of = |set: &str| rest.tensor(&format!("{set}.{name}")).unwrap().data().to_vec();
        assert_eq!(weights.data(), of("target"), "{name}");
    }
    assert!(model.tensors().iter().any(|(name, w)| w.data() != rest.tensor(&format!("online.{name}")).unwrap().data()));
}

#[test]
fn kills_with_continuous_actions() {
    killed(CONTINUOUS, 2);
}

#[test]
#[ignore = "twenty kills take minutes"]
fn twenty_kills() {
    for _ in 0..2 {
        killed(&[], 4);
        killed(WINDOWS, 4);
        killed(&[WINDOWS, CART_POLE].concat(), 2);
    }
}

/// Does the run write a checkpoint at this moment?
fn saving(run: &Path) -> bool {
    names(&run.join("checkpoints")).iter().any(|n| n.starts_with(".tmp-step"))
}

#[test]
fn kills_before_the_first_checkpoint_and_while_saving() {
    let (runs, sets) = (Runs::new(), [WINDOWS, &["train.steps=2400"]].concat());
    runs.whole("one", &sets);
    let run = runs.path("two");
    let mut args = train("two", &sets);
    for k in 0..3 {
        let mut child = runs.spawn(&args);
        let opened = || run.join("config.toml").exists() && run.join("checkpoints").exists();
        runs.wait(&mut child, "the moment", || if k == 0 { opened() } else { saving(&run) });
        child.kill().expect("killed");
        child.wait().expect("ends");
        args = resume("two");
    }
    let d = runs.ok(&args);
    assert_same(&runs.path("one"), &run);
    let left: Vec<String> = names(&run.join("checkpoints")).into_iter().filter(|n| n.starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?} {}", d.err);
}

#[test]
fn a_resume_before_the_first_checkpoint_says_so() {
    let (runs, sets) = (Runs::new(), ["checkpoint.every=0", "eval.every=0", "train.steps=800"]);
    runs.whole("one", &sets);
    let mut child = runs.spawn(&train("two", &[&sets[..], &["train.steps=1000000000"]].concat()));
    runs.wait(&mut child, "the run", || runs.path("two/metrics.jsonl").exists());
    child.kill().expect("killed");
    child.wait().expect("ends");
    let d = runs.ok(&[&resume("two")[..], &["--steps", "800"]].concat());
    assert!(d.err.contains("no complete checkpoint in two: starting again at step 0"), "{}", d.err);
    assert_same(&runs.path("one"), &runs.path("two"));
}

#[test]
fn a_finished_run_does_nothing_and_can_be_extended() {
    let runs = Runs::new();
    runs.whole("one", &["train.steps=2400"]);
    runs.whole("two", &["train.steps=1200"]);
    let before = std::fs::read(runs.path("two/result.json")).expect("result.json");
    let d = runs.ok(&["train", "--resume", "--run-dir", "two"]);
    assert!(d.out.contains("nothing to do"), "{}", d.out);
    assert_eq!(before, std::fs::read(runs.path("two/result.json")).expect("result.json"));
    runs.ok(&[&resume("two")[..], &["--steps", "2400"]].concat());
    assert_same(&runs.path("one"), &runs.path("two"));
}

#[test]
fn weights_from_another_run() {
    let runs = Runs::new();
    let sets = ["train.steps=240", "eval.every=0"];
    runs.whole("a", &sets);
    let begin =
        |dir, more: &[&'static str]| [&train(dir, &[&sets[..], more].concat())[..], &["--init-from", "a"]].concat();
    let model = |dir: &str| std::fs::read(runs.path(&format!("{dir}/model.safetensors"))).expect("weights");
    // Before the end of a first episode there is no update: the weights stay what they were given.
    runs.ok(&begin("b", &["train.seed=2"]));
    assert!(model("a/checkpoints/step-240") == model("b/checkpoints/step-240"));
    // What differs is named, with both values, and no folder is made.
    runs.fails(&begin("c", &["backbone.d_model=16"]), 2, &["backbone.d_model", "8", "16"]);
    runs.fails(&begin("c", &["backbone.rotate=off"]), 2, &["backbone.rotate", "off", "learned"]);
    runs.fails(&begin("c", &["env.id=popgym-RepeatPreviousEasy-v0"]), 2, &["action_space", "27", "4"]);
    assert!(!runs.path("c").exists());
    // A kill before the first checkpoint that was asked for does not lose them.
    let mut child = runs.spawn(&begin("d", &["train.seed=2", "train.steps=1000000000", "checkpoint.every=0"]));
    runs.wait(&mut child, "the first checkpoint", || runs.path("d/checkpoints/step-0").exists());
    child.kill().expect("killed");
    child.wait().expect("ends");
    runs.ok(&[&resume("d")[..], &["--steps", "240"]].concat());
    assert!(model("a/checkpoints/step-240") == model("d/checkpoints/step-240"));
}

/// A run that would take days, once it trains.
fn endless(runs: &Runs, dir: &str) -> Child {
    let mut child = runs.spawn(&train(dir, &["train.steps=1000000000"]));
    runs.wait(&mut child, "the first checkpoint", || runs.path(&format!("{dir}/checkpoints/step-240")).exists());
    child
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let runs = Runs::new();
    let mut child = endless(&runs, "r");
    let config = std::fs::read(runs.path("r/config.toml")).expect("config.toml");
    let again = [&resume("r")[..], &["--steps", "480"]].concat();
    runs.fails(&again, 2, &["another process trains in r"]);
    runs.fails(&train("r", &[]), 2, &["r already holds a run"]);
    assert_eq!(
        config,
        std::fs::read(runs.path("r/config.toml")).expect("config.toml"),
        "changed under a running process"
    );
    child.kill().expect("killed");
    child.wait().expect("ends");
    let step = newest_step(&runs.path("r"));
    runs.ok(&[&resume("r")[..], &["--steps", &(step + 80).to_string()]].concat());
}

#[test]
fn a_run_without_its_replay_goes_on_with_an_empty_one() {
    let runs = Runs::new();
    runs.whole("r", &["checkpoint.replay=none", "train.steps=1600", "checkpoint.every=800"]);
    assert!(!names(&runs.path("r/checkpoints/step-1600")).iter().any(|n| n.starts_with("replay-")));
    let before = runs.json("r/result.json")["updates"].as_u64().expect("updates");
    let d = runs.ok(&[&resume("r")[..], &["--steps", "4000"]].concat());
    assert!(d.err.contains("holds no replay") && d.err.contains("starts empty"), "{}", d.err);
    let after = runs.json("r/result.json")["updates"].as_u64().expect("updates");
    let all = rows(&runs.path("r"));
    let size =
        |step: u64| all.iter().find(|r| r["step"] == step).expect("a row")["replay/size"].as_f64().expect("a size");
    // The running episodes, of which 48 steps are to come, are not in the replay; the later ones are.
    assert!(size(1600) == 1600.0 && size(1680) == 32.0 && size(4000) > 1000.0);
    let learnt = |r: &&serde_json::Map<String, serde_json::Value>| r.contains_key("losses/td_loss");
    assert!(all.iter().filter(learnt).all(|r| r["losses/td_loss"].as_f64().is_some_and(f64::is_finite)));
    // Four learnt steps per environment step, 412 in an update, without a debt from the time in which it was empty.
    let (made, most) = (after - before, 4 * (4000 - 1600) / 412 + 8);
    assert!(made > most / 4 && made <= most, "{made} updates, at most {most} expected");
}

/// Writes a changed `state.json` with its checksum made right again.
fn reseal(path: &Path, change: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(path).expect("state.json");
    let changed = change(&text);
    assert!(changed.len() == text.len() && changed != text, "the change must keep the length");
    let sealed = &changed[..changed.len() - 21];
    let crc = crc32fast::hash(sealed.as_bytes());
    std::fs::write(path, format!("{sealed},\"crc32\":{crc:>10}}}\n")).expect("written");
}

#[test]
fn an_environment_that_does_not_repeat_is_told() {
    let runs = Runs::new();
    runs.whole("r", &[WINDOWS, &["train.steps=1200"]].concat());
    // The copy's observations will not be those that were hashed.
    reseal(&runs.path("r/checkpoints/step-1200/state.json"), |text| {
        let at = text.find("\"obs_hash\":").expect("a hash");
        let last = at + text[at..].find(',').expect("more fields") - 1;
        let digit = if &text[last..=last] == "1" { "2" } else { "1" };
        format!("{}{digit}{}", &text[..last], &text[last + 1..])
    });
    let d = runs.ok(&[&resume("r")[..], &["--steps", "2400"]].concat());
    assert!(d.err.contains("copies [0] did not repeat") && d.err.contains("no longer exact"), "{}", d.err);
    assert_eq!(runs.json("r/result.json")["steps"], 2400);
}

#[test]
fn damaged_checkpoints_and_metrics_are_told() {
    let runs = Runs::new();
    runs.whole("r", &["train.steps=480", "eval.every=0"]);
    let more = [&resume("r")[..], &["--steps", "720"]].concat();
    // A replay file: refused, with the way out.
    let newest = runs.path("r/checkpoints/step-480");
    let index = newest.join("replay-index.bin");
    let whole = std::fs::read(&index).expect("an index");
    std::fs::write(&index, &whole[..whole.len() / 2]).expect("written");
    runs.fails(&more, 1, &["replay-index.bin", &whole.len().to_string(), "delete r/checkpoints/step-480", "step-240"]);
    std::fs::write(&index, &whole).expect("written");
    // Metrics that are shorter than the checkpoint says, or gone.
    let metrics = runs.path("r/metrics.jsonl");
    let text = std::fs::read(&metrics).expect("metrics");
    std::fs::write(&metrics, &text[..text.len() / 2]).expect("written");
    runs.fails(&more, 1, &["metrics.jsonl", &(text.len() / 2).to_string(), &text.len().to_string()]);
    std::fs::remove_file(&metrics).expect("removed");
    runs.fails(&more, 1, &["metrics.jsonl"]);
    std::fs::write(&metrics, &text).expect("written");
    // An incomplete newest one: the one before it is taken, and that is said.
    std::fs::remove_file(newest.join("state.json")).expect("removed");
    let d = runs.ok(&more);
    assert!(d.err.contains("step-480") && d.err.contains("going on from r/checkpoints/step-240"), "{}", d.err);
    let steps: Vec<u64> = rows(&runs.path("r")).iter().filter_map(|r| r["step"].as_u64()).collect();
    assert_eq!(steps, (1..=9).map(|k| 80 * k).collect::<Vec<_>>());
    cases_run::assert_logs_agree(&runs.path("r"));
}

/// Runs with no file allowed to grow over so many blocks of 512 bytes.
fn limited(runs: &Runs, blocks: u32, args: &[&str]) -> Done {
    let mut c = Command::new("sh");
    c.args(["-c", &format!("ulimit -f {blocks} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_mamba-rl")]);
    c.args(args).current_dir(runs.path(""));
    c.output().expect("sh").into()
}

#[test]
fn logs_that_cannot_grow_are_given_up_with_one_warning() {
    let runs = Runs::new();
    let sets = ["log.every=8", "replay.capacity=1100", "train.steps=2400", "eval.every=0", "checkpoint.every=800"];
    let d = limited(&runs, 128, &train("r", &sets));
    assert_eq!(d.code, 0, "{}", d.err);
    for what in ["no more metrics in", "no more events in"] {
        assert_eq!(d.err.matches(what).count(), 1, "{}", d.err);
    }
    assert_eq!(runs.json("r/result.json")["steps"], 2400);
    // What was written is whole, and the run can go on.
    let last = |runs: &Runs| rows(&runs.path("r")).last().and_then(|r| r["step"].as_u64()).expect("a row");
    assert!(last(&runs) < 2400);
    runs.ok(&[&resume("r")[..], &["--steps", "2480"]].concat());
    assert_eq!(last(&runs), 2480);
    // Learning did not notice.
    runs.whole("s", &[&sets[..], &["train.steps=2480"]].concat());
    let model = |dir| std::fs::read(runs.path(dir).join("checkpoints/step-2480/model.safetensors")).expect("weights");
    assert!(model("r") == model("s"));
}

/// After a save that failed: exit code 1, one line, the old checkpoint as it was, nothing temporary.
fn assert_failed_save(runs: &Runs, d: &Done, words: &str) {
    assert_eq!(d.code, 1, "{}{}", d.out, d.err);
    let errors: Vec<&str> = d.err.lines().filter(|l| l.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains(words) && errors[0].contains("checkpoints"), "{}", d.err);
    let left = names(&runs.path("r/checkpoints"));
    assert!(left.iter().all(|n| n == "best.json" || n.starts_with("step-")), "{left:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_old_one() {
    let runs = Runs::new();
    let sets = ["log.every=1200", "eval.every=0", "checkpoint.every=1200"];
    runs.whole("one", &sets);
    runs.whole("r", &[&sets[..], &["train.steps=1200"]].concat());
    let more = [&resume("r")[..], &["--steps", "4800"]].concat();
    let d = limited(&runs, 16, &more);
    assert_failed_save(&runs, &d, "File too large");
    assert_eq!(newest_step(&runs.path("r")), 1200);
    runs.ok(&resume("r"));
    let model = |dir| std::fs::read(runs.path(dir).join("checkpoints/step-4800/model.safetensors")).expect("weights");
    assert!(model("one") == model("r"));
}

#[test]
fn a_full_disk_leaves_the_old_checkpoint() {
    let runs = Runs::new();
    let mount = runs.path("r");
    std::fs::create_dir(&mount).expect("a folder");
    let shell = |script: &str| Command::new("sh").args(["-c", script]).current_dir(runs.path("")).status();
    if !shell("mount -t tmpfs -o size=600k tmpfs r 2>/dev/null").is_ok_and(|s| s.success()) {
        println!("no right to mount a small disk: the test with a file-size limit stands for this one");
        return;
    }
    let d = runs.run(&train("r", &["replay.capacity=100000", "train.steps=100000", "eval.every=0", "log.every=800"]));
    let step = mamba_rl::checkpoint::Checkpoints::list(&mount).expect("readable").first().map(|l| l.problem.is_none());
    let failed =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| assert_failed_save(&runs, &d, "No space left")));
    let info = runs.run(&["info", "r"]);
    let unmounted = shell("umount r").is_ok_and(|s| s.success());
    assert!(failed.is_ok() && unmounted, "{}", d.err);
    assert!(step == Some(true) && info.code == 0, "{}", info.err);
}

#[test]
fn a_file_in_place_of_a_folder() {
    let runs = Runs::new();
    std::fs::write(runs.path("r"), "a file").expect("written");
    runs.fails(&train("r", &[]), 1, &["r"]);
    runs.whole("s", &["train.steps=240", "eval.every=0"]);
    std::fs::remove_dir_all(runs.path("s/checkpoints")).expect("removed");
    std::fs::write(runs.path("s/checkpoints"), "a file").expect("written");
    runs.fails(&[&resume("s")[..], &["--steps", "480"]].concat(), 1, &["s/checkpoints"]);
}

#[test]
fn a_signal_while_waiting_for_the_end_of_a_step_is_heard() {
    let runs = Runs::new();
    // All updates of the run are due in one step: the stop comes among them.
    let sets = ["learner.replay_ratio=2000", "train.steps=1600", "eval.every=0", "checkpoint.every=0"];
    let mut child = runs.spawn(&train("r", &sets));
    runs.wait(&mut child, "the run", || runs.path("r/metrics.jsonl").exists());
    std::thread::sleep(Duration::from_millis(700));
    signal(&child, "kill -INT PID");
    let d = Done::from(child.wait_with_output().expect("ends"));
    assert_eq!(d.code, 3, "{}{}", d.out, d.err);
    let state = runs.json(&format!("r/checkpoints/step-{}/state.json", newest_step(&runs.path("r"))));
    let progress = &state["state"]["progress"];
    assert!(progress["learning"] == true && progress["credit"].as_f64() > Some(0.0), "{progress}");
}

#[test]
fn a_signal_during_an_evaluation_is_heard() {
    let runs = Runs::new();
    let mut child = runs.spawn(&train("r", &["eval.every=80", "eval.episodes=1000000", "train.steps=1600"]));
    runs.wait(&mut child, "the run", || runs.path("r/metrics.jsonl").exists());
    std::thread::sleep(Duration::from_millis(700));
    let begun = std::time::Instant::now();
    signal(&child, "kill -TERM PID");
    let d = Done::from(child.wait_with_output().expect("ends"));
    assert!(d.code == 3 && begun.elapsed() < Duration::from_secs(10), "{} in {:?}: {}", d.code, begun.elapsed(), d.err);
    // The step counts, but it is not over: its evaluation and log line are still due.
    assert_eq!(newest_step(&runs.path("r")), 80);
    assert!(rows(&runs.path("r")).is_empty());
    let state = runs.json("r/checkpoints/step-80/state.json");
    assert_eq!(state["state"]["progress"]["learning"], true);
}

#[test]
fn an_edited_config_is_told_with_both_values() {
    let runs = Runs::new();
    runs.ok(&train("r", &["train.steps=1200", "learner.gamma=0.5"]));
    let path = runs.path("r/config.toml");
    let text = std::fs::read_to_string(&path).expect("config.toml");
    let edited = text.replace("gamma = 0.5", "gamma = 0.9");
    assert_ne!(edited, text);
    std::fs::write(&path, edited).expect("written");
    let mut args = resume("r");
    args.extend(["--steps", "2400"]);
    let d = runs.run(&args);
    assert_eq!(d.code, 2, "{}", d.err);
    for what in ["learner.gamma", "0.9", "0.5"] {
        assert!(d.err.contains(what), "{what}: {}", d.err);
    }
}

#[test]
fn a_reader_that_goes_away_does_not_stop_a_run() {
    let runs = Runs::new();
    let mut c = Command::new("sh");
    c.args(["-c", "\"$@\" 2>&1 | true", "sh", env!("CARGO_BIN_EXE_mamba-rl")]);
    c.args(train("r", &["train.steps=2400"])).current_dir(runs.path(""));
    assert!(c.status().expect("sh").success());
    assert_eq!(runs.json("r/result.json")["steps"], 2400);
}
