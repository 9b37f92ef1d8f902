//! `mamba-rl devices`: what a run can be trained on.

use std::io::Write;

use mamba_rl::Error;
use mamba_rl::config::simd_paths;
use mamba_rl::device::gpus;

use super::{Outcome, memory, text};

/// Lists the devices.
pub fn run(out: &mut dyn Write) -> Outcome {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let free = memory::available().map_or_else(String::new, |n| format!(", {} of memory free", text::bytes(n)));
    writeln!(out, "cpu   {}: {cores} cores{free}; code paths: {}", cpu_name(), simd_paths().join(", "))?;
    match gpus() {
        Ok(gpus) if gpus.is_empty() => writeln!(out, "cuda  not available: the driver finds no GPU")?,
        Ok(gpus) => {
            for (i, gpu) in gpus.iter().enumerate() {
                writeln!(out, "cuda:{i}  {gpu}; precisions: f32, bf16, f16")?;
            }
        }
        Err(Error::Device { problem, .. }) => writeln!(out, "cuda  not available: {problem}")?,
        Err(e) => writeln!(out, "cuda  not available: {e}")?,
    }
    #[cfg(feature = "cuda")]
    writeln!(out, "      CUDA needs {}, NVRTC and cuBLAS", mamba_rl::device::cuda::required())?;
    Ok(0)
}

/// The processor's name, where the system tells it.
pub fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(':').nth(1));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |n| n.trim().to_owned())
}
