//! The golden kinds `rl_*`: the value functions in f32 and f64, the sum tree, and the cutting of episodes.

use super::counter::CounterReplay;
use super::golden::Case;
use mamba_rl::replay::sequence::sequence_layout;
use mamba_rl::replay::sum_tree::SumTree;
use mamba_rl::replay::{Layout, ReplayConfig, SequenceBatch};
use mamba_rl::value::adamw::{AdamW, AdamWState, adamw_step};
use mamba_rl::value::clip::{clip_factor, global_norm};
use mamba_rl::value::distributional::{Prediction, StepTarget, step_loss};
use mamba_rl::value::dueling::{dueling, dueling_backward};
use mamba_rl::value::exploration::{epsilon_ladder, epsilon_linear};
use mamba_rl::value::gaussian::{env_log_prob, squashed_backward, squashed_log_prob, squashed_sample, to_env_action};
use mamba_rl::value::n_step::{NStepOut, NStepRow, n_step_targets};
use mamba_rl::value::priority::{importance_weight, normalise_by_max, probabilities, sequence_priority};
use mamba_rl::value::rescaling::{rescale, rescale_grad, rescale_inverse};
use mamba_rl::value::td_error::{double_q_value, huber, huber_grad};
use num_traits::Float;

fn cast<F: Float>(x: f64) -> F {
    F::from(x).expect("a number")
}

fn read<F: Float>(case: &Case, name: &str) -> Vec<F> {
    case.f64s(name).into_iter().map(cast).collect()
}

fn meta<F: Float>(case: &Case, key: &str) -> F {
    cast(case.number(key))
}

fn check<F: Float>(case: &Case, name: &str, got: &[F]) {
    case.compare(name, &got.iter().map(|x| x.to_f64().expect("a number")).collect::<Vec<_>>());
}

pub fn value_rescale<F: Float>(case: &Case) {
    let eps = read::<F>(case, "input.eps")[0];
    let (x, y) = (read::<F>(case, "input.x"), read::<F>(case, "input.y"));
    check(case, "out.h", &x.iter().map(|&x| rescale(x, eps)).collect::<Vec<_>>());
    check(case, "out.h_grad", &x.iter().map(|&x| rescale_grad(x, eps)).collect::<Vec<_>>());
    check(case, "out.h_inv", &y.iter().map(|&y| rescale_inverse(y, eps)).collect::<Vec<_>>());
}

pub fn nstep_double_q<F: Float>(case: &Case) {
    let [batch, time] = *case.shape("input.reward") else { panic!("[B, T]") };
    let actions = case.shape("input.q_online")[2];
    let [online, target] = ["input.q_online", "input.q_target"].map(|n| read::<F>(case, n));
    let [online_final, target_final] = ["input.q_online_final", "input.q_target_final"].map(|n| read::<F>(case, n));
    let reward = read::<F>(case, "input.reward");
    let action = case.i64s("input.action");
    let [terminated, truncated, mask] =
        ["input.terminated", "input.truncated", "input.mask"].map(|name| case.mask(name));
    let eps = case.flag("rescale").then(|| meta::<F>(case, "eps"));
    let row_of = |v: &[F], row: usize| v[row * actions..][..actions].to_vec();
    let mut next_value = vec![F::zero(); batch * time];
    for (i, next) in next_value.iter_mut().enumerate().filter(|&(i, _)| mask[i] && !terminated[i]) {
        let after = i / time * (time + 1) + i % time + 1;
        let (online, target) = if truncated[i] {
            (row_of(&online_final, i), row_of(&target_final, i))
        } else {
            (row_of(&online, after), row_of(&target, after))
        };
        *next = double_q_value(&online, &target, None, eps);
    }
    let (mut h, mut raw) = (vec![F::zero(); batch * time], vec![F::zero(); batch * time]);
    let mut steps = vec![0; batch * time];
    let (mut bootstrap, mut full) = (vec![false; batch * time], vec![false; batch * time]);
    for b in 0..batch {
        let r = b * time..(b + 1) * time;
        let row = NStepRow {
            reward: &reward[r.clone()],
            terminated: &terminated[r.clone()],
            truncated: &truncated[r.clone()],
            mask: &mask[r.clone()],
            next_value: &next_value[r.clone()],
        };
        let out = NStepOut {
            target: &mut h[r.clone()],
            raw: &mut raw[r.clone()],
            steps: &mut steps[r.clone()],
            bootstrap: &mut bootstrap[r.clone()],
            full: &mut full[r],
        };
        n_step_targets(row, meta(case, "gamma"), case.count("n"), eps, out).expect("fitting lengths");
    }
    let td: Vec<F> = (0..batch * time)
        .map(|i| {
            if !mask[i] {
                return F::zero();
            }
            h[i] - online[(i / time * (time + 1) + i % time) * actions + usize::try_from(action[i]).expect("an action")]
        })
        .collect();
    check(case, "out.next_value", &next_value);
    check(case, "out.target_raw", &raw);
    check(case, "out.target", &h);
    check(case, "out.td", &td);
    case.compare_counts("out.steps", &steps);
    case.compare_mask("out.bootstrap", &bootstrap);
    case.compare_mask("out.full", &full);
}

