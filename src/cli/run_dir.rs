//! The run folder: its name, and which ones can go on.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mamba_rl::checkpoint::Checkpoints;
use mamba_rl::config::Config;
pub use mamba_rl::train::{CONFIG, refuse_taken, write_config};
use mamba_rl::{Error, Result};

/// Where runs go that have no `--run-dir`.
pub const RUNS: &str = "runs";

/// A new folder `runs/<env>__<agent>-<backbone>__s<seed>__<time>`, or the given one if it holds no run yet.
///
/// # Errors
/// `Usage` where the folder holds a run; `Io` where it cannot be made.
pub fn create(given: Option<&Path>, task: &str, config: &Config) -> Result<PathBuf> {
    if let Some(dir) = given {
        refuse_taken(dir)?;
        std::fs::create_dir_all(dir).map_err(|e| Error::io("creating run folder", dir, e))?;
        return Ok(dir.to_owned());
    }
    std::fs::create_dir_all(RUNS).map_err(|e| Error::io("creating folder", RUNS, e))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let base = format!(
        "{}__{}-{}__s{}__{}",
        plain(task),
        config.agent.name,
        config.backbone.name,
        config.train.seed,
        stamp(now)
    );
    // Two runs may begin within one second: creation decides who has the name.
    for n in 1.. {
        let name = if n == 1 { base.clone() } else { format!("{base}-{n}") };
        let dir = Path::new(RUNS).join(name);
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 1000 => {}
            Err(e) => return Err(Error::io("creating run folder", dir, e)),
        }
    }
    Err(Error::Usage(format!("{RUNS}/ has a thousand runs of this second; name a folder by --run-dir")))
}

/// Runs under `runs/` that can go on: their folder and the step of their newest complete checkpoint.
pub fn resumable() -> Vec<(PathBuf, u64)> {
    let Ok(entries) = std::fs::read_dir(RUNS) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|dir| dir.join(CONFIG).is_file())
        .filter_map(|dir| newest_step(&dir).ok().flatten().map(|step| (dir, step)))
        .collect();
    found.sort();
    found
}

/// Step of a run's newest complete checkpoint.
///
/// # Errors
/// `Io` where the folder cannot be read.
pub fn newest_step(dir: &Path) -> Result<Option<u64>> {
    Ok(Checkpoints::list(dir)?.into_iter().find(|c| c.problem.is_none()).map(|c| c.step))
}

/// A task's name as part of a file name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

/// Seconds since 1970 as `YYYYMMDD-HHMMSS`, UTC. Days to dates by counting eras of 400 years from 1 March.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let d = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{d:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_by_hand() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_735_689_599), "20241231-235959");
    }

    #[test]
    fn names_are_file_names() {
        assert_eq!(plain("a/b c:1"), "a-b-c-1");
    }
}
