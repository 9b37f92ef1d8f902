//! Soft actor-critic on stored sequences: every loss against differences, states carried in, masks, threads, the
//! temperature, and a first task learnt.

mod support;

use mamba_rl::device::Cpu;
use mamba_rl::learner::{Learner, LearnerState, RsacConfig, Update};
use mamba_rl::network::Session;
use mamba_rl::params::Params;
use mamba_rl::replay::{Layout, ReplayConfig, SequenceBatch};
use mamba_rl::train::evaluate_weights;
use mamba_rl_envs::{ActionRef, EnvArgs, ObsMut, ObsRef, episode_seed, make};
use rand::RngExt;
use support::net::rng;
use support::rig::window;
use support::soft_rig::{Bandit, SoftRig, SoftSetup, learner};

const TASK: &str = "PositionOnlyPendulumHard";

fn whole() -> ReplayConfig {
    ReplayConfig { layout: Layout::Episode { max_episode: 200 }, ..window(0, 8, 8) }
}

/// One update of a learner that stands at these weights, as its first one: the same actions are drawn.
fn update_at(rig: &mut SoftRig, target: &[f32], params: &[f32], batch: &SequenceBatch) -> Update {
    let n = params.len();
    let state = LearnerState {
        params: params.to_vec(),
        target: target.to_vec(),
        m: vec![0.0; n],
        v: vec![0.0; n],
        updates: 0,
        skipped: 0,
        loss_scale: None,
    };
    rig.learner.restore(&state).unwrap();
    rig.learner.update(batch).unwrap()
}

/// Slope of a loss along a direction against the gradient, by differences.
fn check_slope(
    what: &str,
    rig: &mut SoftRig,
    batch: &SequenceBatch,
    own: &dyn Fn(&str) -> bool,
    loss: fn(&Update) -> f64,
) {
    let values = rig.values.clone();
    update_at(rig, &values, &values, batch);
    let gradient = rig.learner.gradient().unwrap();
    let mut direction = vec![0.0f32; values.len()];
    for e in rig.learner.layout().entries().iter().filter(|e| own(&e.spec.name)) {
        direction[e.slot.range()].copy_from_slice(&gradient[e.slot.range()]);
    }
    let norm = direction.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    assert!(norm > 1e-3, "{what}: the gradient is {norm}");
    let h = 1e-3;
    let at = |sign: f64| -> Vec<f32> {
        values.iter().zip(&direction).map(|(v, d)| v + (sign * h * f64::from(*d) / norm) as f32).collect()
    };
    let (up, down) = (at(1.0), at(-1.0));
    let (up, down) = (update_at(rig, &values, &up, batch), update_at(rig, &values, &down, batch));
    let slope = (loss(&up) - loss(&down)) / (2.0 * h);
    assert!((slope - norm).abs() <= 5e-3 * norm, "{what}: {slope} by differences, {norm} by the gradient");
}

/// Losses of critics and policy: value and gradient agree, for each part of the networks. No burn-in: its states move with
/// the weights, and no gradient follows them there.
#[test]
fn gradients_match_differences() {
    for (body, shared) in [("mamba", false), ("mamba", true), ("gru", false), ("lstm", false), ("mlp", true)] {
        let base = SoftSetup::new(TASK, window(0, 8, 5)).backbone(body);
        let mut setup = SoftSetup { shared, ..base };
        if shared {
            // The next action comes from the trunk that is moved, and the targets with it, through which no gradient goes.
            setup.learner.common.gamma = 0.0;
        }
        let mut rig = SoftRig::new(&setup);
        rig.steps(60);
        let batch = rig.all();
        assert!(batch.burn_in == 0 && batch.n_learnt() > 100, "{}", batch.n_learnt());
        let what = format!("{body}, shared {shared}");
        let critic_trunk = move |n: &str| n.starts_with("critic.") || (shared && !n.starts_with("head."));
        check_slope(&format!("{what}, critics' trunk"), &mut rig, &batch, &critic_trunk, |u| u.loss);
        check_slope(&format!("{what}, critics"), &mut rig, &batch, &|n| n.starts_with("head.critic."), |u| u.loss);
        let policy = |u: &Update| u.policy.unwrap().loss;
        check_slope(&format!("{what}, policy head"), &mut rig, &batch, &|n| n.starts_with("head.policy."), policy);
        if !shared {
            let actor_trunk = |n: &str| !n.starts_with("head.") && !n.starts_with("critic.");
            check_slope(&format!("{what}, actor's trunk"), &mut rig, &batch, &actor_trunk, policy);
        }
    }
}

