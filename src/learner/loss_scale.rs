//! Dynamic loss scale for f16, whose smallest number is 6e-8: the loss is multiplied by a power of two, the gradient divided
//! by it again, so no bit of a representable gradient changes. An overflow halves the scale and costs its update; many good
//! updates in a row double it. Source: Micikevicius et al. (2018), Mixed Precision Training, Sec. 3.2.

use serde::{Deserialize, Serialize};

/// Good updates after which the scale is doubled, as the paper's authors chose.
const PATIENCE: u32 = 2_000;
/// Bounds of the scale, 2⁻²⁴ and 2²⁴: below 1 for gradients that f16 cannot hold as they are.
const BOUNDS: (f32, f32) = (1.0 / 16_777_216.0, 16_777_216.0);

/// The scale and what leads to its next value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Factor on the loss, a power of two.
    pub scale: f32,
    /// Good updates since it last changed.
    pub good: u32,
}

impl Default for LossScale {
    /// 2¹⁶.
    fn default() -> Self {
        LossScale { scale: 65_536.0, good: 0 }
    }
}

impl LossScale {
    /// After an update, which was skipped for a gradient that was not finite or was made.
    pub fn after(self, skipped: bool) -> Self {
        let (low, high) = BOUNDS;
        match (skipped, self.good + 1) {
            (true, _) => LossScale { scale: (self.scale / 2.0).max(low), good: 0 },
            (false, PATIENCE) => LossScale { scale: (self.scale * 2.0).min(high), good: 0 },
            (false, good) => LossScale { good, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_halve_and_patience_doubles() {
        let start = LossScale::default();
        assert_eq!(start.after(true), LossScale { scale: 32_768.0, good: 0 });
        assert_eq!(start.after(false), LossScale { scale: 65_536.0, good: 1 });
        let many = (0..PATIENCE).fold(start, |s, _| s.after(false));
        assert_eq!(many, LossScale { scale: 131_072.0, good: 0 });
        let broken = (0..PATIENCE - 1).fold(start, |s, _| s.after(false)).after(true);
        assert_eq!(broken, LossScale { scale: 32_768.0, good: 0 });
        assert_eq!((0..100).fold(start, |s, _| s.after(true)).scale, 1.0 / 16_777_216.0);
        let highest = (0..20 * PATIENCE).fold(start, |s, _| s.after(false));
        assert_eq!(highest.scale, 16_777_216.0);
    }
}
