//! What a Q-head predicts of the return of each action: its mean, quantiles of its distribution, or logits over a support.
//! The numbers of a step lie as [N, actions], so that the dueling combination runs over actions for each number.

use crate::config::CriticKind;
use crate::value::distributional::{Prediction, midpoints, support_atoms};

/// Width of the quantile Huber loss (Dabney et al., 2018: QR-DQN-1).
const KAPPA: f32 = 1.0;

/// N numbers per action, and what they mean.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Critic {
    /// One: the expected return.
    #[default]
    Expected,
    /// Quantiles at these midpoints τ, `[N]`.
    Quantiles(Vec<f32>),
    /// Logits over these atoms, `[N]`, learnt from a scalar target.
    TwoHot(Vec<f32>),
    /// Logits over these atoms, `[N]`, learnt from the projected distribution.
    Categorical(Vec<f32>),
}

impl Critic {
    /// With `n` numbers per action, over a support from the first to the second bound where there is one.
    pub fn new(kind: CriticKind, n: usize, (low, high): (f32, f32)) -> Self {
        match kind {
            CriticKind::Expected => Critic::Expected,
            CriticKind::Qr => Critic::Quantiles(midpoints(n)),
            CriticKind::TwoHot => Critic::TwoHot(support_atoms(low, high, n)),
            CriticKind::C51 => Critic::Categorical(support_atoms(low, high, n)),
        }
    }

    /// N.
    pub fn numbers(&self) -> usize {
        match self {
            Critic::Expected => 1,
            Critic::Quantiles(v) | Critic::TwoHot(v) | Critic::Categorical(v) => v.len(),
        }
    }

    /// The distribution that is predicted; None where it is only the mean.
    pub fn prediction(&self) -> Option<Prediction<'_, f32>> {
        Some(match self {
            Critic::Expected => return None,
            Critic::Quantiles(tau) => Prediction::Quantiles { tau, kappa: KAPPA },
            Critic::TwoHot(atoms) => Prediction::TwoHot { atoms },
            Critic::Categorical(atoms) => Prediction::Categorical { atoms },
        })
    }

    /// Expected returns, [rows, actions], from the numbers, [rows, N, actions].
    pub fn expected(&self, numbers: &[f32], actions: usize, out: &mut [f32]) {
        let Some(prediction) = self.prediction() else { return out.copy_from_slice(numbers) };
        let rows = numbers.chunks_exact(self.numbers() * actions);
        for (row, out) in rows.zip(out.chunks_exact_mut(actions)) {
            for (a, out) in out.iter_mut().enumerate() {
                *out = prediction.mean(row[a..].iter().step_by(actions).copied());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_action() {
        let mut out = [0.0; 4];
        Critic::Quantiles(midpoints(2)).expected(&[1.0, 2.0, 3.0, 6.0, 0.0, 0.0, 1.0, -1.0], 2, &mut out);
        assert_eq!(out, [2.0, 4.0, 0.5, -0.5]);
        let logits = [0.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 5.0];
        Critic::TwoHot(support_atoms(-1.0, 1.0, 3)).expected(&logits, 2, &mut out[..2]);
        assert_eq!(out[..2], [-0.5, 1.0]);
        Critic::Expected.expected(&[7.0, 8.0], 2, &mut out[..2]);
        assert_eq!(out[..2], [7.0, 8.0]);
    }
}
