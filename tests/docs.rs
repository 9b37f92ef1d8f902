//! The documents name the tasks that there are: every bundled task has its row, and every id in a document, a suite or a
//! command line can be made.

use std::path::{Path, PathBuf};

use mamba_rl_envs::{EnvArgs, list, make};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Files of a folder with an ending.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let paths = entries.map(|e| e.expect("readable folder").path());
    paths.filter(|p| p.extension().is_some_and(|e| e == ending)).collect()
}

/// A task's name without its difficulty.
fn family(name: &str) -> &str {
    ["Easy", "Medium", "Hard"].iter().find_map(|level| name.strip_suffix(level)).unwrap_or(name)
}

/// Words that look like a registered id: letters, perhaps with `popgym-` before, then `-v` and a digit.
fn ids(text: &str) -> Vec<&str> {
    let is_id = |w: &&str| {
        let Some((name, version)) = w.rsplit_once("-v") else { return false };
        let name = name.strip_prefix("popgym-").unwrap_or(name);
        let digits = !version.is_empty() && version.chars().all(|c| c.is_ascii_digit());
        digits && name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
    };
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(is_id).collect()
}

#[test]
fn every_task_has_its_row() {
    let text = read(&root().join("docs/environments.md"));
    let readme = read(&root().join("README.md"));
    let tasks = list();
    assert!(tasks.len() > 3, "the registry is empty");
    for spec in tasks {
        let name = family(&spec.name);
        let row = |l: &str| l.starts_with(&format!("| `{name}`")) || l.starts_with(&format!("| `{}`", spec.id));
        let told = text.lines().any(row) || text.contains(&format!("`{}`", spec.id));
        assert!(told, "docs/environments.md has no row of `{name}` or `{}`", spec.id);
        assert!(readme.contains(name), "README.md does not name {name}");
    }
}

#[test]
fn every_named_task_can_be_made() {
    assert_eq!(ids("see `popgym-AEasy-v0`, B-v1. c-v2 popgym-<Name>-v0"), ["popgym-AEasy-v0", "B-v1"]);
    let mut texts = files("docs", "md");
    texts.extend(files("tools/suites", "toml"));
    texts.push(root().join("README.md"));
    let mut seen = 0;
    for path in texts {
        let text = read(&path);
        // a document that registers a task of its own may name it
        let own = |id: &str| text.contains(&format!("EnvSpec::new(\"{id}\""));
        for id in ids(&text).into_iter().filter(|id| !own(id)) {
            make(id, &EnvArgs::default()).unwrap_or_else(|e| panic!("{}: {id}: {e}", path.display()));
            seen += 1;
        }
    }
    assert!(seen > 5, "the documents name {seen} tasks");
}

/// First lines of the fenced blocks of a document.
fn fences(text: &str) -> Vec<&str> {
    let marks = text.lines().filter_map(|l| l.trim_start().strip_prefix("```"));
    marks.step_by(2).map(str::trim).collect()
}

#[test]
fn every_code_block_is_tested_or_marked() {
    assert_eq!(fences("```rust\na\n```\n```\nb\n```\n"), ["rust", ""]);
    let lib = read(&root().join("src/lib.rs"));
    let mut paths = files("docs", "md");
    paths.extend(["README.md", "CONTRIBUTING.md", "envs/README.md", "runs/README.md"].map(|p| root().join(p)));
    let mut tested = 0;
    for path in paths {
        let name = path.strip_prefix(root()).expect("inside").to_str().expect("a name").replace('\\', "/");
        let text = read(&path);
        let rust: Vec<&str> = fences(&text).into_iter().filter(|f| f.starts_with("rust")).collect();
        assert!(!fences(&text).contains(&""), "{name}: a block without a language would be tested as Rust");
        assert!(rust.iter().all(|f| !f.contains("ignore")), "{name}: an example that nobody compiles");
        assert!(
            rust.is_empty() || lib.contains(&format!("\"../{name}\"")),
            "{name}: its examples are not in src/lib.rs"
        );
        tested += rust.len();
    }
    assert!(tested > 8, "{tested} examples");
}