pub fn r2d2_priority<F: Float>(case: &Case) {
    let time = case.shape("input.td")[1];
    let (td, mask) = (read::<F>(case, "input.td"), case.mask("input.mask"));
    let rows = td.chunks_exact(time).zip(mask.chunks_exact(time));
    let priority = |(td, mask)| sequence_priority(td, mask, meta(case, "eta")).expect("fitting lengths");
    let got: Vec<F> = rows.map(priority).collect();
    check(case, "out.priority", &got);
}

pub fn is_weights<F: Float>(case: &Case) {
    let (priority, index) = (read::<F>(case, "input.priority"), case.indices("input.index"));
    let (n, beta) = (priority.len(), meta::<F>(case, "beta"));
    let mut prob = vec![F::zero(); n];
    probabilities(&priority, meta(case, "alpha"), &mut prob).expect("fitting lengths");
    let all: Vec<F> = prob.iter().map(|&p| importance_weight(p, n, beta)).collect();
    let raw: Vec<F> = index.iter().map(|&i| all[i]).collect();
    let (mut by_batch, mut by_buffer) = (raw.clone(), all);
    normalise_by_max(&mut by_batch);
    normalise_by_max(&mut by_buffer);
    check(case, "out.prob", &prob);
    check(case, "out.weight_raw", &raw);
    check(case, "out.weight_batchmax", &by_batch);
    check(case, "out.weight_buffermax", &index.iter().map(|&i| by_buffer[i]).collect::<Vec<_>>());
}

/// The tree itself is f64 in every precision.
pub fn sum_tree(case: &Case) {
    let capacity = case.count("capacity");
    let mut tree = SumTree::new(capacity);
    for (i, &w) in case.f64s("input.leaf").iter().enumerate() {
        assert!(tree.set(i, w));
    }
    let mut total = vec![tree.total()];
    for (&i, &w) in case.indices("input.update_index").iter().zip(&case.f64s("input.update_value")) {
        assert!(tree.set(i, w));
        total.push(tree.total());
    }
    let leaf: Vec<f64> = tree.weights().take(capacity).collect();
    case.compare("out.total", &total);
    case.compare("out.prob", &leaf.iter().map(|w| w / tree.total()).collect::<Vec<_>>());
    let mut sum = 0.0;
    let prefix: Vec<f64> = leaf
        .iter()
        .map(|w| {
            sum += w;
            sum
        })
        .collect();
    case.compare("out.prefix", &prefix);
    case.compare("out.leaf", &leaf);
    case.compare("out.min_positive", &[tree.min_positive().unwrap_or(0.0)]);
    case.compare("out.max", &[tree.max()]);
    let find = |queries: &[f64]| queries.iter().map(|&q| tree.find(q).expect("a leaf")).collect::<Vec<_>>();
    case.compare_counts("out.index", &find(&case.f64s("input.query")));
    if case.has("input.query_edge") {
        case.compare_counts("out.index_edge", &find(&case.f64s("input.query_edge")));
    }
    let u = case.f64s("input.strat_u");
    let queries: Vec<f64> = (0..u.len()).map(|k| tree.stratified_query(k, u.len(), u[k])).collect();
    case.compare("out.strat_query", &queries);
    case.compare_counts("out.strat_index", &find(&queries));
}

pub fn actor_epsilon<F: Float>(case: &Case) {
    let n = case.count("n_actors");
    let got: Vec<F> = (0..n).map(|i| epsilon_ladder(meta(case, "base"), meta(case, "alpha"), i, n)).collect();
    check(case, "out.epsilon", &got);
}

