//! A loss of your own on the same backbone: behaviour cloning. The expert of RepeatFirst names the first card for ever;
//! the network learns to do as it does from its games, by cross-entropy. `cargo run --release --example 05_custom_loss`

use mamba_rl::backbone::{BackboneConfig, Body, MambaConfig, SeqShape};
use mamba_rl::value::adamw::{AdamW, AdamWState, adamw_step};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CARDS: usize = 4;

fn main() -> mamba_rl::Result<()> {
    let shape = SeqShape { time: 40, batch: 16 };
    let config = MambaConfig { d_input: CARDS + 1, d_model: 32, ..MambaConfig::default() };
    let mut body = Body::new(&BackboneConfig::Mamba(config), shape, 1)?;
    let (rows, d, n) = (shape.rows(), body.d_output(), body.layout().len());
    let (mut x, mut g_y) = (vec![0.0; rows * (CARDS + 1)], vec![0.0; rows * d]);
    let (mut m, mut v, mut rng) = (vec![0.0; n], vec![0.0; n], ChaCha8Rng::seed_from_u64(1));
    for t in 1..=300 {
        let deal: Vec<usize> = (0..rows).map(|_| rng.random_range(0..CARDS)).collect();
        x.fill(0.0);
        (0..rows).for_each(|at| x[at * (CARDS + 1) + deal[at]] = 1.0);
        (0..shape.batch).for_each(|b| x[b * (CARDS + 1) + CARDS] = 1.0); // the game begins
        body.clear_state()?;
        let y = body.forward(&x, None)?;
        let mut right = 0;
        for at in 0..rows {
            let (logits, expert) = (&y[at * d..][..CARDS], deal[at % shape.batch]);
            let sum: f32 = logits.iter().map(|l| l.exp()).sum();
            (0..CARDS).for_each(|a| g_y[at * d + a] = (logits[a].exp() / sum - f32::from(a == expert)) / rows as f32);
            right += usize::from((0..CARDS).all(|a| logits[a] <= logits[expert]));
        }
        let grads = body.backward(&g_y)?.to_vec();
        let cfg = AdamW { lr: 3e-3, ..AdamW::default() };
        adamw_step(cfg, t, &grads, AdamWState { param: body.weights_mut(), m: &mut m, v: &mut v })?;
        if t % 100 == 0 {
            println!("update {t}: {:.3} of its moves are the expert's", right as f32 / rows as f32);
        }
    }
    Ok(())
}
