//! The house rules as functions over text: each gives its findings, empty where all is well, and has a test in which it
//! finds something.

use crate::source::{body_open, closing, code_only, functions, identifier, line_of, without_tests, words};

/// Longest file, in lines.
pub const FILE_LINES: usize = 600;
/// Longest function, in lines.
pub const FUNCTION_LINES: usize = 80;
/// Longest of the functions that [`LONG_FUNCTIONS`] names.
pub const LONG_FUNCTION_LINES: usize = 150;
/// The algorithms that read best in one piece: file and function.
const LONG_FUNCTIONS: [(&str, &str); 4] = [
    ("src/backbone/mamba/block.rs", "forward"),
    ("src/backbone/mamba/block.rs", "backward"),
    ("src/learner/r2d2.rs", "update"),
    ("src/learner/rsac.rs", "update"),
];

/// Where `unsafe` may stand: vector code and kernel launches.
fn may_be_unsafe(path: &str) -> bool {
    let launch = path.starts_with("src/ops/") && path.ends_with("/cuda.rs");
    path == "src/device/simd.rs"
        || ["src/device/simd/", "src/device/cuda/"].iter().any(|d| path.starts_with(d))
        || launch
}

/// May this file write to standard output? The command, the console, the programs.
fn may_print(path: &str) -> bool {
    !path.contains("src/") || path.starts_with("src/cli/") || ["src/main.rs", "src/logger/console.rs"].contains(&path)
}

/// Is this part of a library or of the command, rather than a test (`tests.rs` of a module too), an example or a bench?
pub fn is_source(path: &str) -> bool {
    (path.starts_with("src/") || path.starts_with("envs/src/")) && !path.ends_with("/tests.rs")
}

/// At most [`FILE_LINES`] lines.
pub fn file_length(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines > FILE_LINES { vec![format!("has {lines} lines, at most {FILE_LINES} are allowed")] } else { Vec::new() }
}

/// Every function at most [`FUNCTION_LINES`] lines.
pub fn function_length(path: &str, text: &str) -> Vec<String> {
    let limit = |name: &str| {
        if LONG_FUNCTIONS.contains(&(path, name)) { LONG_FUNCTION_LINES } else { FUNCTION_LINES }
    };
    let found = functions(&code_only(text)).into_iter().filter(|f| f.lines > limit(&f.name));
    found.map(|f| format!("{}: fn {} has {} lines, at most {}", f.line, f.name, f.lines, limit(&f.name))).collect()
}

/// The first line is `//!` and says something.
pub fn opens_with_doc(text: &str) -> Vec<String> {
    let said = text.lines().next().and_then(|l| l.strip_prefix("//!")).map_or(0, |l| l.trim().len());
    if said >= 10 { Vec::new() } else { vec!["1: does not open with `//!` and what the file is".to_owned()] }
}

/// No unfinished work, no debugging leftovers, no string errors, no `unwrap()` outside tests.
pub fn forbidden_code(path: &str, text: &str) -> Vec<String> {
    let code = code_only(text);
    let mut out = Vec::new();
    for name in ["todo", "unimplemented", "dbg"] {
        for at in words(&code, name) {
            if code[at + name.len()..].starts_with('!') {
                out.push(format!("{}: `{name}!`", line_of(&code, at)));
            }
        }
    }
    out.extend(string_errors(&code));
    if is_source(path) {
        let own = without_tests(&code);
        out.extend(own.match_indices(".unwrap()").map(|(at, _)| format!("{}: `.unwrap()`", line_of(&own, at))));
        if !may_print(path) {
            for name in ["println", "print"] {
                let calls = words(&own, name).into_iter().filter(|at| own[at + name.len()..].starts_with('!'));
                out.extend(calls.map(|at| format!("{}: `{name}!` in library code", line_of(&own, at))));
            }
        }
    }
    out
}

