//! CartPole with half of its state hidden: PositionOnly, NoisyPositionOnly and VelocityOnly. POPGym 1.0.7 over the
//! dynamics of `classic::cart_pole`.
//!
//! | | PositionOnly (once Stateless) | NoisyPositionOnly | VelocityOnly |
//! |---|---|---|---|
//! | observation | `Box` 2: x, θ | the same + noise of σ 0.1, 0.2, 0.3, clipped to the bounds, at reset too | `Box` 2: x', θ'; **x, θ at reset** |
//! | limit L | 200, 400, 600 | 200 | 200, 400, 600 |
//! | hidden | velocities | velocities, the noise | positions |
//!
//! Action `Discrete(2)`: 0 left, 1 right. Reward 1/L per step, the one that falls included. Terminated when
//! |x| > 2.4 or |θ| > 12°, truncated on step L; both may be set. Best play 1 (PositionOnly); random about 0.11, 0.06, 0.04.
//! VelocityOnly Easy and Medium are no test of memory: every start is close to the origin, and a linear rule of the two
//! velocities alone stands 400 steps (Hard: about 0.88; `tests/field_cases.rs` has the measurement).
//! That VelocityOnly shows positions at reset is the original's bug, kept for comparison; the argument
//! `velocity_at_reset = true` mends it.
#![doc = include_str!("../../docs/PositionOnlyCartPole.md")]
#![doc = include_str!("../../docs/NoisyPositionOnlyCartPole.md")]
#![doc = include_str!("../../docs/VelocityOnlyCartPole.md")]

use rand::RngExt;
use rand_distr::StandardNormal;
use serde_json::{Value, json};

use super::{Level, old_names, spec};
use crate::classic::cart_pole::{ANGLE_BOUND, CartPoleState, X_BOUND, finite, read_state};
use crate::env::{Env, EnvSpec, Step, erase};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::Picture;
use crate::registry::{ArgDoc, Entry};
use crate::seed::Stream;
use crate::space::Space;

#[derive(Debug, Clone, Copy, PartialEq)]
enum View {
    Position,
    Noisy { sigma: f64 },
    Velocity { at_reset: bool },
}

/// The three tasks.
#[derive(Debug, Clone)]
pub struct PartialCartPole {
    spec: EnvSpec,
    stream: Stream,
    view: View,
    start: CartPoleState,
    state: CartPoleState,
    time: usize,
    limit: usize,
    unit: f64,
}

impl PartialCartPole {
    /// Positions are shown.
    pub fn position_only(level: Level, legacy: bool) -> Self {
        let limit = level.pick([200, 400, 600]);
        let spec = EnvSpec {
            aliases: old_names("StatelessCartPole", level),
            hidden: "velocities".to_owned(),
            doc: "Balance a pole, seeing positions only.".to_owned(),
            ..spec("PositionOnlyCartPole", level, legacy, position_space(), Space::Discrete(2))
        };
        Self::with(spec, View::Position, limit)
    }

    /// Positions with noise are shown.
    pub fn noisy(level: Level, legacy: bool) -> Self {
        let sigma = level.pick([0.1, 0.2, 0.3]);
        let spec = EnvSpec {
            aliases: old_names("NoisyStatelessCartPole", level),
            hidden: "velocities and the noise on the positions".to_owned(),
            // the noise of single episodes is averaged away
            suggested_batch: Some(8),
            doc: format!("Balance a pole, seeing positions with noise of standard deviation {sigma}."),
            ..spec("NoisyPositionOnlyCartPole", level, legacy, position_space(), Space::Discrete(2))
        };
        Self::with(spec, View::Noisy { sigma }, 200)
    }

    /// Velocities are shown; `at_reset` false shows positions there, as the original does.
    pub fn velocity_only(level: Level, legacy: bool, at_reset: bool) -> Self {
        let limit = level.pick([200, 400, 600]);
        let open = Space::box_f32(&[f32::NEG_INFINITY; 2], &[f32::INFINITY; 2]);
        let spec = EnvSpec {
            // The original registers this one with a small p.
            id: format!("popgym-VelocityOnlyCartpole{level}-v0"),
            hidden: "positions".to_owned(),
            doc: "Balance a pole, seeing velocities only.".to_owned(),
            ..spec("VelocityOnlyCartPole", level, legacy, open, Space::Discrete(2))
        };
        Self::with(spec, View::Velocity { at_reset }, limit)
    }

    fn with(spec: EnvSpec, view: View, limit: usize) -> Self {
        let unit = 1.0 / limit as f64;
        let spec = EnvSpec { max_steps: Some(limit), unit_reward: unit, return_range: (0.0, 1.0), ..spec };
        let zero = CartPoleState::default();
        PartialCartPole { spec, stream: Stream::default(), view, start: zero, state: zero, time: 0, limit, unit }
    }

    fn begin(&mut self, state: CartPoleState, obs: &mut [f32]) {
        self.start = state;
        self.state = state;
        self.time = 0;
        self.observe(obs);
    }

