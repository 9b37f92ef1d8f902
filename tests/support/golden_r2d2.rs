//! Golden kind `r2d2_update`: one whole update. In f32 through the product's learner; its host arithmetic is f32, so in f64
//! the same stages run on the same network and value functions.

use std::collections::BTreeSet;

use mamba_rl::backbone::{self, BackboneConfig, Parts, SeqShape, Sequence};
use mamba_rl::config::InputSection;
use mamba_rl::device::{Cpu, Kind, View};
use mamba_rl::learner::{ActingWeights, Learner, R2d2, R2d2Config, TargetUpdate};
use mamba_rl::network::{DuelingHead, InputLayout, QNetwork};
use mamba_rl::ops::Backend;
use mamba_rl::params::{Group, Params};
use mamba_rl::replay::{ActionRows, Handle, ObsRows, SequenceBatch};
use mamba_rl::value::adamw::{AdamW, AdamWState, adamw_step};
use mamba_rl::value::clip::{clip_factor, global_norm};
use mamba_rl::value::n_step::{NStepOut, NStepRow, n_step_targets};
use mamba_rl::value::priority::sequence_priority;
use mamba_rl::value::td_error::{Loss, TdRow, double_q_value, td_loss};
use mamba_rl_envs::Space;

use super::golden::{Case, Precision};
use super::golden_mamba::{self, States, swap};
use super::net::HostState;

/// Sizes of a case.
struct Sizes {
    batch: usize,
    /// Transitions T.
    time: usize,
    burn_in: usize,
    actions: usize,
    features: usize,
}

impl Sizes {
    fn new(case: &Case) -> Self {
        let [batch, time] = [case.count("batch"), case.count("transitions")];
        let [burn_in, actions] = [case.count("burn_in"), case.count("n_actions")];
        Sizes { batch, time, burn_in, actions, features: case.count("dims.d_in") }
    }
}

pub fn check(case: &Case) {
    match case.precision {
        Precision::F64 => in_double(case),
        _ => through_the_learner(case, Cpu::<f32>::default()),
    }
}

fn network<D: Backend>(case: &Case, s: &Sizes) -> QNetwork<D> {
    let config = golden_mamba::config(case, true);
    let head = DuelingHead::new(config.d_model, 0, s.actions);
    let body = backbone::build::<D>(&BackboneConfig::Mamba(config)).unwrap();
    QNetwork::new(s.features, None, body, head).unwrap()
}

fn theirs(name: &str) -> &str {
    name.trim_start_matches("backbone.")
}

/// Flat parameters `prefix.*` in the order of the layout.
fn flat<D: Backend>(case: &Case, net: &QNetwork<D>, prefix: &str) -> Vec<f64> {
    let mut out = vec![0.0; net.layout().len()];
    for e in net.layout().entries() {
        out[e.slot.range()].copy_from_slice(&case.f64s(&format!("{prefix}.{}", theirs(&e.spec.name))));
    }
    out
}

/// Gradients, parameters after the step and the step itself; and the four groups against the file's lists.
fn compare_step<D: Backend>(case: &Case, net: &QNetwork<D>, before: &[f64], grads: &[f64], after: &[f64]) {
    let listed = |key: &str| -> BTreeSet<String> {
        case.meta[key].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned()).collect()
    };
    let (decay, heads) = (listed("decay"), listed("heads"));
    for e in net.layout().entries() {
        let (name, at) = (theirs(&e.spec.name), e.slot.range());
        case.compare(&format!("grad.param.{name}"), &grads[at.clone()]);
        case.compare(&format!("out.param.{name}"), &after[at.clone()]);
        let step: Vec<f64> = after[at.clone()].iter().zip(&before[at]).map(|(a, b)| a - b).collect();
        case.compare(&format!("step.param.{name}"), &step);
        let decayed = matches!(e.spec.group, Group::BackboneDecayed | Group::HeadsDecayed);
        let head = matches!(e.spec.group, Group::HeadsDecayed | Group::HeadsPlain);
        if (decayed, head) != (decay.contains(name), heads.contains(name)) {
            case.fail(format!("`{name}` is in group {:?}", e.spec.group));
        }
    }
}

