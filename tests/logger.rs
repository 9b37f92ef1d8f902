//! The logger against its field cases: nothing lost by an exit, an error, a panic or a kill; series without doubles after a
//! resume; NaN kept; full disks and vanished folders survived. Event files are read by the independent reader.
#![cfg(feature = "tensorboard")]

use mamba_rl::logger::{
    HparamValue, LogError, Logger, LoggerOptions,
    console::{Console, ConsoleOptions},
    jsonl, reader,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// What the child process does: `<mode>`, with the run folder in `DIR` and, for a resume, `step,bytes` in `FROM`.
const MODE: &str = "MAMBA_RL_LOGGER_TEST_MODE";
const DIR: &str = "MAMBA_RL_LOGGER_TEST_DIR";
const FROM: &str = "MAMBA_RL_LOGGER_TEST_FROM";

const THREE: [(&str, f64); 3] = [("losses/td_loss", 0.25), ("charts/SPS", 20.0), ("charts/episodic_return", 1.0)];

fn options(flush: Duration) -> LoggerOptions {
    LoggerOptions { flush_every: flush, ..LoggerOptions::default() }
}

fn resume(step: u64, bytes: u64) -> LoggerOptions {
    LoggerOptions { start_step: step, truncate_jsonl_to: Some(bytes), ..LoggerOptions::default() }
}

fn child(mode: &str, dir: &Path) -> Command {
    // these cases are part of two test programs, of one as a module
    let module = module_path!().split_once("::").map_or(String::new(), |(_, rest)| format!("{rest}::"));
    let mut command = Command::new(std::env::current_exe().expect("path of the test binary"));
    command.args(["--exact", &format!("{module}body_of_the_child_process"), "--ignored", "--nocapture"]);
    command.env(MODE, mode).env(DIR, dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
#[ignore = "not a test: what the other tests run in a process of its own"]
fn body_of_the_child_process() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let dir = PathBuf::from(std::env::var(DIR).expect("run folder"));
    match mode.as_str() {
        "return" => Logger::new(&dir, LoggerOptions::default()).expect("logger").log(10, 1.0, &THREE),
        "error" => {
            let run = || -> Result<(), LogError> {
                let mut logger = Logger::new(&dir, LoggerOptions::default())?;
                logger.log(10, 1.0, &THREE);
                Logger::new(&dir.join("missing"), LoggerOptions::default()).map(drop)
            };
            let code = if run().is_err() { 3 } else { 0 };
            std::process::exit(code);
        }
        "panic" => {
            let mut logger = Logger::new(&dir, LoggerOptions::default()).expect("logger");
            logger.log(10, 1.0, &THREE);
            panic!("on purpose");
        }
        "wait" => {
            let mut logger = Logger::new(&dir, LoggerOptions::default()).expect("logger");
            logger.log(10, 1.0, &THREE);
            println!("logged");
            std::thread::sleep(Duration::from_secs(60));
        }
        "busy" => busy(&dir),
        "full" => {
            let mut logger = Logger::new(&dir, LoggerOptions::default()).expect("logger");
            for step in 1..=20_000 {
                logger.log(step, 1.0, &THREE);
            }
            logger.flush();
            logger.take_warnings().iter().for_each(|line| println!("WARNING {line}"));
            println!("trained to the end");
        }
        "plain" | "quiet" => {
            let opts = ConsoleOptions { total_steps: 200, start_step: 100, quiet: mode == "quiet" };
            let mut console = Console::new(opts);
            console.update(100, None);
            console.update(150, Some(0.25));
            console.message("saved");
            console.warn("careful");
            console.update(200, Some(0.5));
        }
        other => panic!("unknown mode {other}"),
    }
}

/// Logs without pause, from the step and length in `FROM`.
fn busy(dir: &Path) {
    let from = std::env::var(FROM).expect("where to go on");
    let (step, bytes) = from.split_once(',').expect("step,bytes");
    let (mut step, bytes): (u64, u64) = (step.parse().expect("step"), bytes.parse().expect("bytes"));
    let opts = LoggerOptions { flush_every: Duration::from_millis(2), ..resume(step, bytes) };
    let mut logger = Logger::new(dir, opts).expect("logger");
    let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
    loop {
        step += 1;
        logger.log(step, step as f64, &THREE);
        logger.histogram("weights", step, &values);
        if step.is_multiple_of(50) {
            println!("step {step}");
        }
    }
}

fn rows(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(jsonl::FILE_NAME)).expect("metrics");
    text.lines().map(|line| serde_json::from_str(line).expect("a row of JSON")).collect()
}

fn steps(rows: &[Value]) -> Vec<u64> {
    rows.iter().map(|row| row["step"].as_u64().expect("step")).collect()
}

/// All scalars are there, in both sinks, in a file that is whole.
fn assert_three(dir: &Path) {
    let files = reader::event_files(dir).expect("folder");
    assert_eq!(files.len(), 1);
    assert_eq!(reader::read(&files[0]).expect("events").torn, 0);
    let curves = reader::scalars(dir).expect("curves");
    let row = &rows(dir)[0];
    for (tag, value) in THREE {
        assert_eq!(curves[tag], [(10, value as f32)], "{tag}");
        assert_eq!(row[tag], value, "{tag}");
    }
}

fn finish(mut command: Command) -> Output {
    command.output().expect("child process")
}

#[test]
fn lg_1_nothing_is_lost_by_return_error_or_panic() {
    for (mode, code) in [("return", 0), ("error", 3), ("panic", 101)] {
        let dir = tempfile::tempdir().expect("folder");
        let output = finish(child(mode, dir.path()));
        assert_eq!(output.status.code(), Some(code), "{mode}: {}", String::from_utf8_lossy(&output.stderr));
        assert_three(dir.path());
    }
}

fn wait_for(child: &mut Child, word: &str) {
    let out = child.stdout.as_mut().expect("stdout");
    let mut lines = BufReader::new(out).lines();
    assert!(lines.any(|line| line.expect("a line").contains(word)), "the child never said `{word}`");
}

#[test]
fn lg_1_a_killed_run_leaves_what_is_older_than_the_flush_interval() {
    let dir = tempfile::tempdir().expect("folder");
    let mut process = child("wait", dir.path()).spawn().expect("child process");
    wait_for(&mut process, "logged");
    std::thread::sleep(Duration::from_millis(5200));
    process.kill().expect("kill");
    process.wait().expect("end");
    assert_three(dir.path());
}

/// Kills a run `kills` times at random moments, each time resumed from what the metrics file holds.
fn kill_and_resume(kills: usize, seed: u64) {
    let dir = tempfile::tempdir().expect("folder");
    let metrics = dir.path().join(jsonl::FILE_NAME);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut step, mut bytes) = (0, 0);
    for n in 1..=kills {
        let mut command = child("busy", dir.path());
        let mut process = command.env(FROM, format!("{step},{bytes}")).spawn().expect("child process");
        wait_for(&mut process, "step");
        std::thread::sleep(Duration::from_micros(rng.random_range(0..60_000)));
        process.kill().expect("kill");
        process.wait().expect("end");
        let text = fs::read(&metrics).expect("metrics");
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let kept = std::str::from_utf8(&text[..whole]).expect("UTF-8");
        let last = kept.lines().last().map(|line| serde_json::from_str::<Value>(line).expect("a row of JSON"));
        step = last.map_or(0, |row| row["step"].as_u64().expect("step"));
        bytes = whole as u64;
        assert_eq!(reader::event_files(dir.path()).expect("folder").len(), n, "one event file per start");
    }
    assert!(step > 0, "nothing was ever flushed");
    for path in reader::event_files(dir.path()).expect("folder") {
        let file = reader::read(&path).expect("only the last record may be torn");
        assert_eq!(file.events[0].file_version.as_deref(), Some("brain.Event:2"));
        assert_eq!(file.events[1].session_status, Some(1));
    }
    drop(Logger::new(dir.path(), resume(step, bytes)).expect("a last resume"));
    let rows = steps(&rows(dir.path()));
    assert!(rows.windows(2).all(|w| w[0] < w[1]));
    for (tag, points) in reader::scalars(dir.path()).expect("curves") {
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0), "{tag}");
    }
}

