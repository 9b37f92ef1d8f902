//! Every key of the tree with its type and range: one table serves unknown keys, wrong types and wrong values alike.
//! Ranges are inclusive; `above` excludes the lower end. NaN and infinity lie in no range.

use toml::{Table, Value};

use crate::backbone::custom::{BUNDLED, registered};
use crate::error::{Error, Result};

/// What a key holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// true or false.
    Bool,
    /// Any text.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A bundled backbone or one that was registered.
    Backbone,
    /// `cpu`, `auto`, `cuda` or `cuda:N`.
    Device,
    /// A whole number from the first to the second.
    Int(u64, u64),
    /// A whole number, or this word.
    IntOr(u64, u64, &'static str),
    /// A number from the first to the second.
    Num(f64, f64),
    /// A number above the first, up to the second.
    Above(f64, f64),
    /// A number from the first to the second, or this word.
    NumOr(f64, f64, &'static str),
    /// A number above the first, up to the second, or this word.
    AboveOr(f64, f64, &'static str),
    /// A table with keys of the task.
    Table,
}

/// A key of the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Section, empty for the one key at the top.
    pub section: &'static str,
    /// Name inside the section.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

impl Key {
    /// `section.name`.
    pub fn path(&self) -> String {
        if self.section.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.section, self.name) }
    }
}

const fn key(section: &'static str, name: &'static str, kind: Kind) -> Key {
    Key { section, name, kind }
}

/// The largest whole number that TOML can hold.
const MAX: u64 = i64::MAX as u64;
/// More steps than any memory holds.
const STEPS: u64 = 1 << 40;
const WIDTH: u64 = 65_536;
/// Smaller numbers would be 0 in f32 and so mean something else.
const SMALLEST: f64 = 1e-30;
/// Letters of an unknown name that are compared with the known ones.
const COMPARED: usize = 64;

use Kind::{Above, AboveOr, Bool, Int, IntOr, Num, NumOr, OneOf, Text};

