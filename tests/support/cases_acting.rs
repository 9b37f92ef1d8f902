//! Field cases about acting with carried state and its way through replay into the learner: SH-5 to SH-7, EN-5, RP-9, and
//! that Q-values recomputed by the learner are those of acting.

use mamba_rl::actor::Exploration;
use mamba_rl::checkpoint::{Checkpoints, OptimizerState, SaveRequest};
use mamba_rl::config::RotateKind;
use mamba_rl::device::Cpu;
use mamba_rl::learner::{Learner, R2d2Config};
use mamba_rl::network::{Session, Stepper};
use mamba_rl::params::Params;
use mamba_rl::replay::{Layout, ReplayConfig, SequenceBatch, SequenceReplay};
use mamba_rl::train::evaluate_weights;
use mamba_rl_envs::{ActionRef, ObsRef};

use super::rig::{Rig, Script, Setup, window};

/// What [`compare_q`] has seen.
#[derive(Debug, Default, Clone, Copy)]
pub struct Compared {
    /// Rows of Q-values.
    pub rows: usize,
    /// Sequences that start after their episode's first step.
    pub mid: usize,
    /// Steps after an episode's end inside the same sequence.
    pub behind_a_seam: usize,
    /// Sequences that start at an episode's first step with memory carried into it.
    pub carried: usize,
}

/// Number of the first real slot of a row.
fn first_slot(batch: &SequenceBatch, row: usize) -> usize {
    (0..batch.slots).find(|&t| batch.valid_obs[batch.at(t, row)] != 0).unwrap()
}

/// Every Q-value row that the learner makes of every sequence equals the one acted with.
pub fn compare_q(rig: &mut Rig, tolerance: f32) -> Compared {
    let batch = rig.all();
    let (q, len) = rig.learner.q_values(&batch).unwrap();
    let (a, n) = (rig.learner.network().actions(), rig.actor.state_len());
    let mut seen = Compared::default();
    for row in 0..batch.batch {
        let first = batch.at(first_slot(&batch, row), row);
        let (episode, step) = (batch.episode[first], batch.step_in_episode[first]);
        let state = &batch.state[row * n..(row + 1) * n];
        seen.mid += usize::from(step > 0);
        seen.carried += usize::from(step == 0 && batch.reset[first] == 0 && state.iter().any(|&x| x != 0.0));
        for t in 0..len {
            let at = batch.at(batch.burn_in + t, row);
            let place = (batch.episode[at], batch.step_in_episode[at]);
            let Some(acted) = rig.acted.get(&place) else {
                assert_eq!(batch.valid[at], 0, "{place:?} was never acted");
                continue;
            };
            let got = &q[(row * len + t) * a..][..a];
            let scale = acted.q.iter().fold(1.0f32, |m, q| m.max(q.abs()));
            for (got, acted) in got.iter().zip(&acted.q) {
                assert!((got - acted).abs() <= tolerance * scale, "{place:?} in row {row}: {got}, acted with {acted}");
            }
            seen.rows += 1;
            seen.behind_a_seam += usize::from(place.0 != episode);
        }
    }
    seen
}

const TASKS: [&str; 2] = ["RepeatFirstEasy", "PositionOnlyCartPoleEasy"];
/// Mamba-1, and pairs of states that turn.
const STATES: [RotateKind; 2] = [RotateKind::Off, RotateKind::Learned];

/// Window layout, from stored states, windows that start in mid-episode among them.
pub fn windows_reproduce_acting() {
    for (task, state) in TASKS.into_iter().flat_map(|task| STATES.map(|state| (task, state))) {
        for (burn_in, length, period) in [(5, 8, 4), (0, 6, 6), (9, 4, 2)] {
            let replay = window(burn_in, length, period);
            let mut setup = Setup { replay, ..Setup::task(task).rotating(state) };
            // past the body as well, where windows begin at once
            setup.network.shortcut = burn_in == 0;
            let mut rig = Rig::new(&setup);
            rig.steps(130);
            let seen = compare_q(&mut rig, 1e-5);
            assert!(seen.rows > 300 && seen.mid >= 15, "{task} {burn_in}: {seen:?}");
        }
    }
}

/// The same with sequences that cross an episode's end.
pub fn seams_reproduce_acting() {
    for (task, state) in TASKS.into_iter().flat_map(|task| STATES.map(|state| (task, state))) {
        let replay = ReplayConfig { seams: true, ..window(5, 12, 6) };
        let mut rig = Rig::new(&Setup { replay, ..Setup::task(task).rotating(state) });
        rig.steps(200);
        let seen = compare_q(&mut rig, 1e-5);
        assert!(seen.mid > 30 && seen.behind_a_seam > 20, "{task}: {seen:?}");
    }
}

