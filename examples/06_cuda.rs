//! One piece of code on the CPU and on a GPU: everything is generic over the device. Without a usable GPU this says why
//! and shows the CPU alone. `cargo run --release --example 06_cuda`

use mamba_rl::backbone::{self, BackboneConfig, MambaConfig, Parts, SeqShape, Sequence};
use mamba_rl::device::cuda::{Cuda, CudaConfig};
use mamba_rl::device::{Cpu, Device, Kind, View, ViewMut};
use mamba_rl::ops::Backend;
use mamba_rl::params::{ParamLayout, Params};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Last row of a forward of 40 steps of 8 rows.
fn outputs<D: Backend>(dev: &D) -> mamba_rl::Result<Vec<f32>> {
    let config = MambaConfig { d_input: 3, d_model: 32, n_layers: 2, ..MambaConfig::default() };
    let mut body = backbone::build::<D>(&BackboneConfig::Mamba(config))?;
    let layout = std::sync::Arc::new(ParamLayout::new(body.parameters())?);
    body.bind(&layout)?;
    let params = Params::new(dev, layout.clone(), &layout.initial(&mut ChaCha8Rng::seed_from_u64(1)))?;
    let (shape, d) = (SeqShape { time: 40, batch: 8 }, body.d_output());
    let mut state = Parts::zeros(dev, body.state_layout(), shape.batch)?;
    let mut scratch = Parts::zeros(dev, &body.scratch_layout(shape, false), 1)?;
    let host: Vec<f32> = (0..shape.rows() * 3).map(|i| (i as f32 * 0.3).sin()).collect();
    let (mut x, mut y) = (dev.zeros(host.len(), Kind::Full)?, dev.zeros(shape.rows() * d, Kind::Full)?);
    dev.upload(&host, ViewMut::new(&mut x, 0, host.len()))?;
    let seq = Sequence { shape, x: View::new(&x, 0, host.len()), reset: None, valid: None };
    let out = ViewMut::new(&mut y, 0, shape.rows() * d);
    body.forward(dev, &params, seq, &mut state, &mut scratch, out, None)?;
    let mut last = vec![0.0; d];
    dev.download(View::new(&y, (shape.rows() - 1) * d, d), &mut last)?;
    Ok(last)
}

fn main() -> mamba_rl::Result<()> {
    let here = outputs(&Cpu::new())?;
    match Cuda::open(CudaConfig::default()) {
        Err(why) => println!("CPU alone: {why}\n{:?}", &here[..4]),
        Ok(gpu) => println!("{}\nCPU {:?}\nGPU {:?}", gpu.name(), &here[..4], &outputs(&gpu)?[..4]),
    }
    Ok(())
}
