//! The command with CUDA: on the test device, which a process finds by its library path, and on a machine that has none.
#![cfg(all(feature = "cuda", feature = "cli"))]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A run of 256 steps.
const SMALL: &[&str] = &[
    "train",
    "--steps",
    "256",
    "--set",
    "env.num_envs=4",
    "--set",
    "backbone.d_model=8",
    "--set",
    "network.head_hidden=8",
    "--set",
    "eval.episodes=4",
    "--set",
    "learner.batch=2",
    "--set",
    "learner.replay_ratio=8",
];

/// A folder, and a library path with or without CUDA in it.
struct Place {
    dir: TempDir,
    libraries: Option<PathBuf>,
    extra: Vec<(&'static str, &'static str)>,
}

struct Done {
    code: i32,
    out: String,
    err: String,
}

impl Place {
    /// With the test device, unchecked: these runs are about the command. `CUDA_SIM=0`: with the machine's own CUDA.
    fn with_cuda() -> Self {
        let libraries = cuda_sim::install().then(cuda_sim::library_dir);
        Place { dir: tempfile::tempdir().unwrap(), libraries, extra: vec![("CUDA_SIM_CHECK", "0")] }
    }

    fn without() -> Self {
        let extra = vec![("CUDA_VISIBLE_DEVICES", "")];
        Place { dir: tempfile::tempdir().unwrap(), libraries: None, extra }
    }