#[test]
fn lg_2_event_files_survive_kills() {
    kill_and_resume(5, 1);
}

#[test]
#[ignore = "100 kills take a quarter of a minute or more"]
fn lg_2_event_files_survive_100_kills() {
    kill_and_resume(100, 2);
}

#[test]
fn lg_2_the_reader_knows_the_checksum_and_sees_damage() {
    // The check value of CRC-32C, as published with the polynomial.
    assert_eq!(reader::crc32c(b"123456789"), 0xe306_9283);
    let dir = tempfile::tempdir().expect("folder");
    Logger::new(dir.path(), LoggerOptions::default()).expect("logger").log(10, 1.0, &THREE);
    let path = reader::event_files(dir.path()).expect("folder").remove(0);
    let good = fs::read(&path).expect("events");
    let size = u64::from_le_bytes(good[..8].try_into().expect("8 bytes")) as usize;
    for (at, part) in [(0, "length"), (12, "payload"), (12 + size + 16 + 3, "payload")] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).expect("write");
        match reader::read(&path) {
            Err(LogError::Checksum { part: found, .. }) => assert_eq!(found, part, "byte {at}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    for cut in 1..good.len() - (12 + size + 4) {
        fs::write(&path, &good[..good.len() - cut]).expect("write");
        let file = reader::read(&path).expect("a torn end is no damage");
        assert_eq!(file.events.len(), 1, "cut {cut}");
        assert_eq!(file.torn as usize, good.len() - cut - (12 + size + 4));
    }
}

