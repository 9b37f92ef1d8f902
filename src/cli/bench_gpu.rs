//! `mamba-rl bench --device cuda`: the passes of the network on a GPU beside their floor, launches of an update and device
//! memory by buffer.

use std::io::Write;

use mamba_rl::Result;
use mamba_rl::bench::gpu::{self, Ceiling, Effort, GpuReport};
use mamba_rl::bench::{S3, SHAPES, Shape};
use mamba_rl::device::Precision;
use mamba_rl::device::cuda::{Cuda, CudaConfig};
use serde_json::{Map, json};

use super::{Outcome, text};

/// What was asked for.
pub struct Asked {
    /// N of `cuda:N`.
    pub ordinal: usize,
    /// All that are measured.
    pub precisions: Vec<Precision>,
    /// Small sizes, once each.
    pub rehearse: bool,
    /// One JSON object.
    pub json: bool,
    /// Memory of every shape and precision.
    pub verbose: bool,
}

/// Shapes for a rehearsal: tails everywhere, two layers.
const SMALL: Shape = Shape { d_input: 5, d_model: 12, n_layers: 2, batch: 3, time: 9, ..SHAPES[0] };

/// Measures.
pub fn run(asked: &Asked, out: &mut dyn Write) -> Outcome {
    let effort = if asked.rehearse { Effort::REHEARSAL } else { Effort::FULL };
    let large = SHAPES.into_iter().chain([S3]).filter(|s| !s.name.starts_with("S0"));
    let shapes: Vec<Shape> = if asked.rehearse { vec![SMALL] } else { large.collect() };
    let mut report = Map::new();
    for (i, &precision) in asked.precisions.iter().enumerate() {
        let dev = Cuda::open(CudaConfig { ordinal: asked.ordinal, precision, ..CudaConfig::default() })?;
        let ceiling = gpu::ceiling(&dev, effort)?;
        let figures: Result<Vec<(Shape, GpuReport)>> =
            shapes.iter().map(|&s| Ok((s, gpu::measure(&dev, s, &ceiling, effort)?))).collect();
        let figures = figures?;
        if asked.json {
            let shapes: Map<_, _> = figures.iter().map(|(s, r)| (s.name.to_owned(), json!(r))).collect();
            report.insert("device".into(), json!(dev.gpu().name));
            report.insert(precision.to_string(), json!({"ceiling": ceiling, "shapes": shapes}));
            continue;
        }
        if i == 0 {
            writeln!(
                out,
                "{}, compute capability {}.{}",
                dev.gpu().name,
                dev.gpu().capability.0,
                dev.gpu().capability.1
            )?;
        }
        table(precision, &ceiling, &figures, asked.verbose || i == 0, out)?;
    }
    if asked.json {
        serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(0)
}

fn table(
    precision: Precision,
    c: &Ceiling,
    figures: &[(Shape, GpuReport)],
    memory: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (gemm, copy) = (c.gemm_gflops / 1e3, c.copy_gbs);
    writeln!(out, "\n{precision}: matrix product {gemm:.2} TFLOP/s, copy {copy:.0} GB/s")?;
    for (s, r) in figures {
        let size = format!("input {} -> {} x {}, B {}, T {}", s.d_input, s.d_model, s.n_layers, s.batch, s.time);
        writeln!(out, "\n{} = {size}\n{:18} {:>12} {:>12} {:>8}", s.name, "", "MEAN", "FLOOR", "RATIO")?;
        let rows = [
            ("forward", &r.forward),
            ("forward+backward", &r.forward_backward),
            ("learner step", &r.learner_step),
            ("act, 1 row", &r.act_1),
            ("act, 64 rows", &r.act_64),
        ];
        for (name, p) in rows {
            writeln!(out, "{name:18} {:>9.3} ms {:>9.4} ms {:>8.1}", p.ms, p.floor_ms, p.ms / p.floor_ms)?;
        }
        let l = r.launches;
        let (plain, graphs, beside) = (l.plain, l.graphs, l.beside);
        writeln!(out, "launches of a learner step: {plain} before graphs, then {graphs} graphs and {beside} kernels")?;
        if memory {
            let all: usize = r.memory.iter().map(|m| m.bytes).sum();
            writeln!(out, "device memory of a learner: {}", text::bytes(all as u64))?;
            for m in &r.memory {
                writeln!(out, "  {:32} {:>12}", m.name, text::bytes(m.bytes as u64))?;
            }
        }
    }
    Ok(())
}
