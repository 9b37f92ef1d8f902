//! MineSweeper: open every safe cell of a field that is never shown. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(min(m+1, 10))` = 3, 7, 10: mines in the 3×3 window of the opened cell, itself included; 0 at the start |
//! | action | `MultiDiscrete([d, d])`: row, column; d = 4, 6, 8 with m = 2, 6, 10 mines |
//! | reward | new safe cell +1/L, L = d²−m; a cell opened before −0.5/(L−2); a mine −0.5−1/L |
//! | end | terminated by a mine or when no safe cell is left; else truncated on step L = 14, 30, 54 |
//! | hidden | the mines, the cells opened and their counts; the first click can be a mine |
//! | legacy | truncated on step L+1 (releases before 1.0.7): one wasted click could be recovered |
//! | best play | about 0.77, 0.59 (exact least risk); random −0.23, −0.40, −0.43 |
#![doc = include_str!("../../docs/MineSweeper.md")]

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
pub struct MineSweeper {
    spec: EnvSpec,
    stream: Stream,
    size: usize,
    /// [d, d].
    mine: Vec<bool>,
    /// Mines in the 3×3 window, [d, d].
    count: Vec<u8>,
    /// [d, d].
    opened: Vec<bool>,
    n_mines: usize,
    n_opened: usize,
    time: usize,
    limit: usize,
}

impl MineSweeper {
    /// The task at a difficulty; `legacy` has one step more.
    pub fn new(level: Level, legacy: bool) -> Self {
        let (size, n_mines): (usize, usize) = level.pick([(4, 2), (6, 6), (8, 10)]);
        let cells = size * size;
        let (safe, limit) = (cells - n_mines, cells - n_mines + usize::from(legacy));
        let again = 0.5 / (safe - 2) as f64;
        // One new cell, repeats, and a mine on the last step.
        let worst = -0.5 - again * (limit - 2) as f64;
        let spec = EnvSpec {
            max_steps: Some(limit),
            hidden: "the mines, the cells opened so far and their counts".to_owned(),
            unit_reward: 1.0 / safe as f64,
            return_range: (worst, 1.0),
            // a click is judged at once
            prompt_rewards: true,
            suggested_gamma: Some(0.9),
            // which cells were opened is a sum over the episode
            suggested_rotate: true,
            // a mine under a cell that looks safe is chance: more of them to an update
            suggested_batch: Some(4),
            doc: "Open every safe cell of a mine field that is never shown.".to_owned(),
            ..spec(
                "MineSweeper",
                level,
                legacy,
                Space::Discrete((n_mines + 1).min(10)),
                Space::MultiDiscrete(vec![size; 2]),
            )
        };
        MineSweeper {
            spec,
            stream: Stream::default(),
            size,
            mine: vec![false; cells],
            count: vec![0; cells],
            opened: vec![false; cells],
            n_mines,
            n_opened: 0,
            time: 0,
            limit,
        }
    }

    fn start(&mut self, obs: &mut [u8]) {
        let d = self.size;
        for r in 0..d {
            for c in 0..d {
                let rows = r.saturating_sub(1)..(r + 2).min(d);
                let window = rows.flat_map(|i| (c.saturating_sub(1)..(c + 2).min(d)).map(move |j| i * d + j));
                self.count[r * d + c] = window.map(|i| u8::from(self.mine[i])).sum();
            }
        }
        self.opened.fill(false);
        self.n_opened = 0;
        self.time = 0;
        obs[0] = 0;
    }
}

