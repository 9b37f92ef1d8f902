//! The parts `machine` and `shapes` of `mamba-rl bench`: ceilings, and the network's passes on 1 and on all threads.

use std::io::Write;
use std::time::Duration;

use mamba_rl::bench::counts::{OpCount, forward, forward_backward};
use mamba_rl::bench::{self, Ceilings, SHAPES, ShapeReport};
use mamba_rl::device::Cpu;
use serde_json::{Map, Value, json};

use super::devices;

/// For every figure.
const BUDGET: Duration = Duration::from_millis(700);
/// For every ceiling.
const CEILING: Duration = Duration::from_millis(300);

/// The machine with its ceilings by number of threads: 1, and all where there are more.
pub struct Machine {
    cpu: String,
    threads: usize,
    pools: Vec<(rayon::ThreadPool, Ceilings)>,
}

/// Measures the ceilings.
pub fn machine() -> anyhow::Result<Machine> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut pools = Vec::new();
    for n in if threads > 1 { vec![1, threads] } else { vec![1] } {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build()?;
        let ceilings = bench::machine::ceilings(&Cpu::new(), &pool, CEILING)?;
        pools.push((pool, ceilings));
    }
    Ok(Machine { cpu: devices::cpu_name(), threads, pools })
}

impl Machine {
    /// Name and ceilings of all threads together; those of one thread under `one_thread`.
    pub fn json(&self) -> Value {
        let all = self.pools.last().map(|p| p.1);
        let mut out = serde_json::to_value(all).unwrap_or_default();
        out["cpu"] = json!(self.cpu);
        out["threads"] = json!(self.threads);
        out["one_thread"] = serde_json::to_value(self.pools.first().map(|p| p.1)).unwrap_or_default();
        out
    }
}

/// `{shape: figures}`.
pub fn measure(machine: &Machine) -> anyhow::Result<Value> {
    let mut shapes = Map::new();
    for s in SHAPES {
        shapes.insert(s.name.into(), serde_json::to_value(bench::measure(s, &machine.pools, BUDGET)?)?);
    }
    Ok(Value::Object(shapes))
}

/// The tables for people.
pub fn print(machine: &Machine, verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}, {} threads", machine.cpu, machine.threads)?;
    writeln!(out, "\n{:8} {:>13} {:>11} {:>11} {:>11}", "THREADS", "GEMM GFLOP/S", "EXP G/S", "COPY GB/S", "SCAN G/S")?;
    for (pool, c) in &machine.pools {
        let n = pool.current_num_threads();
        writeln!(
            out,
            "{n:<8} {:>13.0} {:>11.2} {:>11.1} {:>11.2}",
            c.gemm_gflops, c.exp_gops, c.copy_gbs, c.scan_gops
        )?;
    }
    for s in SHAPES {
        let name = format!("input {} -> {} x {}, B {}, T {}", s.d_input, s.d_model, s.n_layers, s.batch, s.time);
        writeln!(
            out,
            "\n{} = {name}\n{:18} {:>8} {:>10} {:>10} {:>10} {:>8}",
            s.name, "", "THREADS", "MIN", "MEDIAN", "FLOOR", "RATIO"
        )?;
        table(&bench::measure(s, &machine.pools, BUDGET)?, out)?;
        if verbose {
            counts("forward", &forward(s, s.time), machine, out)?;
            counts("forward + backward", &forward_backward(s, s.time), machine, out)?;
        }
        out.flush()?;
    }
    Ok(())
}

fn table(r: &ShapeReport, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, rows) in
        [("forward", &r.forward), ("forward+backward", &r.forward_backward), ("learner step", &r.learner_step)]
    {
        for (threads, f) in rows {
            let (min, median, floor) = (f.min_ms, f.median_ms, f.floor_ms);
            writeln!(
                out,
                "{name:18} {threads:>8} {min:>7.3} ms {median:>7.3} ms {floor:>7.3} ms {:>8.2}",
                min / floor
            )?;
        }
    }
    for (name, rows) in [("act, 1 row", &r.act_1), ("act, 64 rows", &r.act_64)] {
        for (threads, f) in rows {
            writeln!(out, "{name:18} {threads:>8} {:>7.1} us {:>7.1} us", f.min_us, f.median_us)?;
        }
    }
    let b = &r.bytes;
    writeln!(
        out,
        "bytes: tape {}, scratch {}, target's scratch {}, parameters {}, state of a sequence {}",
        b.tape, b.scratch, b.target_scratch, b.parameters, b.state_per_sequence
    )
}

/// Counted work by op, with its floor on one thread.
fn counts(pass: &str, ops: &[OpCount], machine: &Machine, out: &mut dyn Write) -> std::io::Result<()> {
    let Some((_, c)) = machine.pools.first() else { return Ok(()) };
    writeln!(out, "{pass}\n  {:20} {:>10} {:>10} {:>10} {:>14}", "OP", "MFLOP", "MEXP", "MB", "FLOOR, 1 THREAD")?;
    for o in ops {
        let (flops, exps, bytes) = (o.flops / 1e6, o.exps / 1e6, o.bytes / 1e6);
        writeln!(out, "  {:20} {flops:>10.2} {exps:>10.3} {bytes:>10.2} {:>11.3} ms", o.op, 1e3 * o.floor_s(c))?;
    }
    Ok(())
}