/// Memory that lives for three episodes: sequences that start where it was not cleared start from it, in both layouts,
/// and still do after a save and a load.
pub fn trials_reproduce_acting() {
    let whole = ReplayConfig { layout: Layout::Episode { max_episode: 100 }, ..window(5, 8, 4) };
    for replay in [window(5, 8, 4), window(9, 4, 2), window(0, 6, 3), whole] {
        let setup = Setup { replay: replay.clone(), episodes_per_trial: 3, ..Setup::task("PositionOnlyCartPoleEasy") };
        let mut rig = Rig::new(&setup);
        rig.steps(150);
        let seen = compare_q(&mut rig, 1e-5);
        assert!(seen.carried >= 6, "{replay:?}: {seen:?}");
        let first_steps = rig.acted.keys().filter(|(_, step)| *step == 0).count();
        assert!(first_steps > 9, "too few episodes: {first_steps}");
        let dir = tempfile::tempdir().unwrap();
        rig.replay.save_segments(dir.path()).unwrap();
        rig.replay = SequenceReplay::load(rig.replay.spec().clone(), replay, dir.path()).unwrap();
        rig.steps(60);
        let again = compare_q(&mut rig, 1e-5);
        assert!(again.carried > seen.carried && again.rows > seen.rows, "{again:?}");
    }
}

/// With unchanged weights the actor's own priorities are the learner's.
pub fn own_priorities_are_the_learners() {
    let whole = ReplayConfig { layout: Layout::Episode { max_episode: 100 }, ..window(5, 8, 4) };
    for task in TASKS {
        for replay in [window(5, 8, 4), whole.clone()] {
            let base = Setup::task(task);
            let learner = R2d2Config { rescaling: Some(1e-3), ..base.learner.clone() };
            let mut rig = Rig::new(&Setup { replay, learner, ..base });
            rig.steps(130);
            let batch = rig.all();
            let own: Vec<f32> = batch.handle.iter().map(|&h| rig.replay.priority(h).unwrap()).collect();
            rig.learner.update(&batch).unwrap();
            let mut compared = 0;
            #[allow(clippy::needless_range_loop)] // rows of several arrays
            for row in 0..batch.batch {
                let last =
                    (0..batch.slots).rev().map(|t| batch.at(t, row)).find(|&at| batch.valid_obs[at] != 0).unwrap();
                // a span whose next observation has not been acted on still waits for its value
                if rig.now.contains(&(batch.episode[last], batch.step_in_episode[last])) {
                    continue;
                }
                let learnt = rig.learner.priorities()[row];
                assert!((own[row] - learnt).abs() <= 1e-4 * learnt.max(1.0), "{task}: {} and {learnt}", own[row]);
                compared += 1;
            }
            assert!(compared >= 6, "{compared}");
        }
    }
}

/// A number that tells every step of every episode from the others.
fn waves(episode: usize, step: usize) -> f32 {
    ((37 * episode + 11 * step) as f32).sin()
}

/// An episode ends after step 0, 4 or 9 of a ten-step window: the learner's ten rows are those of acting.
pub fn sh_5_replayed_windows_equal_acting() {
    for (end, state) in [(true, false), (false, true)].into_iter().flat_map(|end| STATES.map(|state| (end, state))) {
        for last in [0usize, 4, 9] {
            // ten steps and the final observation of the first episode; the third window starts in mid-episode
            let replay = ReplayConfig { seams: true, ..window(0, 11, 11) };
            let script = Script { lengths: vec![last + 1, 100], end, reward: |t| t as f64, obs: waves };
            let mut rig = Rig::new(&Setup { replay, ..Setup::script(script).rotating(state) });
            rig.steps(45);
            let batch = rig.all();
            let row = (0..batch.batch).find(|&row| batch.episode[batch.at(0, row)] == 0).unwrap();
            let valid = (0..11).filter(|&t| batch.valid[batch.at(t, row)] != 0).count();
            assert_eq!(valid, 10);
            let resets: Vec<usize> = (0..11).filter(|&t| batch.reset[batch.at(t, row)] != 0).collect();
            assert_eq!(resets, if last == 9 { vec![0] } else { vec![0, last + 2] });
            let seen = compare_q(&mut rig, 1e-5);
            // the second episode's first step is among the rows, at the latest as the one to bootstrap from
            assert!(seen.mid >= 2 && seen.rows >= 40 && seen.behind_a_seam > 0, "{seen:?}");
        }
    }
}