/// `Result<_, String>`.
fn string_errors(code: &str) -> Vec<String> {
    let mut out = Vec::new();
    for at in words(code, "Result") {
        let rest = &code[at + "Result".len()..];
        let Some(args) = rest.strip_prefix('<') else { continue };
        let (mut depth, mut last, mut end) = (1, 0, args.len());
        for (i, c) in args.char_indices() {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if args[..i].ends_with('-') => {}
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 1 => last = i + 1,
                _ => {}
            }
            if depth == 0 {
                end = i;
                break;
            }
        }
        if last > 0 && args[last..end].trim() == "String" {
            out.push(format!("{}: `Result<_, String>`", line_of(code, at)));
        }
    }
    out
}

/// No marks of unfinished work, no paths of somebody's machine, in any text.
pub fn forbidden_words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for word in ["FIXME", "XXX"] {
        out.extend(words(text, word).into_iter().map(|at| format!("{}: `{word}`", line_of(text, at))));
    }
    let folders = ["root", "home", "Users", "work", "farm"].map(|folder| format!("/{folder}/"));
    for path in folders {
        let absolute = |at: &usize| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
        let found = text.match_indices(&path).map(|(at, _)| at).filter(absolute);
        out.extend(found.map(|at| format!("{}: `{path}`, a place on one machine", line_of(text, at))));
    }
    out
}

/// `#[ignore]` says why.
pub fn ignored_with_reason(text: &str) -> Vec<String> {
    let code = code_only(text);
    let bare = |at: usize| {
        let line = line_of(&code, at);
        let raw = text.lines().nth(line - 1).unwrap_or_default();
        let reason = raw.split_once("ignore").map_or("", |(_, r)| r).trim_start().strip_prefix('=').unwrap_or_default();
        (reason.chars().filter(|c| c.is_alphabetic()).count() < 8)
            .then(|| format!("{line}: `#[ignore]` without a reason"))
    };
    code.match_indices("#[ignore").filter_map(|(at, _)| bare(at)).collect()
}

/// `unsafe` only in vector code and launches, there with a SAFETY line (or a `# Safety` section) near it.
pub fn unsafe_places(path: &str, text: &str) -> Vec<String> {
    if !is_source(path) {
        return Vec::new();
    }
    let code = code_only(text);
    let lines: Vec<&str> = text.lines().collect();
    let explained = |line: usize| {
        let from = line.saturating_sub(7);
        lines[from..line].iter().any(|l| l.contains("SAFETY") || l.contains("# Safety"))
    };
    let places = words(&code, "unsafe").into_iter().map(|at| (at, line_of(&code, at)));
    let code = &code;
    let problem = |(at, line): (usize, usize)| match () {
        () if !may_be_unsafe(path) => Some(format!("{line}: `unsafe` outside vector code and kernel launches")),
        // an `unsafe fn` of a trait impl has its section at the trait
        () if code[at..].starts_with("unsafe {") && !explained(line) => {
            Some(format!("{line}: `unsafe` without SAFETY"))
        }
        () => None,
    };
    places.filter_map(problem).collect()
}

/// Modules of the library and what each may use. `error` knows the error types of the parts that stand alone.
const LAYERS: [(&str, &[&str]); 18] = [
    ("error", &["replay", "logger", "value"]),
    ("device", &["error"]),
    ("ops", &["error", "device"]),
    ("params", &["error", "device"]),
    ("backbone", &["error", "device", "ops", "params"]),
    ("value", &[]),
    ("replay", &["value"]),
    ("young", &[]),
    ("config", &["error", "device", "backbone", "young"]),
    ("checkpoint", &["error", "device", "params", "young"]),
    ("network", &["error", "device", "ops", "params", "backbone", "value", "config", "checkpoint"]),
    ("actor", &["error", "device", "ops", "params", "backbone", "value", "replay", "network"]),
    ("learner", &["error", "device", "ops", "params", "backbone", "value", "replay", "network"]),
    ("logger", &["error"]),
    ("plot", &["error", "logger"]),
    ("train", &["*"]),
    ("bench", &["*"]),
    ("cli", &["*"]),
];
/// Modules that know the package of tasks.
const KNOW_TASKS: [&str; 8] = ["error", "config", "network", "actor", "learner", "train", "bench", "cli"];