impl Env for MineSweeper {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        let rng = self.stream.begin(seed);
        self.mine.fill(false);
        // Distinct uniform cells by drawing again: mines are few.
        let mut left = self.n_mines;
        while left > 0 {
            let cell = rng.random_range(0..self.mine.len());
            left -= usize::from(!std::mem::replace(&mut self.mine[cell], true));
        }
        self.start(obs);
    }

    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let cells = self.mine.len();
        let (safe, cell) =
            (cells - self.n_mines, (action[0].max(0) as usize * self.size + action[1].max(0) as usize) % cells);
        self.time += 1;
        obs[0] = self.count[cell];
        let unit = 1.0 / safe as f64;
        if self.mine[cell] {
            return Step { reward: -0.5 - unit, terminated: true, truncated: false };
        }
        let reward = if std::mem::replace(&mut self.opened[cell], true) {
            -0.5 / (safe - 2) as f64
        } else {
            self.n_opened += 1;
            unit
        };
        let terminated = self.n_opened == safe;
        Step { reward, terminated, truncated: !terminated && self.time >= self.limit }
    }

    fn hidden(&self) -> Value {
        let d = self.size;
        let mines: Vec<[usize; 2]> = (0..d * d).filter(|i| self.mine[*i]).map(|i| [i / d, i % d]).collect();
        json!({"size": d, "mines": mines})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let mut mine = vec![false; self.mine.len()];
        for (r, c) in hidden.pairs("mines", self.n_mines, self.size)? {
            if std::mem::replace(&mut mine[r * self.size + c], true) {
                return Err(hidden.error("mines", format!("({r}, {c}) twice"), "distinct cells"));
            }
        }
        self.mine = mine;
        self.start(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let cell = |i: usize| match (self.opened[i], self.mine[i]) {
            (true, _) => char::from(b'0' + self.count[i]),
            (false, true) => '*',
            (false, false) => '.',
        };
        let line = |r: usize| (0..self.size).map(|c| cell(r * self.size + c)).chain(['\n']).collect::<String>();
        Some((0..self.size).map(line).collect())
    }

    fn picture(&self) -> Option<Picture> {
        let mut p = Picture::board(self.size, self.size, |r, c| {
            let i = r * self.size + c;
            let open = self.opened[i];
            let mark = if open { self.count[i].to_string() } else { String::new() };
            (if open { paint::WHITE } else { paint::PALE }, mark, paint::BLUE)
        });
        for i in (0..self.mine.len()).filter(|i| self.mine[*i]) {
            p.disc([(i % self.size) as f32 + 0.5, (i / self.size) as f32 + 0.5], 0.25, paint::INK);
        }
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(legacy: bool) -> (MineSweeper, [u8; 1]) {
        let mut env = MineSweeper::new(Level::Easy, legacy);
        let mut obs = [9];
        env.reset_into(Some(0), &mut obs);
        env.set_hidden(&json!({"size": 4, "mines": [[2, 2], [3, 0]]}), &mut obs).unwrap();
        (env, obs)
    }

    #[test]
    fn counts_include_the_cell_itself() {
        let (mut env, mut obs) = started(false);
        assert_eq!(obs, [0]);
        assert_eq!(env.count, [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1]);
        assert_eq!(env.step_into(&[2, 1], &mut obs), Step { reward: 1.0 / 14.0, terminated: false, truncated: false });
        assert_eq!(obs, [2]);
        assert_eq!(env.step_into(&[2, 1], &mut obs).reward, -0.5 / 12.0);
        let boom = env.step_into(&[2, 2], &mut obs);
        assert_eq!((boom.reward, boom.terminated, obs[0]), (-0.5 - 1.0 / 14.0, true, 1));
    }

    #[test]
    fn clearing_everything_gets_one() {
        let (mut env, mut obs) = started(false);
        let safe: Vec<i32> = (0..16).filter(|i| *i != 10 && *i != 12).collect();
        let mut total = 0.0;
        for (n, i) in safe.iter().enumerate() {
            let step = env.step_into(&[i / 4, i % 4], &mut obs);
            // Clearing on step L is a win, not a time-out.
            assert_eq!((step.terminated, step.truncated), (n == 13, false));
            total += step.reward;
        }
        assert!((total - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_old_limit_is_one_step_later() {
        for (legacy, limit) in [(false, 14), (true, 15)] {
            let (mut env, mut obs) = started(legacy);
            let ends: Vec<bool> = (0..limit).map(|_| env.step_into(&[0, 0], &mut obs).truncated).collect();
            assert_eq!(ends.iter().position(|e| *e), Some(limit - 1), "legacy {legacy}");
        }
        assert_eq!(Level::ALL.map(|l| MineSweeper::new(l, false).limit), [14, 30, 54]);
        let alphabet = Level::ALL.map(|l| MineSweeper::new(l, false).spec.observation_space.n_actions());
        assert_eq!(alphabet, [Some(3), Some(7), Some(10)]);
    }
}
