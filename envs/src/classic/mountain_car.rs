//! MountainCar-v0 and MountainCarContinuous-v0 (Moore, 1990), dynamics of Gymnasium 1.4.
//!
//! v' = clip(v + force − 0.0025 cos(3 x)),  x' = clip(x + v'); at the left wall the speed is 0. Start x in [−0.6,
//! −0.4], v 0.
//!
//! | | MountainCar-v0 | MountainCarContinuous-v0 |
//! |---|---|---|
//! | observation | `Box` 2: position [−1.2, 0.6], speed ±0.07 | the same |
//! | action | `Discrete(3)`: force −0.001, 0, 0.001 | `Box` 1 in ±1, force 0.0015 × action |
//! | reward | −1 per step | −0.1 action², +100 at the goal |
//! | end | terminated at x ≥ 0.5, v ≥ 0; truncated on step 200 | x ≥ 0.45; 999 |
//! | hidden | nothing | nothing |
//! | best play | about −100 | about 94 |
#![doc = include_str!("../../docs/MountainCar.md")]
#![doc = include_str!("../../docs/MountainCarContinuous.md")]

use rand::{Rng, RngExt};
use serde_json::{Value, json};

use super::cart_pole::{finite, read_state};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// Position and speed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Car {
    x: f64,
    v: f64,
}

impl Car {
    fn start(rng: &mut impl Rng) -> Self {
        Car { x: rng.random_range(-0.6..=-0.4), v: 0.0 }
    }

    fn step(&mut self, force: f64) {
        self.v = (self.v + force - 0.0025 * (3.0 * self.x).cos()).clamp(-0.07, 0.07);
        self.x = (self.x + self.v).clamp(-1.2, 0.6);
        if self.x == -1.2 && self.v < 0.0 {
            self.v = 0.0;
        }
    }

    /// The valley, as high as sin 3x, and the flag at 0.5.
    fn drawing(self) -> Picture {
        let at = |x: f64, lift: f32| [(x + 1.2) as f32, 0.75 - 0.45 * (3.0 * x).sin() as f32 - lift];
        let mut p = Picture::new(1.8, 1.3);
        for i in 0..60 {
            let x = -1.2 + 0.03 * f64::from(i);
            p.line(at(x, 0.0), at(x + 0.03, 0.0), 0.015, paint::SLATE);
        }
        p.line(at(0.5, 0.0), at(0.5, 0.2), 0.012, paint::INK);
        let top = at(0.5, 0.2);
        p.polygon(&[top, [top[0] + 0.1, top[1] + 0.04], [top[0], top[1] + 0.08]], paint::GREEN);
        p.disc(at(self.x, 0.045), 0.04, paint::BLUE);
        p
    }

    fn picture(self) -> String {
        let column = ((self.x + 1.2) / 1.8 * 40.0).round() as usize;
        format!("{}o\n{}^ goal\nx {:.3}  v {:.4}\n", " ".repeat(column), " ".repeat(38), self.x, self.v)
    }
}

fn space() -> Space {
    Space::box_f32(&[-1.2, -0.07], &[0.6, 0.07])
}

/// What both tasks do alike around their own step.
macro_rules! shared {
    ($limit:expr) => {
        fn spec(&self) -> &EnvSpec {
            &self.spec
        }

        fn reset_into(&mut self, seed: Option<u64>, obs: &mut [f32]) {
            let car = Car::start(self.stream.begin(seed));
            self.begin(car, obs);
        }

        fn hidden(&self) -> Value {
            json!({"state": [self.start.x, self.start.v], "limit": $limit})
        }

        fn set_hidden(&mut self, hidden: &Value, obs: &mut [f32]) -> Result<()> {
            let [x, v] = read_state(&Hidden { env: &self.spec.name, value: hidden }, $limit)?;
            self.begin(Car { x: x.clamp(-1.2, 0.6), v: v.clamp(-0.07, 0.07) }, obs);
            Ok(())
        }

        fn state(&self) -> Option<Vec<f64>> {
            Some(vec![self.car.x, self.car.v])
        }

        fn set_state(&mut self, state: &[f64]) -> Result<()> {
            let [x, v] = finite(&Hidden { env: &self.spec.name, value: &Value::Null }, state)?;
            self.car = Car { x, v };
            Ok(())
        }

        fn render_text(&self) -> Option<String> {
            Some(self.car.picture())
        }

        fn picture(&self) -> Option<Picture> {
            Some(self.car.drawing())
        }
    };
}

