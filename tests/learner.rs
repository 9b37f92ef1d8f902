//! Actor, replay and learner together: what the learner recomputes is what was acted with.

mod support;

use support::cases_acting as cases;

macro_rules! tests {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { cases::$name(); })* };
}

tests!(
    windows_reproduce_acting,
    seams_reproduce_acting,
    trials_reproduce_acting,
    own_priorities_are_the_learners,
    session_equals_acting,
);