pub fn epsilon_line<F: Float>(case: &Case) {
    let (start, end, duration) = (meta::<F>(case, "start"), meta::<F>(case, "end"), case.count("duration") as u64);
    let steps = case.indices("input.step");
    let got: Vec<F> = steps.iter().map(|&step| epsilon_linear(start, end, duration, step as u64)).collect();
    check(case, "out.epsilon", &got);
}

pub fn adamw<F: Float>(case: &Case) {
    let names = case.names("input.param.");
    let tensors = |prefix: &str| names.iter().map(|n| read::<F>(case, &format!("{prefix}{n}"))).collect::<Vec<_>>();
    let (mut param, grads) = (tensors("input.param."), tensors("input.grad."));
    let zeros: Vec<Vec<F>> = param.iter().map(|p| vec![F::zero(); p.len()]).collect();
    let (mut m, mut v, mut after) = (zeros.clone(), zeros, vec![Vec::new(); names.len()]);
    let mut norms = Vec::new();
    for (step, &lr) in case.f64s("input.lr").iter().enumerate() {
        let mut g: Vec<Vec<F>> =
            grads.iter().zip(&param).map(|(g, p)| g[step * p.len()..][..p.len()].to_vec()).collect();
        let norm: F = global_norm(g.iter().map(Vec::as_slice));
        norms.push(norm);
        if !case.meta["max_norm"].is_null() {
            let factor = clip_factor(norm, meta(case, "max_norm"));
            g.iter_mut().flatten().for_each(|g| *g = *g * factor);
        }
        let [beta1, beta2, eps, weight_decay] = ["beta1", "beta2", "eps", "weight_decay"].map(|key| case.number(key));
        let cfg = AdamW { lr, beta1, beta2, eps, weight_decay };
        for i in 0..names.len() {
            let state = AdamWState { param: &mut param[i], m: &mut m[i], v: &mut v[i] };
            adamw_step(cfg, step as u32 + 1, &g[i], state).expect("fitting lengths");
            after[i].extend_from_slice(&param[i]);
        }
    }
    check(case, "out.grad_norm", &norms);
    for (i, name) in names.iter().enumerate() {
        check(case, &format!("out.param.{name}"), &after[i]);
        check(case, &format!("out.m.{name}"), &m[i]);
        check(case, &format!("out.v.{name}"), &v[i]);
    }
}

/// Ours is the exact factor; the other one of the file is left out, as its description allows.
pub fn grad_clip<F: Float>(case: &Case) {
    let names = case.names("input.grad.");
    let grads: Vec<Vec<F>> = names.iter().map(|n| read(case, &format!("input.grad.{n}"))).collect();
    let norm: F = global_norm(grads.iter().map(Vec::as_slice));
    let factor = clip_factor(norm, meta(case, "max_norm"));
    check(case, "out.norm", &[norm]);
    for (name, g) in names.iter().zip(&grads) {
        check(case, &format!("out.exact.{name}"), &g.iter().map(|&g| g * factor).collect::<Vec<_>>());
        case.leave_out(&format!("out.plus1e6.{name}"));
    }
}

pub fn huber_loss<F: Float>(case: &Case) {
    let (x, delta) = (read::<F>(case, "input.x"), meta::<F>(case, "delta"));
    check(case, "out.value", &x.iter().map(|&x| huber(x, delta)).collect::<Vec<_>>());
    check(case, "out.grad", &x.iter().map(|&x| huber_grad(x, delta)).collect::<Vec<_>>());
    check(case, "out.smooth_l1", &x.iter().map(|&x| huber(x, delta) / delta).collect::<Vec<_>>());
}

pub fn dueling_head<F: Float>(case: &Case) {
    let actions = case.shape("input.advantage")[1];
    let (value, advantage) = (read::<F>(case, "input.value"), read::<F>(case, "input.advantage"));
    let w = read::<F>(case, "loss.w");
    let (mut q, mut g_advantage) = (vec![F::zero(); w.len()], vec![F::zero(); w.len()]);
    let mut g_value = Vec::new();
    for (b, &v) in value.iter().enumerate() {
        let r = b * actions..(b + 1) * actions;
        dueling(v, &advantage[r.clone()], &mut q[r.clone()]).expect("fitting lengths");
        g_value.push(dueling_backward(&w[r.clone()], &mut g_advantage[r]).expect("fitting lengths"));
    }
    check(case, "out.q", &q);
    check(case, "grad.value", &g_value);
    check(case, "grad.advantage", &g_advantage);
}