macro_rules! task {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            spec: EnvSpec,
            stream: Stream,
            start: Car,
            car: Car,
            time: usize,
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $name {
            fn begin(&mut self, car: Car, obs: &mut [f32]) {
                self.start = car;
                self.car = car;
                self.time = 0;
                self.observe(obs);
            }

            fn observe(&self, obs: &mut [f32]) {
                obs.copy_from_slice(&[self.car.x as f32, self.car.v as f32]);
            }
        }
    };
}

task! {
    /// MountainCar-v0.
    MountainCar
}
task! {
    /// MountainCarContinuous-v0.
    MountainCarContinuous
}

const LIMIT: usize = 200;
const LIMIT_CONTINUOUS: usize = 999;

impl MountainCar {
    /// The task.
    pub fn new() -> Self {
        let spec = EnvSpec {
            max_steps: Some(LIMIT),
            return_range: (-(LIMIT as f64), 0.0),
            doc: "Drive a weak car out of a valley.".to_owned(),
            ..EnvSpec::new("MountainCar-v0", "MountainCar", space(), Space::Discrete(3))
        };
        MountainCar { spec, stream: Stream::default(), start: Car::default(), car: Car::default(), time: 0 }
    }
}

impl MountainCarContinuous {
    /// The task.
    pub fn new() -> Self {
        let spec = EnvSpec {
            max_steps: Some(LIMIT_CONTINUOUS),
            return_range: (-0.1 * LIMIT_CONTINUOUS as f64, 100.0),
            doc: "Drive a weak car out of a valley, saving force.".to_owned(),
            ..EnvSpec::new(
                "MountainCarContinuous-v0",
                "MountainCarContinuous",
                space(),
                Space::box_f32(&[-1.0], &[1.0]),
            )
        };
        MountainCarContinuous { spec, stream: Stream::default(), start: Car::default(), car: Car::default(), time: 0 }
    }
}

impl Env for MountainCar {
    type Obs = f32;
    type Act = i32;

    fn step_into(&mut self, action: &[i32], obs: &mut [f32]) -> Step {
        self.car.step(f64::from(action[0] - 1) * 0.001);
        self.time += 1;
        self.observe(obs);
        let terminated = self.car.x >= 0.5 && self.car.v >= 0.0;
        Step { reward: -1.0, terminated, truncated: self.time >= LIMIT }
    }

    shared!(LIMIT);
}

impl Env for MountainCarContinuous {
    type Obs = f32;
    type Act = f32;

    fn step_into(&mut self, action: &[f32], obs: &mut [f32]) -> Step {
        let a = f64::from(action[0]);
        self.car.step(a.clamp(-1.0, 1.0) * 0.0015);
        self.time += 1;
        self.observe(obs);
        let terminated = self.car.x >= 0.45 && self.car.v >= 0.0;
        let reward = if terminated { 100.0 } else { 0.0 } - 0.1 * a * a;
        Step { reward, terminated, truncated: self.time >= LIMIT_CONTINUOUS }
    }

    shared!(LIMIT_CONTINUOUS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_and_the_wall_by_hand() {
        let mut car = Car { x: -0.5, v: 0.0 };
        car.step(0.001);
        let v = 0.001 - 0.0025 * (-1.5f64).cos();
        assert!((car.v - v).abs() < 1e-15 && (car.x - (-0.5 + v)).abs() < 1e-15);
        let mut car = Car { x: -1.19, v: -0.06 };
        car.step(-0.001);
        assert_eq!((car.x, car.v), (-1.2, 0.0));
    }

    #[test]
    fn pushing_with_the_motion_gets_out() {
        let mut env = MountainCar::new();
        let mut obs = [0.0; 2];
        env.reset_into(Some(1), &mut obs);
        let steps = (1..=200).find(|_| {
            let push = if obs[1] < 0.0 { 0 } else { 2 };
            let step = env.step_into(&[push], &mut obs);
            assert_eq!(step.reward, -1.0);
            step.terminated
        });
        assert!(steps.is_some_and(|n| (90..180).contains(&n)), "{steps:?}");
        let mut env = MountainCarContinuous::new();
        env.reset_into(Some(1), &mut obs);
        let mut total = 0.0;
        for _ in 0..999 {
            let step = env.step_into(&[if obs[1] < 0.0 { -1.0 } else { 1.0 }], &mut obs);
            total += step.reward;
            if step.terminated {
                assert!((step.reward - 99.9).abs() < 1e-12);
                break;
            }
        }
        assert!(total > 80.0, "{total}");
    }
}