    fn run(&self, args: &[&str]) -> Done {
        let mut c = Command::new(env!("CARGO_BIN_EXE_mamba-rl"));
        // compiled kernels go below the home folder
        c.args(args).current_dir(self.dir.path()).env("HOME", self.dir.path()).env_remove("LD_LIBRARY_PATH");
        if let Some(dir) = &self.libraries {
            c.env("LD_LIBRARY_PATH", dir);
        }
        c.envs(self.extra.iter().copied());
        let Output { status, stdout, stderr } = c.output().unwrap();
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        Done { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    fn ok(&self, args: &[&str]) -> Done {
        let d = self.run(args);
        assert_eq!(d.code, 0, "{args:?}: {}{}", d.out, d.err);
        d
    }

    fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let d = self.run(args);
        assert_eq!(d.code, code, "{args:?}: {}{}", d.out, d.err);
        let errors: Vec<&str> = d.err.lines().filter(|l| l.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{args:?}: {}", d.err);
        assert!(!d.err.contains("panicked") && !d.err.contains("internal failure"), "{args:?}: {}", d.err);
        for word in words {
            assert!(errors[0].contains(word), "{args:?}: `{word}` is not in: {}", errors[0]);
        }
    }

    fn json(&self, path: &str) -> Value {
        let text = std::fs::read_to_string(self.dir.path().join(path)).expect(path);
        serde_json::from_str(&text).expect(path)
    }

    fn small(&self, more: &[&str]) -> Done {
        self.ok(&[SMALL, more].concat())
    }
}

#[test]
fn trains_saves_resumes_and_evaluates() {
    let p = Place::with_cuda();
    let d = p.small(&["--run-dir", "r", "--device", "auto"]);
    assert!(d.out.lines().any(|l| l.contains("device cuda:0 (auto: ")), "{}", d.out);
    let result = p.json("r/result.json");
    assert_eq!(result["device"], "cuda:0");
    assert!(result["updates"].as_u64().unwrap() > 10, "{result}");
    let config = std::fs::read_to_string(p.dir.path().join("r/config.toml")).unwrap();
    assert!(config.contains("device = \"cuda:0\""), "{config}");
    p.ok(&["eval", "r", "--episodes", "4", "--json"]);
    // on the same device, then on the CPU, with the libraries gone
    p.ok(&["train", "--resume", "--run-dir", "r", "--steps", "512"]);
    let p = Place { libraries: None, ..p };
    p.ok(&["train", "--resume", "--run-dir", "r", "--steps", "768", "--device", "cpu"]);
    let result = p.json("r/result.json");
    assert_eq!((result["device"].as_str(), result["steps"].as_u64()), (Some("cpu"), Some(768)));
}

#[test]
fn a_stop_on_cuda_changes_nothing() {
    let p = Place::with_cuda();
    p.small(&["--run-dir", "whole", "--device", "cuda", "--steps", "512"]);
    p.small(&["--run-dir", "parts", "--device", "cuda", "--set", "checkpoint.every=256"]);
    p.ok(&["train", "--resume", "--run-dir", "parts", "--steps", "512"]);
    let weights =
        |run: &str| std::fs::read(p.dir.path().join(run).join("checkpoints/step-512/model.safetensors")).unwrap();
    assert!(weights("whole") == weights("parts"));
}

#[test]
fn every_precision_trains() {
    let p = Place::with_cuda();
    for precision in ["bf16", "f16"] {
        p.small(&["--run-dir", precision, "--device", "cuda:0", "--precision", precision]);
        assert!(p.json(&format!("{precision}/result.json"))["updates"].as_u64().unwrap() > 10);
    }
    p.ok(&["train", "--resume", "--run-dir", "f16", "--steps", "320"]);
    p.fails(&[SMALL, &["--precision", "bf16"]].concat(), 2, &["train.precision", "f32"]);
}

#[test]
fn every_body_and_agent_trains() {
    let p = Place::with_cuda();
    let updates = |run: &str| p.json(&format!("{run}/result.json"))["updates"].as_u64().unwrap();
    for body in ["gru", "lstm", "mlp"] {
        p.small(&["--run-dir", body, "--device", "cuda", "--backbone", body]);
        assert!(updates(body) > 10);
    }
    p.small(&["--run-dir", "rotate", "--device", "cuda", "--set", "backbone.rotate=learned"]);
    assert!(updates("rotate") > 10);
    let soft = ["--run-dir", "soft", "--device", "cuda", "--env", "PositionOnlyPendulumEasy", "--steps", "1200"];
    p.small(&[&soft[..], &["--set", "learner.replay_ratio=2"]].concat());
    assert!(updates("soft") > 1, "{}", updates("soft"));
    let half = [SMALL, &["--device", "cuda", "--env", "PositionOnlyPendulumEasy", "--precision", "f16"]].concat();
    p.fails(&half, 2, &["train.precision", "rsac", "bf16"]);
}

#[test]
fn bench_prints_launches_and_memory() {
    let p = Place::with_cuda();
    let out = p.ok(&["bench", "--device", "cuda", "--rehearse"]).out;
    for word in ["f32: ", "bf16: ", "forward+backward", "2 graphs", "tape h", "target scratch", "second moments"] {
        assert!(out.contains(word), "`{word}` is not in: {out}");
    }
    let json = p.ok(&["bench", "--device", "cuda", "--rehearse", "--json", "--precision", "f16"]).out;
    let report: Value = serde_json::from_str(&json).unwrap();
    let shape = &report["f16"]["shapes"]["S0"];
    assert_eq!(shape["launches"]["graphs"], 2, "{report}");
    assert!(shape["memory"].as_array().unwrap().iter().all(|m| m["bytes"].is_u64()));
    p.fails(&["bench", "--rehearse"], 2, &["--device cuda"]);
}

#[test]
fn devices_are_listed_and_refused_by_name() {
    let p = Place::with_cuda();
    let out = p.ok(&["devices"]).out;
    assert!(out.contains("cuda:0  ") && out.contains("compute capability"), "{out}");
    assert!(out.contains("CUDA 12.0 or newer"), "the oldest driver is not said: {out}");
    p.fails(&[SMALL, &["--device", "cuda:77"]].concat(), 2, &["cuda:77", "devices present: cpu, cuda:0"]);
}

#[test]
fn cu_1_without_cuda_everything_else_works() {
    let p = Place::without();
    p.ok(&["--help"]);
    let out = p.ok(&["devices"]).out;
    assert!(out.contains("cpu ") && out.contains("cuda  not available: "), "{out}");
    let d = p.small(&["--run-dir", "r", "--device", "auto"]);
    let said = d.out.lines().filter(|l| l.contains("device cpu (auto: ")).count();
    assert_eq!(said, 1, "{}", d.out);
    assert_eq!(p.json("r/result.json")["device"], "cpu");
    p.ok(&["eval", "r", "--episodes", "2", "--json"]);
    p.fails(&[SMALL, &["--run-dir", "c", "--device", "cuda"]].concat(), 2, &["cuda:0", "devices present: cpu"]);
    assert!(!p.dir.path().join("c").exists());
}

/// Failures of a machine that only the test device can play.
mod played {
    use super::*;

    fn place(extra: &[(&'static str, &'static str)]) -> Option<Place> {
        let mut p = Place::with_cuda();
        p.extra.extend_from_slice(extra);
        p.libraries.is_some().then_some(p)
    }

    #[test]
    fn cu_1_an_old_driver_is_named_with_the_one_needed() {
        let Some(p) = place(&[("CUDA_SIM_DRIVER", "11040")]) else { return };
        let out = p.ok(&["devices"]).out;
        assert!(out.contains("CUDA 11.4") && out.contains("CUDA 12.0 or newer"), "{out}");
        p.fails(&[SMALL, &["--device", "cuda"]].concat(), 2, &["CUDA 11.4", "CUDA 12.0 or newer"]);
    }

    #[test]
    fn cu_2_a_ptx_that_is_too_new_is_named_with_both_versions() {
        let Some(p) = place(&[("CUDA_SIM_FAIL", "cuModuleLoadData:1:222")]) else { return };
        p.fails(&[SMALL, &["--device", "cuda"]].concat(), 2, &["kernels/", "NVRTC", "driver", "update the driver"]);
    }

    #[test]
    fn cu_5_no_room_is_an_error_with_both_numbers() {
        let Some(p) = place(&[("CUDA_SIM_MEMORY", "33555000")]) else { return };
        p.fails(&[SMALL, &["--device", "cuda"]].concat(), 1, &["out of memory", "bytes were asked for", "are free"]);
    }
}
