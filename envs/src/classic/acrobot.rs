//! Acrobot-v1 (Sutton, 1996), dynamics of Gymnasium 1.4: the book's equations, Runge-Kutta 4 over 0.2 s.
//!
//! | | |
//! |---|---|
//! | observation | `Box` 6: cos θ1, sin θ1, cos θ2, sin θ2, θ1' (±4π), θ2' (±9π); θ1 = 0 hangs down |
//! | action | `Discrete(3)`: torque −1, 0, 1 on the joint between the links |
//! | reward | −1 per step, 0 for the one that reaches the height |
//! | end | terminated when −cos θ1 − cos(θ1+θ2) > 1; truncated on step 500 |
//! | hidden | nothing |
//! | best play | about −75 on average |
#![doc = include_str!("../../docs/Acrobot.md")]

use std::f64::consts::PI;

use rand::RngExt;
use serde_json::{Value, json};

use super::cart_pole::{finite, read_state};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

const LIMIT: usize = 500;
const DT: f64 = 0.2;
const MAX_SPEED: [f64; 2] = [4.0 * PI, 9.0 * PI];

/// The task. State θ1, θ2, θ1', θ2'.
#[derive(Debug, Clone)]
pub struct Acrobot {
    spec: EnvSpec,
    stream: Stream,
    start: [f64; 4],
    state: [f64; 4],
    time: usize,
}

/// Time derivative of the state under a torque: links of mass and length 1, centres at 0.5, inertia 1, g = 9.8.
fn derivative([theta1, theta2, w1, w2]: [f64; 4], torque: f64) -> [f64; 4] {
    const G: f64 = 9.8;
    let (sin2, cos2) = theta2.sin_cos();
    let d1 = 0.25 + (1.0 + 0.25 + cos2) + 2.0;
    let d2 = 0.25 + 0.5 * cos2 + 1.0;
    let phi2 = 0.5 * G * (theta1 + theta2 - PI / 2.0).cos();
    let phi1 = -0.5 * w2 * w2 * sin2 - w2 * w1 * sin2 + 1.5 * G * (theta1 - PI / 2.0).cos() + phi2;
    let a2 = (torque + d2 / d1 * phi1 - 0.5 * w1 * w1 * sin2 - phi2) / (1.25 - d2 * d2 / d1);
    let a1 = -(d2 * a2 + phi1) / d1;
    [w1, w2, a1, a2]
}

/// One Runge-Kutta step.
fn rk4(s: [f64; 4], torque: f64, dt: f64) -> [f64; 4] {
    let plus = |k: [f64; 4], h: f64| std::array::from_fn(|i| s[i] + h * k[i]);
    let k1 = derivative(s, torque);
    let k2 = derivative(plus(k1, dt / 2.0), torque);
    let k3 = derivative(plus(k2, dt / 2.0), torque);
    let k4 = derivative(plus(k3, dt), torque);
    std::array::from_fn(|i| s[i] + dt / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]))
}

/// Into [−π, π].
fn wrap(mut x: f64) -> f64 {
    // Only a state set from outside is that far off.
    if x.abs() > 100.0 {
        return (x + PI).rem_euclid(2.0 * PI) - PI;
    }
    while x > PI {
        x -= 2.0 * PI;
    }
    while x < -PI {
        x += 2.0 * PI;
    }
    x
}

impl Default for Acrobot {
    fn default() -> Self {
        Self::new()
    }
}

impl Acrobot {
    /// The task.
    pub fn new() -> Self {
        let high = [1.0, 1.0, 1.0, 1.0, MAX_SPEED[0] as f32, MAX_SPEED[1] as f32];
        let spec = EnvSpec {
            max_steps: Some(LIMIT),
            return_range: (-(LIMIT as f64), 0.0),
            doc: "Swing a two-link arm above a height.".to_owned(),
            ..EnvSpec::new("Acrobot-v1", "Acrobot", Space::box_f32(&high.map(|h| -h), &high), Space::Discrete(3))
        };
        Acrobot { spec, stream: Stream::default(), start: [0.0; 4], state: [0.0; 4], time: 0 }
    }

    fn begin(&mut self, state: [f64; 4], obs: &mut [f32]) {
        self.start = state;
        self.state = state;
        self.time = 0;
        self.observe(obs);
    }

    fn observe(&self, obs: &mut [f32]) {
        let [theta1, theta2, w1, w2] = self.state;
        let shown = [theta1.cos(), theta1.sin(), theta2.cos(), theta2.sin(), w1, w2];
        obs.copy_from_slice(&shown.map(|v| v as f32));
    }
}