/// All keys, in the order of the tree.
pub(super) const KEYS: &[Key] = &[
    key("", "preset", Text),
    key("env", "id", Text),
    key("env", "num_envs", Int(1, 65_536)),
    key("env", "legacy", Bool),
    key("env", "episodes_per_trial", Int(1, 10_000)),
    key("env", "args", Kind::Table),
    key("actor", "threads", Int(1, 1024)),
    key("actor", "queue", Int(1, 1 << 20)),
    key("actor", "publish_every", Int(1, MAX)),
    key("agent", "name", OneOf(&["auto", "r2d2", "rsac"])),
    key("agent", "shared_encoder", Bool),
    key("agent", "temperature", Above(0.0, 1e6)),
    key("agent", "lr_temperature", Num(0.0, 1.0)),
    key("agent", "target_entropy", NumOr(-1e5, 1e5, "auto")),
    key("backbone", "name", Kind::Backbone),
    key("backbone", "d_model", Int(1, WIDTH)),
    key("backbone", "n_layers", Int(1, 256)),
    key("backbone", "d_state", Int(1, 1024)),
    key("backbone", "rotate", OneOf(&["off", "fixed", "learned", "suggested"])),
    key("backbone", "d_conv", IntOr(1, 128, "suggested")),
    key("backbone", "expand", Int(1, 64)),
    key("backbone", "dt_rank", Int(0, WIDTH)),
    key("backbone", "dt_min", Above(0.0, 100.0)),
    key("backbone", "dt_max", Above(0.0, 100.0)),
    key("backbone", "rms_eps", Above(0.0, 0.1)),
    key("backbone", "proj_bias", Bool),
    key("backbone", "conv_bias", Bool),
    key("network", "encoder_hidden", Int(0, WIDTH)),
    key("network", "head_hidden", Int(0, WIDTH)),
    key("network", "shortcut", Bool),
    key("input", "previous_action", Bool),
    key("input", "previous_reward", Bool),
    key("input", "is_first", Bool),
    key("learner", "gamma", NumOr(0.0, 1.0, "suggested")),
    key("learner", "n_step", IntOr(1, 10_000, "suggested")),
    key("learner", "batch", IntOr(1, 65_536, "suggested")),
    key("learner", "burn_in", Int(0, 100_000)),
    key("learner", "length", Int(1, 100_000)),
    key("learner", "lr_backbone", NumOr(0.0, 1.0, "suggested")),
    key("learner", "lr_heads", Num(0.0, 1.0)),
    key("learner", "weight_decay", Num(0.0, 1.0)),
    key("learner", "adam_eps", Above(0.0, 1.0)),
    key("learner", "grad_clip", Num(0.0, 1e9)),
    key("learner", "warmup", Int(0, MAX)),
    key("learner", "lr_decay", Num(0.0, 1.0)),
    key("learner", "loss", OneOf(&["squared", "huber"])),
    key("learner", "critic", OneOf(&["expected", "qr", "two-hot", "c51"])),
    key("learner", "atoms", Int(2, 65_536)),
    key("learner", "atom_min", Num(-1e5, 1e5)),
    key("learner", "atom_max", Num(-1e5, 1e5)),
    key("learner", "acting", OneOf(&["online", "target", "suggested"])),
    key("learner", "target_tau", Num(0.0, 1.0)),
    key("learner", "target_period", Int(0, MAX)),
    key("learner", "reward_scale", AboveOr(0.0, 1e9, "unit")),
    key("learner", "rescaling", Num(0.0, 1.0)),
    key("learner", "double_q", Bool),
    key("learner", "replay_ratio", Above(0.0, 10_000.0)),
    key("learner", "start_after", Int(0, MAX)),
    key("learner", "truncation_is_terminal", Bool),
    key("exploration", "kind", OneOf(&["ladder", "linear"])),
    key("exploration", "base", Num(0.0, 1.0)),
    key("exploration", "alpha", Num(0.0, 1000.0)),
    key("exploration", "start", Num(0.0, 1.0)),
    key("exploration", "end", Num(0.0, 1.0)),
    key("exploration", "steps", Int(1, MAX)),
    key("replay", "capacity", Int(1, STEPS)),
    key("replay", "layout", OneOf(&["episode", "window"])),
    key("replay", "max_episode", Int(1, 100_000)),
    key("replay", "period", Int(0, 100_000)),
    key("replay", "seams", Bool),
    key("replay", "alpha", Num(0.0, 1.0)),
    key("replay", "beta", Num(0.0, 1.0)),
    key("replay", "eta", Num(0.0, 1.0)),
    key("replay", "state_dtype", OneOf(&["f32", "f16", "bf16"])),
    key("replay", "initial_state", OneOf(&["stored", "zero"])),
    key("train", "steps", Int(1, MAX)),
    key("train", "seed", Int(0, MAX)),
    key("train", "mode", OneOf(&["sync", "async"])),
    key("train", "device", Kind::Device),
    key("train", "precision", OneOf(&["f32", "bf16", "f16"])),
    key("train", "tf32", Bool),
    key("train", "graphs", Bool),
    key("train", "kernel_cache", Text),
    key("train", "threads", Int(0, 4096)),
    key("train", "simd", OneOf(&["auto", "avx512", "avx2", "portable"])),
    key("train", "shards", Int(1, 4096)),
    key("train", "stop_return", Num(f64::MIN, f64::MAX)),
    key("eval", "every", Int(0, MAX)),
    key("eval", "episodes", Int(1, 1_000_000)),
    key("checkpoint", "every", Int(0, MAX)),
    key("checkpoint", "keep", Int(1, 10_000)),
    key("checkpoint", "replay", OneOf(&["full", "none"])),
    key("log", "every", Int(1, MAX)),
    key("log", "delta_q_every", Int(0, MAX)),
    key("log", "mmer_window", Int(1, MAX)),
];