#[test]
fn lg_3_a_resume_leaves_one_value_per_step() {
    let dir = tempfile::tempdir().expect("folder");
    let mut logger = Logger::new(dir.path(), LoggerOptions::default()).expect("logger");
    let mut bytes = 0;
    for step in (10..=150).step_by(10) {
        logger.log(step, 0.1, &[("losses/td_loss", 1.0)]);
        if step == 100 {
            bytes = logger.jsonl_len();
        }
    }
    drop(logger);
    let first = reader::event_files(dir.path()).expect("folder").remove(0);
    let before = fs::read(&first).expect("events");
    let mut logger = Logger::new(dir.path(), resume(100, bytes)).expect("resume");
    logger.log(100, 0.1, &[("losses/td_loss", 2.0)]);
    assert_eq!(logger.take_warnings().len(), 1, "step 100 is the checkpoint's");
    for step in (110..=150).step_by(10) {
        logger.log(step, 0.2, &[("losses/td_loss", 2.0)]);
    }
    drop(logger);
    assert_eq!(fs::read(&first).expect("events"), before, "the first event file is untouched");
    let want: Vec<u64> = (10..=150).step_by(10).collect();
    let rows = rows(dir.path());
    assert_eq!(steps(&rows), want);
    let curve = &reader::scalars(dir.path()).expect("curves")["losses/td_loss"];
    assert_eq!(curve.iter().map(|p| p.0 as u64).collect::<Vec<_>>(), want);
    for ((step, value), row) in curve.iter().zip(&rows) {
        assert_eq!(*value, if *step <= 100 { 1.0 } else { 2.0 });
        assert_eq!(row["losses/td_loss"], f64::from(*value));
    }
}