/// Windows from steps 0, 5 and 11 of an episode in one batch: zeros, and the recorded states, bit by bit.
pub fn sh_6_stored_states_are_the_recorded_ones() {
    for (burn_in, state) in [0, 20].into_iter().flat_map(|burn_in| STATES.map(|state| (burn_in, state))) {
        let script = Script { lengths: vec![60], end: (true, false), reward: |_| 1.0, obs: waves };
        let mut rig = Rig::new(&Setup { replay: window(burn_in, 10, 1), ..Setup::script(script).rotating(state) });
        rig.steps(60);
        let (batch, n) = (rig.all(), rig.actor.state_len());
        assert_eq!(batch.state.len(), batch.batch * n);
        let mut found = Vec::new();
        for row in 0..batch.batch {
            let at = batch.at(first_slot(&batch, row), row);
            let (episode, step) = (batch.episode[at], batch.step_in_episode[at]);
            let stored = &batch.state[row * n..(row + 1) * n];
            match step {
                0 => assert!(stored.iter().all(|&x| x == 0.0)),
                _ => assert_eq!(stored, rig.acted[&(episode, step)].state, "step {step}"),
            }
            assert_eq!(batch.reset[at] != 0, step == 0);
            found.push(step);
        }
        assert!([0, 5, 11].iter().all(|s| found.contains(s)), "{found:?}");
    }
}

/// An update, a target sync, a save and an evaluation at step 30 leave the actor as it was, to the bit.
pub fn sh_7_nothing_moves_the_acting_state() {
    let setup = || {
        let base = Setup::task("RepeatFirstEasy");
        let learner = R2d2Config { lr_backbone: 1e-2, lr_heads: 1e-2, ..base.learner.clone() };
        Setup { learner, ..base }
    };
    let (mut plain, mut busy) = (Rig::new(&setup()), Rig::new(&setup()));
    plain.steps(30);
    busy.steps(30);
    let before = busy.actor.save().unwrap();
    let batch = busy.all();
    let update = busy.learner.update(&batch).unwrap();
    assert!(update.grad_norm > 0.0 && !update.skipped);
    let learnt = busy.learner.save().unwrap();
    assert_ne!(learnt.params, busy.values);
    busy.learner.set_target(&learnt.params).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let layout = busy.learner.layout().clone();
    let mut store = Checkpoints::open(dir.path(), 2).unwrap();
    store
        .save(SaveRequest {
            step: 90,
            layout: &layout,
            params: &learnt.params,
            optimizer: Some(OptimizerState { target: &learnt.target, online: None, m: &learnt.m, v: &learnt.v }),
            blobs: &[],
            config: &busy.description.to_json(),
            state: &serde_json::Value::Null,
            replay: Some(&mut busy.replay),
        })
        .unwrap();
    let (dev, net) = (Cpu::default(), busy.description.build::<Cpu>().unwrap());
    let params = Params::new(&dev, net.layout().clone(), &learnt.params).unwrap();
    evaluate_weights(&dev, &net, &params, &busy.description, 5, 3, 2).unwrap();
    assert_eq!(busy.actor.save().unwrap(), before);
    for _ in 0..15 {
        plain.step();
        busy.step();
        for (a, b) in plain.now.iter().zip(&busy.now) {
            assert_eq!(a, b);
            let place = (a.0, a.1 - 1);
            let (a, b) = (plain.acted.get(&place), busy.acted.get(&place));
            assert_eq!(a.map(|a| (&a.action, &a.q, &a.state)), b.map(|b| (&b.action, &b.q, &b.state)));
        }
    }
}

/// Nothing before an episode's first step; then the action and the scaled reward before, in acting and in replay.
pub fn en_5_previous_action_and_reward() {
    let reward = |t: usize| (t as f64 * 0.7).cos();
    let script = Script { lengths: vec![13, 4, 21], end: (true, false), reward, obs: waves };
    let setup = Setup { replay: window(3, 6, 3), ..Setup::script(script.clone()) };
    let mut rig = Rig::new(&setup);
    rig.steps(120);
    // Acting: features made by hand, through a network driven by hand.
    let (dev, net) = (Cpu::default(), rig.description.build::<Cpu>().unwrap());
    let params = Params::new(&dev, net.layout().clone(), &rig.values).unwrap();
    let mut stepper = Stepper::new(&dev, &net, 1, 1).unwrap();
    let (mut last, mut done, mut chosen) = (None, 0, [0; 2]);
    for episode in 0.. {
        for t in 0..script.lengths[episode % 3] {
            let Some(acted) = rig.acted.get(&(episode as u64, t as i32)) else {
                assert_eq!(done, 120);
                assert!(chosen[0] > 10 && chosen[1] > 10, "both actions must occur: {chosen:?}");
                return replayed(&mut rig, reward);
            };
            let [mut one_hot, mut before] = [[0.0f32; 2], [0.0f32; 2]];
            if let (Some(action), true) = (last, t > 0) {
                one_hot[action as usize] = 1.0;
                before[0] = (reward)(t - 1) as f32 * 2.0;
            }
            let x = [waves(episode, t), one_hot[0], one_hot[1], before[0], f32::from(u8::from(t == 0))];
            stepper.step(&dev, &net, &params, &x, &[u8::from(t == 0)]).unwrap();
            let close = acted.q.iter().zip(stepper.q(0)).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1.0));
            assert!(close, "episode {episode} step {t}: {:?} and {:?}", acted.q, stepper.q(0));
            last = Some(acted.action[0]);
            chosen[acted.action[0] as usize] += 1;
            done += 1;
        }
    }
}