/// The sections, in the order of the tree, each with the line that the written file carries above it.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("env", "The task, and how many copies step together."),
    ("actor", "Acting in async mode."),
    ("agent", "Which agent; all but the name is for `rsac`."),
    ("backbone", "The recurrent body; sizes in units, Δ in steps."),
    ("network", "Hidden units before and after the body; 0: none."),
    ("input", "What the network sees beside the observation."),
    (
        "learner",
        "Updates: `length`, `burn_in` and `start_after` in environment steps, `warmup` and `target_period` in updates.",
    ),
    (
        "exploration",
        "ladder: base^(1 + alpha i / (N - 1)) for copy i. linear: `start` to `end` over `steps` environment steps.",
    ),
    ("replay", "`capacity`, `max_episode` and `period` in environment steps; priorities as in R2D2."),
    ("train", "The run as a whole; `steps` are environment steps of all copies together."),
    ("eval", "Greedy evaluation; `every` in environment steps, 0: only at the end."),
    ("checkpoint", "`every` in environment steps, 0: only at the end; `keep` newest besides the best."),
    ("log", "`every` and `mmer_window` in environment steps, `delta_q_every` in updates."),
];

/// The key at `section.name`, or an error that names the nearest valid one. `origin` says where it was found.
pub(super) fn find(section: &str, name: &str, origin: &str) -> Result<&'static Key> {
    KEYS.iter().find(|k| k.section == section && k.name == name).ok_or_else(|| unknown(section, name, origin))
}

fn unknown(section: &str, name: &str, origin: &str) -> Error {
    let path = if section.is_empty() { shortened(name) } else { format!("{}.{}", shortened(section), shortened(name)) };
    let known_section = SECTIONS.iter().any(|(s, _)| *s == section);
    let elsewhere: Vec<String> =
        KEYS.iter().filter(|k| k.name == name && k.section != section).map(|k| format!("`{}`", k.path())).collect();
    let place = match (section.is_empty(), known_section) {
        (true, _) => "is no section and no key at the top".to_owned(),
        (false, true) => format!("is no key of section [{section}]"),
        (false, false) => format!("is in [{section}], which is no section"),
    };
    let hint = if !elsewhere.is_empty() {
        format!("a key of this name is in another section: {}", elsewhere.join(", "))
    } else {
        format!("nearest valid: `{}`", nearest(section, name))
    };
    Error::config(path, format!("({origin}) {place}; {hint}"))
}

/// The valid section or path that looks most like the given one; keys of the same section come first.
fn nearest(section: &str, name: &str) -> String {
    let (section, name) = (&shortened(section)[..], &shortened(name)[..]);
    if section.is_empty() {
        let sections = SECTIONS.iter().map(|(s, _)| (strsim::jaro_winkler(name, s), format!("[{s}]")));
        let keys = KEYS.iter().map(|k| (strsim::jaro_winkler(name, k.name), k.path()));
        return best(sections.chain(keys));
    }
    let inside = KEYS.iter().filter(|k| k.section == section);
    let near = best(inside.clone().map(|k| (strsim::jaro_winkler(name, k.name), k.path())));
    let score = inside.map(|k| strsim::jaro_winkler(name, k.name)).fold(0.0, f64::max);
    if score >= 0.75 {
        return near;
    }
    best(KEYS.iter().map(|k| {
        let same = if k.section == section { 0.05 } else { 0.0 };
        (strsim::jaro_winkler(name, k.name) + same + 0.1 * strsim::jaro_winkler(section, k.section), k.path())
    }))
}

fn shortened(name: &str) -> String {
    name.chars().take(COMPARED).collect()
}

fn best(scored: impl Iterator<Item = (f64, String)>) -> String {
    scored.fold((-1.0, String::new()), |a, b| if b.0 > a.0 { b } else { a }).1
}

