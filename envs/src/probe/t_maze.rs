//! T-maze of any length, after Bakker ("Reinforcement learning with long short-term memory", 2002): a sign at the start
//! says which arm of the junction at the end of a corridor is right.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(4)`: 0 corridor, 1 start with sign "up", 2 start with sign "down", 3 junction |
//! | action | `Discrete(4)`: 0 forward, 1 up, 2 down, 3 back |
//! | reward | at the junction: the right arm +1, the wrong one −1; any other step that is not forward along the corridor −1/L |
//! | end | terminated by choosing an arm; truncated on step L = 2 × length + 16 |
//! | hidden | the sign, once the start is left |
//! | argument | `length`: steps from the start to the junction, 1 to 100,000, default 10 |
//! | best play | 1; without memory 0 |
//!
//! Back at the start the sign is read again. Forward at the junction is a bump.
#![doc = include_str!("../../docs/TMaze.md")]

use rand::RngExt;
use serde_json::{Value, json};

use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// Corridor length without an argument.
pub(crate) const DEFAULT_LENGTH: usize = 10;

/// The task.
#[derive(Debug, Clone)]
pub struct TMaze {
    spec: EnvSpec,
    stream: Stream,
    length: usize,
    limit: usize,
    up: bool,
    at: usize,
    time: usize,
}

impl TMaze {
    /// `length` steps lie between the start and the junction, at least 1.
    pub fn new(length: usize) -> Self {
        let length = length.max(1);
        let limit = 2 * length + 16;
        // All steps but the way and the choice bumped, then the wrong arm.
        let worst = -((limit - length - 1) as f64) / limit as f64 - 1.0;
        let spec = EnvSpec {
            max_steps: Some(limit),
            hidden: "the sign, once the start is left".to_owned(),
            return_range: (worst, 1.0),
            doc: format!("Read a sign, walk {length} steps, choose the arm it named."),
            ..EnvSpec::new("TMaze-v0", "TMaze", Space::Discrete(4), Space::Discrete(4))
        };
        TMaze { spec, stream: Stream::default(), length, limit, up: false, at: 0, time: 0 }
    }

    fn start(&mut self, up: bool, obs: &mut [u8]) {
        self.up = up;
        self.at = 0;
        self.time = 0;
        self.observe(obs);
    }

    fn observe(&self, obs: &mut [u8]) {
        obs[0] = match self.at {
            0 => 2 - u8::from(self.up),
            at if at == self.length => 3,
            _ => 0,
        };
    }
}

impl Env for TMaze {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        let up = self.stream.begin(seed).random();
        self.start(up, obs);
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        self.time += 1;
        let (junction, bump) = (self.at == self.length, -1.0 / self.limit as f64);
        let (reward, terminated) = match action[0] {
            1 | 2 if junction => (if (action[0] == 1) == self.up { 1.0 } else { -1.0 }, true),
            0 if !junction => {
                self.at += 1;
                (0.0, false)
            }
            3 => {
                self.at = self.at.saturating_sub(1);
                (bump, false)
            }
            _ => (bump, false),
        };
        self.observe(obs);
        Step { reward, terminated, truncated: self.time >= self.limit }
    }

    fn hidden(&self) -> Value {
        json!({"sign": if self.up { "up" } else { "down" }, "length": self.length})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let up = match hidden.get("sign")?.as_str() {
            Some("up") => true,
            Some("down") => false,
            _ => return Err(hidden.error("sign", hidden.get("sign")?, "\"up\" or \"down\"")),
        };
        let length = hidden.value.get("length");
        if let Some(found) = length.filter(|l| l.as_u64() != Some(self.length as u64)) {
            return Err(hidden.error("length", found, self.length));
        }
        self.start(up, obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let sign = if self.up { '^' } else { 'v' };
        // A long corridor is shown in 60 columns.
        let shown = self.length.min(60);
        let agent = self.at * shown / self.length;
        let walk: String = (0..=shown).map(|i| if i == agent { '@' } else { '.' }).collect();
        Some(format!("{}|\nsign {sign} {walk}\n{}|\n", " ".repeat(7 + shown), " ".repeat(7 + shown)))
    }

    fn picture(&self) -> Option<Picture> {
        // A long corridor is shown in 30 cells.
        let shown = self.length.min(30);
        let (agent, width) = (self.at * shown / self.length, shown as f32 + 1.0);
        let mut p = Picture::new(width.max(8.0), 3.4);
        let mut cell = |x: usize, row: f32, fill| p.rect([x as f32 + 0.03, row + 0.03], [0.94, 0.94], fill);
        (0..=shown).for_each(|x| cell(x, 1.0, if x == 0 { paint::GOLD } else { paint::PALE }));
        let right = if self.up { 0.0 } else { 2.0 };
        cell(shown, right, paint::GREEN);
        cell(shown, 2.0 - right, paint::SLATE);
        p.disc([agent as f32 + 0.5, 1.5], 0.3, paint::BLUE);
        let word = if self.up { "sign: up" } else { "sign: down" };
        p.text([0.05, 0.3], 0.4, word, paint::INK);
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(up: bool, length: usize) -> (TMaze, Vec<u8>) {
        let mut env = TMaze::new(length);
        let mut obs = [9];
        env.set_hidden(&json!({"sign": if up { "up" } else { "down" }}), &mut obs).unwrap();
        let mut seen = vec![obs[0]];
        for _ in 0..length {
            assert_eq!(env.step_into(&[0], &mut obs), Step::default());
            seen.push(obs[0]);
        }
        (env, seen)
    }

    #[test]
    fn the_sign_is_seen_once_and_decides() {
        for (up, right, wrong) in [(true, 1, 2), (false, 2, 1)] {
            let (mut env, seen) = walk(up, 3);
            assert_eq!(seen, [if up { 1 } else { 2 }, 0, 0, 3]);
            assert_eq!(
                env.clone().step_into(&[right], &mut [0]),
                Step { reward: 1.0, terminated: true, truncated: false }
            );
            assert_eq!(env.step_into(&[wrong], &mut [0]), Step { reward: -1.0, terminated: true, truncated: false });
        }
    }

    #[test]
    fn bumps_cost_and_time_runs_out() {
        let (mut env, _) = walk(true, 3);
        let mut obs = [9];
        assert_eq!(env.step_into(&[0], &mut obs).reward, -1.0 / 22.0, "forward at the junction");
        assert_eq!((env.step_into(&[3], &mut obs).reward, obs[0]), (-1.0 / 22.0, 0));
        assert_eq!((env.step_into(&[0], &mut obs).reward, obs[0]), (0.0, 3));
        let ends: Vec<bool> = (0..16).map(|_| env.step_into(&[0], &mut obs).truncated).collect();
        assert_eq!(ends.iter().position(|e| *e), Some(15));
    }

    #[test]
    fn the_longest_corridor_is_walked() {
        assert_eq!(walk(true, 100_000).1.last(), Some(&3));
    }
}
