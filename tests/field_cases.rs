//! What practice asks: one test or more per requirement, named by its id (`bn_1_...`), with the requirement's own numbers.
//!
//! Faults that were planted one at a time, and the tests that found each (`learner` is tests/learner.rs, `golden`
//! tests/golden.rs):
//!
//! | fault | failing tests |
//! |---|---|
//! | the convolution ignores resets | `sh_4`, `sh_5`, `en_5`; learner: windows, seams, trials; golden `mamba_resets` |
//! | importance weight inside the priority | `rp_4`; golden `r2d2_update` |
//! | truncation treated as termination | `lt_1`, `lt_2`, `lt_3` |
//! | pads learnt | `sh_3`, `lt_3`, `lt_4`, `lt_5`, `bn_8`; golden `r2d2_update` |
//! | replay's previous action one step late | `en_5`, `rp_7`, `sh_2`, `sh_5`; learner: windows, seams |
//! | the target network burns in with the online weights | golden `r2d2_update` |
//! | no convolution window in the stored state | `sh_2`, `sh_5`, `en_5`; learner: windows, session; golden `r2d2_update` |
//! | a stale handle's priority is applied | `rp_5` |
//! | evaluation draws from the replay's random stream | `sh_8` |
//! | the next episode's first observation stored as the final one | `lt_1`, `lt_2` |
//! | carried memory not put back behind left padding | learner: trials |
//! | weight decay on every group | `bn_8`; golden `r2d2_update` |
#![cfg(feature = "cli")]

#[path = "support/cases_checkpoint.rs"]
mod cases_checkpoint;
#[path = "support/cases_config.rs"]
mod cases_config;
#[path = "support/cases_run.rs"]
mod cases_run;
#[path = "../envs/tests/field_cases.rs"]
mod environments;
#[path = "logger.rs"]
mod logs;
mod support;

use std::collections::BTreeSet;
use std::process::Command;

use support::{cases_acting, cases_backbone, cases_learner, cases_loop, cases_replay, cases_value};

/// All requirements.
const IDS: [&str; 59] = [
    "BN-1", "BN-2", "BN-3", "BN-4", "BN-5", "BN-6", "BN-7", "BN-8", "SH-1", "SH-2", "SH-3", "SH-4", "SH-5", "SH-6",
    "SH-7", "SH-8", "RP-1", "RP-2", "RP-3", "RP-4", "RP-5", "RP-6", "RP-7", "RP-8", "RP-9", "LT-1", "LT-2", "LT-3",
    "LT-4", "LT-5", "LT-6", "LT-7", "LT-8", "EN-1", "EN-2", "EN-3", "EN-4", "EN-5", "LG-1", "LG-2", "LG-3", "LG-4",
    "LG-5", "CK-1", "CK-2", "CK-3", "CK-4", "CK-5", "CU-1", "CU-2", "CU-3", "CU-4", "CU-5", "CF-1", "CF-2", "CF-3",
    "CC-1", "CC-2", "CC-3",
];

/// Requirements without a test here, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("BN-3", "reduced precision: tests/cuda_cases.rs, tests/cuda_training.rs"),
    ("BN-4", "reduced precision: tests/cuda_cases.rs, tests/cuda_training.rs"),
    ("CU-1", "tests/cuda_cli.rs"),
    ("CU-2", "tests/cuda_cli.rs"),
    ("CU-3", "tests/cuda_cli.rs, and tests/cli.rs without CUDA"),
    ("CU-4", "tests/cuda_cases.rs"),
    ("CU-5", "tests/cuda_training.rs, tests/cuda_cli.rs"),
    ("CC-1", "needs asynchronous actors"),
    ("CC-3", "needs asynchronous actors"),
];