/// The case as a batch that replay could have sampled.
fn batch(case: &Case, s: &Sizes, states: &HostState) -> SequenceBatch {
    let (b, slots) = (s.batch, s.time + 1);
    let single = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect::<Vec<_>>();
    // transitions [B, T] to slots [T + 1, B], the last slot holding none
    let reward = single(case.f64s("input.reward"));
    let (action, terminated) = (case.i64s("input.action"), case.mask("input.terminated"));
    let each = |t: usize, row: usize| (t < s.time).then_some(row * s.time + t);
    let all = || (0..slots).flat_map(|t| (0..b).map(move |row| (t, row)));
    let state = (0..b).flat_map(|row| {
        states.iter().flat_map(move |part| {
            let n = part.len() / b;
            part[row * n..(row + 1) * n].iter().map(|&x| x as f32)
        })
    });
    SequenceBatch {
        slots,
        batch: b,
        burn_in: s.burn_in,
        obs: ObsRows::F32(single(swap(&case.f64s("input.x"), b, slots))),
        action: ActionRows::Discrete(all().map(|(t, row)| each(t, row).map_or(0, |i| action[i] as i32)).collect()),
        reward: all().map(|(t, row)| each(t, row).map_or(0.0, |i| reward[i])).collect(),
        terminated: all().map(|(t, row)| each(t, row).is_some_and(|i| terminated[i])).collect(),
        truncated: vec![false; slots * b],
        valid: all().map(|(t, _)| u8::from(t < s.time)).collect(),
        valid_obs: vec![1; slots * b],
        learn: all().map(|(t, _)| u8::from(t < s.time && t >= s.burn_in)).collect(),
        reset: swap(&case.mask("input.is_first"), b, slots).into_iter().map(u8::from).collect(),
        prev_action: ActionRows::Discrete(vec![0; slots * b]),
        prev_reward: vec![0.0; slots * b],
        has_prev: vec![0; slots * b],
        state: state.collect(),
        weight: single(case.f64s("input.is_weight")),
        handle: vec![Handle::default(); b],
        episode: vec![0; slots * b],
        step_in_episode: vec![0; slots * b],
        ..SequenceBatch::default()
    }
}

/// The update by the product's learner on a device.
pub fn through_the_learner<D: Backend>(case: &Case, dev: D) {
    let (s, states) = (Sizes::new(case), States::new(case));
    let net = network::<D>(case, &s);
    let features = Space::box_f32(&vec![f32::NEG_INFINITY; s.features], &vec![f32::INFINITY; s.features]);
    let off = InputSection { previous_action: false, previous_reward: false, is_first: false };
    let input = InputLayout::new(&features, &Space::Discrete(s.actions), &off);
    let number = |key: &str| case.number(key) as f32;
    let config = R2d2Config {
        gamma: number("gamma"),
        n_step: case.count("n"),
        rescaling: Some(number("eps")),
        double_q: true,
        truncation_is_terminal: false,
        loss: Loss::Squared,
        eta: number("eta"),
        reward_scale: 1.0,
        lr_backbone: number("lr_backbone"),
        lr_heads: number("lr_heads"),
        weight_decay: number("weight_decay"),
        betas: (number("beta1"), number("beta2")),
        adam_eps: number("adam_eps"),
        grad_clip: Some(number("max_norm")),
        warmup: 0,
        target: TargetUpdate::Hard(1_000),
        acting: ActingWeights::Online,
        shards: 2,
    };
    let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let before = flat(case, &net, "param");
    let target = narrow(&flat(case, &net, "param_target"));
    let mut learner = R2d2::new(dev, net, input, config, &narrow(&before)).unwrap();
    learner.set_target(&target).unwrap();
    let batch = batch(case, &s, &states.read(case, "state_in"));

    let burnt = learner.burnt_in_states(&batch).unwrap();
    for (which, rows) in [("online", &burnt.0), ("target", &burnt.1)] {
        let mut parts: HostState = Vec::new();
        let (len, mut at) = (rows.len() / s.batch, 0);
        for p in learner.network().state_layout() {
            parts.push((0..s.batch).flat_map(|row| wide(&rows[row * len + at..][..p.len])).collect());
            at += p.len;
        }
        states.compare(case, &format!("state_k.{which}"), &parts);
    }
    let update = learner.update(&batch).unwrap();
    let (q_online, q_target, targets, td) = learner.last_unroll();
    case.compare("out.q_online", &wide(&q_online));
    case.compare("out.q_target", &wide(&q_target));
    let slots = s.time + 1 - s.burn_in;
    let learnt = |x: &[f32]| x.chunks(slots).flat_map(|row| wide(&row[..slots - 1])).collect::<Vec<_>>();
    case.compare("out.target", &learnt(&targets));
    case.compare("out.td", &learnt(&td));
    case.compare("out.priority", &wide(learner.priorities()));
    case.compare("loss.value", &[update.loss]);
    case.compare("out.grad_norm", &[update.grad_norm]);
    let state = learner.save().unwrap();
    let (grads, after) = (wide(&learner.gradient().unwrap()), wide(&state.params));
    compare_step(case, learner.network(), &before, &grads, &after);
    if state.target != target {
        case.fail("the target network moved".into());
    }
}