/// Who uses whom: never against the arrow. Tests inside a file are free.
pub fn layers(path: &str, text: &str) -> Vec<String> {
    let code = without_tests(&code_only(text));
    if path.starts_with("envs/src/") {
        let found = words(&code, "mamba_rl").into_iter();
        return found.map(|at| format!("{}: the tasks know nothing of `mamba_rl`", line_of(&code, at))).collect();
    }
    let Some(module) = path.strip_prefix("src/").map(identifier).filter(|m| !["lib", "main"].contains(m)) else {
        return Vec::new();
    };
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
        return vec![format!("1: module `{module}` has no place in the table of who may use whom")];
    };
    let mut out = Vec::new();
    for (at, used) in used_modules(&code) {
        let fine = used == module || allowed.contains(&"*") && used != "cli" || allowed.contains(&used.as_str());
        if !fine {
            out.push(format!("{}: `{module}` must not use `crate::{used}`", line_of(&code, at)));
        }
    }
    if !KNOW_TASKS.contains(&module) {
        let found = words(&code, "mamba_rl_envs").into_iter();
        out.extend(found.map(|at| format!("{}: `{module}` must not use `mamba_rl_envs`", line_of(&code, at))));
    }
    if module == "value" {
        for name in ["rand", "rand_chacha", "rayon", "serde"] {
            let found = words(&code, name).into_iter().filter(|at| code[at + name.len()..].starts_with("::"));
            out.extend(found.map(|at| format!("{}: `value` is slices only, not `{name}`", line_of(&code, at))));
        }
    }
    out
}

/// Every `crate::m` and `crate::{m, n::x}`: modules only, names re-exported at the root (`crate::Result`) apart.
fn used_modules(code: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut take = |at: usize, name: &str| {
        if name.starts_with(|c: char| c.is_lowercase()) {
            out.push((at, name.to_owned()));
        }
    };
    for at in words(code, "crate") {
        let Some(rest) = code[at + 5..].strip_prefix("::") else { continue };
        if !rest.starts_with('{') {
            take(at, identifier(rest));
            continue;
        }
        let group = &rest[1..closing(rest, 0) - 1];
        let mut depth = 0;
        let top = group.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        top.for_each(|part| take(at, identifier(part.trim_start())));
    }
    out
}