/// A value in words, for errors.
pub(super) fn describe(v: &Value) -> String {
    match v {
        Value::String(s) => format!("the text {s:?}"),
        Value::Integer(i) => format!("the number {i}"),
        Value::Float(f) => format!("the number {f}"),
        Value::Boolean(b) => format!("{b}"),
        Value::Datetime(d) => format!("the date {d}"),
        Value::Array(_) => "an array".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

fn list(words: &[&str]) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}

fn whole(low: u64, high: u64) -> String {
    format!("a whole number from {low} to {high}")
}

fn number(low: f64, high: f64, open: bool) -> String {
    match (open, high >= f64::MAX) {
        (_, true) => "a finite number".to_owned(),
        (true, _) => format!("a number above {low} (from {SMALLEST:e}), at most {high}"),
        (false, _) => format!("a number from {low} to {high}"),
    }
}

/// What the key takes, in words.
fn expected(kind: Kind) -> String {
    match kind {
        Bool => "true or false".to_owned(),
        Text => "text in quotes".to_owned(),
        OneOf(words) => format!("one of {}", list(words)),
        Kind::Backbone => {
            let names = bodies();
            format!("one of {}", list(&names.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        Kind::Device => "\"cpu\", \"auto\", \"cuda\" or \"cuda:N\"".to_owned(),
        Int(low, high) => whole(low, high),
        IntOr(low, high, word) => format!("{} or \"{word}\"", whole(low, high)),
        Num(low, high) => number(low, high, false),
        Above(low, high) => number(low, high, true),
        NumOr(low, high, word) => format!("{} or \"{word}\"", number(low, high, false)),
        AboveOr(low, high, word) => format!("{} or \"{word}\"", number(low, high, true)),
        Kind::Table => "a table".to_owned(),
    }
}

fn is_device(s: &str) -> bool {
    matches!(s, "cpu" | "auto" | "cuda") || s.strip_prefix("cuda:").is_some_and(|n| n.parse::<u16>().is_ok())
}

/// Backbones by name, the bundled ones first.
fn bodies() -> Vec<String> {
    BUNDLED.into_iter().map(str::to_owned).chain(registered()).collect()
}

fn fits(kind: Kind, v: &Value) -> bool {
    let int =
        |low: u64, high: u64| v.as_integer().and_then(|i| u64::try_from(i).ok()).is_some_and(|i| i >= low && i <= high);
    let num = |low: f64, high: f64, open: bool| {
        let x = v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
        let large = |x: f64| x == 0.0 || x.abs() >= SMALLEST;
        x.is_some_and(|x| x.is_finite() && large(x) && x <= high && if open { x > low } else { x >= low })
    };
    let word = |w: &str| v.as_str() == Some(w);
    match kind {
        Bool => v.is_bool(),
        Text => v.is_str(),
        OneOf(words) => v.as_str().is_some_and(|s| words.contains(&s)),
        Kind::Backbone => v.as_str().is_some_and(|s| bodies().iter().any(|b| b == s)),
        Kind::Device => v.as_str().is_some_and(is_device),
        Int(low, high) => int(low, high),
        IntOr(low, high, w) => int(low, high) || word(w),
        Num(low, high) => num(low, high, false),
        Above(low, high) => num(low, high, true),
        NumOr(low, high, w) => num(low, high, false) || word(w),
        AboveOr(low, high, w) => num(low, high, true) || word(w),
        Kind::Table => v.is_table(),
    }
}

fn nearest_word(found: &str, words: impl Iterator<Item = String>) -> String {
    format!("; nearest: \"{}\"", best(words.map(|w| (strsim::jaro_winkler(found, &w), w))))
}

/// Error unless `value` has the key's type and lies in its range.
pub(super) fn check(key: &Key, value: &Value, origin: &str) -> Result<()> {
    if fits(key.kind, value) {
        return Ok(());
    }
    let origin = if origin.is_empty() { String::new() } else { format!("({origin}) ") };
    let near = match (key.kind, value) {
        (OneOf(words), Value::String(s)) => nearest_word(s, words.iter().map(|w| (*w).to_owned())),
        (Kind::Backbone, Value::String(s)) => nearest_word(s, bodies().into_iter()),
        _ => String::new(),
    };
    Err(Error::config(key.path(), format!("{origin}is {}, expected {}{near}", describe(value), expected(key.kind))))
}

/// Error at the first value of a complete table that is outside its key's range.
pub(super) fn check_all(table: &Table) -> Result<()> {
    for key in KEYS {
        let found = if key.section.is_empty() {
            table.get(key.name)
        } else {
            table.get(key.section).and_then(|s| s.get(key.name))
        };
        if let Some(value) = found {
            check(key, value, "")?;
        }
    }
    Ok(())
}