pub fn c51<F: Float>(case: &Case) {
    let atoms = read::<F>(case, "input.atoms");
    let n = atoms.len();
    let [reward, discount, next_prob, logits, w] =
        ["input.reward", "input.discount", "input.next_prob", "input.logits", "loss.w"].map(|x| read::<F>(case, x));
    // what an update of a `c51` critic runs for each learnt step; it takes logits
    let (mut projected, mut g, mut loss) = (Vec::new(), vec![F::zero(); n * w.len()], Vec::new());
    let (prediction, mut target) = (Prediction::Categorical { atoms: &atoms }, Vec::new());
    for b in 0..w.len() {
        let r = b * n..(b + 1) * n;
        let next: Vec<F> = next_prob[r.clone()].iter().map(|p| p.ln()).collect();
        let step = StepTarget { reward: reward[b], discount: discount[b], next: &next, rescaling: None };
        let one = step_loss(prediction, step, &logits[r.clone()], w[b], &mut target, &mut g[r]).expect("lengths");
        loss.push(one.0);
        projected.extend_from_slice(&target);
    }
    check(case, "out.projected", &projected);
    check(case, "out.cross_entropy", &loss);
    check(case, "grad.logits", &g);
}

pub fn qrdqn<F: Float>(case: &Case) {
    let (quantiles, target) = (read::<F>(case, "input.quantiles"), read::<F>(case, "input.target"));
    let (tau, w) = (read::<F>(case, "input.tau"), read::<F>(case, "loss.w"));
    let (n, m) = (tau.len(), case.shape("input.target")[1]);
    // what an update of a `qr` critic runs for each learnt step
    let (mut g, mut loss, mut samples) = (vec![F::zero(); quantiles.len()], Vec::new(), Vec::new());
    let prediction = Prediction::Quantiles { tau: &tau, kappa: meta(case, "kappa") };
    for b in 0..w.len() {
        let (r, next) = (b * n..(b + 1) * n, &target[b * m..][..m]);
        let step = StepTarget { reward: F::zero(), discount: F::one(), next, rescaling: None };
        let one = step_loss(prediction, step, &quantiles[r.clone()], w[b], &mut samples, &mut g[r]).expect("lengths");
        loss.push(one.0);
    }
    check(case, "out.loss", &loss);
    check(case, "grad.quantiles", &g);
}

pub fn squashed_gaussian<F: Float>(case: &Case) {
    let actions = case.shape("input.mean")[1];
    let [mean, log_std, noise] = ["input.mean", "input.log_std", "input.noise"].map(|n| read::<F>(case, n));
    let (w, v) = (read::<F>(case, "loss.w"), read::<F>(case, "loss.v"));
    let sample: Vec<_> = (0..mean.len()).map(|i| squashed_sample(mean[i], log_std[i], noise[i])).collect();
    let grads: Vec<_> =
        (0..mean.len()).map(|i| squashed_backward(mean[i], log_std[i], noise[i], w[i / actions], v[i])).collect();
    let row_sum = |x: Vec<F>| -> Vec<F> {
        x.chunks_exact(actions).map(|row| row.iter().fold(F::zero(), |sum, &x| sum + x)).collect()
    };
    let action: Vec<F> = sample.iter().map(|s| s.action).collect();
    let log_prob_dim: Vec<F> = sample.iter().map(|s| s.log_prob).collect();
    let log_prob = row_sum(log_prob_dim.clone());
    check(case, "out.pre_tanh", &sample.iter().map(|s| s.pre_tanh).collect::<Vec<_>>());
    check(case, "out.action", &action);
    check(case, "out.log_prob_dim", &log_prob_dim);
    check(case, "out.log_prob", &log_prob);
    check(case, "grad.mean", &grads.iter().map(|g| g.0).collect::<Vec<_>>());
    check(case, "grad.log_std", &grads.iter().map(|g| g.1).collect::<Vec<_>>());
    let (given, given_log_std) = (read::<F>(case, "input.given_action"), read::<F>(case, "input.given_log_std"));
    let given = (0..mean.len()).map(|i| squashed_log_prob(mean[i], given_log_std[i], given[i])).collect();
    check(case, "out.given_log_prob", &row_sum(given));
    if case.has("input.low") {
        let (low, high) = (read::<F>(case, "input.low"), read::<F>(case, "input.high"));
        let mut env = vec![F::zero(); action.len()];
        for (a, out) in action.chunks_exact(actions).zip(env.chunks_exact_mut(actions)) {
            to_env_action(a, &low, &high, out).expect("fitting lengths");
        }
        check(case, "out.env_action", &env);
        let env_log: Vec<F> = log_prob.iter().map(|&l| env_log_prob(l, &low, &high)).collect();
        check(case, "out.env_log_prob", &env_log);
    }
}

