//! Pendulum-v1, dynamics of Gymnasium 1.4: g = 10, m = l = 1, steps of 0.05 s, torque within ±2, speed within ±8.
//!
//! cost = norm(θ)² + 0.1 ω² + 0.001 u² with the old state;  ω' = clip(ω + (15 sin θ + 3 u) 0.05);  θ' = θ + 0.05 ω'
//!
//! | | |
//! |---|---|
//! | observation | `Box` 3: cos θ, sin θ, ω; θ = 0 is upright |
//! | action | `Box` 1: torque in [−2, 2]; with the argument `torques = n` a `Discrete(n)` of evenly spaced torques |
//! | reward | −cost, at least −16.27 |
//! | end | truncated on step 200 |
//! | hidden | nothing |
//! | best play | about −150 on average |
#![doc = include_str!("../../docs/Pendulum.md")]

use std::f64::consts::PI;

use rand::{Rng, RngExt};
use serde_json::{Value, json};

use super::cart_pole::{finite, read_state};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// Largest torque.
pub(crate) const MAX_TORQUE: f32 = 2.0;
/// Largest speed, rad/s.
const MAX_SPEED: f64 = 8.0;
/// Largest cost of a step: π² + 0.1 · 8² + 0.001 · 2².
pub(crate) const MAX_COST: f64 = 16.273_604_4;

/// The physical state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PendulumState {
    /// Angle from upright, rad, not wrapped.
    pub theta: f64,
    /// Its velocity, rad/s.
    pub theta_dot: f64,
}

impl PendulumState {
    /// θ uniform in [−π, π], ω uniform in [−1, 1].
    pub fn start(rng: &mut impl Rng) -> Self {
        PendulumState { theta: rng.random_range(-PI..=PI), theta_dot: rng.random_range(-1.0..=1.0) }
    }

    /// One step of 0.05 s under a torque (clipped to ±2); gives the cost.
    #[inline]
    pub fn step(&mut self, torque: f64) -> f64 {
        let u = torque.clamp(-f64::from(MAX_TORQUE), f64::from(MAX_TORQUE));
        let norm = (self.theta + PI).rem_euclid(2.0 * PI) - PI;
        let cost = norm * norm + 0.1 * (self.theta_dot * self.theta_dot) + 0.001 * (u * u);
        let speed = self.theta_dot + (15.0 * self.theta.sin() + 3.0 * u) * 0.05;
        self.theta_dot = speed.clamp(-MAX_SPEED, MAX_SPEED);
        self.theta += self.theta_dot * 0.05;
        cost
    }

    /// θ, ω.
    pub fn to_array(self) -> [f64; 2] {
        [self.theta, self.theta_dot]
    }

    /// From θ, ω.
    pub fn from_array([theta, theta_dot]: [f64; 2]) -> Self {
        PendulumState { theta, theta_dot }
    }

    /// The rod, and the upright position as a small mark.
    pub(crate) fn drawing(&self) -> Picture {
        let mut p = Picture::new(4.8, 2.4);
        let hinge = [2.4, 1.2];
        // Angles count from upright against the clock.
        let tip = [hinge[0] - self.theta.sin() as f32, hinge[1] - self.theta.cos() as f32];
        p.disc([2.4, 0.1], 0.05, paint::GREEN);
        p.line(hinge, tip, 0.18, paint::RED);
        p.disc(hinge, 0.07, paint::INK);
        p
    }

    pub(crate) fn picture(&self) -> String {
        const POINTS: [&str; 8] = ["up", "up left", "left", "down left", "down", "down right", "right", "up right"];
        let eighth = (self.theta / (PI / 4.0)).round().rem_euclid(8.0) as usize;
        format!("{}  angle {:.3}  speed {:.3}\n", POINTS[eighth % 8], self.theta, self.theta_dot)
    }
}

/// The fully observable task.
#[derive(Debug, Clone)]
pub struct Pendulum {
    spec: EnvSpec,
    stream: Stream,
    start: PendulumState,
    state: PendulumState,
    time: usize,
}

const LIMIT: usize = 200;

impl Default for Pendulum {
    fn default() -> Self {
        Self::new()
    }
}

impl Pendulum {
    /// The task.
    pub fn new() -> Self {
        let high = [1.0, 1.0, MAX_SPEED as f32];
        let action = Space::box_f32(&[-MAX_TORQUE], &[MAX_TORQUE]);
        let spec = EnvSpec {
            max_steps: Some(LIMIT),
            return_range: (-MAX_COST * LIMIT as f64, 0.0),
            doc: "Swing a pendulum up and hold it.".to_owned(),
            ..EnvSpec::new("Pendulum-v1", "Pendulum", Space::box_f32(&high.map(|h| -h), &high), action)
        };
        let zero = PendulumState::default();
        Pendulum { spec, stream: Stream::default(), start: zero, state: zero, time: 0 }
    }

    fn begin(&mut self, state: PendulumState, obs: &mut [f32]) {
        self.start = state;
        self.state = state;
        self.time = 0;
        self.observe(obs);
    }

    fn observe(&self, obs: &mut [f32]) {
        let (sin, cos) = self.state.theta.sin_cos();
        obs.copy_from_slice(&[cos as f32, sin as f32, self.state.theta_dot as f32]);
    }
}

impl Env for Pendulum {
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
        let cost = self.state.step(f64::from(action[0]));
        self.time += 1;
        self.observe(obs);
        Step { reward: -cost, terminated: false, truncated: self.time >= LIMIT }
    }

    fn hidden(&self) -> Value {
        json!({"state": self.start.to_array(), "limit": LIMIT})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [f32]) -> Result<()> {
        let state = read_state(&Hidden { env: &self.spec.name, value: hidden }, LIMIT)?;
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
    fn one_step_by_hand() {
        let mut s = PendulumState::from_array([PI / 2.0, 1.0]);
        let cost = s.step(5.0);
        assert!((cost - (PI * PI / 4.0 + 0.1 + 0.004)).abs() < 1e-12, "the torque is clipped before it costs");
        assert!((s.theta_dot - (1.0 + (15.0 + 6.0) * 0.05)).abs() < 1e-12);
        assert!((s.theta - (PI / 2.0 + 0.05 * 2.05)).abs() < 1e-12, "the angle uses the new speed");
        let mut fast = PendulumState::from_array([3.0 * PI / 2.0, -8.0]);
        let cost = fast.step(0.0);
        assert!((cost - (PI * PI / 4.0 + 6.4)).abs() < 1e-12, "the angle is wrapped for the cost");
        assert_eq!(fast.theta_dot, -8.0);
        assert!((PI * PI + 6.4 + 0.004 - MAX_COST).abs() < 1e-6);
    }
}