/// Targets, TD errors, priority and loss of one row; returns the gradient of q of the actions taken.
struct RowTd {
    target: Vec<f64>,
    td: Vec<f64>,
    priority: f64,
    loss: f64,
    g: Vec<f64>,
}

fn row_td(case: &Case, s: &Sizes, row: usize, q: [&[f64]; 2]) -> RowTd {
    let (n, a, k) = (s.time - s.burn_in, s.actions, s.burn_in);
    let part = |x: Vec<f64>| x[row * s.time + k..(row + 1) * s.time].to_vec();
    let (reward, weight) = (part(case.f64s("input.reward")), case.f64s("input.is_weight")[row]);
    let terminated = case.mask("input.terminated")[row * s.time + k..(row + 1) * s.time].to_vec();
    let action = case.indices("input.action")[row * s.time + k..(row + 1) * s.time].to_vec();
    let eps = Some(case.number("eps"));
    let at = |t: usize| (t * s.batch + row) * a;
    let next_value: Vec<f64> = (0..n)
        .map(|t| {
            let next = at(t + 1)..at(t + 1) + a;
            if terminated[t] { 0.0 } else { double_q_value(&q[0][next.clone()], &q[1][next], None, eps) }
        })
        .collect();
    let (mut target, mut raw, mut steps) = (vec![0.0; n], vec![0.0; n], vec![0; n]);
    let (mut bootstrap, mut full) = (vec![false; n], vec![false; n]);
    let (truncated, mask) = (vec![false; n], vec![true; n]);
    let input = NStepRow {
        reward: &reward,
        terminated: &terminated,
        truncated: &truncated,
        mask: &mask,
        next_value: &next_value,
    };
    let out =
        NStepOut { target: &mut target, raw: &mut raw, steps: &mut steps, bootstrap: &mut bootstrap, full: &mut full };
    n_step_targets(input, case.number("gamma"), case.count("n"), eps, out).unwrap();
    let td: Vec<f64> = (0..n).map(|t| target[t] - q[0][at(t) + action[t]]).collect();
    let mut g = vec![0.0; n];
    let learnt = TdRow { td_error: &td, learnt: &mask, weight, n_learnt: s.batch * n };
    let loss = td_loss(learnt, Loss::Squared, &mut g).unwrap();
    let priority = sequence_priority(&td, &mask, case.number("eta")).expect("fitting lengths");
    RowTd { target, td, priority, loss, g }
}