/// The gradient of log α is −(mean log π + H), and it alone moves with the target entropy.
#[test]
fn temperature_gradient_is_the_missing_entropy() {
    let mut rig = SoftRig::new(&SoftSetup::new(TASK, whole()));
    rig.steps(120);
    let batch = rig.all();
    let values = rig.values.clone();
    let update = update_at(&mut rig, &values, &values, &batch);
    let slot = rig.learner.network().log_alpha();
    let g = f64::from(rig.learner.gradient().unwrap()[slot.at]);
    let entropy = update.policy.unwrap().entropy;
    // the weights are all 1 here
    assert!((g - (entropy + 1.0)).abs() < 1e-4, "{g} with entropy {entropy}");
}

/// State after burn-in = state acted with, actor's part and critics' part, from stored states in mid-episode.
#[test]
fn burn_in_carries_both_states() {
    for shared in [false, true] {
        let mut rig = SoftRig::new(&SoftSetup { shared, ..SoftSetup::new(TASK, window(6, 8, 4)) });
        rig.steps(70);
        let batch = rig.all();
        let (n, states) = (rig.actor.state_len(), rig.learner.burnt_in_states(&batch).unwrap());
        let (mut mid, mut moved) = (0, false);
        for row in 0..batch.batch {
            let at = batch.at(batch.burn_in, row);
            let place = (batch.episode[at], batch.step_in_episode[at]);
            let acted = &rig.states[&place];
            mid += usize::from(place.1 > 0);
            moved |= acted[..n / 2].iter().any(|&x| x != 0.0) && acted[n / 2..].iter().any(|&x| x != 0.0);
            if place.1 == 0 {
                continue; // the state before an episode's first step is cleared by that step
            }
            for (a, b) in states[row * n..(row + 1) * n].iter().zip(acted) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{place:?}: {a}, acted with {b}");
            }
        }
        assert!(mid > 20 && moved, "{mid}");
    }
}

/// Critics on windows from stored states = critics on whole episodes from nothing.
#[test]
fn windows_equal_whole_episodes() {
    let q_of = |replay: ReplayConfig| {
        let mut rig = SoftRig::new(&SoftSetup::new(TASK, replay));
        rig.steps(100);
        let batch = rig.all();
        let (q, len) = rig.learner.q_values(&batch).unwrap();
        let mut by_place = std::collections::HashMap::new();
        for row in 0..batch.batch {
            for t in 0..len {
                let at = batch.at(batch.burn_in + t, row);
                if batch.valid[at] != 0 {
                    let place = (batch.episode[at], batch.step_in_episode[at]);
                    by_place.insert(place, [q[(row * len + t) * 2], q[(row * len + t) * 2 + 1]]);
                }
            }
        }
        by_place
    };
    let (episodes, windows) = (q_of(whole()), q_of(window(3, 10, 5)));
    assert!(episodes.len() == 300 && windows.len() == 300, "{} {}", episodes.len(), windows.len());
    for (place, q) in &episodes {
        for (a, b) in q.iter().zip(&windows[place]) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{place:?}: {a} and {b}");
        }
    }
}

/// Same bits for one thread and three, and after a save and a restore between two updates.
#[test]
fn bits_do_not_depend_on_threads_or_a_stop() {
    let base = SoftSetup::new(TASK, window(4, 8, 5));
    let mut settings: RsacConfig = base.learner.clone();
    (settings.common.lr_backbone, settings.common.lr_heads, settings.lr_temperature) = (1e-2, 1e-2, 1e-2);
    settings.common.grad_clip = Some(1.0);
    let setup = SoftSetup { learner: settings, ..base };
    let mut rig = SoftRig::new(&setup);
    rig.steps(60);
    let batch = rig.all();
    let run = |threads: usize, stop: bool| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut l = learner(&setup, &rig.description, &rig.values);
            for i in 0..6 {
                assert!(!l.update(&batch).unwrap().skipped);
                if stop && i == 2 {
                    let saved = l.save().unwrap();
                    l = learner(&setup, &rig.description, &rig.values);
                    l.restore(&saved).unwrap();
                }
            }
            (l.save().unwrap(), l.priorities().to_vec())
        })
    };
    let first = run(1, false);
    assert_ne!(first.0.params, rig.values);
    assert_eq!(first, run(3, false));
    assert_eq!(first, run(2, true));
}

/// What stands in pads never matters, nor does a NaN that is learnt poison anything.
#[test]
fn pads_and_bad_numbers() {
    let mut rig = SoftRig::new(&SoftSetup::new(TASK, window(4, 8, 5)));
    rig.steps(60);
    let mut batch = rig.all();
    let values = rig.values.clone();
    let clean = (update_at(&mut rig, &values, &values, &batch), rig.learner.gradient().unwrap());
    for at in 0..batch.valid.len() {
        if batch.valid_obs[at] == 0 {
            batch.reward[at] = f32::NAN;
            if let mamba_rl::replay::ObsRows::F32(obs) = &mut batch.obs {
                obs[2 * at..2 * at + 2].fill(f32::NAN);
            }
        }
        if batch.valid[at] == 0
            && let mamba_rl::replay::ActionRows::Continuous(a) = &mut batch.action
        {
            a[at] = f32::NAN;
        }
    }
    assert!(batch.reward.iter().any(|r| r.is_nan()), "there are pads");
    assert_eq!(clean, (update_at(&mut rig, &values, &values, &batch), rig.learner.gradient().unwrap()));
    let learnt = (0..batch.valid.len()).find(|&at| batch.learn[at] != 0).unwrap();
    batch.reward[learnt] = f32::NAN;
    let update = rig.learner.update(&batch).unwrap();
    assert!(update.skipped && rig.learner.skipped() == 1);
    assert_eq!(rig.learner.save().unwrap().params, values);
}

