//! The mathematics of value-based and actor-critic learning: pure functions on slices, generic over f32 and f64.
//!
//! Nothing here draws random numbers, reads a configuration or knows a network; each function can be checked on paper.
//! Sources are named in the file of each formula.

pub mod adamw;
pub mod clip;
pub mod distributional;
pub mod dueling;
pub mod exploration;
pub mod gaussian;
pub mod n_step;
pub mod priority;
pub mod rescaling;
pub mod target_update;
pub mod td_error;

use num_traits::Float;

/// What can be wrong with the slices or numbers handed to a value function.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A slice does not have the length that the first one implies.
    #[error("`{argument}` has {found} elements, expected {expected}")]
    Length {
        /// Name of the argument.
        argument: &'static str,
        /// Length that fits the other arguments.
        expected: usize,
        /// Length that was given.
        found: usize,
    },
    /// A number lies outside its range.
    #[error("`{argument}` is {found}, expected {expected}")]
    Range {
        /// Name of the argument.
        argument: &'static str,
        /// Its range, in words.
        expected: &'static str,
        /// The number that was given.
        found: f64,
    },
}

/// A constant of a formula in the caller's precision.
pub(crate) fn number<F: Float>(x: f64) -> F {
    F::from(x).unwrap_or_else(F::nan)
}

/// Checks one length; used at the head of functions that index several slices.
pub(crate) fn check_len(argument: &'static str, found: usize, expected: usize) -> Result<(), ValueError> {
    if found == expected { Ok(()) } else { Err(ValueError::Length { argument, expected, found }) }
}
