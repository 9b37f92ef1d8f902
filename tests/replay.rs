//! The replay against field cases, against a plain model of itself, through files, and against bad input.

mod support;

use support::cases_replay as cases;

macro_rules! field_cases {
    ($($name:ident),*) => { $(#[test] fn $name() { cases::$name(); })* };
}

field_cases!(
    rp_1_tree_does_not_drift,
    rp_2_bad_priorities_and_weights,
    rp_3_priority_of_new_items,
    rp_4_priority_ignores_weights,
    rp_5_stale_handles,
    rp_6_wrap_around,
    rp_7_burn_in_stays_in_its_episode,
    rp_8_memory
);
