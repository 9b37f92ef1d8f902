//! Training on an environment in a Python process that is killed on the way: a clear error, a saved run, a resume that
//! says what it lost. The server is `envs/tests/data/fake_gymnasium.py`, so no gymnasium is needed.
#![cfg(all(unix, feature = "cli"))]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_cmd::Command;

fn mamba_rl(args: &[&str]) -> std::process::Output {
    Command::cargo_bin("mamba-rl").expect("the command is built").args(args).output().expect("it runs")
}

/// An interpreter that is the fake server.
fn interpreter(folder: &Path) -> Option<String> {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3 on this machine");
        return None;
    }
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("envs/tests/data/fake_gymnasium.py");
    let path = folder.join("python");
    std::fs::write(&path, format!("#!/bin/sh\nexec python3 '{}'\n", server.display())).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    Some(path.display().to_string())
}

#[test]
fn a_killed_environment_ends_in_an_error_with_the_run_saved() {
    let folder = tempfile::tempdir().expect("folder");
    let Some(python) = interpreter(folder.path()) else { return };
    let run = folder.path().join("run").display().to_string();
    let once = folder.path().join("died").display().to_string();
    let (python, once) = (format!("env.args.python=\"{python}\""), format!("env.args.once=\"{once}\""));
    let mut args = vec!["train", "--quiet", "--env", "python:Count-v0", "--steps", "400", "--run-dir", &run];
    for set in [python.as_str(), once.as_str(), "env.args.die_at=13", "env.num_envs=4", "backbone.d_model=8"] {
        args.extend(["--set", set]);
    }
    let out = mamba_rl(&args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("python:Count-v0: the child process ended") && said.contains("about to die"), "{said}");
    assert_eq!(said.lines().filter(|l| l.starts_with("error")).count(), 1, "{said}");
    let saved = Path::new(&run).join("checkpoints");
    assert_eq!(std::fs::read_dir(&saved).expect("saved").count(), 1, "one checkpoint");
    let out = mamba_rl(&["train", "--quiet", "--resume", "--run-dir", &run]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("did not repeat"), "{said}");
    let result = std::fs::read_to_string(Path::new(&run).join("result.json")).expect("a result");
    assert!(result.contains("\"steps\": 400") || result.contains("\"steps\":400"), "{result}");
}