#[test]
fn lg_4_nan_is_kept_and_named_once() {
    let dir = tempfile::tempdir().expect("folder");
    let mut logger = Logger::new(dir.path(), LoggerOptions::default()).expect("logger");
    for step in (10..=60).step_by(10) {
        let loss = if step == 40 || step == 50 { f64::NAN } else { 0.5 };
        logger.log(step, 0.1, &[("losses/td_loss", loss), ("charts/SPS", 3.0)]);
    }
    let warnings = logger.take_warnings();
    assert_eq!(warnings, ["losses/td_loss is NaN at step 40"]);
    drop(logger);
    let rows = rows(dir.path());
    assert_eq!(rows[3]["losses/td_loss"], Value::Null);
    assert_eq!(rows[3]["nonfinite"], serde_json::json!(["losses/td_loss"]));
    assert_eq!(rows[3]["charts/SPS"], 3.0);
    assert_eq!(rows[5]["losses/td_loss"], 0.5);
    assert!(rows[5].get("nonfinite").is_none());
    let curve = &reader::scalars(dir.path()).expect("curves")["losses/td_loss"];
    assert_eq!(curve.len(), 6);
    assert!(curve[3].0 == 40 && curve[3].1.is_nan());
    assert_eq!(curve[5], (60, 0.5));
}

#[test]
fn lg_5_returns_and_steps_are_stored_as_given() {
    let dir = tempfile::tempdir().expect("folder");
    let mut logger = Logger::new(dir.path(), options(Duration::ZERO)).expect("logger");
    for episode in 1..=5u64 {
        let (step, sum) = (10 * episode, 0.3 + 0.7);
        logger.log(step, 0.1, &[("charts/episodic_return", sum), ("charts/episodic_length", 10.0)]);
    }
    // Nothing waits: what is on the disk is complete while the logger lives.
    let rows = rows(dir.path());
    assert_eq!(steps(&rows), [10, 20, 30, 40, 50]);
    assert!(rows.iter().all(|r| r["charts/episodic_return"] == 1.0 && r["charts/episodic_length"] == 10.0));
    let curves = reader::scalars(dir.path()).expect("curves");
    assert_eq!(curves["charts/episodic_return"], [10, 20, 30, 40, 50].map(|s| (s, 1.0)));
    assert_eq!(curves["charts/episodic_length"], [10, 20, 30, 40, 50].map(|s| (s, 10.0)));
}

#[test]
fn calls_for_one_step_join_one_row_until_it_is_sealed() {
    let dir = tempfile::tempdir().expect("folder");
    let mut logger = Logger::new(dir.path(), LoggerOptions::default()).expect("logger");
    logger.log(10, 0.1, &[("a", 1.0)]);
    logger.log(10, 0.2, &[("b", 2.0), ("a", 9.0)]);
    logger.flush();
    logger.log(10, 0.3, &[("c", f64::INFINITY)]);
    logger.log(5, 0.3, &[("a", 5.0)]);
    let bytes = logger.jsonl_len();
    assert_eq!(bytes, fs::metadata(dir.path().join(jsonl::FILE_NAME)).expect("metrics").len());
    logger.log(10, 0.4, &[("d", 4.0)]);
    logger.log(20, 0.5, &[("step", 1.0), ("a", 2.0)]);
    let warnings = logger.take_warnings().join("\n");
    for part in ["a was logged twice at step 10", "c is inf at step 10", "step 5", "d at step 10", "`step` cannot"] {
        assert!(warnings.contains(part), "{part} is not in:\n{warnings}");
    }
    drop(logger);
    let text = fs::read_to_string(dir.path().join(jsonl::FILE_NAME)).expect("metrics");
    let want = concat!(
        "{\"step\":10,\"wall_s\":0.1,\"a\":1.0,\"b\":2.0,\"c\":null,\"nonfinite\":[\"c\"]}\n",
        "{\"step\":20,\"wall_s\":0.5,\"a\":2.0}\n"
    );
    assert_eq!(text, want);
    let curves = reader::scalars(dir.path()).expect("curves");
    assert_eq!(curves["a"], [(10, 1.0), (20, 2.0)]);
    assert_eq!(curves["c"], [(10, f32::INFINITY)]);
    assert!(!curves.contains_key("d"));
}