/// A one-step task with reward −4 (a − 0.3)²: the policy finds 0.3, its entropy the target −1, and α what that takes:
/// e^{−1} = σ √(2πe) and σ² = α / 8.
#[test]
fn the_temperature_reaches_its_target_entropy() {
    let base = SoftSetup::new(Bandit::NAME, whole()).backbone("mlp");
    let mut settings = base.learner.clone();
    settings.common.reward_scale = 1.0;
    settings.common.grad_clip = Some(1.0);
    (settings.common.lr_backbone, settings.common.lr_heads, settings.lr_temperature) = (3e-3, 3e-3, 1e-2);
    let network = mamba_rl::config::NetworkSection { encoder_hidden: 0, head_hidden: 64, shortcut: false };
    let mut rig = SoftRig::new(&SoftSetup { learner: settings, network, copies: 64, temperature: 1.0, ..base });
    let (mut batch, mut entropy, mut weights) = (SequenceBatch::new(), 0.0, Vec::new());
    for update in 0..2500 {
        rig.steps(1);
        rig.replay.sample(64, &mut rig.rng, &mut batch).unwrap();
        let u = rig.learner.update(&batch).unwrap();
        entropy += if update >= 2300 { u.policy.unwrap().entropy / 200.0 } else { 0.0 };
        rig.learner.weights(&mut weights).unwrap();
        rig.actor.set_weights(&weights).unwrap();
    }
    assert!((entropy + 1.0).abs() < 0.1, "entropy {entropy}");
    let sigma = (-1.0f64).exp() / (2.0 * std::f64::consts::PI * std::f64::consts::E).sqrt();
    let (alpha, want) = (f64::from(rig.learner.temperature().unwrap()), 8.0 * sigma * sigma);
    assert!((alpha / want).ln().abs() < 0.5, "α {alpha}, about {want} expected");
    let mut session = Session::new(&rig.description, &weights).unwrap();
    let ActionRef::Continuous(action) = session.observe(ObsRef::F32(&[1.0]), None, 0.0, true).unwrap() else {
        panic!("a continuous action");
    };
    assert!((action[0] - 0.3).abs() < 0.05, "{action:?}");
}

/// A session driven step by step plays what the evaluation plays, also after its memory was saved and put back.
#[test]
fn a_session_plays_as_the_evaluation() {
    for shared in [false, true] {
        let rig = SoftRig::new(&SoftSetup { shared, ..SoftSetup::new(TASK, whole()) });
        let (dev, policy) = (Cpu::default(), rig.description.build_policy::<Cpu>().unwrap());
        let params = Params::new(&dev, policy.layout().clone(), &rig.values).unwrap();
        let played = evaluate_weights(&dev, &*policy, &params, &rig.description, 2, 11, 1).unwrap();
        // the evaluation's own seeds: its stream of the base seed, then copy and episode
        let mut stream = rng(11);
        stream.set_stream(4);
        let base = stream.random::<u64>();
        let mut env = make(TASK, &EnvArgs::default()).unwrap();
        let mut session = Session::new(&rig.description, &rig.values).unwrap();
        let mut memory = vec![0.0; session.memory_len()];
        for copy in 0..2 {
            let mut obs = [0.0f32; 2];
            env.reset(Some(episode_seed(base, copy, 0)), ObsMut::F32(&mut obs)).unwrap();
            let (mut total, mut reward) = (0.0, 0.0);
            for t in 0..100 {
                session.save_memory(&mut memory).unwrap();
                session = Session::new(&rig.description, &rig.values).unwrap();
                session.restore_memory(&memory).unwrap();
                let action = session.observe(ObsRef::F32(&obs), None, reward, t == 0).unwrap().to_buffer();
                let step = env.step(action.view(), ObsMut::F32(&mut obs)).unwrap();
                reward = step.reward as f32;
                total += step.reward;
            }
            let evaluated = played.returns[copy as usize];
            assert!((total - evaluated).abs() < 1e-3, "{total} and {evaluated}");
        }
        assert!((played.returns[0] - played.returns[1]).abs() > 0.01, "two episodes");
    }
}
