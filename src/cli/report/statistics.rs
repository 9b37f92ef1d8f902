//! Numbers over seeds: mean, standard deviation, median, interquartile mean, and intervals by a stratified bootstrap.
//!
//! Interquartile mean (IQM): the mean of the middle half of all scores, floor(n/4) left out at either end. Its interval, or
//! that of any statistic: the runs of each task are drawn anew with replacement, as many as there are, the statistic is taken
//! over all of them; of B = 2000 such values the quantiles 0.025 and 0.975.
//! Source: Agarwal et al., 2021, "Deep RL at the Edge of the Statistical Precipice", sections 4.1 and 4.3.

use mamba_rl::plot::interquartile_mean;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Drawings of the bootstrap.
const DRAWINGS: usize = 2000;
/// Seed of the drawings: a report repeats.
const SEED: u64 = 0;

/// Mean; NaN for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation of a sample, Σ(x − mean)² / (n − 1); None below two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let m = mean(values);
    let squares: f64 = values.iter().map(|x| (x - m) * (x - m)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Interquartile mean of values in any order.
pub fn iqm(values: &[f64]) -> f64 {
    interquartile_mean(&sorted(values))
}

/// The middle value, or the mean of the two in the middle; NaN for no values.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut out = values.to_vec();
    out.sort_by(f64::total_cmp);
    out
}

/// Between the two nearest values linearly. NaN for no values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    sorted[low] + part * (sorted[(low + 1).min(last)] - sorted[low])
}

/// Interval of 95 % of a statistic over all runs of all strata.
pub fn interval(strata: &[Vec<f64>], statistic: impl Fn(&[f64]) -> f64) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut drawn = Vec::new();
    let mut values: Vec<f64> = (0..DRAWINGS)
        .map(|_| {
            drawn.clear();
            for runs in strata {
                drawn.extend(runs.iter().map(|_| runs[rng.random_range(0..runs.len())]));
            }
            statistic(&drawn)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    (quantile(&values, 0.025), quantile(&values, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(deviation(&[1.0, 2.0, 6.0]), Some(7.0_f64.sqrt()));
        assert_eq!((deviation(&[1.0]), deviation(&[])), (None, None));
        assert_eq!((median(&[6.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 9.0])), (2.0, 3.0));
        assert!(median(&[]).is_nan());
        // eight values: two left out at either end
        assert_eq!(iqm(&[9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0]), (2.0 + 3.0 + 4.0 + 5.0) / 4.0);
        assert_eq!(quantile(&[0.0, 10.0], 0.975), 9.75);
    }

    #[test]
    fn intervals_by_hand() {
        // no spread, no interval
        assert_eq!(interval(&[vec![0.5, 0.5], vec![0.25]], mean), (1.25 / 3.0, 1.25 / 3.0));
        // two values: both lowest and both highest have probability 1/4 each
        assert_eq!(interval(&[vec![0.0, 1.0]], mean), (0.0, 1.0));
        // k ones of eight draws, k binomial (8, 1/8): P(k ≤ 2) = 0.933, P(k ≤ 3) = 0.985, so the quantile 0.975 is 3/8
        let eight = [vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]];
        assert_eq!(interval(&eight, mean), (0.0, 0.375));
        // strata are drawn apart: one run each never changes places
        assert_eq!(interval(&[vec![0.0], vec![1.0]], mean), (0.5, 0.5));
        // together the same two values would reach from 0 to 1
        let iqm_of_four = interval(&[vec![0.0, 4.0], vec![0.0, 4.0]], iqm);
        assert_eq!(iqm_of_four, (0.0, 4.0));
    }
}