#[test]
fn texts_histograms_and_hparams_are_events() {
    let dir = tempfile::tempdir().expect("folder");
    let mut logger = Logger::new(dir.path(), LoggerOptions::default()).expect("logger");
    logger.text("config", 0, "# a *run*");
    logger.log(10, 0.1, &[("eval/return_mean", 0.5)]);
    logger.histogram("weights", 10, &[0.0, 1.0, 1.0, 3.0, f32::NAN]);
    logger.histogram("nothing", 10, &[]);
    let config = [("backbone".to_string(), HparamValue::Text("mamba".into()))];
    logger.hparams(&config, &[("eval/return_mean", 0.5), ("eval/best_return", 0.75)]);
    assert_eq!(logger.take_warnings(), ["weights: 1 of 5 values at step 10 are not finite"]);
    drop(logger);
    let events = reader::read(&reader::event_files(dir.path()).expect("folder")[0]).expect("events").events;
    let values = || events.iter().flat_map(|e| e.values.iter().map(|v| (e.step, v)));
    let text = values().find(|(_, v)| v.tag == "config").expect("text").1;
    assert_eq!((text.plugin.as_str(), &text.strings[..]), ("text", &["# a *run*".to_string()][..]));
    let h = values().find_map(|(_, v)| v.histogram.as_ref()).expect("histogram");
    assert_eq!((h.min, h.max, h.num, h.sum), (0.0, 3.0, 4.0, 5.0));
    assert_eq!((h.counts[0], h.counts[10], h.counts[29], h.counts.iter().sum()), (1.0, 2.0, 1.0, 4.0));
    assert_eq!((h.limits.len(), h.limits[29]), (30, 3.0));
    let hparams: Vec<&str> = values().filter(|(_, v)| v.plugin == "hparams").map(|(_, v)| v.tag.as_str()).collect();
    assert_eq!(hparams, ["experiment", "session_start_info", "session_end_info"].map(|t| format!("_hparams_/{t}")));
    let curves = reader::scalars(dir.path()).expect("curves");
    assert_eq!(curves["eval/return_mean"], [(10, 0.5)], "not twice");
    assert_eq!(curves["eval/best_return"], [(10, 0.75)]);
}

#[test]
fn a_metrics_file_of_another_run_is_refused() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join(jsonl::FILE_NAME);
    let open = |opts| Logger::new(dir.path(), opts).map(drop);
    assert!(matches!(open(resume(10, 5)), Err(LogError::Short { expected: 5, found: 0, .. })));
    fs::write(&path, "{\"step\":1}\n{\"st").expect("write");
    assert!(matches!(open(LoggerOptions::default()), Err(LogError::Exists { found: 15, .. })));
    assert!(matches!(open(resume(10, 16)), Err(LogError::Short { expected: 16, found: 15, .. })));
    assert!(matches!(open(resume(10, 10)), Err(LogError::NotARow { at: 10, found: '}', .. })));
    assert_eq!(fs::read(&path).expect("metrics").len(), 15, "a refusal changes nothing");
    open(resume(10, 11)).expect("the recorded length");
    assert_eq!(fs::read_to_string(&path).expect("metrics"), "{\"step\":1}\n");
    open(resume(0, 0)).expect("from nothing");
    assert_eq!(fs::read(&path).expect("metrics").len(), 0);
}

#[test]
fn event_files_of_one_second_sort_in_the_order_of_the_runs() {
    let dir = tempfile::tempdir().expect("folder");
    for n in 0..3 {
        Logger::new(dir.path(), resume(0, 0)).expect("logger").log(1, 0.1, &[("a", f64::from(n))]);
    }
    let files = reader::event_files(dir.path()).expect("folder");
    assert_eq!(files.len(), 3);
    let first = |path: &PathBuf| reader::read(path).expect("events").events[2].values[0].scalar;
    assert_eq!(files.iter().map(first).collect::<Vec<_>>(), [Some(0.0), Some(1.0), Some(2.0)]);
    assert_eq!(reader::scalars(dir.path()).expect("curves")["a"], [(1, 2.0)]);
}

