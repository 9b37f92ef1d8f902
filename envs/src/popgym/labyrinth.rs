//! LabyrinthEscape and LabyrinthExplore: find the way out of a maze, or see all of it. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `MultiDiscrete([5; 10])`: 9 codes of the 3×3 view (0 free, 1 wall, 2 start, 3 goal), then the action taken, 4 at reset |
//! | action | `Discrete(4)`: 0 left, 1 right, 2 up, 3 down; walls stop the move |
//! | Escape | −1/1024 per step; at the goal 1 − 1/1024 and terminated |
//! | Explore | +1/F for a free cell never entered before (F = 49, 97, 161 as a rule; the start does not count), else −1/1024; terminated when all are seen |
//! | end | truncated on step 1023; both flags may be set |
//! | hidden | the maze beyond the view, and where one is |
//! | best play | Escape about 0.979, 0.964, 0.949 with the map known; random −0.41, −0.83, −0.97; Explore random −0.34, −0.62, −0.75 |
//!
//! The grid has 11, 15, 19 cells a side. The original warns that mazes are solvable without memory: they are no
//! evidence of one. At the top and left border the view is shifted (see `maze`).
#![doc = include_str!("../../docs/LabyrinthEscape.md")]
#![doc = include_str!("../../docs/LabyrinthExplore.md")]

use serde_json::{Value, json};

