//! Golden kind `hf_mamba`: a checkpoint as the Hugging Face library saves it, its blocks and final norm through ours.

use std::collections::HashMap;

use mamba_rl::backbone::{BackboneConfig, MambaConfig};
use mamba_rl::device::Real;
use safetensors::SafeTensors;

use super::golden::Case;
use super::golden_mamba::{States, config, swap};
use super::net::{Data, Net};

/// Tensors of `model.safetensors` beside the case.
fn model(case: &Case) -> HashMap<String, Vec<f64>> {
    let bytes = std::fs::read(case.path.with_file_name("model.safetensors")).expect("a model");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let float = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().expect("4 bytes")));
    tensors.tensors().into_iter().map(|(name, t)| (name, t.data().chunks(4).map(float).collect())).collect()
}

pub fn check<F: Real>(case: &Case) {
    let config = config(case, false);
    let prefix = case.meta["key_prefix"].as_str().unwrap().to_string();
    let (batch, time) = (case.count("batch"), case.count("seq_len"));
    let x = swap(&case.f64s("input.inputs_embeds"), batch, time);
    let data = Data { time, batch, x, reset: None, valid: None };
    let file = model(case);
    let load = |config: MambaConfig| {
        let mut net = Net::<F>::new(&BackboneConfig::Mamba(config), 1);
        for name in net.names() {
            net.set(&name, &file[&format!("{prefix}{}", name.trim_start_matches("backbone."))]);
        }
        net
    };
    let net = load(config.clone());
    let mut state = net.zero_state(batch);
    let y = swap(&net.unroll(&data, &mut state), time, batch);
    case.compare("out.last_hidden_state", &y);
    case.compare("out.last_hidden_state_hf_f32", &y);
    States::new(case).compare(case, "state_out", &state);

    // the stream after layer i is what a backbone of i + 1 layers normalises at its end: undo the norm's scale with
    // weights of one, and compare directions and size through the normalised stream
    for i in 0..config.n_layers {
        let hidden = case.f64s(&format!("out.hidden.{i}"));
        let mut short = load(MambaConfig { n_layers: i + 1, ..config.clone() });
        short.set("backbone.norm_f.weight", &vec![1.0; config.d_model]);
        let y = swap(&short.unroll(&data, &mut short.zero_state(batch)), time, batch);
        let d = config.d_model;
        let rows = hidden.chunks(d).zip(y.chunks(d));
        let got: Vec<f64> = rows
            .flat_map(|(h, y)| {
                let rms = (h.iter().map(|h| h * h).sum::<f64>() / d as f64 + config.rms_eps).sqrt();
                y.iter().map(|y| y * rms).collect::<Vec<_>>()
            })
            .collect();
        case.compare(&format!("out.hidden.{i}"), &got);
    }
}
