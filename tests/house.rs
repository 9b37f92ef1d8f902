//! The house test: the rules of CONTRIBUTING.md, counted on every file of the repository. Standard library only.
//! `tests/house/rules.rs` has the rules on code, `tests/house/documents.rs` those on documents.

#[path = "house/documents.rs"]
mod documents;
#[path = "house/rules.rs"]
mod rules;
#[path = "house/source.rs"]
mod source;

use std::path::{Path, PathBuf};
use std::process::Command;

/// This test names what it forbids.
const OWN: &str = "tests/house";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Paths of the repository's files, relative, with `/`: what git would carry, or all files where git does not answer.
fn files() -> Vec<String> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").arg("-C").arg(root()).args(list).output();
    let mut out: Vec<String> = match listed {
        Ok(o) if o.status.success() && !o.stdout.is_empty() => {
            String::from_utf8_lossy(&o.stdout).split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(&root(), "", &mut found);
            found
        }
    };
    out.retain(|p| root().join(p).is_file());
    out.sort();
    out
}

fn walk(dir: &Path, prefix: &str, out: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let is_dir = entry.path().is_dir();
        let left_out = name == ".git" || name == "target" || (prefix == "runs/" && is_dir);
        if is_dir && !left_out {
            walk(&entry.path(), &format!("{path}/"), out);
        } else if !is_dir {
            out.push(path);
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Texts of the files with one of these endings, the house test's own left out where asked.
fn texts(endings: &[&str], with_own: bool) -> Vec<(String, String)> {
    let wanted = |p: &String| endings.iter().any(|e| p.ends_with(e)) && (with_own || !p.starts_with(OWN));
    files().into_iter().filter(wanted).map(|p| (p.clone(), read(&p))).collect()
}

/// Fails with all findings, one per line.
fn report(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

fn over(texts: &[(String, String)], rule: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let of = |(p, t): &(String, String)| rule(p, t).into_iter().map(|f| format!("{p}:{f}")).collect::<Vec<_>>();
    texts.iter().flat_map(of).collect()
}

#[test]
fn the_walk_sees_the_repository() {
    let files = files();
    for path in ["Cargo.toml", "src/lib.rs", "envs/src/lib.rs", "tests/house.rs"] {
        assert!(files.iter().any(|f| f == path), "{path}");
    }
    assert!(!files.iter().any(|f| f.starts_with("target/")));
}

#[test]
fn files_are_short() {
    report(over(&texts(&[".rs", ".cu", ".cuh", ".cpp", ".h"], true), |_, t| rules::file_length(t)));
}

#[test]
fn functions_are_short() {
    report(over(&texts(&[".rs"], true), rules::function_length));
}

#[test]
fn files_open_with_what_they_are() {
    report(over(&texts(&[".rs"], true), |_, t| rules::opens_with_doc(t)));
}

#[test]
fn no_leftovers_in_code() {
    report(over(&texts(&[".rs"], false), rules::forbidden_code));
}

#[test]
fn no_file_without_a_concept() {
    let named =
        |p: &String| ["utils.rs", "util.rs", "helpers.rs", "misc.rs"].contains(&p.rsplit('/').next().unwrap_or(""));
    report(files().into_iter().filter(named).map(|p| format!("{p}: split by concept")).collect());
}

#[test]
fn the_repository_speaks_of_the_product_alone() {
    let texts = texts(&[".rs", ".md", ".toml", ".sh", ".py", ".cu", ".cuh", ".cpp", ".h", ".txt", ".ci/run"], false);
    report(over(&texts, |_, t| rules::forbidden_words(t)));
}

#[test]
fn ignored_tests_say_why() {
    report(over(&texts(&[".rs"], false), |_, t| rules::ignored_with_reason(t)));
}

#[test]
fn unsafe_stays_in_its_places() {
    report(over(&texts(&[".rs"], false), rules::unsafe_places));
}

#[test]
fn nobody_uses_against_the_arrow() {
    let texts: Vec<_> = texts(&[".rs"], false).into_iter().filter(|(p, _)| rules::is_source(p)).collect();
    report(over(&texts, rules::layers));
}

#[test]
fn public_modules_have_words() {
    let texts: Vec<_> = texts(&[".rs"], false).into_iter().filter(|(p, _)| rules::is_source(p)).collect();
    let rule = |path: &str, text: &str| {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        // children of a.rs live in a/, those of mod.rs, lib.rs and main.rs beside it
        let stem = name.trim_end_matches(".rs");
        let base = if ["mod", "lib", "main"].contains(&stem) { dir.to_owned() } else { format!("{dir}/{stem}") };
        rules::public_modules(text, &|module| {
            let places = [format!("{base}/{module}.rs"), format!("{base}/{module}/mod.rs")];
            places.iter().find_map(|p| std::fs::read_to_string(root().join(p)).ok())
        })
    };
    report(over(&texts, rule));
}

#[test]
fn required_files_are_there() {
    report(documents::missing_files(&files()));
}

#[test]
fn links_lead_somewhere() {
    let rule = |path: &str, text: &str| {
        let dir = root().join(path).parent().map(Path::to_path_buf).unwrap_or_default();
        documents::broken_links(text, &|file| {
            let target = dir.join(file);
            if target.is_dir() {
                Some(String::new())
            } else {
                std::fs::read(target).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
            }
        })
        .into_iter()
        .map(|f| format!(" {f}"))
        .collect()
    };
    report(over(&texts(&[".md"], true), rule));
}

#[test]
fn every_config_key_is_explained() {
    let keys = documents::config_keys(&read("src/config/mod.rs"));
    assert!(keys.len() > 40 && keys.iter().any(|k| k == "learner.gamma"), "the config tree was not read: {keys:?}");
    report(documents::config_reference(&read("src/config/mod.rs"), &read("docs/training.md")));
}

#[test]
fn every_metric_is_explained() {
    let readme = read("README.md");
    let sources = texts(&[".rs"], false).into_iter().filter(|(p, _)| p.starts_with("src/"));
    let tags: Vec<String> = sources.flat_map(|(_, t)| documents::metric_tags(&t)).collect();
    assert!(tags.iter().any(|t| t == "charts/episodic_return"), "no tag was found in src/");
    let silent = tags.into_iter().filter(|t| !readme.contains(&format!("`{t}`")));
    report(silent.map(|t| format!("README.md does not define `{t}`")).collect());
}

#[cfg(unix)]
#[test]
fn the_ci_script_can_be_run() {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(root().join(".ci/run")).expect(".ci/run exists").permissions().mode();
    assert!(mode & 0o111 != 0, ".ci/run is not executable: mode {mode:o}");
}
