//! The golden files of the networks through the CUDA path: f32 within the files' own tolerances; bf16 and f16 within the
//! table `support::golden::SMALL`. Also from the folder that `MAMBA_RL_GOLDEN_DIR` names.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod device;
mod support;

use mamba_rl::backbone::BackboneConfig;
use mamba_rl::device::Precision as Storage;
use mamba_rl::device::cuda::Cuda;

use support::device_net::DeviceNet;
use support::golden::{Case, Precision, files_in, folders};
use support::{golden_mamba, golden_r2d2, golden_rnn};

/// Kinds without a network: nothing of them runs on a device.
fn on_the_host(kind: &str) -> bool {
    kind.starts_with("rl_") || kind == "hf_mamba"
}

/// Files that half precision cannot hold: Δ down to 1e-26 has no f16, nor have gradients of that size.
const BEYOND_F16: &[&str] = &["mamba_extreme_dt"];

fn check(case: &Case, dev: &Cuda) {
    match case.kind.as_str() {
        "gru" | "lstm" => {
            golden_rnn::check_on(case, &mut DeviceNet::new(dev.clone(), &golden_rnn::config(case), 1));
        }
        "r2d2_update" => golden_r2d2::through_the_learner(case, dev.clone()),
        kind if kind.starts_with("mamba_") => {
            let config = BackboneConfig::Mamba(golden_mamba::config(case, true));
            golden_mamba::check_on(case, &mut DeviceNet::new(dev.clone(), &config, 1));
        }
        kind => panic!("{}: unknown kind `{kind}`", case.path.display()),
    }
}

/// Every file of a network whose kind `wanted` wants; returns how many there were.
fn run(precision: Precision, storage: Storage, wanted: impl Fn(&str) -> bool) -> usize {
    let dev = device::cuda(storage);
    let (mut failures, mut n) = (Vec::new(), 0);
    for file in folders().iter().flat_map(|folder| files_in(folder)) {
        let case = Case::load(&file, precision);
        if on_the_host(&case.kind) || !wanted(&case.kind) {
            continue;
        }
        check(&case, &dev);
        let (part, tensor) = case.worst();
        println!("{storage}: {part:.2} of the tolerance in `{tensor}` of {}", file.display());
        failures.extend(case.finish());
        n += 1;
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    n
}

#[test]
fn golden_files_in_f32() {
    assert!(run(Precision::F32, Storage::F32, |_| true) >= 46);
}

#[test]
fn mamba_files_in_bf16() {
    assert!(run(Precision::Bf16, Storage::Bf16, |kind| kind.starts_with("mamba_")) >= 38);
}

#[test]
fn mamba_files_in_f16() {
    assert!(run(Precision::F16, Storage::F16, |kind| kind.starts_with("mamba_") && !BEYOND_F16.contains(&kind)) >= 36);
}
