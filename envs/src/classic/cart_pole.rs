//! CartPole-v1 (Barto, Sutton, Anderson, 1983), dynamics of Gymnasium 1.4: explicit Euler, positions first with the old
//! velocities.
//!
//! M = 1.1, m l = 0.05:  temp = (F + m l ω² sin θ)/M
//! θ'' = (g sin θ − cos θ temp) / (0.5 (4/3 − 0.1 cos² θ / M));   x'' = temp − m l θ'' cos θ / M
//!
//! | | |
//! |---|---|
//! | observation | `Box` 4: x ±4.8, x' ±inf, θ ±0.41888 rad, θ' ±inf |
//! | action | `Discrete(2)`: 0 pushes left, 1 right, F = ±10 |
//! | reward | 1 per step, the one that falls included |
//! | end | terminated when \|x\| > 2.4 or \|θ\| > 12°; truncated on step 500; both may be set |
//! | hidden | nothing |
//! | best play | 500 |
#![doc = include_str!("../../docs/CartPole.md")]

use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// Bound of the observed position, twice the fall threshold, m.
pub(crate) const X_BOUND: f32 = 4.8;
/// Bound of the observed angle, twice the fall threshold, rad.
pub(crate) const ANGLE_BOUND: f32 = (2.0 * FALL_ANGLE) as f32;
const FALL_X: f64 = 2.4;
const FALL_ANGLE: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
const TAU: f64 = 0.02;

/// The physical state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CartPoleState {
    /// Position, m.
    pub x: f64,
    /// Its velocity, m/s.
    pub x_dot: f64,
    /// Pole angle from upright, rad.
    pub theta: f64,
    /// Its velocity, rad/s.
    pub theta_dot: f64,
}

impl CartPoleState {
    /// Four independent uniforms in [−0.05, 0.05].
    #[inline]
    pub fn start(rng: &mut impl Rng) -> Self {
        let mut u = || (rng.random::<f64>() - 0.5) * 0.1;
        CartPoleState { x: u(), x_dot: u(), theta: u(), theta_dot: u() }
    }

    /// One step of 0.02 s.
    #[inline]
    pub fn step(&mut self, right: bool) {
        const TOTAL: f64 = 1.1;
        const POLE: f64 = 0.1;
        const LENGTH: f64 = 0.5;
        const MASS_LENGTH: f64 = POLE * LENGTH;
        let force = if right { 10.0 } else { -10.0 };
        let (sin, cos) = sin_cos(self.theta);
        let temp = (force + MASS_LENGTH * (self.theta_dot * self.theta_dot) * sin) / TOTAL;
        let theta_acc = (9.8 * sin - cos * temp) / (LENGTH * (4.0 / 3.0 - POLE * (cos * cos) / TOTAL));
        let x_acc = temp - MASS_LENGTH * theta_acc * cos / TOTAL;
        self.x += TAU * self.x_dot;
        self.x_dot += TAU * x_acc;
        self.theta += TAU * self.theta_dot;
        self.theta_dot += TAU * theta_acc;
    }

    /// Out of bounds.
    #[inline]
    pub fn fallen(&self) -> bool {
        self.x.abs() > FALL_X || self.theta.abs() > FALL_ANGLE
    }

    /// x, x', θ, θ'.
    pub fn to_array(self) -> [f64; 4] {
        [self.x, self.x_dot, self.theta, self.theta_dot]
    }

    /// From x, x', θ, θ'.
    pub fn from_array([x, x_dot, theta, theta_dot]: [f64; 4]) -> Self {
        CartPoleState { x, x_dot, theta, theta_dot }
    }

