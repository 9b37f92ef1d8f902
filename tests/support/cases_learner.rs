//! Field cases through the real learner: LT-1 to LT-7, RP-4, SH-2, SH-3, BN-1, BN-7, BN-8.
//!
//! The value network is stubbed by weights: Q = slope · observation + bias. Learning rates are 0 where weights must stand.

use mamba_rl::backbone::{SeqShape, Sequence};
use mamba_rl::config::{BackboneSection, Config, Flags, RotateKind};
use mamba_rl::device::{Cpu, View};
use mamba_rl::learner::{Learner, R2d2Config, TargetUpdate};
use mamba_rl::network::Stepper;
use mamba_rl::params::{Group, Params};
use mamba_rl::replay::{ActionRows, Layout, NO_EPISODE, ObsRows, ReplayConfig, SequenceBatch};
use mamba_rl::train::{Parts, make_env};
use rand::RngExt;

use super::net::{random, rng};
use super::rig::{Rig, Script, Setup, window};

fn whole() -> ReplayConfig {
    ReplayConfig { layout: Layout::Episode { max_episode: 100 }, ..window(0, 8, 8) }
}

fn zero(_: usize) -> f64 {
    0.0
}

/// Observation = number of the step.
fn counter(_: usize, step: usize) -> f32 {
    step as f32
}

fn learner(setup: &Setup, gamma: f32, n_step: usize) -> R2d2Config {
    R2d2Config { gamma, n_step, ..setup.learner.clone() }
}

/// A rig on a script with Q = slope · observation + bias, after `steps` steps.
fn stubbed(script: Script, replay: ReplayConfig, q: (f32, f32), (gamma, n): (f32, usize), steps: usize) -> Rig {
    let base = Setup::script(script).stubbed(q.0, q.1);
    let learner = learner(&base, gamma, n);
    let mut rig = Rig::new(&Setup { replay, learner, ..base });
    rig.steps(steps);
    rig
}

/// Targets of the learnt steps of each row after one update.
fn targets(rig: &mut Rig, batch: &SequenceBatch) -> Vec<Vec<f32>> {
    rig.learner.update(batch).unwrap();
    let (all, len) = (rig.learner.last_unroll().2, batch.slots - batch.burn_in);
    let learnt = |row: usize, t: usize| batch.learn[batch.at(batch.burn_in + t, row)] != 0;
    (0..batch.batch).map(|row| (0..len).filter(|&t| learnt(row, t)).map(|t| all[row * len + t]).collect()).collect()
}

#[track_caller]
fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{got:?}, expected {want:?}");
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "{got:?}, expected {want:?}");
    }
}

/// max |a − b| / max |b|.
#[track_caller]
fn near(what: &str, a: &[f32], b: &[f32], tolerance: f32) {
    let scale = b.iter().fold(1e-30f32, |m, x| m.max(x.abs()));
    let worst =
        a.iter().zip(b).fold(0.0f32, |m, (a, b)| if (a - b).is_nan() { f32::NAN } else { m.max((a - b).abs()) });
    assert!(a.len() == b.len() && worst <= tolerance * scale, "{what}: {worst:e} of {scale:e}");
}

/// The batch with `extra` more slots of padding, holding `fill`.
fn padded(batch: &SequenceBatch, extra: usize, fill: f32) -> SequenceBatch {
    let mut out = batch.clone();
    let (b, n) = (batch.batch, (batch.slots + extra) * batch.batch);
    out.slots += extra;
    let ObsRows::F32(obs) = &mut out.obs else { panic!("f32 observations") };
    let width = obs.len() / (batch.slots * b);
    obs.resize(n * width, fill);
    for (at, x) in obs.chunks_mut(width).enumerate() {
        if at >= batch.slots * b || batch.valid_obs[at] == 0 {
            x.fill(fill);
        }
    }
    out.reward.resize(n, fill);
    (0..n).filter(|&at| at >= batch.valid.len() || batch.valid[at] == 0).for_each(|at| out.reward[at] = fill);
    for actions in [&mut out.action, &mut out.prev_action] {
        let ActionRows::Discrete(actions) = actions else { panic!("discrete actions") };
        actions.resize(n, 0);
    }
    out.prev_reward.resize(n, fill);
    for v in [&mut out.terminated, &mut out.truncated] {
        v.resize(n, false);
    }
    for v in [&mut out.valid, &mut out.valid_obs, &mut out.learn, &mut out.reset, &mut out.has_prev] {
        v.resize(n, 0);
    }
    out.episode.resize(n, NO_EPISODE);
    out.step_in_episode.resize(n, -1);
    out
}

