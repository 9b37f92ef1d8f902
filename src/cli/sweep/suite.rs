//! A suite: which settings are run on which tasks, with which backbones and seeds. TOML; all of it is checked, every run's
//! config included, before the first run begins.
//!
//! ```text
//! [defaults]                                   # all of it may also stand in a run
//! backbones = ["mamba", "gru"]
//! seeds = [1, 2, 3]                            # or "1-3"
//! steps = 200_000
//! set = { "eval.every" = 5000 }                # any config key
//!
//! [[run]]
//! env = "popgym-RepeatFirstEasy-v0"            # or a list; the label is the task's name unless `label` gives one
//! set = { "train.stop_return" = 0.99 }         # `target`, the return that counts as reached, is that one unless given
//! only.mamba.set = { "backbone.d_conv" = 4 }   # over `set`, for one backbone
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mamba_rl::config::{Config, Flags, PRESETS};
use mamba_rl::{Error, Result};
use mamba_rl_envs::EnvSpec;
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use crate::cli::results::Settings;

/// Keys that have a field of their own.
const OWN_FIELD: [(&str, &str); 6] = [
    ("preset", "preset"),
    ("env.id", "env"),
    ("backbone.name", "backbones"),
    ("train.steps", "steps"),
    ("train.seed", "seeds"),
    ("train.threads", "threads"),
];

/// Longest suite and most runs: more than anybody means.
const MAX_FILE: u64 = 1 << 20;
const MAX_RUNS: usize = 100_000;

/// One run of the suite.
#[derive(Debug, Clone)]
pub struct Job {
    /// The setting's name.
    pub label: String,
    /// The task.
    pub spec: EnvSpec,
    /// What the suite sets, by full key.
    pub set: BTreeMap<String, Value>,
    /// The return that counts as reached.
    pub target: Option<f64>,
    /// Resolved, with seed and steps.
    pub config: Config,
}

impl Job {
    /// Name of the run's folder.
    pub fn name(&self) -> String {
        format!("{}__{}__s{}", self.label, self.config.backbone.name, self.config.train.seed)
    }

    /// As it is shown to people.
    pub fn title(&self) -> String {
        format!("{}/{}/{}", self.label, self.config.backbone.name, self.config.train.seed)
    }

    /// Arguments of `train`, the run folder's apart.
    pub fn arguments(&self) -> Vec<String> {
        let c = &self.config;
        let mut out = vec!["train".to_owned()];
        let mut flag = |name: &str, value: String| out.extend([name.to_owned(), value]);
        flag("--preset", c.preset.clone());
        flag("--env", c.env.id.clone());
        flag("--backbone", c.backbone.name.clone());
        flag("--seed", c.train.seed.to_string());
        flag("--steps", c.train.steps.to_string());
        flag("--set", format!("train.threads={}", c.train.threads));
        for (key, value) in &self.set {
            flag("--set", format!("{key}={value}"));
        }
        out
    }

    /// What the suite sets, as JSON.
    pub fn set_as_json(&self) -> Settings {
        let json = |v: &Value| serde_json::to_value(v).unwrap_or_default();
        self.set.iter().map(|(k, v)| (k.clone(), json(v))).collect()
    }
}

/// A checked suite.
#[derive(Debug)]
pub struct Suite {
    /// `name`, or the file's.
    pub name: String,
    /// All runs, in the order of the file.
    pub jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default)]
    defaults: Fields,
    #[serde(default)]
    run: Vec<Spanned<Entry>>,
}

/// What `[defaults]` and `[run.only.X]` may hold; a value nearer to the run wins.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    preset: Option<Spanned<String>>,
    backbones: Option<Spanned<Vec<String>>>,
    seeds: Option<Spanned<Value>>,
    steps: Option<Spanned<Value>>,
    threads: Option<Spanned<usize>>,
    target: Option<Spanned<Value>>,
    set: Option<Spanned<Table>>,
}

/// `[[run]]`: the fields of [`Fields`] and what only a run has. (serde's `flatten` would lose the lines.)
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    label: Option<Spanned<String>>,
    env: Option<Spanned<Value>>,
    preset: Option<Spanned<String>>,
    backbones: Option<Spanned<Vec<String>>>,
    seeds: Option<Spanned<Value>>,
    steps: Option<Spanned<Value>>,
    threads: Option<Spanned<usize>>,
    target: Option<Spanned<Value>>,
    set: Option<Spanned<Table>>,
    #[serde(default)]
    only: BTreeMap<String, Spanned<Fields>>,
}

