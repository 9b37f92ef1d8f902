//! Golden kinds `lstm` and `gru`: outputs, states, burn-in and all gradients, through the backbone.

use mamba_rl::backbone::{BackboneConfig, RnnConfig};
use mamba_rl::device::Real;

use super::device_net::Unrolled;
use super::golden::Case;
use super::golden_mamba::swap;
use super::net::{Data, HostState, Net};

/// Our parts, layer by layer, from tensors [n_layers, B, H] per name.
fn read(case: &Case, prefix: &str, names: &[&str], layers: usize) -> HostState {
    let fields: Vec<_> = names.iter().map(|n| case.f64s(&format!("{prefix}.{n}"))).collect();
    let part = |f: &Vec<f64>, i: usize| f[i * f.len() / layers..(i + 1) * f.len() / layers].to_vec();
    (0..layers).flat_map(|i| fields.iter().map(move |f| part(f, i))).collect()
}

fn compare(case: &Case, prefix: &str, names: &[&str], state: &HostState) {
    for (j, name) in names.iter().enumerate() {
        let all: Vec<f64> = state.iter().skip(j).step_by(names.len()).flatten().copied().collect();
        case.compare(&format!("{prefix}.{name}"), &all);
    }
}

/// Sizes of a file.
pub fn config(case: &Case) -> BackboneConfig {
    let n_layers = case.count("n_layers");
    let config = RnnConfig { d_input: case.count("d_in"), d_model: case.count("hidden"), n_layers };
    if case.kind == "lstm" { BackboneConfig::Lstm(config) } else { BackboneConfig::Gru(config) }
}

pub fn check<F: Real>(case: &Case) {
    check_on(case, &mut Net::<F>::new(&config(case), 1));
}

/// The file through a network of its sizes.
pub fn check_on(case: &Case, net: &mut dyn Unrolled) {
    let layers = case.count("n_layers");
    let names: &[&str] = if case.kind == "lstm" { &["h", "c"] } else { &["h"] };
    for name in net.names() {
        net.set(&name, &case.f64s(&name.replace("backbone.", "param.")));
    }
    let (batch, time, burn_in) = (case.count("batch"), case.count("seq_len"), case.count("burn_in"));
    let data = Data {
        time,
        batch,
        x: swap(&case.f64s("input.x"), batch, time),
        reset: case
            .has("input.is_first")
            .then(|| swap(&case.mask("input.is_first"), batch, time).into_iter().map(u8::from).collect()),
        valid: None,
    };
    let start = if case.has("state_in.h") { read(case, "state_in", names, layers) } else { net.zero_state(batch) };
    let mut carried = start.clone();
    let mut y = if burn_in > 0 { net.unroll(&data.steps(0, burn_in), &mut carried) } else { vec![] };
    if burn_in > 0 {
        compare(case, "state_k", names, &carried);
    }
    let w = swap(&case.f64s("loss.w"), batch, time - burn_in);
    let w_state = read(case, "loss.w_state", names, layers);
    let g = net.gradients(&data.steps(burn_in, time), &carried, &w, Some(&w_state));
    for name in net.names() {
        case.compare(&name.replace("backbone.", "grad.param."), net.part(&g.params, &name));
    }
    let mut g_x = vec![0.0; burn_in * batch * case.count("d_in")];
    g_x.extend(&g.x);
    case.compare("grad.input.x", &swap(&g_x, time, batch));
    if case.has("grad.state_in.h") {
        compare(case, "grad.state_in", names, &g.state);
    }
    y.extend(&g.y);
    case.compare("out.y", &swap(&y, time, batch));
    compare(case, "state_out", names, &g.state_out);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let on_state: f64 = w_state.iter().zip(&g.state_out).map(|(w, s)| dot(w, s)).sum();
    case.compare("loss.value", &[dot(&w, &g.y) + on_state]);

    // and in one go without gradients, from the start
    let mut state = start;
    let y = net.unroll(&data, &mut state);
    case.compare("out.y", &swap(&y, time, batch));
    compare(case, "state_out", names, &state);
}