/// Slots [from, to) of row `row` alone, with another state; `burn_in` of them are burn-in.
fn cut(
    batch: &SequenceBatch,
    rows: &[usize],
    (from, to): (usize, usize),
    burn_in: usize,
    state: Vec<f32>,
) -> SequenceBatch {
    let places: Vec<usize> =
        (from..to).flat_map(|t| rows.iter().map(move |&r| (t, r))).map(|(t, r)| batch.at(t, r)).collect();
    fn pick<T: Copy>(v: &[T], places: &[usize], slots: usize) -> Vec<T> {
        let width = v.len() / slots.max(1);
        places.iter().flat_map(|&at| v[at * width..(at + 1) * width].to_vec()).collect()
    }
    let n = batch.slots * batch.batch;
    let ObsRows::F32(obs) = &batch.obs else { panic!("f32 observations") };
    let action = |a: &ActionRows| ActionRows::Discrete(pick(a.discrete(), &places, n));
    SequenceBatch {
        slots: to - from,
        batch: rows.len(),
        burn_in,
        obs: ObsRows::F32(pick(obs, &places, n)),
        legal: pick(&batch.legal, &places, n),
        action: action(&batch.action),
        prev_action: action(&batch.prev_action),
        reward: pick(&batch.reward, &places, n),
        terminated: pick(&batch.terminated, &places, n),
        truncated: pick(&batch.truncated, &places, n),
        valid: pick(&batch.valid, &places, n),
        valid_obs: pick(&batch.valid_obs, &places, n),
        learn: pick(&batch.learn, &places, n),
        reset: pick(&batch.reset, &places, n),
        prev_reward: pick(&batch.prev_reward, &places, n),
        has_prev: pick(&batch.has_prev, &places, n),
        state,
        weight: rows.iter().map(|&r| batch.weight[r]).collect(),
        handle: rows.iter().map(|&r| batch.handle[r]).collect(),
        episode: pick(&batch.episode, &places, n),
        step_in_episode: pick(&batch.step_in_episode, &places, n),
    }
}

pub fn lt_1_termination_and_truncation() {
    let one = |_| 1.0;
    for (end, target) in [((true, false), 1.0), ((false, true), 10.9), ((true, true), 1.0)] {
        for n in [1, 5] {
            // the final observation is 1, worth 10; the next episode's first one is 0, worth nothing
            let script = Script { lengths: vec![1], end, reward: one, obs: counter };
            let mut rig = stubbed(script, window(0, 1, 1), (10.0, 0.0), (0.99, n), 6);
            let batch = rig.all();
            let all = targets(&mut rig, &batch);
            assert_eq!(all.len(), 6);
            all.iter().for_each(|t| close(t, &[target], 1e-6));
        }
    }
    let script = Script { lengths: vec![100], end: (true, false), reward: one, obs: |_, _| 1.0 };
    let mut rig = stubbed(script, window(0, 1, 1), (10.0, 0.0), (0.99, 1), 6);
    let batch = rig.all();
    targets(&mut rig, &batch).iter().for_each(|t| close(t, &[10.9], 1e-6));
}

pub fn lt_2_time_index() {
    for n in [1, 3] {
        let script = Script { lengths: vec![12], end: (false, true), reward: zero, obs: counter };
        let mut rig = stubbed(script, whole(), (10.0, 0.0), (1.0, n), 12);
        let batch = rig.all();
        let want: Vec<f32> = (0..12).map(|t| 10.0 * (t + n).min(12) as f32).collect();
        close(&targets(&mut rig, &batch)[0], &want, 1e-6);
    }
}

