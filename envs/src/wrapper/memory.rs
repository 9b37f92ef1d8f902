//! What POPGym's experiments append to every observation: `PreviousAction` and `FirstStepFlag`. The flag tells the null
//! action at reset from a real action 0.

use super::{Layer, Wrapper, misfit, unusable};
use crate::buffer::{ActionRef, ObsMut, ObsRef};
use crate::env::{BoxEnv, EnvSpec, Step};
use crate::error::Result;
use crate::space::Space;

/// The parts of a space, so that appending to a tuple does not nest.
fn beside(space: &Space, more: Space) -> Space {
    let mut parts = match space {
        Space::Tuple(parts) => parts.clone(),
        other => vec![other.clone()],
    };
    parts.push(more);
    Space::Tuple(parts)
}

/// Inner row, then `tail`, whatever the element types: an index fits every type that its space chose.
fn write(inner: ObsRef<'_>, tail: impl Fn(usize) -> f32, tail_len: usize, mut out: ObsMut<'_>) -> Result<()> {
    let n = inner.len();
    let found = out.view().len();
    if found != n + tail_len {
        return Err(misfit(n + tail_len, found));
    }
    if !out.slice(0, n).copy_from(inner) {
        match (inner, &mut out) {
            // Exact where the outer row is wider than the inner one.
            (ObsRef::U8(from), ObsMut::I32(to)) => to.iter_mut().zip(from).for_each(|(y, x)| *y = i32::from(*x)),
            _ => (0..n).for_each(|i| out.set(i, inner.get(i))),
        }
    }
    (0..tail_len).for_each(|i| out.set(n + i, tail(i)));
    Ok(())
}

/// Appends the previous action; at reset the null action: 0, or the zero vector.
#[derive(Debug, Clone)]
pub struct PreviousAction {
    len: usize,
}

impl PreviousAction {
    /// Error: a discrete action space beyond 2^24 values, which a float row could not hold.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>) -> Result<Layer<Self>> {
        let env = env.into();
        let s = env.spec();
        if s.action_space.n_actions().is_some_and(|n| n > 1 << 24) {
            return Err(unusable("PreviousAction", &s.action_space, "at most 2^24 actions"));
        }
        let len = s.action_space.flat_len();
        let spec = EnvSpec { observation_space: beside(&s.observation_space, s.action_space.clone()), ..s.clone() };
        Ok(Layer::new(env, spec, PreviousAction { len }))
    }
}

impl Wrapper for PreviousAction {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        write(inner, |_| 0.0, self.len, out)
    }

    fn next(&mut self, action: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _: &mut Step) -> Result<()> {
        match action {
            ActionRef::Discrete(a) => write(inner, |i| a[i] as f32, self.len, out),
            ActionRef::Continuous(a) => write(inner, |i| a[i], self.len, out),
        }
    }
}

/// Appends a flag that is 1 only for the observation returned by reset.
#[derive(Debug, Clone, Default)]
pub struct FirstStepFlag;

impl FirstStepFlag {
    /// Works on every space.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>) -> Result<Layer<Self>> {
        let env = env.into();
        let space = beside(&env.spec().observation_space, Space::Discrete(2));
        let spec = EnvSpec { observation_space: space, ..env.spec().clone() };
        Ok(Layer::new(env, spec, FirstStepFlag))
    }
}

impl Wrapper for FirstStepFlag {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        write(inner, |_| 1.0, 1, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _: &mut Step) -> Result<()> {
        write(inner, |_| 0.0, 1, out)
    }
}
