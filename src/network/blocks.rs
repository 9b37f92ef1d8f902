//! The residual blocks and the final norm of a Mamba checkpoint, alone: the stream of width d_model in, the normalised
//! stream out, without input projection, embeddings and heads. Ours, or a folder of the Hugging Face library.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::Description;
use crate::backbone::{self, Backbone, BackboneConfig, MambaConfig, Parts, SeqShape, Sequence};
use crate::checkpoint::{self, HfConfig, HfMamba};
use crate::device::{Cpu, View, ViewMut};
use crate::error::{Error, Result};
use crate::params::{ParamLayout, Params};

/// A loaded stack of blocks, on the CPU.
pub struct Blocks {
    dev: Cpu,
    body: Box<dyn Backbone<Cpu>>,
    params: Params<Cpu>,
}

impl Blocks {
    /// From one of our checkpoints (run folder, `step-N`, `model.safetensors`; of an `rsac` agent the actor's body), or from
    /// a Hugging Face folder with `config.json` and `model.safetensors` or its shards.
    ///
    /// # Errors
    /// `Usage` for a path that is neither or a body that is no Mamba; `Checkpoint` naming file and tensor or field.
    pub fn load(path: &Path) -> Result<Self> {
        if path.is_dir() && is_theirs(path) {
            let HfMamba { config, tensors } = checkpoint::load_huggingface(path)?;
            return Self::new(of_theirs(&config), &tensors);
        }
        let dir = checkpoint::resolve(path)?;
        let description = Description::from_json(&dir, checkpoint::load_config(&dir)?)?;
        let BackboneConfig::Mamba(config) = description.backbone(1) else {
            let found = &description.backbone.name;
            return Err(Error::Usage(format!("{} has a `{found}` body, expected mamba", dir.display())));
        };
        let net = description.build_policy::<Cpu>()?;
        let values = checkpoint::load_weights(&dir, net.layout())?;
        let entries = net.layout().entries().iter();
        let named = entries.map(|e| (e.spec.name.clone(), values[e.slot.range()].to_vec()));
        Self::new(stream(config), &named.collect())
    }

    fn new(config: MambaConfig, tensors: &HashMap<String, Vec<f32>>) -> Result<Self> {
        let (dev, mut body) = (Cpu::default(), backbone::build::<Cpu>(&BackboneConfig::Mamba(config))?);
        let layout = std::sync::Arc::new(ParamLayout::new(body.parameters())?);
        body.bind(&layout)?;
        let mut values = vec![0.0; layout.len()];
        for entry in layout.entries() {
            let (name, slot) = (&entry.spec.name, entry.slot);
            let from = tensors.get(name).filter(|t| t.len() == slot.len);
            let from = from.ok_or_else(|| Error::config(name, "is not among the loaded tensors in this size"))?;
            values[slot.range()].copy_from_slice(from);
        }
        Ok(Blocks { dev, params: Params::new(&dev, layout, &values)?, body })
    }

    /// Width of the stream.
    pub fn d_model(&self) -> usize {
        self.body.d_input()
    }

    /// y [B, T, d_model] of x [B, T, d_model], from a zero state.
    ///
    /// # Errors
    /// `Shape` where x has another length.
    pub fn forward(&self, x: &[f32], batch: usize, time: usize) -> Result<Vec<f32>> {
        let (d, shape) = (self.d_model(), SeqShape { time, batch });
        if x.len() != shape.rows() * d {
            let (shape, want) = (format!("[B {batch}, T {time}, d_model {d}]"), shape.rows() * d);
            return Err(Error::Shape { op: "forward", arg: "x", shape, want, got: x.len() });
        }
        let x = transposed(x, batch, time, d);
        let mut y = vec![0.0; x.len()];
        let mut state = Parts::zeros(&self.dev, self.body.state_layout(), batch)?;
        let mut scratch = Parts::zeros(&self.dev, &self.body.scratch_layout(shape, false), 1)?;
        let seq = Sequence { shape, x: View::new(&x, 0, x.len()), reset: None, valid: None };
        let len = y.len();
        let out = ViewMut::new(&mut y, 0, len);
        self.body.forward(&self.dev, &self.params, seq, &mut state, &mut scratch, out, None)?;
        Ok(transposed(&y, time, batch, d))
    }
}

/// Is there a `config.json` without our part?
fn is_theirs(dir: &Path) -> bool {
    let text = std::fs::read(dir.join(checkpoint::CONFIG_FILE)).unwrap_or_default();
    serde_json::from_slice::<Value>(&text).is_ok_and(|v| v.get("mamba_rl").is_none())
}

fn of_theirs(c: &HfConfig) -> MambaConfig {
    stream(MambaConfig {
        d_model: c.d_model,
        n_layers: c.n_layers,
        d_state: c.d_state,
        d_conv: c.d_conv,
        expand: c.expand,
        dt_rank: Some(c.dt_rank),
        rms_eps: c.rms_eps,
        proj_bias: c.proj_bias,
        conv_bias: c.conv_bias,
        ..MambaConfig::default()
    })
}

/// The same blocks with the stream itself as input.
fn stream(config: MambaConfig) -> MambaConfig {
    MambaConfig { input_proj: false, d_input: config.d_model, ..config }
}

/// [n, m, d] to [m, n, d].
fn transposed(x: &[f32], n: usize, m: usize, d: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for j in 0..m {
        (0..n).for_each(|i| out.extend_from_slice(&x[(i * m + j) * d..][..d]));
    }
    out
}
