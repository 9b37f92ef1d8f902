//! Clipping by the global norm: every gradient times min(1, max_norm/‖g‖), no epsilon in the quotient.
//! Source: Pascanu et al. (2013), Algorithm 1.

use super::number;
use num_traits::Float;

/// ‖g‖ over all parts. The sum of squares is kept in f64: in f32 it stops growing after some million elements.
pub fn global_norm<'a, F: Float + 'a>(parts: impl IntoIterator<Item = &'a [F]>) -> F {
    let square = |g: &F| g.to_f64().map_or(f64::NAN, |g| g * g);
    number(parts.into_iter().map(|part| part.iter().map(square).sum::<f64>()).sum::<f64>().sqrt())
}

/// min(1, max_norm/norm). NaN for a norm that is not finite: such an update must be skipped, not scaled.
pub fn clip_factor<F: Float>(norm: F, max_norm: F) -> F {
    if !norm.is_finite() {
        F::nan()
    } else if norm > max_norm {
        max_norm / norm
    } else {
        F::one()
    }
}
