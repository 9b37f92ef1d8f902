//! `results.jsonl`: one line for every finished run, complete in itself. `sweep` appends to it, `report` reads it alone.
//! Lines are written whole and at once; a line that a crash has cut off can only be the last one, and is taken away.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use mamba_rl::config::Config;
use mamba_rl::train::{RunResult, Stopped};
use mamba_rl::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the file in a sweep's folder.
pub const FILE: &str = "results.jsonl";

/// Settings by full key.
pub type Settings = BTreeMap<String, Value>;

/// What one run is known by: label, backbone, seed.
pub type Key = (String, String, u64);

/// Greedy evaluations of one run, in order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Curve {
    /// Environment steps.
    pub steps: Vec<u64>,
    /// Mean return of each evaluation; None where it was not finite.
    pub returns: Vec<Option<f64>>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The setting's name in its suite.
    pub label: String,
    /// Plain name of the task.
    pub env: String,
    /// Its registered id.
    #[serde(default)]
    pub id: String,
    /// Recurrent body.
    pub backbone: String,
    /// Agent.
    #[serde(default)]
    pub agent: String,
    /// Base seed.
    pub seed: u64,
    /// Preset that the run began with.
    #[serde(default)]
    pub preset: String,
    /// What the suite set.
    #[serde(default)]
    pub set: Settings,
    /// Environment steps that the run might take.
    #[serde(default)]
    pub budget: u64,
    /// Environment steps done.
    pub steps: u64,
    /// Updates done.
    #[serde(default)]
    pub updates: u64,
    /// Steps learnt from, all updates together.
    #[serde(default)]
    pub frames: u64,
    /// Training episodes ended.
    #[serde(default)]
    pub episodes: u64,
    /// Seconds of training.
    #[serde(default)]
    pub wall_s: f64,
    /// CPU seconds of the process while it trained.
    #[serde(default)]
    pub cpu_s: Option<f64>,
    /// Greedy return of the last evaluation: mean over episodes.
    pub greedy_mean: Option<f64>,
    /// Its standard deviation over episodes.
    #[serde(default)]
    pub greedy_std: Option<f64>,
    /// Its episodes.
    #[serde(default)]
    pub greedy_episodes: usize,
    /// The return that counts as reached.
    #[serde(default)]
    pub target: Option<f64>,
    /// Environment steps of the first evaluation that reached `target`.
    #[serde(default)]
    pub reached_at: Option<u64>,
    /// Maximum over windows of the mean training return.
    pub mmer: Option<f64>,
    /// Least and largest return that the task can give; None where it is not bounded.
    #[serde(default)]
    pub return_range: Option<(f64, f64)>,
    /// `learner/delta_q`, mean of the second half of its rows: how far Q from the state a window begins with is from Q of
    /// the whole episode; None where the run kept no windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_q: Option<f64>,
    /// Why the run ended.
    pub stopped: Stopped,
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// Every evaluation.
    #[serde(default)]
    pub curve: Curve,
    /// All settings that a result depends on: a changed suite must not take this line for its own.
    #[serde(default)]
    pub config: Settings,
}

/// What a line holds beside the run's own files.
pub struct Asked<'a> {
    /// The setting's name in its suite.
    pub label: &'a str,
    /// What the suite set.
    pub set: &'a Settings,
    /// The return that counts as reached.
    pub target: Option<f64>,
    /// Least and largest return of the task.
    pub return_range: (f64, f64),
    /// Resolved.
    pub config: &'a Config,
}

impl Record {
    /// The line of a finished run, from its folder.
    ///
    /// # Errors
    /// `Io` and `Checkpoint` naming the file that cannot be read.
    pub fn of_run(dir: &Path, r: RunResult, asked: &Asked<'_>) -> Result<Record> {
        let (curve, delta_q) = logged(dir)?;
        let target = asked.target;
        let reached = |r: &Option<f64>| target.zip(*r).is_some_and(|(t, r)| r >= t);
        let (low, high) = asked.return_range;
        Ok(Record {
            label: asked.label.to_owned(),
            env: r.env,
            id: r.id,
            backbone: r.backbone,
            agent: r.agent,
            seed: r.seed,
            preset: r.preset,
            set: asked.set.clone(),
            budget: asked.config.train.steps,
            steps: r.steps,
            updates: r.updates,
            frames: r.frames,
            episodes: r.episodes,
            wall_s: r.wall_s,
            cpu_s: r.cpu_s,
            greedy_mean: r.eval_return_mean,
            greedy_std: r.eval_return_std,
            greedy_episodes: r.eval_episodes,
            target,
            reached_at: curve.returns.iter().position(reached).map(|i| curve.steps[i]),
            mmer: r.train_mmer,
            return_range: (low.is_finite() && high.is_finite()).then_some((low, high)),
            delta_q,
            stopped: r.stopped,
            version: r.version,
            curve,
            config: settings(asked.config)?,
        })
    }