    /// Cart, pole, and the rail between the two falls; 1 unit is 1 metre, the pole is drawn in full length.
    pub(crate) fn drawing(&self) -> Picture {
        let (width, ground) = (2.0 * FALL_X as f32 + 0.8, 1.7);
        let mut p = Picture::new(width, 2.0);
        let x = (self.x as f32 + width / 2.0).clamp(0.0, width);
        p.line([0.4, ground], [width - 0.4, ground], 0.03, paint::SLATE);
        [0.4, width - 0.4].into_iter().for_each(|x| p.line([x, ground - 0.1], [x, ground + 0.1], 0.03, paint::RED));
        p.rect([x - 0.25, ground - 0.28], [0.5, 0.25], paint::INK);
        let (sin, cos) = (self.theta.sin() as f32, self.theta.cos() as f32);
        let foot = [x, ground - 0.25];
        p.line(foot, [foot[0] + sin, foot[1] - cos], 0.08, paint::GOLD);
        p.disc(foot, 0.05, paint::BLUE);
        p
    }

    pub(crate) fn picture(&self) -> String {
        let column = ((self.x / FALL_X).clamp(-1.0, 1.0) * 20.0 + 20.0).round() as usize;
        let lean = match self.theta {
            t if t < -0.03 => '\\',
            t if t > 0.03 => '/',
            _ => '|',
        };
        let rail = "-".repeat(41);
        let pad = " ".repeat(column);
        format!("{pad}{lean}\n{pad}#\n{rail}\nx {:.3}  angle {:.3}\n", self.x, self.theta)
    }
}

/// sin and cos in double precision. Angles of a standing pole are small: there the Taylor polynomials below are exact
/// to rounding (the first term left out is under 2^-56 of the result for |x| ≤ 0.45) and need no range reduction. They
/// are the same on every platform, too.
#[inline]
fn sin_cos(x: f64) -> (f64, f64) {
    if x.abs() > 0.45 {
        return x.sin_cos();
    }
    const S: [f64; 6] =
        [-1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0, 1.0 / 6_227_020_800.0];
    const C: [f64; 6] =
        [1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0, 1.0 / 479_001_600.0, -1.0 / 87_178_291_200.0];
    let x2 = x * x;
    let x4 = x2 * x2;
    let s = (S[0] + S[1] * x2) + x4 * ((S[2] + S[3] * x2) + x4 * (S[4] + S[5] * x2));
    let c = (C[0] + C[1] * x2) + x4 * ((C[2] + C[3] * x2) + x4 * (C[4] + C[5] * x2));
    (x + x * (x2 * s), (1.0 - 0.5 * x2) + x4 * c)
}

/// Reads `state` (and checks `limit` where given) of a CartPole or Pendulum hidden state.
pub(crate) fn read_state<const N: usize>(hidden: &Hidden<'_>, limit: usize) -> Result<[f64; N]> {
    let numbers = hidden.floats("state", Some(N))?;
    let given = hidden.value.get("limit").and_then(Value::as_u64);
    if let Some(found) = given.filter(|l| *l != limit as u64) {
        return Err(hidden.error("limit", found, limit));
    }
    finite(hidden, &numbers)
}

/// N finite numbers.
pub(crate) fn finite<const N: usize>(hidden: &Hidden<'_>, numbers: &[f64]) -> Result<[f64; N]> {
    let array: Result<[f64; N], _> = numbers.try_into();
    array
        .ok()
        .filter(|a| a.iter().all(|x| x.is_finite()))
        .ok_or_else(|| hidden.error("state", format!("{numbers:?}"), format!("{N} finite numbers")))
}

/// The fully observable task.
#[derive(Debug, Clone)]
pub struct CartPole {
    spec: EnvSpec,
    stream: Stream,
    start: CartPoleState,
    state: CartPoleState,
    time: u32,
}

const LIMIT: u32 = 500;

impl Default for CartPole {
    fn default() -> Self {
        Self::new()
    }
}