pub fn lt_3_discount_exponent() {
    let script = Script { lengths: vec![8], end: (false, true), reward: zero, obs: counter };
    let mut rig = stubbed(script, whole(), (0.0, 100.0), (0.9, 5), 8);
    let batch = rig.all();
    let own = rig.replay.priority(batch.handle[0]).unwrap();
    let got = targets(&mut rig, &batch).remove(0);
    close(&[got[0], got[3], got[6]], &[59.049, 59.049, 81.0], 1e-6);
    // what the actor gave the sequence when it closed is what the learner finds
    close(&[own], rig.learner.priorities(), 1e-6);
    close(&[own], &[0.9 * (100.0 - 59.049) + 0.1 * td_mean(&got)], 1e-5);
}

fn td_mean(targets: &[f32]) -> f32 {
    targets.iter().map(|t| (t - 100.0).abs()).sum::<f32>() / targets.len() as f32
}

pub fn lt_4_mean_over_steps() {
    let root = |_| std::f64::consts::SQRT_2;
    let script = Script { lengths: vec![10, 2], end: (true, false), reward: root, obs: counter };
    let mut rig = stubbed(script, whole(), (0.0, 0.0), (0.0, 1), 12);
    let batch = rig.all();
    assert_eq!((batch.batch, batch.n_learnt()), (2, 12));
    let update = rig.learner.update(&batch).unwrap();
    assert!((update.loss - 1.0).abs() < 1e-6, "{}", update.loss);
    let (gradient, priorities) = (rig.learner.gradient().unwrap(), rig.learner.priorities().to_vec());
    assert!(gradient.iter().any(|&g| g != 0.0));
    for fill in [0.0, 7.0, f32::NAN] {
        let more = rig.learner.update(&padded(&batch, batch.slots, fill)).unwrap();
        assert_eq!((more.loss, more.q_mean, more.learnt), (update.loss, update.q_mean, 12));
        near("gradient", &rig.learner.gradient().unwrap(), &gradient, 1e-6);
        assert_eq!(rig.learner.priorities(), priorities);
    }
}

pub fn lt_5_priority_of_learnt_steps() {
    // zero Q and discount: the error is the reward
    let reward = |t| [9.0, 100.0, 100.0, 1.0, 2.0, 3.0][t];
    for burn_in in [2, 0, 3] {
        let script = Script { lengths: vec![6], end: (true, false), reward, obs: counter };
        let mut rig = stubbed(script, window(burn_in, 3, 3), (0.0, 0.0), (0.0, 1), 6);
        let batch = rig.all();
        let row = (0..batch.batch).find(|&r| batch.reward[batch.at(batch.burn_in, r)] == 1.0).unwrap();
        for extra in [1, 30] {
            rig.learner.update(&padded(&batch, extra, 50.0)).unwrap();
            close(&rig.learner.priorities()[row..=row], &[2.9], 1e-6);
        }
    }
}

pub fn lt_6_termination_at_the_end() {
    let script = Script { lengths: vec![4], end: (true, false), reward: zero, obs: counter };
    let mut rig = stubbed(script, window(0, 4, 4), (0.0, 10.0), (0.9, 1), 4);
    let batch = rig.all();
    close(&targets(&mut rig, &batch)[0], &[9.0, 9.0, 9.0, 0.0], 1e-6);
}

