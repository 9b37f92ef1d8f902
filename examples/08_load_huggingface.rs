//! A Mamba checkpoint of the Hugging Face library (base or causal-LM, sharded too) in our blocks.
//! `cargo run --release --example 08_load_huggingface -- FOLDER`

use mamba_rl::checkpoint::load_huggingface;
use mamba_rl::network::Blocks;

fn main() -> mamba_rl::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "tests/golden/hf_mamba_causal_00".into());
    let dir = std::path::Path::new(&dir);
    let found = load_huggingface(dir)?; // sizes and tensors under our names, which are theirs behind `backbone.`
    println!("{:?}", found.config);
    println!("{} tensors", found.tensors.len());

    let blocks = Blocks::load(dir)?; // ready to run: residual blocks and final norm
    let (batch, time, d) = (1, 5, blocks.d_model());
    let embeddings: Vec<f32> = (0..batch * time * d).map(|i| (i as f32 * 0.37).sin()).collect(); // [B, T, d_model]
    let hidden = blocks.forward(&embeddings, batch, time)?;
    println!("last hidden state begins {:?}", &hidden[(time - 1) * d..][..4]);
    Ok(())
}