impl Entry {
    fn fields(&self) -> Fields {
        Fields {
            preset: self.preset.clone(),
            backbones: self.backbones.clone(),
            seeds: self.seeds.clone(),
            steps: self.steps.clone(),
            threads: self.threads.clone(),
            target: self.target.clone(),
            set: self.set.clone(),
        }
    }
}

/// A suite's file, for messages.
struct Source<'a> {
    name: String,
    text: &'a str,
}

impl Source<'_> {
    /// `Usage` with the line of this byte.
    fn error(&self, at: usize, problem: impl std::fmt::Display) -> Error {
        Error::Usage(format!("{}, line {}: {problem}", self.name, self.line(at)))
    }

    /// Line of this byte, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|b| **b == b'\n').count()
    }
}

/// Reads and checks a suite.
///
/// # Errors
/// `Usage` naming file, line and what is wrong; `Env` for a task that cannot be made.
pub fn load(path: &Path) -> Result<Suite> {
    let shown = path.display();
    let bad = |problem: &str| Error::Usage(format!("suite {shown} {problem}; give the path of a TOML file"));
    match std::fs::metadata(path) {
        Ok(m) if !m.is_file() || m.len() > MAX_FILE => return Err(bad("is no regular file of at most 1 MiB")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(bad("does not exist")),
        _ => {}
    }
    let text = std::fs::read_to_string(path).map_err(|e| bad(&format!("cannot be read: {e}")))?;
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    parse(&text, &shown.to_string(), &stem)
}

fn parse(text: &str, file: &str, stem: &str) -> Result<Suite> {
    let source = Source { name: file.to_owned(), text };
    let parsed: File = toml::from_str(text).map_err(|e| {
        let problem = e.message().replace('\n', ", ");
        source.error(e.span().map_or(0, |s| s.start), problem)
    })?;
    let name = parsed.name.unwrap_or_else(|| stem.to_owned());
    if !is_label(&name) {
        return Err(source.error(0, format!("`name` is \"{name}\", but it names a folder: {LABEL_RULE}")));
    }
    if parsed.run.is_empty() {
        return Err(source.error(0, "there is no [[run]] in it"));
    }
    let mut jobs: Vec<Job> = Vec::new();
    let mut labels = Labels::default();
    for entry in &parsed.run {
        let at = entry.span().start;
        for job in expand(&source, &parsed.defaults, entry.as_ref(), at)? {
            labels.take(&source, &job, at)?;
            jobs.push(job);
        }
        if jobs.len() > MAX_RUNS {
            return Err(source.error(at, format!("more than {MAX_RUNS} runs")));
        }
    }
    Ok(Suite { name, jobs })
}

/// What each label stands for, and where: one task, and each backbone once.
#[derive(Default)]
struct Labels {
    /// Task of a label.
    tasks: BTreeMap<String, (String, usize)>,
    /// Where a label's backbone stands.
    settings: BTreeMap<(String, String), usize>,
    /// Names of runs.
    runs: BTreeSet<String>,
}

impl Labels {
    fn take(&mut self, source: &Source<'_>, job: &Job, at: usize) -> Result<()> {
        let (label, backbone, task) = (&job.label, &job.config.backbone.name, &job.spec.id);
        let (first, place) = self.tasks.entry(label.clone()).or_insert_with(|| (task.clone(), at));
        if first != task {
            let line = source.line(*place);
            return Err(source.error(at, format!("label `{label}` is of {task}, but of {first} in line {line}")));
        }
        let place = *self.settings.entry((label.clone(), backbone.clone())).or_insert(at);
        if place != at || !self.runs.insert(job.name()) {
            let line = source.line(place);
            let problem = format!("label `{label}` with backbone {backbone} is there already, in line {line}");
            return Err(source.error(at, problem));
        }
        Ok(())
    }
}

const LABEL_RULE: &str = "letters, digits, `-`, `.` and single `_`, at most 100, and no `.` at the beginning";

/// Can it be a part of a file name, and be told from the parts beside it?
fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 100 && text.chars().all(plain) && !text.starts_with('.') && !text.contains("__")
}

