//! Field cases LT-1 to LT-8 at the level of formulas: what a learner's targets, losses and schedules must be.

use mamba_rl::value::exploration::epsilon_linear;
use mamba_rl::value::n_step::{NStepOut, NStepRow, n_step_targets};
use mamba_rl::value::priority::sequence_priority;
use mamba_rl::value::target_update::{hard_update_due, soft_update};
use mamba_rl::value::td_error::{Loss, TdRow, td_loss};

struct Row {
    reward: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    mask: Vec<bool>,
    next_value: Vec<f64>,
}

impl Row {
    fn new(reward: &[f64], next_value: &[f64]) -> Row {
        let n = reward.len();
        Row {
            reward: reward.to_vec(),
            terminated: vec![false; n],
            truncated: vec![false; n],
            mask: vec![true; n],
            next_value: next_value.to_vec(),
        }
    }

    fn targets(&self, gamma: f64, n: usize) -> Vec<f64> {
        let time = self.reward.len();
        let (mut target, mut raw, mut steps) = (vec![0.0; time], vec![0.0; time], vec![0; time]);
        let (mut bootstrap, mut full) = (vec![false; time], vec![false; time]);
        let row = NStepRow {
            reward: &self.reward,
            terminated: &self.terminated,
            truncated: &self.truncated,
            mask: &self.mask,
            next_value: &self.next_value,
        };
        let out = NStepOut {
            target: &mut target,
            raw: &mut raw,
            steps: &mut steps,
            bootstrap: &mut bootstrap,
            full: &mut full,
        };
        n_step_targets(row, gamma, n, None, out).expect("fitting lengths");
        target
    }
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() <= 1e-9 * w.abs().max(1.0)), "{got:?}, expected {want:?}");
}

pub fn lt_1_termination_and_truncation() {
    for (terminated, truncated, target) in
        [(true, false, 1.0), (false, true, 10.9), (true, true, 1.0), (false, false, 10.9)]
    {
        for n in [1, 5] {
            let mut row = Row::new(&[1.0], &[10.0]);
            (row.terminated[0], row.truncated[0]) = (terminated, truncated);
            close(&row.targets(0.99, n), &[target]);
        }
    }
    // The value of the final observation belongs to the truncated step; what lies behind the seam is another episode.
    let mut row = Row::new(&[1.0, f64::NAN, 1000.0], &[10.0, f64::NAN, 1000.0]);
    (row.truncated[0], row.mask[1]) = (true, false);
    close(&row.targets(0.99, 5)[..2], &[10.9, 0.0]);
}

pub fn lt_2_time_index() {
    let next: Vec<f64> = (1..=12).map(|t| 10.0 * f64::from(t)).collect();
    let row = Row::new(&[0.0; 12], &next);
    close(&row.targets(1.0, 1), &next);
    let three: Vec<f64> = (0..12).map(|t| 10.0 * f64::from((t + 3).min(12))).collect();
    close(&row.targets(1.0, 3), &three);
}

pub fn lt_3_discount_exponent() {
    let mut row = Row::new(&[0.0; 8], &[100.0; 8]);
    row.truncated[7] = true;
    let got = row.targets(0.9, 5);
    close(&[got[0], got[3], got[6]], &[59.049, 59.049, 81.0]);
}

pub fn lt_4_mean_over_steps() {
    let error = 2f64.sqrt(); // squared loss 1 per step
    let loss_of = |padding: usize| {
        let mut total = (0.0, Vec::new());
        for valid in [10, 2] {
            let mut td_error = vec![error; valid];
            td_error.resize(10 + padding, f64::NAN);
            let learnt: Vec<bool> = (0..10 + padding).map(|t| t < valid).collect();
            let mut g = vec![0.0; 10 + padding];
            let row = TdRow { td_error: &td_error, learnt: &learnt, weight: 1.0, n_learnt: 12 };
            total.0 += td_loss(row, Loss::Squared, &mut g).expect("fitting lengths");
            total.1.extend_from_slice(&g[..10]);
            assert!(g[10..].iter().all(|&g| g == 0.0));
        }
        total
    };
    let (loss, gradient) = loss_of(8);
    close(&[loss], &[1.0]);
    close(&gradient[..2], &[-error / 12.0; 2]);
    assert_eq!(loss_of(16), (loss, gradient));
}

pub fn lt_5_priority_of_learnt_steps() {
    for (burn_in, pads) in [(2, 1), (0, 0), (7, 30)] {
        let td: Vec<f64> = [vec![100.0; burn_in], vec![1.0, -2.0, 3.0], vec![50.0; pads]].concat();
        let learnt: Vec<bool> = (0..td.len()).map(|t| (burn_in..burn_in + 3).contains(&t)).collect();
        close(&[sequence_priority(&td, &learnt, 0.9).expect("fitting lengths")], &[2.9]);
    }
}

pub fn lt_6_termination_at_the_end() {
    let mut row = Row::new(&[0.0; 4], &[10.0; 4]);
    row.terminated[3] = true;
    close(&row.targets(0.9, 1), &[9.0, 9.0, 9.0, 0.0]);
}

pub fn lt_7_target_network() {
    let mut target = [0.0f64];
    for _ in 0..100 {
        soft_update(&[1.0], &mut target, 0.005).expect("fitting lengths");
    }
    assert!((target[0] - 0.39423).abs() <= 1e-5, "{target:?}");
    let due: Vec<u64> = (1..=250).filter(|&update| hard_update_due(update, 100)).collect();
    assert_eq!(due, [100, 200]);
}

pub fn lt_8_linear_schedule() {
    for (step, epsilon) in [(0, 1.0), (3_000, 0.715), (5_000, 0.525), (10_000, 0.05), (70_000, 0.05)] {
        close(&[epsilon_linear(1.0, 0.05, 10_000, step)], &[epsilon]);
    }
}