impl CartPole {
    /// The task.
    pub fn new() -> Self {
        let high = [X_BOUND, f32::INFINITY, ANGLE_BOUND, f32::INFINITY];
        let observation = Space::box_f32(&high.map(|h| -h), &high);
        let spec = EnvSpec {
            max_steps: Some(LIMIT as usize),
            return_range: (1.0, f64::from(LIMIT)),
            doc: "Balance a pole on a cart.".to_owned(),
            ..EnvSpec::new("CartPole-v1", "CartPole", observation, Space::Discrete(2))
        };
        let zero = CartPoleState::default();
        CartPole { spec, stream: Stream::default(), start: zero, state: zero, time: 0 }
    }

    #[inline]
    fn begin(&mut self, state: CartPoleState, obs: &mut [f32]) {
        self.start = state;
        self.state = state;
        self.time = 0;
        self.observe(obs);
    }

    #[inline]
    fn observe(&self, obs: &mut [f32]) {
        obs.copy_from_slice(&self.state.to_array().map(|v| v as f32));
    }
}

impl Env for CartPole {
    type Obs = f32;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    #[inline]
    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [f32]) {
        let state = CartPoleState::start(self.stream.begin(seed));
        self.begin(state, obs);
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [f32]) -> Step {
        self.state.step(action[0] == 1);
        self.time += 1;
        self.observe(obs);
        Step { reward: 1.0, terminated: self.state.fallen(), truncated: self.time >= LIMIT }
    }

    fn hidden(&self) -> Value {
        json!({"state": self.start.to_array(), "limit": LIMIT})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [f32]) -> Result<()> {
        let state = read_state(&Hidden { env: &self.spec.name, value: hidden }, LIMIT as usize)?;
        self.begin(CartPoleState::from_array(state), obs);
        Ok(())
    }

    fn state(&self) -> Option<Vec<f64>> {
        Some(self.state.to_array().to_vec())
    }

    fn set_state(&mut self, state: &[f64]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: &Value::Null };
        self.state = CartPoleState::from_array(finite(&hidden, state)?);
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
    fn sin_cos_agrees_with_the_library_to_rounding() {
        for i in -45_000..=45_000 {
            let x = f64::from(i) * 1e-5;
            let (s, c) = sin_cos(x);
            assert!((s - x.sin()).abs() <= 2.3e-16 * x.abs().max(1e-300) && (c - x.cos()).abs() <= 2.3e-16, "{x}");
        }
    }

    #[test]
    fn one_step_by_hand() {
        // Upright and at rest: temp = 10/1.1; θ'' = −temp/(0.5 (4/3 − 0.1/1.1)); x'' = temp − 0.05 θ''/1.1.
        let mut s = CartPoleState::default();
        s.step(true);
        let theta_acc = -(10.0 / 1.1) / (0.5 * (4.0 / 3.0 - 0.1 / 1.1));
        let x_acc = 10.0 / 1.1 - 0.05 * theta_acc / 1.1;
        assert_eq!((s.x, s.theta), (0.0, 0.0), "positions use the old velocities");
        assert!((s.x_dot - 0.02 * x_acc).abs() < 1e-15 && (s.theta_dot - 0.02 * theta_acc).abs() < 1e-15);
    }

    #[test]
    fn the_step_that_falls_is_paid_and_the_limit_truncates() {
        let mut env = CartPole::new();
        let mut obs = [0.0; 4];
        env.reset_into(Some(1), &mut obs);
        let (mut total, mut steps) = (0.0, 0);
        loop {
            let step = env.step_into(&[1], &mut obs);
            total += step.reward;
            steps += 1;
            assert!(!step.truncated);
            if step.terminated {
                break;
            }
        }
        assert!(total == f64::from(steps) && (8..=11).contains(&steps), "{steps}");
        env.reset_into(Some(1), &mut obs);
        for t in 1..=500 {
            // A plain controller stands for the whole episode.
            let push = i32::from(obs[2] + 0.3 * obs[3] + 0.02 * obs[0] + 0.05 * obs[1] > 0.0);
            let step = env.step_into(&[push], &mut obs);
            assert_eq!((step.terminated, step.truncated), (false, t == 500), "step {t}");
        }
    }
}
