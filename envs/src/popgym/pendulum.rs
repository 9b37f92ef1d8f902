//! Pendulum with its speed hidden: PositionOnly and NoisyPositionOnly (once Stateless). POPGym 1.0.7 over the dynamics
//! of
//! `classic::pendulum`.
//!
//! | | PositionOnly | NoisyPositionOnly |
//! |---|---|---|
//! | observation | `Box` 2 in ±1: cos θ, sin θ | the same + noise of σ 0.1, 0.2, 0.3, clipped to ±1, at reset too |
//! | limit L | 200, 150, 100: harder is shorter | 200 |
//! | hidden | the speed | the speed, the noise |
//!
//! Action `Box` 1: torque in [−2, 2]; with the argument `torques = n` a `Discrete(n)` of evenly spaced torques (another
//! task than the published one: say so). Reward ((8.1368022 − cost)/8.1368022)/L, so an episode's total lies in [−1,
//! 1]. Truncated on step L. Best play about 0.914, 0.885, 0.828; random 0.24.
#![doc = include_str!("../../docs/PositionOnlyPendulum.md")]
#![doc = include_str!("../../docs/NoisyPositionOnlyPendulum.md")]

use rand::RngExt;
use rand_distr::StandardNormal;
use serde_json::{Value, json};

use super::{Level, old_names, spec};
use crate::classic::cart_pole::{finite, read_state};
use crate::classic::pendulum::{MAX_COST, MAX_TORQUE, PendulumState};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::Picture;
use crate::seed::Stream;
use crate::space::Space;

/// Both tasks.
#[derive(Debug, Clone)]
pub struct PartialPendulum {
    spec: EnvSpec,
    stream: Stream,
    /// Standard deviation of the noise; none at all for PositionOnly.
    sigma: Option<f64>,
    start: PendulumState,
    state: PendulumState,
    time: usize,
    limit: usize,
}

impl PartialPendulum {
    /// The angle is shown.
    pub fn position_only(level: Level, legacy: bool) -> Self {
        let spec = EnvSpec {
            aliases: old_names("StatelessPendulum", level),
            hidden: "the speed".to_owned(),
            doc: "Swing a pendulum up, seeing the angle only.".to_owned(),
            ..base("PositionOnlyPendulum", level, legacy)
        };
        Self::with(spec, None, level.pick([200, 150, 100]))
    }

    /// The angle with noise is shown.
    pub fn noisy(level: Level, legacy: bool) -> Self {
        let sigma = level.pick([0.1, 0.2, 0.3]);
        let spec = EnvSpec {
            aliases: old_names("NoisyStatelessPendulum", level),
            hidden: "the speed and the noise on the angle".to_owned(),
            doc: format!("Swing a pendulum up, seeing the angle with noise of standard deviation {sigma}."),
            ..base("NoisyPositionOnlyPendulum", level, legacy)
        };
        Self::with(spec, Some(sigma), 200)
    }

    fn with(spec: EnvSpec, sigma: Option<f64>, limit: usize) -> Self {
        let spec = EnvSpec { max_steps: Some(limit), unit_reward: 1.0 / limit as f64, ..spec };
        let zero = PendulumState::default();
        PartialPendulum { spec, stream: Stream::default(), sigma, start: zero, state: zero, time: 0, limit }
    }

    fn begin(&mut self, state: PendulumState, obs: &mut [f32]) {
        self.start = state;
        self.state = state;
        self.time = 0;
        self.observe(obs);
    }

    fn observe(&mut self, obs: &mut [f32]) {
        let (sin, cos) = self.state.theta.sin_cos();
        let shown = match self.sigma {
            None => [cos as f32, sin as f32],
            Some(sigma) => {
                let rng = self.stream.rng();
                [cos, sin].map(|v| ((v + rng.sample::<f64, _>(StandardNormal) * sigma) as f32).clamp(-1.0, 1.0))
            }
        };
        obs.copy_from_slice(&shown);
    }
}

fn base(family: &str, level: Level, legacy: bool) -> EnvSpec {
    let torque = Space::box_f32(&[-MAX_TORQUE], &[MAX_TORQUE]);
    spec(family, level, legacy, Space::box_f32(&[-1.0; 2], &[1.0; 2]), torque)
}

impl Env for PartialPendulum {
    type Obs = f32;
    type Act = f32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [f32]) {
        let state = PendulumState::start(self.stream.begin(seed));
        self.begin(state, obs);
    }

    fn step_into(&mut self, action: &[f32], obs: &mut [f32]) -> Step {
        const HALF: f64 = MAX_COST / 2.0;
        let cost = self.state.step(f64::from(action[0]));
        self.time += 1;
        self.observe(obs);
        let reward = (HALF - cost) / HALF / self.limit as f64;
        Step { reward, terminated: false, truncated: self.time >= self.limit }
    }

    fn hidden(&self) -> Value {
        json!({"state": self.start.to_array(), "limit": self.limit})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [f32]) -> Result<()> {
        let state = read_state(&Hidden { env: &self.spec.name, value: hidden }, self.limit)?;
        self.begin(PendulumState::from_array(state), obs);
        Ok(())
    }

    fn state(&self) -> Option<Vec<f64>> {
        Some(self.state.to_array().to_vec())
    }

    fn set_state(&mut self, state: &[f64]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: &Value::Null };
        self.state = PendulumState::from_array(finite(&hidden, state)?);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        Some(self.state.picture())
    }

    fn picture(&self) -> Option<Picture> {
        Some(self.state.drawing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewards_span_minus_one_to_one_over_the_episode() {
        for (level, limit) in [(Level::Easy, 200), (Level::Medium, 150), (Level::Hard, 100)] {
            let mut env = PartialPendulum::position_only(level, false);
            let mut obs = [0.0; 2];
            env.reset_into(Some(1), &mut obs);
            env.set_hidden(&json!({"state": [0.0, 0.0]}), &mut obs).unwrap();
            assert_eq!(obs, [1.0, 0.0]);
            for t in 1..=limit {
                let step = env.step_into(&[0.0], &mut obs);
                assert_eq!(
                    (step.reward, step.truncated),
                    (1.0 / f64::from(limit), t == limit),
                    "upright costs nothing"
                );
            }
            env.set_state(&[std::f64::consts::PI, 8.0]).unwrap();
            let step = env.step_into(&[2.0], &mut obs);
            assert!((step.reward + 1.0 / f64::from(limit)).abs() < 1e-9);
        }
    }

    #[test]
    fn noisy_observations_stay_within_one_and_differ() {
        let mut env = PartialPendulum::noisy(Level::Hard, false);
        let (mut obs, mut seen) = ([0.0; 2], Vec::new());
        env.reset_into(Some(1), &mut obs);
        for _ in 0..1_000 {
            env.set_hidden(&json!({"state": [0.0, 0.0], "limit": 200}), &mut obs).unwrap();
            assert!(obs.iter().all(|o| o.abs() <= 1.0));
            seen.push(f64::from(obs[1]));
        }
        let square = seen.iter().map(|v| v * v).sum::<f64>() / 1_000.0;
        assert!((square.sqrt() - 0.3).abs() < 0.03, "{square}");
    }
}