#[test]
fn a_file_in_place_of_the_folder() {
    let dir = tempfile::tempdir().expect("folder");
    let run = dir.path().join("run");
    fs::write(&run, "").expect("write");
    let error = Logger::new(&run, LoggerOptions::default()).expect_err("no folder");
    assert!(matches!(error, LogError::Io { .. }) && error.to_string().contains("metrics.jsonl"), "{error}");
    // Now while the run goes on: one warning per sink, and no end.
    fs::remove_file(&run).expect("remove");
    fs::create_dir(&run).expect("folder");
    let mut logger = Logger::new(&run, LoggerOptions::default()).expect("logger");
    logger.log(10, 0.1, &THREE);
    let bytes = logger.jsonl_len();
    fs::remove_dir_all(&run).expect("remove");
    fs::write(&run, "").expect("write");
    for step in 11..20 {
        logger.log(step, 0.1, &THREE);
        logger.flush();
    }
    let warnings = logger.take_warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("metrics.jsonl") && warnings[1].contains("tfevents"), "{warnings:?}");
    assert_eq!(logger.jsonl_len(), bytes);
}

#[test]
#[cfg(unix)]
fn a_full_disk_switches_the_sinks_off_and_leaves_whole_records() {
    let dir = tempfile::tempdir().expect("folder");
    let program = child("full", dir.path());
    let mut command = Command::new("sh");
    // The limit stands for a full disk; without the trap its signal would end the process.
    command.args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$@\"", "sh"]).arg(program.get_program());
    command.args(program.get_args()).env(MODE, "full").env(DIR, dir.path());
    let output = finish(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("trained to the end"), "{text}");
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("WARNING")).collect();
    assert_eq!(warnings.len(), 2, "{text}");
    let rows = rows(dir.path());
    assert!(!rows.is_empty() && rows.len() < 20_000);
    let file = reader::read(&reader::event_files(dir.path()).expect("folder")[0]).expect("events");
    assert!(file.torn == 0 && file.events.len() > 1);
}

#[test]
fn the_console_prints_lines_where_there_is_no_terminal() {
    let lines = |mode| {
        let output = finish(child(mode, Path::new("unused")));
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("UTF-8").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let plain = ["step 100/200  50%", "saved", "warning: careful", "step 200/200  100%  return 0.500"];
    assert_eq!(lines("plain"), plain);
    assert_eq!(lines("quiet"), ["warning: careful"]);
}

/// TensorBoard's own reader, where Python has it: set `MAMBA_RL_TENSORBOARD=1`.
#[test]
fn tensorboard_reads_what_we_write() {
    if std::env::var_os("MAMBA_RL_TENSORBOARD").is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let mut logger = Logger::new(dir.path(), LoggerOptions::default()).expect("logger");
    logger.text("config", 0, "# a *run*");
    let config = [
        ("backbone.name".to_string(), HparamValue::Text("mamba".into())),
        ("learner.batch".to_string(), HparamValue::Number(8.0)),
        ("learner.double_q".to_string(), HparamValue::Bool(true)),
    ];
    logger.hparams(&config, &[("losses/td_loss", f64::NAN)]);
    let mut bytes = 0;
    for step in (10..=150).step_by(10) {
        logger.log(step, 0.1, &[("losses/td_loss", if step == 40 { f64::NAN } else { 1.0 })]);
        if step == 100 {
            bytes = logger.jsonl_len();
        }
    }
    drop(logger);
    let mut logger = Logger::new(dir.path(), resume(100, bytes)).expect("resume");
    for step in (110..=150).step_by(10) {
        logger.log(step, 0.2, &[("losses/td_loss", 2.0)]);
    }
    logger.histogram("weights", 150, &[0.0, 1.0, 1.0, 3.0]);
    drop(logger);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tensorboard_reader.py");
    let output = Command::new("python3").arg(script).arg(dir.path()).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", String::from_utf8_lossy(&output.stdout));
}
