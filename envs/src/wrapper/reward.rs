//! Wrappers of the reward: `ClipReward`, `ScaleReward`; and `RecordEpisodeStatistics`, which only looks.

use super::{Layer, Wrapper, copy, unusable};
use crate::buffer::{ActionRef, ObsMut, ObsRef};
use crate::env::{BoxEnv, EnvSpec, Step};
use crate::error::Result;

/// Clips each reward to a range.
#[derive(Debug, Clone)]
pub struct ClipReward {
    low: f64,
    high: f64,
}

impl ClipReward {
    /// Error: a range that is empty or not finite.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, low: f64, high: f64) -> Result<Layer<Self>> {
        if !(low <= high && low.is_finite() && high.is_finite()) {
            return Err(unusable("ClipReward", format!("[{low}, {high}]"), "a range of finite numbers"));
        }
        let env = env.into();
        let s = env.spec();
        let longest = s.max_steps.map_or(f64::INFINITY, |n| n as f64);
        let return_range =
            (if low < 0.0 { low * longest } else { low }, if high > 0.0 { high * longest } else { high });
        let spec = EnvSpec { unit_reward: s.unit_reward.clamp(low, high), return_range, ..s.clone() };
        Ok(Layer::new(env, spec, ClipReward { low, high }))
    }
}

impl Wrapper for ClipReward {
    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, step: &mut Step) -> Result<()> {
        step.reward = step.reward.clamp(self.low, self.high);
        copy(inner, out)
    }
}

/// Multiplies each reward.
#[derive(Debug, Clone)]
pub struct ScaleReward {
    factor: f64,
}

impl ScaleReward {
    /// Error: a factor that is not finite.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, factor: f64) -> Result<Layer<Self>> {
        if !factor.is_finite() {
            return Err(unusable("ScaleReward", factor, "a finite factor"));
        }
        let env = env.into();
        let s = env.spec();
        let (a, b) = (s.return_range.0 * factor, s.return_range.1 * factor);
        let spec = EnvSpec {
            unit_reward: s.unit_reward * factor.abs(),
            return_range: if factor == 0.0 { (0.0, 0.0) } else { (a.min(b), a.max(b)) },
            ..s.clone()
        };
        Ok(Layer::new(env, spec, ScaleReward { factor }))
    }
}

impl Wrapper for ScaleReward {
    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, step: &mut Step) -> Result<()> {
        step.reward *= self.factor;
        copy(inner, out)
    }
}

/// Return and length of one episode.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EpisodeStatistics {
    /// Sum of the rewards that this layer sees.
    pub episode_return: f64,
    /// Steps.
    pub episode_length: usize,
}

/// Keeps the statistics of ended episodes, oldest first; read them with `layer.wrapper().ended()`.
#[derive(Debug, Clone, Default)]
pub struct RecordEpisodeStatistics {
    running: EpisodeStatistics,
    ended: Vec<EpisodeStatistics>,
}

impl RecordEpisodeStatistics {
    /// Put it below the reward's wrappers to record raw rewards.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>) -> Result<Layer<Self>> {
        let env = env.into();
        let spec = env.spec().clone();
        Ok(Layer::new(env, spec, RecordEpisodeStatistics::default()))
    }

    /// Ended episodes, oldest first.
    pub fn ended(&self) -> &[EpisodeStatistics] {
        &self.ended
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.ended.clear();
    }
}

impl Wrapper for RecordEpisodeStatistics {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        self.running = EpisodeStatistics::default();
        copy(inner, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, step: &mut Step) -> Result<()> {
        self.running.episode_return += step.reward;
        self.running.episode_length += 1;
        if step.done() {
            self.ended.push(self.running);
        }
        copy(inner, out)
    }
}
