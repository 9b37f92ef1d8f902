//! `mamba-rl forward`: the residual blocks and the final norm of a checkpoint on given inputs.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use mamba_rl::network::Blocks;
use mamba_rl::{Error, Result};
use safetensors::tensor::{Dtype, TensorView};

use super::Outcome;

/// Arguments of `forward`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint (run folder, step-N, model.safetensors) or a folder of Hugging Face's Mamba
    #[arg(long, value_name = "CHECKPOINT|FOLDER")]
    checkpoint: PathBuf,
    /// safetensors file with `x` [B, T, d_model], f32
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// File to write, with `y` [B, T, d_model]: blocks and norm_f from a zero state
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// Reads, computes, writes.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let blocks = Blocks::load(&args.checkpoint)?;
    let (x, [batch, time]) = read(&args.input, blocks.d_model())?;
    let y = blocks.forward(&x, batch, time)?;
    write(&args.output, &y, [batch, time, blocks.d_model()])?;
    writeln!(out, "{}: y [{batch}, {time}, {}]", args.output.display(), blocks.d_model())?;
    Ok(0)
}

/// `x` and its B and T.
fn read(path: &Path, d_model: usize) -> Result<(Vec<f32>, [usize; 2])> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Usage(format!(
                "{} does not exist, expected a safetensors file with `x`",
                path.display()
            )));
        }
        Err(e) => return Err(Error::io("reading", path, e)),
    };
    let file = safetensors::SafeTensors::deserialize(&bytes).map_err(|e| Error::checkpoint(path, e.to_string()))?;
    let x = file.tensor("x").map_err(|_| {
        Error::checkpoint(path, format!("has no tensor `x`, expected [B, T, {d_model}]; it has {:?}", file.names()))
    })?;
    let shape = x.shape();
    if x.dtype() != Dtype::F32 || shape.len() != 3 || shape[2] != d_model {
        let problem = format!("`x` is {:?} {shape:?}, expected F32 [B, T, {d_model}]", x.dtype());
        return Err(Error::checkpoint(path, problem));
    }
    let values = x.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Ok((values, [shape[0], shape[1]]))
}

/// `y` in a file of its own, written aside and renamed.
fn write(path: &Path, y: &[f32], shape: [usize; 3]) -> Result<()> {
    let bytes: Vec<u8> = y.iter().flat_map(|v| v.to_le_bytes()).collect();
    let failed = |e: safetensors::SafeTensorError| Error::checkpoint(path, e.to_string());
    let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes).map_err(failed)?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let all = safetensors::serialize([("y", view)], Some(metadata)).map_err(failed)?;
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    let aside = PathBuf::from(aside);
    let done = std::fs::write(&aside, all).and_then(|()| std::fs::rename(&aside, path));
    done.map_err(|e| {
        let _ = std::fs::remove_file(&aside); // a part of a file helps no one
        Error::io("writing", path, e)
    })
}
