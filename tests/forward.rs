//! `mamba-rl forward` against the reference results of Hugging Face checkpoints, and our checkpoints in their library.
#![cfg(feature = "cli")]

use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

fn save_x(path: &Path, x: &[f32], shape: &[usize]) {
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes).unwrap();
    std::fs::write(path, safetensors::serialize([("x", view)], None).unwrap()).unwrap();
}

fn forward(checkpoint: &Path, input: &Path, output: &Path) -> std::process::Output {
    let mut command = Command::new(cargo_bin!("mamba-rl"));
    command.arg("forward").arg("--checkpoint").arg(checkpoint);
    command.arg("--input").arg(input).arg("--output").arg(output).output().unwrap()
}

fn doubles(t: &TensorView<'_>) -> Vec<f64> {
    t.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
}

fn floats(path: &Path, name: &str) -> (Vec<f32>, Vec<usize>) {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let t = file.tensor(name).unwrap();
    let values = t.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    (values, t.shape().to_vec())
}

#[test]
fn checkpoints_of_the_hugging_face_library_give_their_results() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let dir = tempfile::tempdir().unwrap();
    for case in ["hf_mamba_base_00", "hf_mamba_causal_00"] {
        let bytes = std::fs::read(golden.join(case).join("expected.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let input = file.tensor("input.inputs_embeds").unwrap();
        let x: Vec<f32> = doubles(&input).into_iter().map(|v| v as f32).collect();
        let (from, to) = (dir.path().join("in"), dir.path().join("out"));
        save_x(&from, &x, input.shape());
        let done = forward(&golden.join(case), &from, &to);
        assert!(done.status.success(), "{case}: {}", String::from_utf8_lossy(&done.stderr));
        let (y, shape) = floats(&to, "y");
        assert_eq!(shape, input.shape());
        for (y, want) in y.iter().zip(doubles(&file.tensor("out.last_hidden_state").unwrap())) {
            assert!((f64::from(*y) - want).abs() <= 1e-5 * (1.0 + want.abs()), "{case}: {y} against {want}");
        }
    }
}

/// A short run's checkpoint.
fn trained(dir: &Path, more: &[&str]) -> std::path::PathBuf {
    let run = dir.join("run");
    let mut command = Command::new(cargo_bin!("mamba-rl"));
    command.args([
        "train",
        "--steps",
        "400",
        "--quiet",
        "--set",
        "backbone.d_model=12",
        "--set",
        "backbone.n_layers=2",
    ]);
    command.args(["--set", "env.num_envs=4", "--set", "eval.episodes=2", "--set", "learner.start_after=200"]);
    for set in more {
        command.args(["--set", set]);
    }
    let done = command.arg("--run-dir").arg(&run).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    run
}

#[test]
fn our_checkpoint_runs_and_bad_input_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in"), dir.path().join("out"));
    let x: Vec<f32> = (0..2 * 3 * 12).map(|i| (i as f32).sin()).collect();
    for rotate in ["off", "learned"] {
        let sub = dir.path().join(rotate);
        std::fs::create_dir(&sub).unwrap();
        let run = trained(&sub, &[&format!("backbone.rotate={rotate}")]);
        save_x(&from, &x, &[2, 3, 12]);
        assert!(forward(&run, &from, &to).status.success(), "{rotate}");
        assert_eq!(floats(&to, "y").1, [2, 3, 12]);
        std::fs::remove_file(&to).unwrap();
        for (shape, code, words) in [(&[6, 12][..], 1, "[B, T, 12]"), (&[3, 4, 6][..], 1, "[B, T, 12]")] {
            save_x(&from, &x, shape);
            let done = forward(&run, &from, &to);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(code) && said.contains(words), "{said}");
            assert!(!to.exists());
        }
        let done = forward(&run, &dir.path().join("nothing"), &to);
        assert_eq!(done.status.code(), Some(2), "a missing file");
    }
}

/// Needs a Python with `torch` and `transformers`, named by `MAMBA_RL_TRANSFORMERS_PYTHON`; without one it only says so.
#[test]
fn our_checkpoint_loads_in_transformers() {
    let Ok(python) = std::env::var("MAMBA_RL_TRANSFORMERS_PYTHON") else {
        eprintln!("not run: MAMBA_RL_TRANSFORMERS_PYTHON names no Python with torch and transformers");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let run = trained(dir.path(), &["backbone.d_conv=3", "backbone.rotate=off"]);
    let (from, to) = (dir.path().join("in"), dir.path().join("out"));
    let x: Vec<f32> = (0..2 * 9 * 12).map(|i| (i as f32 * 0.7).sin()).collect();
    save_x(&from, &x, &[2, 9, 12]);
    assert!(forward(&run, &from, &to).status.success());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers_forward.py");
    let done = Command::new(python).arg(script).arg(&run).arg(&from).arg(&to).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("largest difference"), "{said}");
}