/// All runs of one `[[run]]`: task by task, seed by seed, the backbones beside each other.
fn expand(source: &Source<'_>, defaults: &Fields, entry: &Entry, at: usize) -> Result<Vec<Job>> {
    let own = entry.fields();
    let envs = envs(source, entry, at)?;
    let backbones = own.backbones.as_ref().or(defaults.backbones.as_ref());
    let backbones = backbones.map_or_else(|| vec!["mamba".to_owned()], |b| b.as_ref().clone());
    if backbones.is_empty() {
        return Err(source.error(at, "`backbones` is empty; name at least one"));
    }
    if let Some(twice) = backbones.iter().enumerate().find(|(i, b)| backbones[..*i].contains(b)) {
        return Err(source.error(at, format!("`backbones` has \"{}\" twice", twice.1)));
    }
    for (backbone, only) in &entry.only {
        if !backbones.contains(backbone) {
            let problem = format!("`only.{backbone}`: this run has no such backbone; it has {}", backbones.join(", "));
            return Err(source.error(only.span().start, problem));
        }
        if let Some(nested) = &only.as_ref().backbones {
            return Err(source.error(nested.span().start, "`backbones` cannot stand in `only`"));
        }
    }
    let mut jobs = Vec::new();
    for env in &envs {
        let mut kinds = Vec::new();
        for backbone in &backbones {
            let layers = [Some(defaults), Some(&own), entry.only.get(backbone).map(Spanned::as_ref)];
            let layers: Vec<&Fields> = layers.into_iter().flatten().collect();
            let label = entry.label.as_ref().map(|l| (l.as_ref().as_str(), l.span().start));
            kinds.push(kind(source, &layers, Place { at, label, several: envs.len() > 1 }, env, backbone)?);
        }
        let mut seeds: Vec<u64> = kinds.iter().flat_map(|k| k.1.iter().copied()).collect();
        let mut seen = BTreeSet::new();
        seeds.retain(|s| seen.insert(*s));
        for seed in seeds {
            for (job, _) in kinds.iter().filter(|k| k.1.contains(&seed)) {
                let mut job = job.clone();
                job.config.train.seed = seed;
                jobs.push(job);
            }
        }
    }
    Ok(jobs)
}

