//! Exploration: which ε each copy acts with. Ladder: ε_i = base^(1 + α i/(N−1)) (Horgan et al., 2018); linear: from start
//! to end over a number of environment steps, the same for all copies.

use crate::value::exploration::{epsilon_ladder, epsilon_linear};

/// A schedule of ε.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exploration {
    /// One ε per copy, constant in time.
    Ladder {
        /// ε of copy 0.
        base: f64,
        /// Spread.
        alpha: f64,
    },
    /// One ε for all, falling with environment steps.
    Linear {
        /// First ε.
        start: f64,
        /// Last ε.
        end: f64,
        /// Environment steps from first to last.
        steps: u64,
    },
}

impl Exploration {
    /// ε of copy `i` of `n` after `step` environment steps of the whole run.
    pub fn epsilon(self, i: usize, n: usize, step: u64) -> f64 {
        match self {
            Exploration::Ladder { base, alpha } => epsilon_ladder(base, alpha, i, n),
            Exploration::Linear { start, end, steps } => epsilon_linear(start, end, steps, step),
        }
    }

    /// Mean ε over the copies.
    pub fn mean(self, n: usize, step: u64) -> f64 {
        (0..n).map(|i| self.epsilon(i, n, step)).sum::<f64>() / n.max(1) as f64
    }
}
