//! Cases that need a process of their own: a fault is sticky for the context, and settings are read once. The parent
//! starts this test binary again with one case; the child prints what it saw.

use std::process::{Command, Output};

/// Set by the parent: which case the child runs.
pub const CASE: &str = "CUDA_SIM_TEST_CASE";

pub struct Child {
    pub stdout: String,
    pub stderr: String,
}

/// Runs the ignored test `test` for `case` with more environment variables.
#[track_caller]
pub fn run(test: &str, case: &str, environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command.envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let child = Child {
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    };
    assert!(
        status.success() && child.stdout.contains("1 passed"),
        "{test} {case}: {status}\n{}\n{}",
        child.stdout,
        child.stderr
    );
    child
}

/// The case, in the child.
pub fn case() -> String {
    std::env::var(CASE).expect("run by another test, which says which case")
}
