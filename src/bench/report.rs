//! All figures of a shape, in the keys of `mamba-rl bench --json`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::counts::{OpCount, floor_s, forward, forward_backward, learner_step};
use super::{Ceilings, Learning, Shape, Stepping, Timing, Unroll, repeat};
use crate::error::Result;

/// A pass over a batch, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Median.
    pub median_ms: f64,
    /// Shortest.
    pub min_ms: f64,
    /// What the counted work needs at the machine's ceilings for as many threads.
    pub floor_ms: f64,
}

/// A step of acting, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ActFigures {
    /// Median.
    pub median_us: f64,
    /// Shortest.
    pub min_us: f64,
}

/// Memory of all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Tape of forward and backward.
    pub tape: usize,
    /// Scratch of forward and backward.
    pub scratch: usize,
    /// Scratch of a forward without a tape.
    pub target_scratch: usize,
    /// Weights of the backbone.
    pub parameters: usize,
    /// Recurrent state of one sequence.
    pub state_per_sequence: usize,
}

/// Figures by number of threads.
pub type ByThreads<T> = BTreeMap<String, T>;

/// All figures of one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShapeReport {
    /// Target network: no tape, state carried, every output.
    pub forward: ByThreads<Figures>,
    /// With tape, and the gradients of all parameters.
    pub forward_backward: ByThreads<Figures>,
    /// Burn-in T/3, learnt 2T/3, target network, heads, optimiser, priorities.
    pub learner_step: ByThreads<Figures>,
    /// One step of one row.
    pub act_1: ByThreads<ActFigures>,
    /// One step of 64 rows.
    pub act_64: ByThreads<ActFigures>,
    /// Memory.
    pub bytes: Bytes,
}

fn figures(t: Timing, ops: &[OpCount], c: &Ceilings) -> Figures {
    Figures { median_ms: 1e3 * t.median_s, min_ms: 1e3 * t.min_s, floor_ms: 1e3 * floor_s(ops, c) }
}

/// Measures a shape on each pool, given with its ceilings; about `budget` for every figure.
///
/// # Errors
/// `Config`, device errors.
pub fn measure(s: Shape, pools: &[(rayon::ThreadPool, Ceilings)], budget: Duration) -> Result<ShapeReport> {
    let (mut target, mut train) = (Unroll::new(s, false)?, Unroll::new(s, true)?);
    let (mut learning, mut one, mut many) = (Learning::new(s)?, Stepping::new(s, 1)?, Stepping::new(s, 64)?);
    let (parameters, state) = train.parameters();
    let mut report = ShapeReport {
        forward: ByThreads::new(),
        forward_backward: ByThreads::new(),
        learner_step: ByThreads::new(),
        act_1: ByThreads::new(),
        act_64: ByThreads::new(),
        bytes: Bytes {
            tape: train.bytes().0,
            scratch: train.bytes().1,
            target_scratch: target.bytes().1,
            parameters: 4 * parameters,
            state_per_sequence: state,
        },
    };
    for (pool, c) in pools {
        let threads = pool.current_num_threads().to_string();
        let time = |f: &mut (dyn FnMut() -> Result<()> + Send)| pool.install(|| repeat(budget, &mut || f()));
        let t = time(&mut || target.forward())?;
        report.forward.insert(threads.clone(), figures(t, &forward(s, s.time), c));
        let t = time(&mut || train.forward_backward())?;
        report.forward_backward.insert(threads.clone(), figures(t, &forward_backward(s, s.time), c));
        let t = time(&mut || learning.step())?;
        report.learner_step.insert(threads.clone(), figures(t, &learner_step(s), c));
        let act = |t: Timing| ActFigures { median_us: 1e6 * t.median_s, min_us: 1e6 * t.min_s };
        report.act_1.insert(threads.clone(), act(time(&mut || one.step())?));
        report.act_64.insert(threads, act(time(&mut || many.step())?));
    }
    Ok(report)
}
