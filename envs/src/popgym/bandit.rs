//! MultiarmedBandit: find the best of K arms. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(2)`: 1 after a win; 0 after a loss and at the start; the arm is not shown |
//! | action | `Discrete(K)`, K = 10, 20, 30 |
//! | reward | win +1/L, loss −1/L; arm a wins with its own probability, drawn uniform on [0, 1) at reset |
//! | end | truncated on step L = 200, 400, 600 |
//! | hidden | the arms' probabilities |
//! | best play | about 0.66, 0.73, 0.77 (Thompson sampling); always the best arm 0.82, 0.90, 0.94; random 0 |
#![doc = include_str!("../../docs/MultiarmedBandit.md")]

use rand::RngExt;
use serde_json::{Value, json};

use super::{Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct MultiarmedBandit {
    spec: EnvSpec,
    stream: Stream,
    probabilities: Vec<f64>,
    time: usize,
    limit: usize,
}

impl MultiarmedBandit {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let (arms, limit) = level.pick([(10, 200), (20, 400), (30, 600)]);
        let spec = EnvSpec {
            max_steps: Some(limit),
            hidden: "the arms' win probabilities".to_owned(),
            unit_reward: 1.0 / limit as f64,
            prompt_rewards: true,
            // far enough to try arms, near enough to learn soon
            suggested_gamma: Some(0.9),
            // wins and losses are to be counted over hundreds of steps
            suggested_rotate: true,
            // a win is a throw of a coin: more of them to an update
            suggested_batch: Some(4),
            doc: "Find and pull the best arm.".to_owned(),
            ..spec("MultiarmedBandit", level, legacy, Space::Discrete(2), Space::Discrete(arms))
        };
        MultiarmedBandit { spec, stream: Stream::default(), probabilities: vec![0.0; arms], time: 0, limit }
    }
}

impl Env for MultiarmedBandit {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        let rng = self.stream.begin(seed);
        self.probabilities.fill_with(|| rng.random());
        self.time = 0;
        obs[0] = 0;
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let p = usize::try_from(action[0]).ok().and_then(|a| self.probabilities.get(a)).copied().unwrap_or(0.0);
        let win = self.stream.rng().random::<f64>() < p;
        self.time += 1;
        obs[0] = u8::from(win);
        let unit = 1.0 / self.limit as f64;
        Step { reward: if win { unit } else { -unit }, terminated: false, truncated: self.time >= self.limit }
    }

    fn hidden(&self) -> Value {
        json!({"probabilities": self.probabilities})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let p = hidden.floats("probabilities", Some(self.probabilities.len()))?;
        if let Some(bad) = p.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return Err(hidden.error("probabilities", bad, "numbers from 0 to 1"));
        }
        self.probabilities = p;
        self.time = 0;
        obs[0] = 0;
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let arm = |(i, p): (usize, &f64)| format!("{i:2} {:5.2} {}\n", p, "#".repeat((p * 40.0) as usize));
        Some(self.probabilities.iter().enumerate().map(arm).collect())
    }

    fn picture(&self) -> Option<Picture> {
        let n = self.probabilities.len() as f32;
        let mut p = Picture::new(n, n / 2.0);
        let best = self.probabilities.iter().copied().fold(0.0, f64::max);
        for (i, &chance) in self.probabilities.iter().enumerate() {
            let (x, tall) = (i as f32 + 0.1, chance as f32 * (n / 2.0 - 0.6));
            let fill = if chance == best { paint::GOLD } else { paint::SLATE };
            p.rect([x, n / 2.0 - 0.5 - tall], [0.8, tall], fill);
            p.centred([x + 0.4, n / 2.0 - 0.2], 0.3, i.to_string(), paint::INK);
        }
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sure_arm_wins_a_hopeless_one_loses_and_the_limit_truncates() {
        let mut env = MultiarmedBandit::new(Level::Easy, false);
        let mut obs = [9];
        env.reset_into(Some(0), &mut obs);
        let mut p = vec![0.0; 10];
        p[3] = 1.0;
        env.set_hidden(&json!({"probabilities": p}), &mut obs).unwrap();
        assert_eq!(obs, [0]);
        for t in 1..=200 {
            let arm = if t % 2 == 0 { 3 } else { 4 };
            let step = env.step_into(&[arm], &mut obs);
            assert_eq!((step.reward, obs[0]), if arm == 3 { (0.005, 1) } else { (-0.005, 0) });
            assert_eq!((step.terminated, step.truncated), (false, t == 200));
        }
    }

    #[test]
    fn wins_come_at_the_arm_s_rate() {
        let mut env = MultiarmedBandit::new(Level::Hard, false);
        let mut obs = [0];
        env.reset_into(Some(11), &mut obs);
        let mut p = vec![0.0; 30];
        p[29] = 0.3;
        env.set_hidden(&json!({"probabilities": p}), &mut obs).unwrap();
        let wins = (0..20_000).filter(|_| env.step_into(&[29], &mut obs).reward > 0.0).count() as f64 / 20_000.0;
        assert!((wins - 0.3).abs() < 5.0 * (0.3f64 * 0.7 / 20_000.0).sqrt(), "{wins}");
    }
}