pub fn lt_7_target_network() {
    let rig = |target: TargetUpdate| {
        let script = Script { lengths: vec![4], end: (true, false), reward: zero, obs: counter };
        let base = Setup::script(script).stubbed(0.0, 0.0);
        let learner = R2d2Config { target, ..base.learner.clone() };
        let mut rig = Rig::new(&Setup { learner, weights: Some(Box::new(|l| vec![1.0; l.len()])), ..base });
        rig.steps(4);
        rig.learner.set_target(&vec![0.0; rig.values.len()]).unwrap();
        let batch = rig.all();
        (rig, batch)
    };
    let (mut soft, batch) = rig(TargetUpdate::Soft(0.005));
    (0..100).for_each(|_| assert!(!soft.learner.update(&batch).unwrap().skipped));
    assert!(soft.learner.online().flat.iter().all(|&w| w == 1.0), "the learning rate is 0");
    assert!(
        soft.learner.target().flat.iter().all(|&w| (w - 0.39423).abs() <= 1e-5),
        "{:?}",
        soft.learner.target().flat
    );
    let (mut hard, batch) = rig(TargetUpdate::Hard(100));
    for update in 1..=100 {
        hard.learner.update(&batch).unwrap();
        let want = if update < 100 { 0.0 } else { 1.0 };
        assert!(hard.learner.target().flat.iter().all(|&w| w == want), "update {update}");
    }
}

/// Importance weights all 1 or all 0.1: the loss is weighted once, the priorities that go back are the same.
pub fn rp_4_priorities_ignore_weights() {
    let mut rig = Rig::new(&Setup::task("PositionOnlyCartPoleEasy"));
    rig.steps(60);
    let mut batch = rig.all();
    let mut written = Vec::new();
    for weight in [1.0, 0.1] {
        batch.weight.fill(weight);
        let update = rig.learner.update(&batch).unwrap();
        rig.replay.set_priority(&batch.handle, rig.learner.priorities());
        let stored: Vec<f32> = batch.handle.iter().map(|&h| rig.replay.priority(h).unwrap()).collect();
        written.push((update.loss, stored));
    }
    assert!((written[0].0 - 10.0 * written[1].0).abs() <= 1e-5 * written[0].0, "{} {}", written[0].0, written[1].0);
    assert_eq!(written[0].1, written[1].1);
}

/// Burn-in only makes a state: loss and gradients are those of the learnt span started from that state, to the bit, and
/// the state is that of a plain pass.
pub fn sh_2_no_gradient_through_burn_in() {
    [RotateKind::Off, RotateKind::Learned].into_iter().for_each(burn_in_passes_no_gradient);
}

fn burn_in_passes_no_gradient(state: RotateKind) {
    let script = Script { lengths: vec![40], end: (true, false), reward: |t| t as f64, obs: |_, t| (t as f32).sin() };
    let mut rig = Rig::new(&Setup { replay: window(5, 8, 5), ..Setup::script(script).rotating(state) });
    rig.steps(40);
    let all = rig.all();
    let n = rig.actor.state_len();
    let rows: Vec<usize> = (0..all.batch).filter(|&r| all.valid_obs[all.at(0, r)] != 0).collect();
    assert!(all.burn_in == 5 && rows.len() >= 4);
    let stored = rows.iter().flat_map(|&r| all.state[r * n..(r + 1) * n].to_vec()).collect();
    let batch = cut(&all, &rows, (0, all.slots), 5, stored);
    let (online, target) = rig.learner.burnt_in_states(&batch).unwrap();
    assert_eq!(online, target, "the networks are equal here");
    for (i, state) in online.chunks(n).enumerate() {
        let at = batch.at(5, i);
        let acted = &rig.acted[&(batch.episode[at], batch.step_in_episode[at])];
        near("state after burn-in", state, &acted.state, 1e-5);
    }
    let with = rig.learner.update(&batch).unwrap();
    let gradient = rig.learner.gradient().unwrap();
    let rows: Vec<usize> = (0..batch.batch).collect();
    let without = rig.learner.update(&cut(&batch, &rows, (5, batch.slots), 0, online)).unwrap();
    assert_eq!((with.loss, with.learnt), (without.loss, without.learnt));
    assert!(gradient.iter().any(|&g| g != 0.0));
    near("gradient", &gradient, &rig.learner.gradient().unwrap(), 1e-6);
}

/// Rows of 3, 9 and 17 steps together equal the rows alone in loss, gradient and priorities, whatever the pads hold.
pub fn sh_3_padding_never_matters() {
    [RotateKind::Off, RotateKind::Learned].into_iter().for_each(padding_never_matters);
}

