//! Speed of the network on this machine: three shapes (two of them with a rotating state too), the passes that training is made of, and the machine's own
//! ceilings to hold them against. Floor of a pass = flops / matrix product + exponentials / exp + bytes / copy, counted
//! by op in [`counts`]. Figures are the smallest and the median of many repetitions: on a shared machine the smallest
//! is what the code can do and the median is what it got.

pub mod counts;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod machine;
mod report;
mod workload;

use std::time::{Duration, Instant};

use crate::backbone::Rotate;

pub use machine::Ceilings;
pub use report::{ActFigures, Bytes, Figures, ShapeReport, measure};
pub use workload::{Learning, Stepping, Unroll};

/// Sizes of a measured network and batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Name, such as `S1`.
    pub name: &'static str,
    /// Features a step.
    pub d_input: usize,
    /// Width of the stream.
    pub d_model: usize,
    /// Blocks.
    pub n_layers: usize,
    /// B.
    pub batch: usize,
    /// T.
    pub time: usize,
    /// Do pairs of states turn?
    pub rotate: Rotate,
}

/// The shapes that are measured; d_state 16, d_conv 4, expand 2. `-rotate` is the shape before with a rotating state.
pub const SHAPES: [Shape; 5] = [S0, Shape { name: "S0-rotate", rotate: Rotate::Learned, ..S0 }, S1, S1_ROTATE, S2];

const S0: Shape = Shape { name: "S0", d_input: 16, d_model: 64, n_layers: 1, batch: 16, time: 40, rotate: Rotate::Off };
const S1: Shape =
    Shape { name: "S1", d_input: 64, d_model: 128, n_layers: 2, batch: 32, time: 60, rotate: Rotate::Off };
const S1_ROTATE: Shape = Shape { name: "S1-rotate", rotate: Rotate::Learned, ..S1 };
const S2: Shape =
    Shape { name: "S2", d_input: 64, d_model: 256, n_layers: 4, batch: 32, time: 120, rotate: Rotate::Off };

/// A shape for GPUs: what a CPU takes seconds for.
pub const S3: Shape =
    Shape { name: "S3", d_input: 512, d_model: 512, n_layers: 6, batch: 64, time: 120, rotate: Rotate::Off };

/// Pieces that a batch is cut into: the default of `train.shards`.
pub(crate) const SHARDS: usize = 4;

/// The shortest and the median of repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Seconds of the shortest.
    pub min_s: f64,
    /// Seconds of the median.
    pub median_s: f64,
    /// How many.
    pub count: usize,
}

/// Repeats `f` for about `budget`, at least 5 times, after two calls to warm up.
///
/// # Errors
/// The first error of `f`.
pub fn repeat<E>(
    budget: Duration,
    f: &mut dyn FnMut() -> std::result::Result<(), E>,
) -> std::result::Result<Timing, E> {
    for _ in 0..2 {
        f()?;
    }
    let (begun, mut seconds) = (Instant::now(), Vec::new());
    while seconds.len() < 5 || (begun.elapsed() < budget && seconds.len() < 100_000) {
        let start = Instant::now();
        f()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Timing { min_s: seconds[0], median_s: seconds[seconds.len() / 2], count: seconds.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_and_median_in_order() {
        let mut calls = 0;
        let t = repeat::<()>(Duration::ZERO, &mut || {
            calls += 1;
            Ok(())
        });
        let t = t.unwrap();
        assert_eq!((calls, t.count), (7, 5));
        assert!(t.min_s <= t.median_s);
        assert_eq!(repeat(Duration::ZERO, &mut || Err(3)), Err(3));
    }
}