use super::maze::{FREE, GOAL, Maze, START, WALL};
use super::{Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

const LIMIT: usize = 1023;
const STEP_COST: f64 = -1.0 / 1024.0;

/// Both tasks.
#[derive(Debug, Clone)]
pub struct Labyrinth {
    spec: EnvSpec,
    stream: Stream,
    escape: bool,
    maze: Maze,
    at: (usize, usize),
    /// Cells entered, `[G, G]`; Explore alone.
    seen: Vec<bool>,
    unseen: usize,
    free: usize,
    time: usize,
}

impl Labyrinth {
    /// Find the goal.
    pub fn escape(level: Level, legacy: bool) -> Self {
        let spec = EnvSpec {
            return_range: (LIMIT as f64 * STEP_COST, 1.0 + STEP_COST),
            doc: "Find the way out of a maze, seeing 3×3 cells.".to_owned(),
            ..base("LabyrinthEscape", level, legacy)
        };
        Self::with(spec, level, true)
    }

    /// See every cell.
    pub fn explore(level: Level, legacy: bool) -> Self {
        let rooms: usize = level.pick([5, 7, 9]);
        let spec = EnvSpec {
            return_range: (LIMIT as f64 * STEP_COST, 1.0),
            unit_reward: 1.0 / (2 * rooms * rooms - 1) as f64,
            doc: "Walk through all of a maze, seeing 3×3 cells.".to_owned(),
            ..base("LabyrinthExplore", level, legacy)
        };
        Self::with(spec, level, false)
    }

    fn with(spec: EnvSpec, level: Level, escape: bool) -> Self {
        let maze = Maze::new(level.pick([5, 7, 9]));
        let cells = maze.cells.len();
        let stream = Stream::default();
        Labyrinth { spec, stream, escape, maze, at: (0, 0), seen: vec![false; cells], unseen: 0, free: 0, time: 0 }
    }

    fn start(&mut self, obs: &mut [u8]) {
        self.at = self.maze.start;
        self.seen.fill(false);
        self.seen[self.at.0 * self.maze.side + self.at.1] = true;
        self.free = self.maze.cells.iter().filter(|c| **c == FREE).count();
        self.unseen = self.free;
        self.time = 0;
        self.observe(4, obs);
    }

    #[inline]
    fn observe(&self, action: u8, obs: &mut [u8]) {
        self.maze.view(self.at, &mut obs[..9]);
        obs[9] = action;
    }
}

fn base(family: &str, level: Level, legacy: bool) -> EnvSpec {
    EnvSpec {
        max_steps: Some(LIMIT),
        hidden: "the maze beyond the view, and the own place in it".to_owned(),
        ..spec(family, level, legacy, Space::MultiDiscrete(vec![5; 10]), Space::Discrete(4))
    }
}

impl Env for Labyrinth {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        self.maze.generate(self.escape, self.stream.begin(seed));
        self.start(obs);
    }

    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        self.time += 1;
        self.at = self.maze.go(self.at, action[0]);
        self.observe(action[0].clamp(0, 3) as u8, obs);
        let truncated = self.time >= LIMIT;
        if self.escape {
            let out = self.maze.at(self.at.0, self.at.1) == GOAL;
            return Step { reward: if out { 1.0 + STEP_COST } else { STEP_COST }, terminated: out, truncated };
        }
        let new = !std::mem::replace(&mut self.seen[self.at.0 * self.maze.side + self.at.1], true);
        self.unseen = self.unseen.saturating_sub(usize::from(new));
        let reward = if new { 1.0 / self.free.max(1) as f64 } else { STEP_COST };
        Step { reward, terminated: self.unseen == 0, truncated }
    }

    fn hidden(&self) -> Value {
        let rows: Vec<&[u8]> = self.maze.cells.chunks(self.maze.side).collect();
        json!({"grid": rows, "start": [self.maze.start.0, self.maze.start.1]})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let side = self.maze.side;
        let cells: Vec<u8> = hidden.grid("grid", side, side, 4)?.into_iter().map(|c| c as u8).collect();
        let start = hidden.indices("start", 2, side)?;
        let of = |code| cells.iter().filter(|c| **c == code).count();
        if cells[start[0] * side + start[1]] != START || of(START) != 1 {
            return Err(hidden.error("start", format!("{start:?}"), "the one cell of code 2"));
        }
        if of(GOAL) != usize::from(self.escape) {
            return Err(hidden.error("grid", format!("{} goals", of(GOAL)), usize::from(self.escape)));
        }
        self.maze.cells = cells;
        self.maze.start = (start[0], start[1]);
        self.start(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let side = self.maze.side;
        let cell = |i: usize| match self.maze.cells[i] {
            _ if i == self.at.0 * side + self.at.1 => '@',
            WALL => '#',
            START => 's',
            GOAL => 'x',
            _ if !self.escape && self.seen[i] => '.',
            _ => ' ',
        };
        let line = |r: usize| (0..side).map(|c| cell(r * side + c)).chain(['\n']).collect::<String>();
        Some((0..side).map(line).collect())
    }

    fn picture(&self) -> Option<Picture> {
        let side = self.maze.side;
        let mut p = Picture::board(side, side, |r, c| {
            let i = r * side + c;
            let fill = match self.maze.cells[i] {
                WALL => paint::SLATE,
                START => paint::PALE,
                GOAL => paint::GREEN,
                _ if !self.escape && self.seen[i] => paint::GOLD,
                _ => paint::WHITE,
            };
            (fill, String::new(), paint::INK)
        });
        p.disc([self.at.1 as f32 + 0.5, self.at.0 as f32 + 0.5], 0.32, paint::BLUE);
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 11×11 with one corridor: start (1,0), cells (1,1)..(1,9), goal (1,10) where asked.
    fn corridor(goal: bool) -> Value {
        let mut grid = vec![vec![1; 11]; 11];
        (1..10).for_each(|c| grid[1][c] = 0);
        grid[1][0] = 2;
        if goal {
            grid[1][10] = 3;
        }
        json!({"grid": grid, "start": [1, 0]})
    }

    #[test]
    fn escape_by_hand() {
        let mut env = Labyrinth::escape(Level::Easy, false);
        let mut obs = [9; 10];
        env.set_hidden(&corridor(true), &mut obs).unwrap();
        assert_eq!(obs, [1, 1, 1, 2, 0, 1, 1, 1, 1, 4]);
        let bump = env.step_into(&[2], &mut obs);
        assert_eq!((bump.reward, env.at, obs[9]), (-1.0 / 1024.0, (1, 0), 2));
        for n in 1..=10 {
            let step = env.step_into(&[1], &mut obs);
            let reward = if n == 10 { 1.0 - 1.0 / 1024.0 } else { -1.0 / 1024.0 };
            assert_eq!(step, Step { reward, terminated: n == 10, truncated: false });
        }
    }

    #[test]
    fn explore_pays_each_cell_once() {
        let mut env = Labyrinth::explore(Level::Easy, false);
        let mut obs = [9; 10];
        env.set_hidden(&corridor(false), &mut obs).unwrap();
        assert_eq!(env.step_into(&[1], &mut obs).reward, 1.0 / 9.0);
        assert_eq!(env.step_into(&[0], &mut obs).reward, -1.0 / 1024.0, "the start does not count");
        assert_eq!(env.step_into(&[1], &mut obs).reward, -1.0 / 1024.0, "nor a cell seen before");
        let ends: Vec<bool> = (0..8).map(|_| env.step_into(&[1], &mut obs).terminated).collect();
        assert_eq!(ends, [false, false, false, false, false, false, false, true]);
    }

    #[test]
    fn time_runs_out_on_step_1023() {
        let mut env = Labyrinth::escape(Level::Hard, false);
        let mut obs = [9; 10];
        env.reset_into(Some(1), &mut obs);
        let out = env.maze.start;
        // Walk into the border for ever.
        let into = if out.0 == 0 {
            2
        } else if out.1 == 0 {
            0
        } else if out.1 == env.maze.side - 1 {
            1
        } else {
            3
        };
        for t in 1..=1023 {
            let step = env.step_into(&[into], &mut obs);
            assert_eq!((step.terminated, step.truncated), (false, t == 1023));
        }
    }
}
