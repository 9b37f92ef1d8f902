//! Golden kinds `mamba_*`: outputs, states after every step, chunk plans, burn-in, all gradients, through the backbone.

use mamba_rl::backbone::{BackboneConfig, MambaConfig};
use mamba_rl::device::Real;

use super::device_net::Unrolled;
use super::golden::Case;
use super::net::{Data, HostState, Net};

fn size(case: &Case, key: &str) -> usize {
    case.count(&format!("dims.{key}"))
}

pub fn config(case: &Case, input_proj: bool) -> MambaConfig {
    let dims = &case.meta["dims"];
    MambaConfig {
        d_input: size(case, "d_in"),
        d_model: size(case, "d_model"),
        n_layers: size(case, "n_layers"),
        d_state: size(case, "d_state"),
        d_conv: size(case, "d_conv"),
        expand: size(case, "expand"),
        dt_rank: dims["dt_rank_setting"].as_u64().map(|r| r as usize),
        rms_eps: dims["rms_eps"].as_f64().unwrap(),
        proj_bias: dims["proj_bias"].as_bool().unwrap(),
        conv_bias: dims["conv_bias"].as_bool().unwrap(),
        input_proj,
        ..MambaConfig::default()
    }
}

/// [outer, B, T, inner] ↔ time-major is a swap of the first two axes of [a, b, inner].
pub fn swap<T: Copy>(x: &[T], a: usize, b: usize) -> Vec<T> {
    let inner = x.len() / (a * b);
    (0..a * b).flat_map(|i| x[((i % a) * b + i / a) * inner..][..inner].to_vec()).collect()
}

/// [B, E, K] to [B, K, E] and back, per row.
fn transpose(x: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    x.chunks((rows * cols).max(1)).flat_map(|m| swap(m, rows, cols)).collect()
}

/// Converts between the files' states and ours.
pub struct States {
    e: usize,
    k: usize,
    n: usize,
    layers: usize,
}

impl States {
    pub fn new(case: &Case) -> Self {
        let get = |key| size(case, key);
        States { e: get("d_inner"), k: get("d_conv"), n: get("d_state"), layers: get("n_layers") }
    }

    /// Ours from tensors `prefix.layers.{i}.conv|ssm`: the window without its oldest entry, channels last.
    pub fn read(&self, case: &Case, prefix: &str) -> HostState {
        let mut out = Vec::new();
        for i in 0..self.layers {
            out.push(transpose(&case.tail(&format!("{prefix}.layers.{i}.conv")), self.e, self.k - 1));
            out.push(transpose(&case.f64s(&format!("{prefix}.layers.{i}.ssm")), self.e, self.n));
        }
        out
    }

    /// Compares ours with tensors `prefix.layers.{i}.conv|ssm`.
    pub fn compare(&self, case: &Case, prefix: &str, state: &HostState) {
        for i in 0..self.layers {
            let window = transpose(&state[2 * i], self.k - 1, self.e);
            case.compare_tail(&format!("{prefix}.layers.{i}.conv"), &window);
            case.compare(&format!("{prefix}.layers.{i}.ssm"), &transpose(&state[2 * i + 1], self.n, self.e));
        }
    }
}

/// Runs the chunks of a plan one after another.
fn chunks(net: &dyn Unrolled, data: &Data, state: &mut HostState, plan: &[usize]) -> Vec<f64> {
    let mut at = 0;
    let mut y = Vec::new();
    for &len in plan {
        y.extend(net.unroll(&data.steps(at, at + len), state));
        at += len;
    }
    assert_eq!(at, data.time);
    y
}

pub fn check<F: Real>(case: &Case) {
    check_on(case, &mut Net::<F>::new(&BackboneConfig::Mamba(config(case, true)), 1));
}

/// The file through a network of its sizes.
pub fn check_on(case: &Case, net: &mut dyn Unrolled) {
    for name in net.names() {
        let theirs = name.trim_start_matches("backbone.");
        net.set(&name, &case.f64s(&format!("param.{theirs}")));
    }
    let (batch, time) = (case.count("batch"), case.count("seq_len"));
    let data = Data {
        time,
        batch,
        x: swap(&case.f64s("input.x"), batch, time),
        reset: case
            .has("input.is_first")
            .then(|| swap(&case.mask("input.is_first"), batch, time).into_iter().map(u8::from).collect()),
        valid: None,
    };
    let states = States::new(case);
    let start = if case.has("state_in.layers.0.ssm") { states.read(case, "state_in") } else { net.zero_state(batch) };

    let burn_in = case.count("burn_in");
    let mut carried = start.clone();
    let mut y = if burn_in > 0 { net.unroll(&data.steps(0, burn_in), &mut carried) } else { vec![] };
    if burn_in > 0 {
        states.compare(case, "state_k", &carried);
    }
    let learnt = data.steps(burn_in, time);
    if case.flag("has_grads") {
        let w = swap(&case.f64s("loss.w"), batch, time - burn_in);
        let w_state = case.flag("has_state_loss").then(|| states.read(case, "loss.w_state"));
        let g = net.gradients(&learnt, &carried, &w, w_state.as_ref());
        for name in net.names() {
            let theirs = name.trim_start_matches("backbone.");
            case.compare(&format!("grad.param.{theirs}"), net.part(&g.params, &name));
        }
        let mut g_x = vec![0.0; burn_in * batch * size(case, "d_in")];
        g_x.extend(&g.x);
        case.compare("grad.input.x", &swap(&g_x, time, batch));
        if case.has("grad.state_in.layers.0.ssm") {
            states.compare(case, "grad.state_in", &g.state);
        }
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let on_state: f64 = w_state.iter().flatten().zip(&g.state_out).map(|(w, s)| dot(w, s)).sum();
        case.compare("loss.value", &[dot(&w, &g.y) + on_state]);
        y.extend(&g.y);
        states.compare(case, "state_out", &g.state_out);
    } else {
        y.extend(net.unroll(&learnt, &mut carried));
        states.compare(case, "state_out", &carried);
    }
    case.compare("out.y", &swap(&y, time, batch));

    for plan in case.meta["chunk_plans"].as_array().into_iter().flatten() {
        let plan: Vec<usize> = plan.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let mut state = start.clone();
        let y = chunks(net, &data, &mut state, &plan);
        case.compare("out.y", &swap(&y, time, batch));
        states.compare(case, "state_out", &state);
    }
    if case.flag("has_state_trace") {
        let (mut state, mut trace) = (start, net.zero_state(0));
        for t in 0..time {
            net.unroll(&data.steps(t, t + 1), &mut state);
            trace.iter_mut().zip(&state).for_each(|(all, now)| all.extend(now));
        }
        states.compare(case, "state_at", &trace);
    }
}
