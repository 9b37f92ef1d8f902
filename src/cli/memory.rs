//! How much memory there is, so that a run that cannot fit is refused before it starts.

use mamba_rl::train::Footprint;

/// Weights, target, gradient and two moments.
const COPIES: u64 = 5;

/// Bytes that a run takes when its replay is full.
pub fn needed(f: &Footprint) -> u64 {
    f.replay_bytes + f.tape_bytes + f.scratch_bytes + COPIES * 4 * f.parameters as u64
}

/// Bytes that may still be used: the system's, or the control group's where that is less. None where no one says.
pub fn available() -> Option<u64> {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    });
    let read = |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    let group = read("memory.max").map(|max| max.saturating_sub(read("memory.current").unwrap_or(0)));
    match (system, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