/// The replayed side of EN-5: every observation of every window, those of mid-episode windows too.
fn replayed(rig: &mut Rig, reward: fn(usize) -> f64) {
    let batch = rig.all();
    let mut mid = 0;
    for row in 0..batch.batch {
        mid += usize::from(batch.step_in_episode[batch.at(first_slot(&batch, row), row)] > 0);
        for at in (0..batch.slots).map(|t| batch.at(t, row)).filter(|&at| batch.valid_obs[at] != 0) {
            let (episode, step) = (batch.episode[at], batch.step_in_episode[at]);
            let prev = (batch.has_prev[at], batch.prev_action.discrete()[at], batch.prev_reward[at]);
            if step == 0 {
                assert_eq!(prev, (0, 0, 0.0));
            } else {
                let before = &rig.acted[&(episode, step - 1)];
                assert_eq!(prev, (1, before.action[0], before.reward), "episode {episode} step {step}");
                assert_eq!(before.reward, reward(step as usize - 1) as f32);
            }
            if let Some(acted) = rig.acted.get(&(episode, step)) {
                assert_eq!(acted.previous.is_some(), step > 0);
            }
        }
    }
    assert!(mid > 10, "{mid}");
    // and so the learner's network input is that of acting
    compare_q(rig, 1e-5);
}

/// A session gives the Q-values of acting, with memory cleared each episode and each third one, also after its memory was
/// saved and put back.
pub fn session_equals_acting() {
    for episodes_per_trial in [1, 3] {
        let script = Script { lengths: vec![6, 4], end: (true, false), reward: |t| t as f64, obs: waves };
        let exploration = Exploration::Linear { start: 0.0, end: 0.0, steps: 1 };
        let mut rig = Rig::new(&Setup { exploration, episodes_per_trial, ..Setup::script(script) });
        rig.steps(40);
        let mut session = Session::new(&rig.description, &rig.values).unwrap();
        let mut memory = vec![0.0; session.memory_len()];
        for episode in 0..8 {
            for t in 0..[6, 4][episode % 2] {
                let acted = &rig.acted[&(episode as u64, t as i32)];
                let reward = acted.previous.as_ref().map_or(f32::NAN, |p| p.1);
                session.save_memory(&mut memory).unwrap();
                session = Session::new(&rig.description, &rig.values).unwrap();
                session.restore_memory(&memory).unwrap();
                let obs = [waves(episode, t)];
                let action = session.observe(ObsRef::F32(&obs), None, reward, t == 0).unwrap();
                assert_eq!(action, ActionRef::Discrete(&acted.action), "episode {episode} step {t}");
                let close =
                    acted.q.iter().zip(session.q_values()).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1.0));
                assert!(close, "episode {episode} step {t}: {:?} and {:?}", acted.q, session.q_values());
            }
        }
    }
}

/// Resident bytes of this process, where the system tells.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

/// 100,000 steps with stored states: nothing grows once the replay is full. For a process of its own.
pub fn rp_9_acting_does_not_grow() {
    let replay = ReplayConfig { capacity: 5_000, ..window(5, 8, 4) };
    let mut rig = Rig::new(&Setup { copies: 50, replay, ..Setup::task("RepeatFirstEasy") });
    let mut at_10_000 = None;
    for step in 0..2_000 {
        if step == 200 {
            assert!(rig.replay.len_steps() > 4_900, "the replay is full");
            at_10_000 = resident();
        }
        let ActionRef::Discrete(actions) = rig.actor.act(rig.envs.last(), 50 * step, Some(&mut rig.replay)).unwrap()
        else {
            panic!("discrete actions");
        };
        rig.envs.step(ActionRef::Discrete(actions)).unwrap();
        rig.actor.observe(rig.envs.last(), &mut rig.replay).unwrap();
    }
    assert!(rig.replay.state_bytes() > 0);
    if let (Some(before), Some(after)) = (at_10_000, resident()) {
        let grown = after.saturating_sub(before);
        println!("resident memory grew by {grown} bytes");
        assert!(grown < 8 << 20, "{grown} bytes");
    }
}