macro_rules! cases {
    ($($(#[$attribute:meta])* $name:ident: $($body:path),+;)*) => {
        $($(#[$attribute])* #[test] fn $name() { $($body();)+ })*
    };
}

cases! {
    bn_1_single_steps_equal_one_sequence: cases_backbone::bn_1_single_steps_equal_one_sequence, cases_learner::bn_1_whole_agent;
    bn_2_fast_scan_equals_the_plain_loop: cases_backbone::bn_2_fast_scan_equals_the_plain_loop;
    bn_5_odd_sizes_run_or_are_refused: cases_backbone::bn_5_odd_sizes_run_or_are_refused;
    bn_6_lengths_and_causality: cases_backbone::bn_6_lengths_and_causality;
    bn_7_special_parameters: cases_backbone::bn_7_special_parameters_start_as_they_should, cases_learner::bn_7_on_the_finished_agent;
    bn_8_decay_by_group: cases_learner::bn_8_decay_by_group;

    sh_1_chunks_equal_the_whole: cases_backbone::sh_1_chunks_equal_the_whole;
    sh_2_start_state_and_burn_in: cases_backbone::sh_2_gradient_of_the_start_state, cases_learner::sh_2_no_gradient_through_burn_in;
    sh_3_padding_never_matters: cases_backbone::sh_3_padding_never_matters, cases_learner::sh_3_padding_never_matters;
    sh_5_replayed_windows_equal_acting: cases_acting::sh_5_replayed_windows_equal_acting;
    sh_6_stored_states_are_the_recorded_ones: cases_acting::sh_6_stored_states_are_the_recorded_ones;
    sh_7_nothing_moves_the_acting_state: cases_acting::sh_7_nothing_moves_the_acting_state;
    sh_8_evaluation_changes_nothing: cases_loop::sh_8_evaluation_changes_nothing;

    rp_1_tree_does_not_drift: cases_replay::rp_1_tree_does_not_drift;
    rp_2_bad_priorities_and_weights: cases_replay::rp_2_bad_priorities_and_weights;
    rp_3_priority_of_new_items: cases_replay::rp_3_priority_of_new_items;
    rp_4_priority_ignores_weights: cases_replay::rp_4_priority_ignores_weights, cases_learner::rp_4_priorities_ignore_weights;
    rp_5_stale_handles: cases_replay::rp_5_stale_handles;
    rp_6_wrap_around: cases_replay::rp_6_wrap_around;
    rp_7_burn_in_stays_in_its_episode: cases_replay::rp_7_burn_in_stays_in_its_episode;

    lt_1_termination_and_truncation: cases_value::lt_1_termination_and_truncation, cases_learner::lt_1_termination_and_truncation;
    lt_2_time_index: cases_value::lt_2_time_index, cases_learner::lt_2_time_index;
    lt_3_discount_exponent: cases_value::lt_3_discount_exponent, cases_learner::lt_3_discount_exponent;
    lt_4_mean_over_steps: cases_value::lt_4_mean_over_steps, cases_learner::lt_4_mean_over_steps;
    lt_5_priority_of_learnt_steps: cases_value::lt_5_priority_of_learnt_steps, cases_learner::lt_5_priority_of_learnt_steps;
    lt_6_termination_at_the_end: cases_value::lt_6_termination_at_the_end, cases_learner::lt_6_termination_at_the_end;
    lt_7_target_network: cases_value::lt_7_target_network, cases_learner::lt_7_target_network;
    lt_8_linear_schedule: cases_value::lt_8_linear_schedule, cases_loop::lt_8_linear_schedule_through_a_resume;

    en_5_previous_action_and_reward: cases_acting::en_5_previous_action_and_reward;
    lg_5_raw_returns: cases_loop::lg_5_raw_returns;

    ck_1_a_new_process_in_the_middle_changes_nothing: cases_run::ck_1_a_new_process_in_the_middle_changes_nothing;
    ck_2_a_budget_is_met_exactly_across_a_stop: cases_run::ck_2_a_budget_is_met_exactly_across_a_stop;
    ck_4_damage: cases_checkpoint::ck_4_damage;
    ck_5_mismatch: cases_checkpoint::ck_5_mismatch;
    cf_1_unknown_keys: cases_config::cf_1_unknown_keys;
    cf_2_contradictions: cases_config::cf_2_contradictions;
    cf_3_a_seed_repeats_with_any_number_of_threads: cases_run::cf_3_a_seed_repeats_with_any_number_of_threads;
    cc_2_signals_save_and_the_end_is_the_same: cases_run::cc_2_signals_save_and_the_end_is_the_same;
}

#[test]
fn sh_4_episodes_repeat_through_session_and_command() {
    for rotate in ["backbone.rotate=off", "backbone.rotate=learned"] {
        let (dir, report) = cases_loop::sh_4_episodes_repeat(rotate);
        let eval = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_mamba-rl"));
            let args = ["--episodes", "130", "--seed", "5", "--json"];
            let output = command.arg("eval").arg(dir.path()).args(args).output();
            serde_json::from_slice::<serde_json::Value>(&output.unwrap().stdout).unwrap()
        };
        assert_eq!(eval(), report);
        assert_eq!(eval(), report);
    }
}

#[test]
fn lt_7_both_kinds_of_target_are_refused() {
    let text = cases_config::refusal(&["learner.target_tau=0.005", "learner.target_period=100"]);
    assert!(text.contains("learner.target_tau") && text.contains("learner.target_period"), "{text}");
}

/// Kills at random moments; the 100 of the case run with `--ignored`.
#[test]
fn ck_3_five_kills_and_refused_writes() {
    cases_checkpoint::ck_3_kills(5);
    #[cfg(unix)]
    cases_checkpoint::ck_3_write_failures();
}

#[test]
#[ignore = "100 kills take about half a minute"]
fn ck_3_hundred_kills() {
    cases_checkpoint::ck_3_kills(100);
}

/// Set for a process that measures its own memory.
const ALONE: &str = "MAMBA_RL_TEST_ALONE";

/// Memory is measured in a process of its own, where no other test allocates.
fn alone(test: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--ignored", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn rp_8_memory() {
    alone("memory_of_frames");
}

#[test]
fn rp_9_acting_does_not_grow() {
    alone("memory_of_acting");
}

#[test]
#[ignore = "what `rp_8` runs in a process of its own"]
fn memory_of_frames() {
    if std::env::var_os(ALONE).is_some() {
        cases_replay::rp_8_memory();
    }
}

#[test]
#[ignore = "what `rp_9` runs in a process of its own"]
fn memory_of_acting() {
    if std::env::var_os(ALONE).is_some() {
        cases_acting::rp_9_acting_does_not_grow();
    }
}

/// `bn_1_...` is BN-1.
fn id_of(test: &str) -> Option<String> {
    let mut parts = test.rsplit("::").next()?.split('_');
    let (area, number) = (parts.next()?.to_uppercase(), parts.next()?);
    let id = format!("{area}-{number}");
    (area.len() == 2 && number.parse::<u8>().is_ok()).then_some(id)
}

/// The tests of this program and the list above are exactly the requirements.
#[test]
fn every_requirement_has_a_test_or_a_reason() {
    let output = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let tested: BTreeSet<String> = tests.filter_map(id_of).collect();
    let without: BTreeSet<String> = WITHOUT.iter().map(|(id, _)| (*id).to_owned()).collect();
    let all: BTreeSet<String> = IDS.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(all.len(), 59);
    assert_eq!(without.len(), WITHOUT.len());
    let both: Vec<_> = tested.intersection(&without).collect();
    assert!(both.is_empty(), "these have a test now, take them off the list: {both:?}");
    let either: BTreeSet<String> = tested.union(&without).cloned().collect();
    assert_eq!(either, all);
}