fn padding_never_matters(state: RotateKind) {
    let script = Script {
        lengths: vec![3, 9, 17],
        end: (false, true),
        reward: |t| (t as f64).cos(),
        obs: |e, t| ((3 * e + t) as f32).sin(),
    };
    let mut rig = Rig::new(&Setup { replay: whole(), ..Setup::script(script).rotating(state) });
    rig.steps(29);
    let batch = rig.all();
    assert_eq!((batch.batch, batch.n_learnt()), (3, 29));
    let n = rig.actor.state_len();
    let mut together = Vec::new();
    for fill in [0.0, 1e6, f32::NAN] {
        let update = rig.learner.update(&padded(&batch, 4, fill)).unwrap();
        together.push((update.loss, rig.learner.gradient().unwrap(), rig.learner.priorities().to_vec()));
    }
    assert_eq!(together[0], together[1]);
    assert_eq!(together[0], together[2]);
    let (loss, gradient, priorities) = together.remove(0);
    let (mut loss_sum, mut sum) = (0.0, vec![0.0f32; gradient.len()]);
    for row in 0..3 {
        let steps = (0..batch.slots).filter(|&t| batch.valid_obs[batch.at(t, row)] != 0).count();
        let alone = cut(&batch, &[row], (0, steps), 0, batch.state[row * n..(row + 1) * n].to_vec());
        let update = rig.learner.update(&alone).unwrap();
        let share = update.learnt as f64 / 29.0;
        loss_sum += update.loss * share;
        sum.iter_mut().zip(rig.learner.gradient().unwrap()).for_each(|(s, g)| *s += g * share as f32);
        close(rig.learner.priorities(), &priorities[row..=row], 1e-5);
    }
    assert!((loss - loss_sum).abs() <= 1e-5 * loss, "{loss} {loss_sum}");
    near("gradient", &gradient, &sum, 1e-5);
}

/// A resolved default config with these settings.
pub fn config(sets: &[&str]) -> Config {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    let mut config = Config::load(None, None, &sets, &Flags::default()).unwrap();
    let spec = make_env(&config.env.id, config.env.legacy, &serde_json::json!({})).unwrap().spec().clone();
    config.resolve(&spec).unwrap();
    config
}

/// Encoder, two layers and Q head: 37 single steps and one call agree to 1e-4.
pub fn bn_1_whole_agent() {
    let sets = ["backbone.d_model=32", "backbone.n_layers=2", "backbone.d_conv=4", "network.encoder_hidden=24"];
    for rotate in ["backbone.rotate=off", "backbone.rotate=learned"] {
        steps_are_the_sequence(&config(&[&sets[..], &[rotate]].concat()));
    }
}

fn steps_are_the_sequence(config: &Config) {
    let parts = Parts::new(config, None).unwrap();
    let (dev, net) = (Cpu::default(), parts.description.build::<Cpu>().unwrap());
    assert_eq!(
        net.layout().entry("backbone.layers.1.mixer.theta").is_some(),
        config.backbone.rotate != RotateKind::Off
    );
    let mut values = Vec::new();
    parts.learner.weights(&mut values).unwrap();
    let mut r = rng(6);
    values.iter_mut().for_each(|v| *v += r.random_range(-0.1f32..0.1));
    let params = Params::new(&dev, net.layout().clone(), &values).unwrap();
    let (time, batch, d) = (37, 3, net.d_input());
    let x: Vec<f32> = random(&mut r, time * batch * d, 1.0).into_iter().map(|x| x as f32).collect();
    let mut stepper = Stepper::new(&dev, &net, batch, 1).unwrap();
    let mut steps = Vec::new();
    for t in 0..time {
        stepper.step(&dev, &net, &params, &x[t * batch * d..(t + 1) * batch * d], &[0; 3]).unwrap();
        (0..batch).for_each(|i| steps.extend_from_slice(stepper.q(i)));
    }
    let shape = SeqShape { time, batch };
    let (mut ws, mut state) = (net.workspace(&dev, shape, true).unwrap(), net.zero_state(&dev, batch).unwrap());
    let seq = Sequence::<Cpu> { shape, x: View::new(&x, 0, x.len()), reset: None, valid: None };
    net.forward(&dev, &params, seq, &mut state, &mut ws, true).unwrap();
    near("q", &steps, &ws.q[..steps.len()], 1e-4);
    let n = mamba_rl::backbone::state_len(net.state_layout());
    for i in 0..batch {
        let (mut a, mut b) = (vec![0.0; n], vec![0.0; n]);
        stepper.read_state(&dev, &net, i, &mut a).unwrap();
        state.read_row(&dev, net.state_layout(), i, &mut b).unwrap();
        near("state", &a, &b, 1e-5);
    }
}