    #[inline]
    fn observe(&mut self, obs: &mut [f32]) {
        let s = self.state;
        let shown = match self.view {
            View::Position => [s.x as f32, s.theta as f32],
            View::Velocity { at_reset: false } if self.time == 0 => [s.x as f32, s.theta as f32],
            View::Velocity { .. } => [s.x_dot as f32, s.theta_dot as f32],
            View::Noisy { sigma } => {
                let rng = self.stream.rng();
                let mut noise = || rng.sample::<f64, _>(StandardNormal) * sigma;
                let (x, theta) = ((s.x + noise()) as f32, (s.theta + noise()) as f32);
                [x.clamp(-X_BOUND, X_BOUND), theta.clamp(-ANGLE_BOUND, ANGLE_BOUND)]
            }
        };
        obs.copy_from_slice(&shown);
    }
}

fn position_space() -> Space {
    Space::box_f32(&[-X_BOUND, -ANGLE_BOUND], &[X_BOUND, ANGLE_BOUND])
}

/// VelocityOnly with its argument, three difficulties.
pub(super) fn velocity_entries() -> Vec<Entry> {
    let arg =
        ArgDoc { name: "velocity_at_reset", doc: "show velocities at reset too (default false, as the original)" };
    let entry = |level| {
        let spec = PartialCartPole::velocity_only(level, false, false).spec;
        let id = spec.id.clone();
        Entry::new(spec, vec![arg.clone()], move |a| {
            let at_reset = a.flag(&id, "velocity_at_reset", false)?;
            Ok(erase(PartialCartPole::velocity_only(level, a.legacy, at_reset)))
        })
    };
    Level::ALL.map(entry).into()
}

impl Env for PartialCartPole {
    type Obs = f32;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [f32]) {
        let state = CartPoleState::start(self.stream.begin(seed));
        self.begin(state, obs);
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [f32]) -> Step {
        self.state.step(action[0] == 1);
        self.time += 1;
        self.observe(obs);
        Step { reward: self.unit, terminated: self.state.fallen(), truncated: self.time >= self.limit }
    }

    fn hidden(&self) -> Value {
        json!({"state": self.start.to_array(), "limit": self.limit})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [f32]) -> Result<()> {
        let state = read_state(&Hidden { env: &self.spec.name, value: hidden }, self.limit)?;
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

    const STATE: [f64; 4] = [0.01, -0.02, 0.03, -0.04];

    fn first(mut env: PartialCartPole) -> [f32; 2] {
        let mut obs = [0.0; 2];
        env.reset_into(Some(1), &mut obs);
        env.set_hidden(&json!({"state": STATE}), &mut obs).unwrap();
        obs
    }

    #[test]
    fn what_is_shown_at_reset() {
        assert_eq!(first(PartialCartPole::position_only(Level::Easy, false)), [0.01, 0.03]);
        assert_eq!(
            first(PartialCartPole::velocity_only(Level::Easy, false, false)),
            [0.01, 0.03],
            "the original's bug"
        );
        assert_eq!(first(PartialCartPole::velocity_only(Level::Easy, false, true)), [-0.02, -0.04]);
    }

    #[test]
    fn noise_has_the_stated_deviation_and_is_clipped() {
        let mut env = PartialCartPole::noisy(Level::Medium, false);
        let (mut obs, mut x, mut clipped) = ([0.0; 2], Vec::new(), 0);
        env.reset_into(Some(1), &mut obs);
        for _ in 0..20_000 {
            env.set_hidden(&json!({"state": [0.0, 0.0, 0.0, 0.0]}), &mut obs).unwrap();
            x.push(f64::from(obs[0]));
            clipped += usize::from(obs[1].abs() == ANGLE_BOUND);
        }
        let n = x.len() as f64;
        let (mean, square) = (x.iter().sum::<f64>() / n, x.iter().map(|v| v * v).sum::<f64>() / n);
        assert!(mean.abs() < 5.0 * 0.2 / n.sqrt() && (square.sqrt() - 0.2).abs() < 0.005, "{mean} {square}");
        // P(|noise| > 0.41888) = 3.6 % at σ 0.2.
        assert!((600..850).contains(&clipped), "{clipped}");
    }

    #[test]
    fn rewards_and_limits() {
        for (env, limit) in [
            (PartialCartPole::position_only(Level::Hard, false), 600),
            (PartialCartPole::noisy(Level::Hard, false), 200),
            (PartialCartPole::velocity_only(Level::Medium, false, false), 400),
        ] {
            let (mut env, mut obs) = (env, [0.0; 2]);
            env.reset_into(Some(1), &mut obs);
            for t in 1..=limit {
                env.set_state(&[0.0; 4]).unwrap();
                let step = env.step_into(&[t % 2], &mut obs);
                assert_eq!(step, Step { reward: 1.0 / f64::from(limit), terminated: false, truncated: t == limit });
            }
            env.set_state(&[0.0, 0.0, 0.25, 0.0]).unwrap();
            assert!(env.step_into(&[0], &mut obs).terminated);
        }
    }
}