impl Env for Acrobot {
    type Obs = f32;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [f32]) {
        let rng = self.stream.begin(seed);
        // The original rounds the start to 32 bits.
        let state = std::array::from_fn(|_| f64::from(rng.random_range(-0.1..=0.1) as f32));
        self.begin(state, obs);
    }

    fn step_into(&mut self, action: &[i32], obs: &mut [f32]) -> Step {
        let [theta1, theta2, w1, w2] = rk4(self.state, f64::from(action[0] - 1), DT);
        let [m1, m2] = MAX_SPEED;
        self.state = [wrap(theta1), wrap(theta2), w1.clamp(-m1, m1), w2.clamp(-m2, m2)];
        self.time += 1;
        self.observe(obs);
        let terminated = -self.state[0].cos() - (self.state[1] + self.state[0]).cos() > 1.0;
        Step { reward: if terminated { 0.0 } else { -1.0 }, terminated, truncated: self.time >= LIMIT }
    }

    fn hidden(&self) -> Value {
        json!({"state": self.start, "limit": LIMIT})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [f32]) -> Result<()> {
        let state: [f64; 4] = read_state(&Hidden { env: &self.spec.name, value: hidden }, LIMIT)?;
        let [m1, m2] = MAX_SPEED;
        let bounded =
            [state[0].clamp(-PI, PI), state[1].clamp(-PI, PI), state[2].clamp(-m1, m1), state[3].clamp(-m2, m2)];
        self.begin(bounded, obs);
        Ok(())
    }

    fn state(&self) -> Option<Vec<f64>> {
        Some(self.state.to_vec())
    }

    fn set_state(&mut self, state: &[f64]) -> Result<()> {
        self.state = finite(&Hidden { env: &self.spec.name, value: &Value::Null }, state)?;
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let [theta1, theta2, w1, w2] = self.state;
        let height = -theta1.cos() - (theta1 + theta2).cos();
        Some(format!("angles {theta1:.3} {theta2:.3}  speeds {w1:.3} {w2:.3}  height {height:.3} of 1\n"))
    }

    fn picture(&self) -> Option<Picture> {
        let mut p = Picture::new(9.0, 4.6);
        let (hinge, [a, b]) = ([4.5f32, 2.3f32], [self.state[0] as f32, (self.state[0] + self.state[1]) as f32]);
        let elbow = [hinge[0] + a.sin(), hinge[1] + a.cos()];
        let tip = [elbow[0] + b.sin(), elbow[1] + b.cos()];
        // The tip must get above this line, one link over the hinge.
        p.line([2.0, 1.3], [7.0, 1.3], 0.04, paint::GREEN);
        p.line(hinge, elbow, 0.2, paint::SLATE);
        p.line(elbow, tip, 0.2, paint::BLUE);
        [hinge, elbow].into_iter().for_each(|at| p.disc(at, 0.1, paint::INK));
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Energy of two links of mass 1, length 1, inertia 1 about their centres at 0.5, from first principles.
    fn energy([t1, t2, w1, w2]: [f64; 4]) -> f64 {
        let v2 = w1 * w1 + 0.25 * (w1 + w2) * (w1 + w2) + w1 * (w1 + w2) * t2.cos();
        let kinetic = 0.5 * 0.25 * w1 * w1 + 0.5 * w1 * w1 + 0.5 * v2 + 0.5 * (w1 + w2) * (w1 + w2);
        kinetic - 9.8 * (0.5 * t1.cos() + t1.cos() + 0.5 * (t1 + t2).cos())
    }

    #[test]
    fn power_is_torque_times_the_relative_speed() {
        let (s, h) = ([0.5, -0.3, 0.2, 0.7], 1e-6);
        for torque in [-1.0, 0.0, 1.0] {
            let d = derivative(s, torque);
            let moved = |h: f64| energy(std::array::from_fn(|i| s[i] + h * d[i]));
            assert!(((moved(h) - moved(-h)) / (2.0 * h) - torque * 0.7).abs() < 1e-7, "{torque}");
        }
    }

    #[test]
    fn the_step_is_of_fourth_order() {
        let s = [0.5, -0.3, 0.2, 0.7];
        let run = |n: u32| (0..n).fold(s, |s, _| rk4(s, 1.0, DT / f64::from(n)));
        let exact = run(200);
        let error = |n: u32| run(n).iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let ratio = error(2) / error(4);
        assert!((11.0..24.0).contains(&ratio), "halving the step divides the error by about 16: {ratio}");
    }

    #[test]
    fn the_height_ends_it_and_that_step_is_free() {
        let mut env = Acrobot::new();
        let mut obs = [0.0; 6];
        env.reset_into(Some(1), &mut obs);
        assert_eq!(env.step_into(&[1], &mut obs), Step { reward: -1.0, terminated: false, truncated: false });
        env.set_state(&[PI, 0.0, 0.0, 0.0]).unwrap();
        assert_eq!(env.step_into(&[1], &mut obs), Step { reward: 0.0, terminated: true, truncated: false });
    }

    #[test]
    fn pumping_reaches_the_height_within_the_limit() {
        let mut env = Acrobot::new();
        let mut obs = [0.0; 6];
        env.reset_into(Some(1), &mut obs);
        let steps = (1..=500).find(|_| {
            let push = i32::from(env.state[3] > 0.0) * 2;
            env.step_into(&[push], &mut obs).terminated
        });
        assert!(steps.is_some_and(|n| n < 300), "{steps:?}");
    }
}