    /// What the run is known by.
    pub fn key(&self) -> Key {
        (self.label.clone(), self.backbone.clone(), self.seed)
    }
}

/// The evaluations in a run's `metrics.jsonl`, and its `learner/delta_q`; a row that a killed writer left torn can only be
/// the last.
fn logged(dir: &Path) -> Result<(Curve, Option<f64>)> {
    let path = dir.join("metrics.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("reading", &path, e))?;
    let (mut curve, mut delta_q) = (Curve::default(), Vec::new());
    for line in text.split_inclusive('\n') {
        let row: Value = match serde_json::from_str(line) {
            Ok(row) => row,
            Err(_) if !line.ends_with('\n') => break,
            Err(e) => return Err(Error::checkpoint(path, e.to_string())),
        };
        if let (Some(step), Some(mean)) = (row["step"].as_u64(), row.get("eval/return_mean")) {
            curve.steps.push(step);
            curve.returns.push(mean.as_f64().map(|r| (r * 1e6).round() / 1e6));
        }
        delta_q.extend(row.get("learner/delta_q").and_then(Value::as_f64));
    }
    let late = &delta_q[delta_q.len() / 2..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    Ok((curve, (!late.is_empty()).then_some(mean)))
}

/// Keys that change how a run is carried out and watched, not what it comes to; and the seed, which the line has anyway.
const FREE: [&str; 11] = [
    "preset",
    "train.seed",
    "train.device",
    "train.threads",
    "train.simd",
    "train.graphs",
    "train.kernel_cache",
    "log.every",
    "log.delta_q_every",
    "backbone.name",
    "checkpoint.",
];

/// The settings that a result depends on, by full key.
///
/// # Errors
/// `Config` for a value that JSON cannot hold.
pub fn settings(config: &Config) -> Result<Settings> {
    let tree = serde_json::to_value(config).map_err(|e| Error::config("config", e.to_string()))?;
    let mut out = Settings::new();
    flatten("", &tree, &mut out);
    out.retain(|key, _| !FREE.iter().any(|free| key == free || (free.ends_with('.') && key.starts_with(free))));
    Ok(out)
}

fn flatten(path: &str, value: &Value, out: &mut Settings) {
    match value {
        Value::Object(inner) => {
            let path = if path.is_empty() { String::new() } else { format!("{path}.") };
            inner.iter().for_each(|(name, value)| flatten(&format!("{path}{name}"), value, out));
        }
        value => {
            out.insert(path.to_owned(), value.clone());
        }
    }
}

/// The first key on which two lists of settings differ, with both values. A key that the saved list does not know is younger
/// than it, and was at its default then; one that has gone since says nothing.
///
/// # Errors
/// As [`settings`].
pub fn difference(saved: &Settings, now: &Settings) -> Result<Option<(String, String, String)>> {
    let show = |v: Option<&Value>| v.map_or_else(|| "not set".to_owned(), Value::to_string);
    // what a key meant before it was there: its section's default, whatever a preset says of it today
    let sections = Config { backbone: Default::default(), learner: Default::default(), ..Config::default() };
    let default = settings(&sections)?;
    for key in saved.keys().filter(|k| now.contains_key(*k) || k.starts_with("env.args.")).chain(now.keys()) {
        let (old, new) = (saved.get(key).or_else(|| default.get(key)), now.get(key));
        if old != new {
            return Ok(Some((key.clone(), show(old), show(new))));
        }
    }
    Ok(None)
}

/// The lines of one file.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    /// By key; of several lines with one key the last.
    pub records: BTreeMap<Key, Record>,
    /// Bytes of whole lines.
    whole: u64,
    /// The last whole line has no newline yet.
    open_end: bool,
    /// What was cut off behind them.
    pub torn: bool,
}

impl Results {
    /// Reads a file; a missing one has no lines.
    ///
    /// # Errors
    /// `Io` where it cannot be read; `Checkpoint` naming a line that is none of ours and not the torn end.
    pub fn read(path: &Path) -> Result<Results> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io("reading", path, e)),
        };
        let mut found =
            Results { path: path.to_owned(), records: BTreeMap::new(), whole: 0, open_end: false, torn: false };
        for (n, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
            let ended = line.ends_with(b"\n");
            let blank = line.iter().all(u8::is_ascii_whitespace);
            match serde_json::from_slice::<Record>(line) {
                Ok(record) => {
                    found.records.insert(record.key(), record);
                }
                Err(_) if blank && ended => {}
                Err(_) if !ended => {
                    found.torn = true;
                    break;
                }
                Err(e) => return Err(Error::checkpoint(path, format!("line {} is no result: {e}", n + 1))),
            }
            found.whole += line.len() as u64;
            found.open_end = !ended;
        }
        Ok(found)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file, and its folder, where they are missing: a sweep must not find out after hours that it cannot write.
    ///
    /// # Errors
    /// `Io` naming the file.
    pub fn writable(&self) -> Result<()> {
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        let made = folder.map_or(Ok(()), std::fs::create_dir_all);
        let opened = made.and_then(|()| OpenOptions::new().create(true).append(true).open(&self.path));
        opened.map(drop).map_err(|e| Error::io("opening", &self.path, e))
    }

    /// Appends one line and waits for the disk; a torn end is taken away before. A key that is there already is no line.
    ///
    /// # Errors
    /// `Io` naming the file.
    pub fn append(&mut self, record: Record) -> Result<()> {
        if self.records.contains_key(&record.key()) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(&record).map_err(|e| Error::checkpoint(&self.path, e.to_string()))?;
        line.push(b'\n');
        if self.open_end {
            line.insert(0, b'\n');
        }
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            if file.metadata()?.len() > self.whole {
                file.set_len(self.whole)?;
            }
            file.write_all(&line)?;
            file.sync_data()
        };
        write().map_err(|e| Error::io("appending to", &self.path, e))?;
        self.whole += line.len() as u64;
        (self.open_end, self.torn) = (false, false);
        self.records.insert(record.key(), record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seed: u64) -> Record {
        let text = format!(
            r#"{{"label":"a","env":"E","backbone":"gru","seed":{seed},"steps":64,"greedy_mean":0.5,"mmer":null,"stopped":"finished"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_torn_end_is_taken_away_and_no_key_is_doubled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut results = Results::read(&path).unwrap();
        results.append(record(1)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // places at which the second line can be cut, the last ones among them
        results.append(record(2)).unwrap();
        let both = std::fs::read(&path).unwrap();
        for cut in (whole.len()..both.len()).step_by(23).chain(both.len() - 3..both.len()) {
            std::fs::write(&path, &both[..cut]).unwrap();
            let mut again = Results::read(&path).unwrap();
            // a line that lacks nothing but its newline is whole
            assert_eq!(again.records.len(), if cut == both.len() - 1 { 2 } else { 1 }, "{cut}");
            again.append(record(1)).unwrap();
            again.append(record(2)).unwrap();
            again.append(record(3)).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let seeds: Vec<u64> = text.lines().map(|l| serde_json::from_str::<Record>(l).unwrap().seed).collect();
            assert_eq!(seeds, [1, 2, 3], "{cut}");
        }
    }

    #[test]
    fn the_last_line_of_a_key_wins_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (mut old, new) = (record(1), record(1));
        old.steps = 1;
        let lines = [old, new].map(|r| serde_json::to_string(&r).unwrap());
        std::fs::write(&path, format!("{}\n\n{}\n", lines[0], lines[1])).unwrap();
        assert_eq!(Results::read(&path).unwrap().records[&record(1).key()].steps, 64);
        std::fs::write(&path, format!("{}\n{{}}\n{}\n", lines[0], lines[1])).unwrap();
        let e = Results::read(&path).unwrap_err().to_string();
        assert!(e.contains("line 2") && e.contains("label"), "{e}");
    }

    fn differ(a: &Config, b: &Config) -> Option<(String, String, String)> {
        difference(&settings(a).unwrap(), &settings(b).unwrap()).unwrap()
    }

    #[test]
    fn settings_that_change_a_result_differ() {
        let mut a = Config::default();
        let mut b = a.clone();
        (b.train.threads, b.train.seed, b.checkpoint.keep, b.log.every) = (3, 9, 7, 5);
        assert_eq!(differ(&a, &b), None);
        b.learner.lr_heads = 0.5;
        assert_eq!(differ(&a, &b), Some(("learner.lr_heads".into(), "0.001".into(), "0.5".into())));
        b = a.clone();
        b.train.stop_return = Some(1.0);
        assert_eq!(differ(&a, &b).unwrap().0, "train.stop_return");
        // a key that an older version did not have
        let mut old = settings(&a).unwrap();
        old.remove("learner.double_q");
        assert_eq!(difference(&old, &settings(&a).unwrap()).unwrap(), None);
        (b.learner.double_q, b.train.stop_return) = (false, None);
        let found = difference(&old, &settings(&b).unwrap()).unwrap();
        assert_eq!(found, Some(("learner.double_q".into(), "true".into(), "false".into())));
        // and one that a preset has set since: what its section means without it
        a.learner.acting = mamba_rl::config::ActingKind::Online;
        b = a.clone();
        b.learner.acting = mamba_rl::config::ActingKind::Target;
        old = settings(&a).unwrap();
        old.remove("learner.acting");
        assert_eq!(difference(&old, &settings(&a).unwrap()).unwrap(), None);
        let found = difference(&old, &settings(&b).unwrap()).unwrap();
        assert_eq!(found, Some(("learner.acting".into(), "\"online\"".into(), "\"target\"".into())));
        b = a.clone();
        a.env.args.insert("length".into(), 3.into());
        b.env.args.insert("width".into(), 3.into());
        assert_eq!(differ(&a, &b).unwrap().0, "env.args.length");
    }
}