/// dt bias, A and D of the finished agent and of its target network: A is −1 .. −16 in each row of Mamba-1, −½ for each
/// pair of a state that turns.
pub fn bn_7_on_the_finished_agent() {
    special_parameters("backbone.rotate=off", &(1..=16).map(f64::from).collect::<Vec<_>>());
    special_parameters("backbone.rotate=learned", &[0.5; 8]);
}

fn special_parameters(rotate: &str, minus_a: &[f64]) {
    let config = config(&["backbone.n_layers=2", rotate]);
    let parts = Parts::new(&config, None).unwrap();
    let (layout, saved) = (parts.learner.layout(), parts.learner.save().unwrap());
    for flat in [&saved.params, &saved.target] {
        for layer in 0..2 {
            let part = |name: &str| {
                let slot = layout.slot(&format!("backbone.layers.{layer}.mixer.{name}")).unwrap();
                &flat[slot.range()]
            };
            let steps: Vec<f64> = part("dt_proj.bias").iter().map(|&b| f64::from(b).exp().ln_1p()).collect();
            assert!(steps.len() == 128 && steps.iter().all(|d| (0.000_999..=0.1001).contains(d)), "{steps:?}");
            assert_eq!(part("A_log").len(), 128 * minus_a.len());
            for row in part("A_log").chunks(minus_a.len()) {
                let close = |(a, n): (&f32, &f64)| (f64::from(a.exp()) - n).abs() < 1e-5 * n;
                assert!(row.iter().zip(minus_a).all(close), "{row:?}");
            }
            assert!(part("D").iter().all(|&d| d == 1.0));
        }
    }
}

/// Zero gradients, learning rate 0.1, decay 0.1, ten updates: matrices shrink by 0.99^10, all else stands to the bit.
pub fn bn_8_decay_by_group() {
    [RotateKind::Off, RotateKind::Fixed, RotateKind::Learned].into_iter().for_each(matrices_alone_decay);
}

fn matrices_alone_decay(rotate: RotateKind) {
    let base = Setup::task("PositionOnlyCartPoleEasy");
    let learner = R2d2Config { lr_backbone: 0.1, lr_heads: 0.1, weight_decay: 0.1, ..base.learner.clone() };
    let backbone = BackboneSection { proj_bias: true, rotate, ..base.backbone.clone() };
    let network = mamba_rl::config::NetworkSection { encoder_hidden: 8, head_hidden: 16, shortcut: false };
    let mut rig = Rig::new(&Setup { learner, backbone, network, ..base });
    rig.steps(30);
    let mut batch = rig.all();
    batch.learn.fill(0);
    for _ in 0..10 {
        let update = rig.learner.update(&batch).unwrap();
        assert_eq!((update.grad_norm, update.skipped), (0.0, false));
    }
    let (layout, after) = (rig.learner.layout(), &rig.learner.online().flat);
    for e in layout.entries() {
        let (name, at) = (&e.spec.name, e.slot.range());
        let (was, is) = (&rig.values[at.clone()], &after[at]);
        let plain = ["bias", "A_log", ".D", "theta"].iter().any(|end| name.ends_with(end)) || name.contains("norm");
        assert_eq!(plain, matches!(e.spec.group, Group::BackbonePlain | Group::HeadsPlain), "{name}");
        if plain {
            assert_eq!(is, was, "{name}");
        } else {
            let want: Vec<f32> = was.iter().map(|w| w * 0.904_382).collect();
            near(name, is, &want, 2e-6);
        }
    }
}
