//! Distributional critics of `r2d2`: gradients against differences, acting and learning agree, and each of them learns.

mod support;

use mamba_rl::config::{Config, CriticKind, Flags};
use mamba_rl::learner::{Learner, LearnerState, R2d2Config, Update};
use mamba_rl::network::CriticDescription;
use mamba_rl::replay::SequenceBatch;
use mamba_rl::train::{self, RunOptions};
use support::cases_acting::compare_q;
use support::rig::{Rig, Setup, window};

const KINDS: [CriticKind; 3] = [CriticKind::Qr, CriticKind::TwoHot, CriticKind::C51];

/// A rig whose returns fit the support, on a task with terminations, or one with a legal-action mask.
fn setup(kind: CriticKind, task: &'static str) -> Setup {
    let base = Setup::task(task);
    let learner = R2d2Config { double_q: false, reward_scale: 20.0, ..base.learner.clone() };
    let critic = Some(CriticDescription { kind, atoms: 11, atom_min: -6.0, atom_max: 6.0 });
    Setup { learner, critic, ..base }
}

fn update_at(rig: &mut Rig, target: &[f32], params: &[f32], batch: &SequenceBatch) -> Update {
    let zeros = vec![0.0; params.len()];
    let (params, target, m, v) = (params.to_vec(), target.to_vec(), zeros.clone(), zeros);
    rig.learner.restore(&LearnerState { params, target, m, v, ..LearnerState::default() }).unwrap();
    rig.learner.update(batch).unwrap()
}

/// The loss falls along the gradient as fast as the gradient is long. Double Q is off, so that targets stand; so is burn-in,
/// whose states move with the weights while no gradient follows them.
#[test]
fn gradients_match_differences() {
    for kind in KINDS {
        let mut rig = Rig::new(&Setup { replay: window(0, 8, 4), ..setup(kind, "PositionOnlyCartPoleEasy") });
        rig.steps(80);
        let batch = rig.all();
        let values = rig.values.clone();
        let loss = update_at(&mut rig, &values, &values, &batch).loss;
        let g = rig.learner.gradient().unwrap();
        let norm = g.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        assert!(loss > 0.0 && norm > 1e-3, "{kind:?}: loss {loss}, gradient {norm}");
        let h = 1e-3;
        let at = |sign: f64| -> Vec<f32> {
            values.iter().zip(&g).map(|(v, d)| v + (sign * h * f64::from(*d) / norm) as f32).collect()
        };
        let (up, down) = (at(1.0), at(-1.0));
        let up = update_at(&mut rig, &values, &up, &batch).loss;
        let slope = (up - update_at(&mut rig, &values, &down, &batch).loss) / (2.0 * h);
        assert!((slope - norm).abs() <= 5e-3 * norm, "{kind:?}: {slope} by differences, {norm} by the gradient");
    }
}

/// What is acted with, in mid-episode windows too, is what the learner computes; and the actor's own priorities are the
/// learner's.
#[test]
fn acting_and_learning_agree() {
    for kind in KINDS {
        let mut rig = Rig::new(&Setup { replay: window(5, 8, 4), ..setup(kind, "RepeatFirstEasy") });
        rig.steps(130);
        let seen = compare_q(&mut rig, 1e-5);
        assert!(seen.rows > 300 && seen.mid >= 15, "{kind:?}: {seen:?}");
        if kind == CriticKind::C51 {
            continue; // its support cuts the tail of a target, which the actor's scalar errors do not know of
        }
        let batch = rig.all();
        let own: Vec<f32> = batch.handle.iter().map(|&h| rig.replay.priority(h).unwrap()).collect();
        rig.learner.update(&batch).unwrap();
        let mut compared = 0;
        for (row, (own, learnt)) in own.iter().zip(rig.learner.priorities()).enumerate() {
            let last = (0..batch.slots).rev().map(|t| batch.at(t, row)).find(|&at| batch.valid_obs[at] != 0).unwrap();
            // a span whose next observation has not been acted on still waits for its value
            if rig.now.contains(&(batch.episode[last], batch.step_in_episode[last])) {
                continue;
            }
            assert!((own - learnt).abs() <= 1e-4 * learnt.max(1.0), "{kind:?}: {own} and {learnt}");
            compared += 1;
        }
        assert!(compared >= 6, "{compared}");
    }
}

/// A memory task of three steps is learnt by each.
#[test]
fn each_learns_to_repeat() {
    for (kind, support) in [("qr", (-4, 4)), ("two-hot", (-4, 4)), ("c51", (-4, 4))] {
        let dir = tempfile::tempdir().unwrap();
        let sets = [
            format!("learner.critic={kind}"),
            format!("learner.atom_min={}", support.0),
            format!("learner.atom_max={}", support.1),
            "learner.atoms=21".into(),
            "train.steps=20000".into(),
            "train.stop_return=0.9".into(),
            "eval.every=2560".into(),
            "eval.episodes=64".into(),
        ];
        let mut config = Config::load(None, None, &sets, &Flags::default()).unwrap();
        let spec = train::make_env(&config.env.id, false, &serde_json::json!({})).unwrap().spec().clone();
        config.resolve(&spec).unwrap();
        let options = RunOptions {
            run_dir: dir.path().into(),
            resume: false,
            init_from: None,
            stop: std::sync::Arc::default(),
            quiet: true,
            preset: "popgym".into(),
        };
        let result = train::run(&config, options).unwrap();
        assert!(result.best_eval_return.unwrap() >= 0.9, "{kind}: {result:?}");
    }
}
