//! How long a run took: seconds on the wall and on the CPU since this process began, added to those of earlier ones.

use std::time::Instant;

use super::snapshot::Progress;

/// Begun with the run.
pub(super) struct Clock {
    since: Instant,
    /// CPU seconds of the process at `since`.
    cpu: Option<f64>,
}

impl Clock {
    pub fn start() -> Self {
        Clock { since: Instant::now(), cpu: cpu_seconds() }
    }

    /// Seconds of training, interruptions left out.
    pub fn wall_s(&self, before: &Progress) -> f64 {
        before.wall_s + self.since.elapsed().as_secs_f64()
    }

    /// CPU seconds of the process while it trained; None where nothing was counted, now or earlier in the run.
    pub fn cpu_s(&self, before: &Progress) -> Option<f64> {
        let uncounted = before.wall_s > 0.0 && before.cpu_s.is_none();
        let here = cpu_seconds()? - self.cpu?;
        (!uncounted).then(|| before.cpu_s.unwrap_or(0.0) + here)
    }
}

/// CPU seconds of this process so far, all threads; None where there is no `/proc`. A tick of `stat` is 1/100 s for every
/// process, whatever the kernel's own clock (Linux, proc(5): `utime`, `stime`).
fn cpu_seconds() -> Option<f64> {
    ticks(&std::fs::read_to_string("/proc/self/stat").ok()?).map(|t| t as f64 / 100.0)
}

/// `utime` + `stime`: fields 14 and 15, counted from the program's name in brackets, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 900 0 0 0 1234 66 0 0 20 0 3 0 100 1 1";
        assert_eq!(ticks(stat), Some(1300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn earlier_seconds_count() {
        let clock = Clock { since: Instant::now(), cpu: cpu_seconds() };
        let before = Progress { wall_s: 10.0, cpu_s: Some(20.0), ..Progress::default() };
        assert!(clock.wall_s(&before) >= 10.0);
        assert!(clock.cpu_s(&before).is_none_or(|s| s >= 20.0));
        let uncounted = Progress { wall_s: 10.0, ..Progress::default() };
        assert_eq!(clock.cpu_s(&uncounted), None);
    }
}
