//! How time runs in a replay, and how an episode is cut into windows.
//!
//! Time. An episode of T steps has T + 1 observations and T + 1 slots. `action[t]` answers `obs[t]`; `reward[t]`,
//! `terminated[t]` and `truncated[t]` follow it. Slot T holds the final observation and no transition. Termination
//! means that nothing comes after: discount 0. Truncation ends the sequence but its final observation still counts.
//!
//! Windows. Learnt spans start at s = 0, period, 2 period, ... while s < T; one with s > 0 is made only if
//! s + (length − period) < T, as otherwise the span before it holds all its steps. A span covers [s, e) with
//! e = min(s + length, T). Its burn-in is the min(burn_in, s) steps before it, and observation e comes with it to
//! bootstrap from. The stored state is the one before the first burn-in step.
//! Source: R2D2 (Kapturowski et al., 2019), Sec. 2.3 and 3.

/// One window of an episode, in steps of that episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First learnt step s.
    pub start: usize,
    /// Learnt steps e − s.
    pub len: usize,
    /// Burn-in steps before `start`.
    pub burn_in: usize,
}

impl Span {
    /// First step of the window; its stored state is the one before this step, zero if this is 0.
    pub fn first(&self) -> usize {
        self.start - self.burn_in
    }

    /// The step after the span, also the number of the observation to bootstrap from.
    pub fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Whether a window that starts at `start` is made once the episode is known to have `steps` steps.
pub(super) fn is_made(start: u64, steps: u64, length: u64, period: u64) -> bool {
    start < steps && (start == 0 || start + (length - period) < steps)
}

/// All windows of an episode of `episode_len` steps. Empty if `length` or `period` is 0 or `period` > `length`.
///
/// ```
/// use mamba_rl::replay::sequence::{Span, sequence_layout};
/// let spans = sequence_layout(7, 2, 4, 2);
/// assert_eq!(spans[1], Span { start: 2, len: 4, burn_in: 2 });
/// assert_eq!(spans[2], Span { start: 4, len: 3, burn_in: 2 });
/// assert_eq!(spans.len(), 3);
/// ```
pub fn sequence_layout(episode_len: usize, burn_in: usize, length: usize, period: usize) -> Vec<Span> {
    if length == 0 || period == 0 || period > length {
        return Vec::new();
    }
    (0..episode_len)
        .step_by(period)
        .filter(|&s| is_made(s as u64, episode_len as u64, length as u64, period as u64))
        .map(|s| Span { start: s, len: length.min(episode_len - s), burn_in: burn_in.min(s) })
        .collect()
}

/// Number of slots for `needed` ones: the smallest of a few bucket sizes, so that buffers and CUDA graphs are reused.
/// Buckets are four per doubling and the `exact` sizes, which full windows have. At most a quarter is padding.
pub(crate) fn bucket_slots(needed: usize, exact: &[usize]) -> usize {
    let step = (needed.next_power_of_two() / 8).max(4);
    let rounded = needed.div_ceil(step) * step;
    exact.iter().copied().filter(|&size| size >= needed).fold(rounded, usize::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_few_and_close() {
        assert_eq!(bucket_slots(121, &[121, 81]), 121);
        assert_eq!(bucket_slots(80, &[121, 81]), 80);
        assert_eq!(bucket_slots(82, &[121, 81]), 96);
        assert_eq!(bucket_slots(3, &[]), 4);
        let sizes: std::collections::BTreeSet<_> = (1..=1024).map(|n| bucket_slots(n, &[])).collect();
        assert!(sizes.len() <= 30, "{sizes:?}");
        assert!((16..=1024).all(|n| bucket_slots(n, &[]) >= n && bucket_slots(n, &[]) * 4 <= n * 5 + 12));
    }
}
