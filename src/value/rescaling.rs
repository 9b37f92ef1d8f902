//! Value rescaling. h(x) = sign(x)(√(|x|+1) − 1) + εx, so that large returns do not swamp small ones.
//! Source: R2D2 (Kapturowski et al., 2019), after Pohlen et al. (2018); ε = 1e-3 there.
//!
//! Both directions are written without a difference of nearly equal numbers: the textbook forms √(|x|+1) − 1 and
//! ((√(1+4ε(|y|+1+ε)) − 1)/2ε)² − 1 lose four digits near zero in f32, and the second one has no value at ε = 0.

use super::number;
use num_traits::Float;

/// h(x) = sign(x) |x|/(√(|x|+1)+1) + εx.
pub fn rescale<F: Float>(x: F, eps: F) -> F {
    x / ((x.abs() + F::one()).sqrt() + F::one()) + eps * x
}

/// h'(x) = 1/(2√(|x|+1)) + ε.
pub fn rescale_grad<F: Float>(x: F, eps: F) -> F {
    number::<F>(0.5) / (x.abs() + F::one()).sqrt() + eps
}

/// h⁻¹(y). With d = √(|x|+1) − 1: ε d² + (1+2ε) d = |y| and |x| = d(d+2), so
/// d = 2|y| / (1+2ε + √((1+2ε)² + 4ε|y|)).
pub fn rescale_inverse<F: Float>(y: F, eps: F) -> F {
    let two = number::<F>(2.0);
    let b = F::one() + two * eps;
    let d = two * y.abs() / (b + (b * b + two * two * eps * y.abs()).sqrt());
    if y < F::zero() { -(d * (d + two)) } else { d * (d + two) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_by_hand() {
        assert_eq!(rescale(3.0f64, 0.0), 1.0);
        assert_eq!(rescale(-8.0f64, 0.5), -2.0 - 4.0);
        assert_eq!(rescale_inverse(1.0f64, 0.0), 3.0);
        assert_eq!(rescale_grad(3.0f64, 0.25), 0.5);
    }

    #[test]
    fn inverse_keeps_small_numbers_in_f32() {
        for x in [1e-6f32, -3e-4, 0.5, -70.0, 1e5] {
            let back = rescale_inverse(rescale(x, 1e-3), 1e-3);
            assert!((back - x).abs() <= 1e-6 * x.abs(), "{x} came back as {back}");
        }
    }
}