/// Every `pub mod` has words: a `///` line above it, or a file (or body) that opens with `//!`. `file(name)` gives the
/// text of the module's file.
pub fn public_modules(text: &str, file: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let code = code_only(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (at, _) in code.match_indices("pub mod ") {
        let (name, line) = (identifier(&code[at + 8..]), line_of(&code, at));
        let mut above = lines[..line - 1].iter().rev().skip_while(|l| l.trim_start().starts_with("#["));
        if above.next().is_some_and(|l| l.trim_start().starts_with("///")) {
            continue;
        }
        let told = match body_open(&code, at) {
            Some(_) => lines.get(line).is_some_and(|l| l.trim_start().starts_with("//!")),
            None => file(name).is_some_and(|t| t.starts_with("//!")),
        };
        if !told {
            out.push(format!("{line}: `pub mod {name}` has no words"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_rules_find_long_files_and_functions() {
        assert_eq!(file_length(&"x\n".repeat(601)).len(), 1);
        assert!(file_length(&"x\n".repeat(600)).is_empty());
        let long = |n: usize| format!("fn update() {{\n{}}}\n", "    x();\n".repeat(n - 2));
        assert_eq!(function_length("src/a.rs", &long(81)).len(), 1);
        assert!(function_length("src/a.rs", &long(80)).is_empty());
        assert!(function_length("src/learner/r2d2.rs", &long(150)).is_empty());
        assert_eq!(function_length("src/learner/r2d2.rs", &long(151)).len(), 1);
    }

    #[test]
    fn doc_rule_finds_silent_files() {
        assert_eq!(opens_with_doc("use x;\n//! Late words.").len(), 1);
        assert_eq!(opens_with_doc("//!\n").len(), 1);
        assert!(opens_with_doc("//! Value rescaling.\n").is_empty());
    }

    #[test]
    fn code_rule_finds_leftovers() {
        let bad = "fn f() -> Result<Vec<(u8, u8)>, String> {\n todo!();\n dbg!(1);\n println!(\"\");\n x.unwrap() }";
        assert_eq!(forbidden_code("src/a.rs", bad).len(), 5);
        assert_eq!(forbidden_code("examples/a.rs", bad).len(), 3);
        assert_eq!(forbidden_code("src/wrapper/tests.rs", bad).len(), 3);
        let fine =
            "// todo!\nfn f() -> Result<String, E> { g(\"dbg!()\") }\n#[cfg(test)]\nmod t { fn a() { b.unwrap(); } }";
        assert!(forbidden_code("src/a.rs", fine).is_empty());
        assert!(forbidden_code("src/a.rs", "fn f(g: fn() -> u8, s: Result<u8>) -> Option<String> {}").is_empty());
        assert!(forbidden_code("src/cli/a.rs", "fn f() { println!(\"x\") }").is_empty());
    }

    #[test]
    fn word_rule_finds_marks_and_machines() {
        assert_eq!(forbidden_words(&["// FIXME later\nsee ", "root/x and ", "home/y"].join("/")).len(), 3);
        assert!(forbidden_words("src/network/mod.rs, home/work/, XXXL").is_empty());
    }

    #[test]
    fn ignore_rule_wants_a_reason() {
        assert_eq!(ignored_with_reason("#[ignore]\nfn a() {}\n#[ignore = \"\"]\nfn b() {}").len(), 2);
        assert!(ignored_with_reason("// #[ignore]\n#[ignore = \"100 kills take minutes\"]\nfn a() {}").is_empty());
    }

    #[test]
    fn unsafe_rule_knows_its_places() {
        assert_eq!(unsafe_places("src/train/mod.rs", "fn f() { unsafe { g() } }").len(), 1);
        assert_eq!(unsafe_places("src/device/simd.rs", "fn f() { unsafe { g() } }").len(), 1);
        assert!(unsafe_places("src/device/simd.rs", "// SAFETY: checked above.\nunsafe { g() }").is_empty());
        assert!(unsafe_places("src/train/mod.rs", "// unsafe\n#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn layer_rule_finds_uses_against_the_arrow() {
        assert_eq!(layers("src/value/n_step.rs", "use crate::replay::X;\nuse rand::Rng;").len(), 2);
        assert_eq!(layers("src/replay/mod.rs", "use crate::{value::a, network::{b, c}};").len(), 1);
        assert_eq!(layers("src/replay/mod.rs", "use mamba_rl_envs::Space;").len(), 1);
        assert_eq!(layers("src/ops/gate/mod.rs", "fn f() { crate::backbone::g() }").len(), 1);
        assert_eq!(layers("src/train/mod.rs", "use crate::cli::X;").len(), 1);
        assert_eq!(layers("src/extra/mod.rs", "").len(), 1);
        assert_eq!(layers("envs/src/env.rs", "use mamba_rl::X;").len(), 1);
        let fine = "use crate::ops::Backend;\n// crate::train\n#[cfg(test)]\nmod tests { use crate::network::X; }";
        assert!(layers("src/backbone/mod.rs", fine).is_empty());
        assert!(layers("envs/src/env.rs", "use mamba_rl_envs::X; use crate::space::Y;").is_empty());
        assert!(layers("src/learner/mod.rs", "use crate::Result;").is_empty());
    }

    #[test]
    fn module_rule_wants_words() {
        let file = |name: &str| (name == "told").then(|| "//! Words.".to_owned());
        let text = "pub mod told;\npub mod silent;\n/// Words.\n#[cfg(x)]\npub mod above;\npub mod inner {\n}\n";
        let found = public_modules(text, &file);
        assert_eq!(found, ["2: `pub mod silent` has no words", "6: `pub mod inner` has no words"]);
    }
}
