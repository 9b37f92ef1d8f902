//! Actor, replay and learner together: what the learner recomputes is what was acted with.

mod support;

use support::cases_acting as cases;

use mamba_rl::learner::{ActingWeights, Learner, R2d2Config, TargetUpdate};
use mamba_rl::replay::SequenceBatch;
use support::rig::{Rig, Setup};

/// Weights after three updates with these learning rates, each times `rate`.
fn learnt(lr: f32, rate: f32) -> Vec<f32> {
    let setup = Setup::task("popgym-RepeatPreviousEasy-v0");
    after_three(R2d2Config { lr_backbone: lr, lr_heads: lr / 4.0, ..setup.learner }, rate)
}

fn after_three(learner: R2d2Config, rate: f32) -> Vec<f32> {
    let setup = Setup::task("popgym-RepeatPreviousEasy-v0");
    let mut rig = Rig::new(&Setup { learner, ..setup });
    rig.steps(60);
    let mut batch = SequenceBatch::default();
    rig.learner.set_rate(rate);
    for _ in 0..3 {
        rig.replay.sample(4, &mut rig.rng, &mut batch).unwrap();
        rig.learner.update(&batch).unwrap();
    }
    let mut out = Vec::new();
    rig.learner.weights(&mut out).unwrap();
    out
}

/// A rate of a quarter is a quarter of the learning rates, bit for bit, and 0 stands still.
#[test]
fn a_rate_scales_both_learning_rates() {
    assert!(learnt(0.004, 0.25) == learnt(0.001, 1.0));
    assert!(learnt(0.004, 1.0) != learnt(0.001, 1.0));
    assert!(learnt(0.004, 0.0) == learnt(0.0, 1.0));
    assert!(learnt(0.001, 1.0) != learnt(0.0, 1.0));
}

/// Without a discount the target network is not run: the bits are those of a discount too small to count.
#[test]
fn no_discount_needs_no_target() {
    let base = Setup::task("popgym-RepeatPreviousEasy-v0").learner;
    let with = |gamma| after_three(R2d2Config { gamma, n_step: 1, lr_backbone: 1e-3, ..base.clone() }, 1.0);
    assert!(with(0.0) == with(1e-30));
    assert!(with(0.0) != with(0.9));
}

/// The target network acts where it was asked for, and its weights lie between the first and the online ones.
#[test]
fn the_weights_that_act() {
    let base = Setup::task("popgym-RepeatPreviousEasy-v0").learner;
    let with = |acting| {
        let target = TargetUpdate::Soft(0.25);
        after_three(R2d2Config { acting, target, lr_backbone: 1e-3, ..base.clone() }, 1.0)
    };
    let [first, online, target] = [
        after_three(R2d2Config { lr_backbone: 0.0, lr_heads: 0.0, ..base.clone() }, 1.0),
        with(ActingWeights::Online),
        with(ActingWeights::Target),
    ];
    let moved = |to: &[f32]| first.iter().zip(to).map(|(a, b)| f64::from(b - a).abs()).sum::<f64>();
    assert!(moved(&target) > 0.1 * moved(&online) && moved(&target) < 0.9 * moved(&online));
}

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