fn in_double(case: &Case) {
    let (s, states, dev) = (Sizes::new(case), States::new(case), Cpu::<f64>::default());
    let net = network::<Cpu<f64>>(case, &s);
    let (slots, k, a) = (s.time + 1, s.burn_in, s.actions);
    let x = swap(&case.f64s("input.x"), s.batch, slots);
    let reset: Vec<u8> = swap(&case.mask("input.is_first"), s.batch, slots).into_iter().map(u8::from).collect();
    let seq = |from: usize, to: usize| Sequence::<Cpu<f64>> {
        shape: SeqShape { time: to - from, batch: s.batch },
        x: View::new(&x, from * s.batch * s.features, (to - from) * s.batch * s.features),
        reset: Some(View::new(&reset, from * s.batch, (to - from) * s.batch)),
        valid: None,
    };
    let start = states.read(case, "state_in");
    let rows = (slots - k) * s.batch;
    let run = |which: &str, prefix: &str, train: bool| {
        let mut params = Params::new(&dev, net.layout().clone(), &vec![0.0; net.layout().len()]).unwrap();
        params.flat = flat(case, &net, prefix);
        let mut ws = net.workspace(&dev, SeqShape { time: slots, batch: s.batch }, train).unwrap();
        let mut state = Parts { bufs: start.clone() };
        net.burn_in(&dev, &params, seq(0, k), &mut state, &mut ws).unwrap();
        states.compare(case, &format!("state_k.{which}"), &state.bufs);
        net.forward(&dev, &params, seq(k, slots), &mut state, &mut ws, train).unwrap();
        let q = ws.q[..rows * a].to_vec();
        case.compare(&format!("out.q_{which}"), &swap(&q, slots - k, s.batch));
        (params, ws, q)
    };
    let (_, _, q_target) = run("target", "param_target", false);
    let (params, mut ws, q_online) = run("online", "param", true);
    let td: Vec<RowTd> = (0..s.batch).map(|row| row_td(case, &s, row, [&q_online, &q_target])).collect();
    let join = |f: fn(&RowTd) -> &Vec<f64>| td.iter().flat_map(|r| f(r).clone()).collect::<Vec<_>>();
    case.compare("out.target", &join(|r| &r.target));
    case.compare("out.td", &join(|r| &r.td));
    case.compare("out.priority", &td.iter().map(|r| r.priority).collect::<Vec<_>>());
    case.compare("loss.value", &[td.iter().map(|r| r.loss).sum()]);

    let action = case.indices("input.action");
    ws.g_q.fill(0.0);
    for (row, r) in td.iter().enumerate() {
        for (t, g) in r.g.iter().enumerate() {
            ws.g_q[(t * s.batch + row) * a + action[row * s.time + k + t]] = *g;
        }
    }
    let mut grads = mamba_rl::device::Device::zeros(&dev, net.layout().len(), Kind::Full).unwrap();
    net.backward(&dev, &params, seq(k, slots), &mut ws, &mut grads).unwrap();
    let norm: f64 = global_norm([&grads[..]]);
    case.compare("out.grad_norm", &[norm]);
    let clip = clip_factor(norm, case.number("max_norm"));
    let mut after = params.flat.clone();
    for group in Group::ALL {
        let heads = matches!(group, Group::HeadsDecayed | Group::HeadsPlain);
        let decayed = matches!(group, Group::BackboneDecayed | Group::HeadsDecayed);
        let at = net.layout().group(group).range();
        let g: Vec<f64> = grads[at.clone()].iter().map(|g| g * clip).collect();
        let (mut m, mut v) = (vec![0.0; g.len()], vec![0.0; g.len()]);
        let config = AdamW {
            lr: case.number(if heads { "lr_heads" } else { "lr_backbone" }),
            beta1: case.number("beta1"),
            beta2: case.number("beta2"),
            eps: case.number("adam_eps"),
            weight_decay: if decayed { case.number("weight_decay") } else { 0.0 },
        };
        adamw_step(config, 1, &g, AdamWState { param: &mut after[at], m: &mut m, v: &mut v }).unwrap();
    }
    compare_step(case, &net, &params.flat, &grads, &after);
}
