//! Wrappers of time: `TimeLimit`, `FrameSkip`, `DelayedObservation`.

use std::collections::VecDeque;

use super::{Layer, Wrapper, at_least_one, copy};
use crate::buffer::{ActionRef, ObsBuffer, ObsMut, ObsRef};
use crate::env::{BoxEnv, EnvSpec, Step};
use crate::error::Result;

/// Truncates after n steps.
#[derive(Debug, Clone)]
pub struct TimeLimit {
    limit: usize,
    time: usize,
}

impl TimeLimit {
    /// Error: a limit of 0.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, limit: usize) -> Result<Layer<Self>> {
        at_least_one("time limit", limit)?;
        let env = env.into();
        let max_steps = Some(env.spec().max_steps.map_or(limit, |m| m.min(limit)));
        let spec = EnvSpec { max_steps, ..env.spec().clone() };
        Ok(Layer::new(env, spec, TimeLimit { limit, time: 0 }))
    }
}

impl Wrapper for TimeLimit {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        self.time = 0;
        copy(inner, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, step: &mut Step) -> Result<()> {
        self.time += 1;
        step.truncated |= self.time >= self.limit;
        copy(inner, out)
    }
}

/// Repeats each action up to n times, until the episode ends; adds the rewards and shows the last observation.
#[derive(Debug, Clone)]
pub struct FrameSkip {
    n: usize,
}

impl FrameSkip {
    /// Error: 0 repeats. Where a mask is given, an action must stay legal while it is repeated.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, n: usize) -> Result<Layer<Self>> {
        at_least_one("frame skip", n)?;
        let env = env.into();
        let s = env.spec();
        let spec = EnvSpec {
            max_steps: s.max_steps.map(|m| m.div_ceil(n)),
            unit_reward: s.unit_reward * n as f64,
            ..s.clone()
        };
        Ok(Layer::new(env, spec, FrameSkip { n }))
    }
}

impl Wrapper for FrameSkip {
    fn repeat(&self) -> usize {
        self.n
    }
}

/// Shows the observation of d steps ago; the episode's first one until then.
///
/// Deviation: Gymnasium's `DelayObservation` shows zeros at first, which need not lie in the space.
#[derive(Debug, Clone)]
pub struct DelayedObservation {
    delay: usize,
    /// The last `delay` observations, oldest first.
    past: VecDeque<ObsBuffer>,
}

impl DelayedObservation {
    /// A delay of 0 changes nothing.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, delay: usize) -> Result<Layer<Self>> {
        let env = env.into();
        let s = env.spec();
        let hidden = format!("{}; the last {delay} observations", s.hidden.trim_start_matches("nothing"));
        let hidden = if delay == 0 { s.hidden.clone() } else { hidden.trim_start_matches("; ").to_owned() };
        let spec = EnvSpec { hidden, ..s.clone() };
        Ok(Layer::new(env, spec, DelayedObservation { delay, past: VecDeque::new() }))
    }
}

impl Wrapper for DelayedObservation {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        if self.past.len() != self.delay {
            self.past = (0..self.delay).map(|_| inner.to_buffer()).collect();
        }
        for p in &mut self.past {
            copy(inner, p.view_mut())?;
        }
        copy(inner, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _: &mut Step) -> Result<()> {
        let Some(mut oldest) = self.past.pop_front() else { return copy(inner, out) };
        let shown = copy(oldest.view(), out);
        // Its memory holds the newest from now on.
        copy(inner, oldest.view_mut())?;
        self.past.push_back(oldest);
        shown
    }
}
