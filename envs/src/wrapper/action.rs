//! Wrappers of the action: `FlattenAction`, `DiscretizeAction`.

use super::{Layer, Wrapper, unusable};
use crate::buffer::{ActionBuffer, ActionRef};
use crate::env::{BoxEnv, EnvSpec};
use crate::error::{EnvError, Result};
use crate::space::Space;

/// `MultiDiscrete` as one `Discrete`, row-major: for two parts, row = a / columns and column = a mod columns. A
/// legal-action mask stays as it is, since it is row-major already. `Discrete` passes through.
#[derive(Debug, Clone)]
pub struct FlattenAction {
    sizes: Vec<usize>,
}

impl FlattenAction {
    /// Error: a continuous action space.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>) -> Result<Layer<Self>> {
        let env = env.into();
        let s = env.spec();
        let (sizes, n) = match &s.action_space {
            Space::MultiDiscrete(sizes) => (sizes.clone(), sizes.iter().product()),
            Space::Discrete(n) => (vec![*n], *n),
            other => return Err(unusable("FlattenAction", other, "Discrete or MultiDiscrete")),
        };
        let spec = EnvSpec { action_space: Space::Discrete(n), ..s.clone() };
        Ok(Layer::new(env, spec, FlattenAction { sizes }))
    }
}

impl Wrapper for FlattenAction {
    fn act(&mut self, outer: ActionRef<'_>, inner: &mut ActionBuffer) -> bool {
        let (ActionRef::Discrete([a]), ActionBuffer::Discrete(parts)) = (outer, inner) else { return false };
        let mut rest = usize::try_from(*a).unwrap_or(0);
        for (p, n) in parts.iter_mut().zip(&self.sizes).rev() {
            *p = (rest % n) as i32;
            rest /= n;
        }
        true
    }
}

/// A one-dimensional box as n actions, evenly spaced from its lower to its upper bound.
#[derive(Debug, Clone)]
pub struct DiscretizeAction {
    values: Vec<f32>,
}

impl DiscretizeAction {
    /// Errors: fewer than 2 actions, a space that is not a bounded one-dimensional float box.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, n: usize) -> Result<Layer<Self>> {
        let env = env.into();
        let s = env.spec();
        let (low, high) = match &s.action_space {
            Space::Box { low, high, .. } if low.len() == 1 && low[0].is_finite() && high[0].is_finite() => {
                (low[0], high[0])
            }
            other => return Err(unusable("DiscretizeAction", other, "a bounded box of one element")),
        };
        if n < 2 {
            return Err(EnvError::Length { what: "DiscretizeAction".to_owned(), found: n, expected: 2 });
        }
        let value = |i: usize| if i + 1 == n { high } else { low + (high - low) * i as f32 / (n - 1) as f32 };
        let values = (0..n).map(value).collect();
        let spec = EnvSpec { action_space: Space::Discrete(n), ..s.clone() };
        Ok(Layer::new(env, spec, DiscretizeAction { values }))
    }
}

impl Wrapper for DiscretizeAction {
    fn act(&mut self, outer: ActionRef<'_>, inner: &mut ActionBuffer) -> bool {
        let (ActionRef::Discrete([a]), ActionBuffer::Continuous(value)) = (outer, inner) else { return false };
        let picked = usize::try_from(*a).ok().and_then(|a| self.values.get(a)).copied().unwrap_or(0.0);
        value.fill(picked);
        true
    }
}