/// The tasks of a run.
fn envs(source: &Source<'_>, entry: &Entry, at: usize) -> Result<Vec<String>> {
    let Some(env) = &entry.env else {
        return Err(source.error(at, "a [[run]] needs `env`, a task or a list of tasks"));
    };
    let names = match env.as_ref() {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(list) if !list.is_empty() => list.iter().map(|v| v.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    names.ok_or_else(|| source.error(env.span().start, "`env` is no task; expected a text or a list of texts"))
}

/// Where a run stands in its file.
#[derive(Clone, Copy)]
struct Place<'a> {
    at: usize,
    /// Its label, and where that stands.
    label: Option<(&'a str, usize)>,
    /// Has it several tasks?
    several: bool,
}

/// One task with one backbone: a run for each of the seeds. `layers` go from the farthest to the nearest.
fn kind(
    source: &Source<'_>,
    layers: &[&Fields],
    place: Place<'_>,
    env: &str,
    backbone: &str,
) -> Result<(Job, Vec<u64>)> {
    let nearest = || layers.iter().rev();
    let (set, lines) = sets(source, layers)?;
    let Some(steps) = nearest().find_map(|l| l.steps.as_ref()) else {
        return Err(source.error(place.at, "a run needs `steps`, here or in [defaults]"));
    };
    let steps = whole(steps.as_ref()).filter(|n| *n > 0).ok_or_else(|| {
        let problem = format!("`steps` is {}; expected a whole number of environment steps", steps.as_ref());
        source.error(steps.span().start, problem)
    })?;
    let seeds = nearest().find_map(|l| l.seeds.as_ref());
    let seeds = seeds.map_or(Ok(vec![1, 2, 3]), |s| {
        seeds_of(s.as_ref()).ok_or_else(|| {
            let problem =
                format!("`seeds` is {}; expected a list such as [1, 2, 3], or a range such as \"1-3\"", s.as_ref());
            source.error(s.span().start, problem)
        })
    })?;
    let preset = nearest().find_map(|l| l.preset.as_ref());
    if let Some(p) = preset.filter(|p| !PRESETS.contains(&p.as_ref().as_str())) {
        let problem = format!("unknown preset `{}`; there are: {}", p.as_ref(), PRESETS.join(", "));
        return Err(source.error(p.span().start, problem));
    }
    let threads = nearest().find_map(|l| l.threads.as_ref());
    let mut list: Vec<String> = vec![format!("train.threads={}", threads.map_or(1, |t| *t.as_ref()))];
    list.extend(set.iter().map(|(k, v)| format!("{k}={v}")));
    let flags = Flags {
        env: Some(env.to_owned()),
        backbone: Some(backbone.to_owned()),
        steps: Some(steps),
        seed: seeds.first().copied(),
        ..Flags::default()
    };
    let told = |e: Error| {
        let key = if let Error::Config { key, .. } = &e { key.as_str() } else { "" };
        let at = lines.get(key).copied().unwrap_or(place.at);
        let name = place.label.map_or(env, |l| l.0);
        let cause = without_flag(&e.to_string());
        if matches!(e, Error::Env(_)) || e.is_usage() {
            source.error(at, format!("run `{name}` with {backbone}: {cause}"))
        } else {
            e
        }
    };
    let preset = preset.map(|p| p.as_ref().as_str());
    let (config, spec) = resolve(preset, &list, &flags).map_err(told)?;
    let short = plain(&spec.name);
    let label = match place.label {
        Some((label, at)) if !is_label(label) => {
            return Err(source.error(at, format!("`label` is \"{label}\"; expected {LABEL_RULE}")));
        }
        Some((label, _)) if place.several => format!("{label}-{short}"),
        Some((label, _)) => label.to_owned(),
        None => short,
    };
    let target = match nearest().find_map(|l| l.target.as_ref()) {
        Some(t) => Some(number(t.as_ref()).ok_or_else(|| {
            source.error(t.span().start, format!("`target` is {}; expected a return, a number", t.as_ref()))
        })?),
        None => config.train.stop_return,
    };
    Ok((Job { label, spec, set, target, config }, seeds))
}

/// A message about a config without the flag of the command that it names in brackets: a suite has none.
fn without_flag(message: &str) -> String {
    let cut = message.split_once(" (--").and_then(|(before, rest)| Some((before, rest.split_once(") ")?.1)));
    cut.map_or_else(|| message.to_owned(), |(before, after)| format!("{before} {after}"))
}

/// The resolved config and its task, as `mamba-rl train` comes to them.
fn resolve(preset: Option<&str>, sets: &[String], flags: &Flags) -> Result<(Config, EnvSpec)> {
    let named = Config::load(preset, None, sets, flags)?;
    let spec = mamba_rl_envs::make(&named.env.id, &named.env_args()?)?.spec().clone();
    let mut config = Config::load_for(&spec.action_space, preset, None, sets, flags)?;
    config.resolve(&spec)?;
    Ok((config, spec))
}

/// Settings by full key, nearer layers over farther ones, and where in the file each stands.
type Sets = (BTreeMap<String, Value>, BTreeMap<String, usize>);

fn sets(source: &Source<'_>, layers: &[&Fields]) -> Result<Sets> {
    let (mut set, mut lines) = (BTreeMap::new(), BTreeMap::new());
    for table in layers.iter().filter_map(|l| l.set.as_ref()) {
        let at = table.span().start;
        let mut flat = BTreeMap::new();
        if let Err(twice) = flatten("", table.as_ref(), &mut flat) {
            return Err(source.error(at, format!("`set` has `{twice}` twice")));
        }
        for (key, value) in flat {
            if let Some((_, field)) = OWN_FIELD.iter().find(|(k, _)| *k == key) {
                return Err(source.error(at, format!("`{key}` is not set by `set`, but by the field `{field}`")));
            }
            lines.insert(key.clone(), at);
            set.insert(key, value);
        }
    }
    Ok((set, lines))
}

/// A key that is given in two ways, such as `"a.b" = 1` and `a.b = 1`.
struct Twice(String);

impl std::fmt::Display for Twice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn flatten(path: &str, table: &Table, out: &mut BTreeMap<String, Value>) -> std::result::Result<(), Twice> {
    for (name, value) in table {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(inner) => flatten(&key, inner, out)?,
            value if out.insert(key.clone(), value.clone()).is_some() => return Err(Twice(key)),
            _ => {}
        }
    }
    Ok(())
}

/// `200000`, or `2e5`.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(n) => u64::try_from(*n).ok(),
        Value::Float(f) if *f >= 0.0 && f.fract() == 0.0 && *f < 9e15 => Some(*f as u64),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    let n = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    n.filter(|x| x.is_finite())
}

/// `[1, 2, 5]` or `"1-3"`; each once, at least one, at most a thousand.
fn seeds_of(value: &Value) -> Option<Vec<u64>> {
    let seeds: Vec<u64> = match value {
        Value::Array(list) => list.iter().map(whole).collect::<Option<_>>()?,
        Value::String(range) => {
            let (from, to) = range.split_once('-')?;
            let (from, to) = (from.trim().parse::<u64>().ok()?, to.trim().parse::<u64>().ok()?);
            if to < from || to - from >= 1000 {
                return None;
            }
            (from..=to).collect()
        }
        _ => return None,
    };
    let mut sorted = seeds.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let fits = seeds.iter().all(|s| i64::try_from(*s).is_ok());
    (!seeds.is_empty() && sorted.len() == seeds.len() && seeds.len() <= 1000 && fits).then_some(seeds)
}

/// A task's name as a label.
fn plain(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '-' }).collect();
    out.truncate(100);
    out.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
