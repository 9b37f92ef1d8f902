//! Field cases of the learner's formulas. The formulas' own tests stand beside them; golden files in `golden.rs`.

mod support;

use mamba_rl::value::ValueError;
use mamba_rl::value::clip::{clip_factor, global_norm};
use mamba_rl::value::gaussian::{squashed_backward, squashed_log_prob, squashed_sample};
use mamba_rl::value::n_step::{NStepOut, NStepRow, n_step_targets};
use support::cases_value as cases;

macro_rules! field_cases {
    ($($name:ident),*) => { $(#[test] fn $name() { cases::$name(); })* };
}

field_cases!(
    lt_1_termination_and_truncation,
    lt_2_time_index,
    lt_3_discount_exponent,
    lt_4_mean_over_steps,
    lt_5_priority_of_learnt_steps,
    lt_6_termination_at_the_end,
    lt_7_target_network,
    lt_8_linear_schedule
);

#[test]
fn wrong_lengths_are_named() {
    let mut out = ([0.0; 1], [0.0; 1], [0; 1], [false; 1], [false; 1]);
    let row = NStepRow { reward: &[1.0], terminated: &[false], truncated: &[], mask: &[true], next_value: &[0.0] };
    let mut run = |row, n| {
        let (target, raw, steps, bootstrap, full) = (&mut out.0, &mut out.1, &mut out.2, &mut out.3, &mut out.4);
        n_step_targets(row, 0.9, n, None, NStepOut { target, raw, steps, bootstrap, full })
    };
    assert_eq!(run(row, 1), Err(ValueError::Length { argument: "truncated", expected: 1, found: 0 }));
    let row = NStepRow { truncated: &[true], ..row };
    assert!(run(row, 0).unwrap_err().to_string().contains("`n` is 0"));
    assert_eq!(run(row, usize::MAX), Ok(()));
}

#[test]
fn clipping_by_hand() {
    let norm: f32 = global_norm([&[3.0f32][..], &[0.0, -4.0]]);
    assert_eq!((norm, clip_factor(norm, 1.0), clip_factor(norm, 5.0)), (5.0, 0.2, 1.0));
    assert!(clip_factor(f32::INFINITY, 1.0).is_nan());
    // A sum of 2^26 ones in f32 would stop at 2^24.
    assert_eq!(global_norm::<f32>(vec![&[1.0; 1 << 16][..]; 1 << 10]), 8192.0);
}

#[test]
fn gaussian_gradients_match_differences() {
    for (mean, log_std, noise) in [(0.3, -0.5, 1.2), (-2.0, 0.4, -0.7), (4.0, 0.1, 1.5)] {
        let f = |mean: f64, log_std: f64| {
            let s = squashed_sample(mean, log_std, noise);
            0.7 * s.log_prob + 1.3 * s.action
        };
        let (g_mean, g_log_std) = squashed_backward(mean, log_std, noise, 0.7, 1.3);
        let d = 1e-6;
        let want = (
            (f(mean + d, log_std) - f(mean - d, log_std)) / (2.0 * d),
            (f(mean, log_std + d) - f(mean, log_std - d)) / (2.0 * d),
        );
        assert!((g_mean - want.0).abs() < 1e-7 && (g_log_std - want.1).abs() < 1e-7, "{g_mean} {g_log_std} {want:?}");
    }
    assert!(squashed_log_prob(0.0f32, 0.0, 1.0).is_finite() && squashed_log_prob(0.0f32, 0.0, -1.0).is_finite());
}