/// The rule as a function, and the same windows as the replay hands them out.
pub fn sequence_windows(case: &Case) {
    let [burn_in, length, period] = ["burn_in", "length", "period"].map(|k| case.count(k));
    let lengths = case.indices("input.episode_length");
    let layouts: Vec<_> = lengths.iter().map(|&t| sequence_layout(t, burn_in, length, period)).collect();
    case.compare_counts("out.windows_per_episode", &layouts.iter().map(Vec::len).collect::<Vec<_>>());
    let windows: Vec<_> =
        layouts.iter().enumerate().flat_map(|(e, spans)| spans.iter().map(move |s| (e, *s))).collect();
    let of = |f: &dyn Fn(usize, mamba_rl::replay::sequence::Span) -> usize| -> Vec<usize> {
        windows.iter().map(|&(e, span)| f(e, span)).collect()
    };
    case.compare_counts("out.episode", &of(&|e, _| e));
    case.compare_counts("out.span_start", &of(&|_, s| s.start));
    case.compare_counts("out.span_length", &of(&|_, s| s.len));
    case.compare_counts("out.burn_in", &of(&|_, s| s.burn_in));
    case.compare_counts("out.state_step", &of(&|_, s| s.first()));
    case.compare_counts("out.n_steps", &of(&|_, s| s.burn_in + s.len));
    case.compare_counts("out.n_obs", &of(&|_, s| s.burn_in + s.len + 1));
    case.compare_counts("out.last_obs", &of(&|_, s| s.end()));
    let last: Vec<bool> = windows.iter().map(|&(e, span)| span.end() == lengths[e]).collect();
    case.compare_mask("out.last_obs_is_final", &last);
    sequence_masks(
        case,
        &lengths,
        ReplayConfig {
            capacity: lengths.iter().sum::<usize>() + burn_in + length,
            layout: Layout::Window,
            burn_in,
            length,
            period,
            alpha: 0.0,
            ..ReplayConfig::default()
        },
    );
}

/// Pushes the episodes with counting observations; with equal priorities a batch as large as the table holds every
/// window once, in order.
fn sequence_masks(case: &Case, lengths: &[usize], config: ReplayConfig) {
    let width = config.burn_in + config.length;
    let mut replay = CounterReplay::new(1, config);
    for &steps in lengths {
        replay.episode(0, steps);
    }
    let n = replay.inner.len_sequences();
    let mut batch = SequenceBatch::new();
    replay.sample(n, &mut batch);
    let (mut masks, mut obs_index, mut state_step) = ([vec![], vec![], vec![], vec![]], Vec::new(), Vec::new());
    for row in 0..n {
        state_step.push(f64::from(batch.state[row]));
        for slot in 0..=width {
            let j =
                (slot + batch.burn_in).checked_sub(width - replay.inner.config().length).filter(|&j| j < batch.slots);
            let at = j.map(|j| batch.at(j, row));
            let bit = |v: &[u8]| f64::from(at.map_or(0, |at| v[at]));
            let all = [bit(&batch.learn), bit(&batch.valid), bit(&batch.reset), bit(&batch.valid_obs)];
            let wide = if slot < width { 4 } else { 0 };
            masks.iter_mut().zip(all).take(wide).for_each(|(mask, x)| mask.push(x));
            if wide == 0 {
                masks[3].push(all[3]);
                assert_eq!(all[..3], [0.0; 3], "the slot of the last observation holds no step");
            }
            obs_index.push(at.map_or(-1.0, |at| f64::from(batch.step_in_episode[at])));
            if let Some(at) = at.filter(|&at| batch.valid_obs[at] == 1) {
                assert_eq!(
                    replay.counter_at(&batch, at),
                    batch.step_in_episode[at] as f32 + replay.first_of(batch.episode[at])
                );
            }
        }
    }
    for (name, mask) in ["out.learn", "out.valid", "out.reset", "out.valid_obs"].iter().zip(&masks) {
        case.compare(name, mask);
    }
    case.compare("out.obs_index", &obs_index);
    case.compare("out.state_step", &state_step);
}
