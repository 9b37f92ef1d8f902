//! `mamba-rl devices`: what a run can be trained on.

use std::io::Write;

use mamba_rl::config::simd_paths;

use super::{Outcome, memory, text};

/// Lists the devices.
pub fn run(out: &mut dyn Write) -> Outcome {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let free = memory::available().map_or_else(String::new, |n| format!(", {} of memory free", text::bytes(n)));
    writeln!(out, "cpu   {}: {cores} cores{free}; code paths: {}", cpu_name(), simd_paths().join(", "))?;
    writeln!(out, "cuda  not available: this build has no CUDA support")?;
    Ok(0)
}

/// The processor's name, where the system tells it.
pub fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(':').nth(1));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |n| n.trim().to_owned())
}
