//! The backbone in a loop of your own: own loss, own optimiser step, state carried from chunk to chunk.
//! Task: say the bit of three steps ago. `cargo run --release --example 01_backbone_only`

use mamba_rl::backbone::{BackboneConfig, Body, MambaConfig, SeqShape};
use mamba_rl::value::adamw::{AdamW, AdamWState, adamw_step};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LAG: usize = 3;

fn main() -> mamba_rl::Result<()> {
    let shape = SeqShape { time: 32, batch: 8 }; // time-major: index t · batch + b
    let config = MambaConfig { d_input: 1, d_model: 16, d_conv: 2, ..MambaConfig::default() };
    let mut body = Body::new(&BackboneConfig::Mamba(config), shape, 1)?;
    let (d, rows, lag) = (body.d_output(), shape.rows(), LAG * shape.batch);
    let (mut x, mut g_y) = (vec![0.0; rows], vec![0.0; rows * d]);
    let n = body.layout().len();
    let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
    let cfg = AdamW { lr: 1e-2, ..AdamW::default() };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for step in 1..=600 {
        x.fill_with(|| f32::from(rng.random::<bool>()) - 0.5);
        let y = body.forward(&x, None)?; // [T, B, d_output]; conv window and SSM state go on from the last chunk
        let mut loss = 0.0;
        for at in lag..rows {
            let error = y[at * d] - x[at - lag]; // the first output is the answer
            loss += error * error / (rows - lag) as f32;
            g_y[at * d] = 2.0 * error / (rows - lag) as f32;
        }
        let grads = body.backward(&g_y)?.to_vec();
        adamw_step(cfg, step, &grads, AdamWState { param: body.weights_mut(), m: &mut m, v: &mut v })?;
        if step % 200 == 0 {
            println!("step {step:3}  squared error {loss:.4}");
        }
    }
    Ok(())
}
