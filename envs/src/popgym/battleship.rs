//! Battleship: sink four ships on a board that is never shown. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(2)`: 1 after a hit, else 0; the cell is not shown |
//! | action | `MultiDiscrete(`[B, B]`)`: row, column; B = 8, 10, 12 |
//! | reward | hit +1/12; water or a cell guessed before −1/(B²−12) |
//! | end | terminated when all 12 ship cells are hit; truncated on step B²; both may be set |
//! | hidden | the ships, of lengths 2, 3, 3, 4; the cells guessed so far |
//! | best play | about 0.53, 0.57, 0.60 (placement densities); a fixed sweep 0.17; random −0.45, −0.42, −0.40 |
#![doc = include_str!("../../docs/Battleship.md")]

use rand::{Rng, RngExt};
use serde_json::{Value, json};

use super::{Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

const SHIPS: [usize; 4] = [2, 3, 3, 4];
const SHIP_CELLS: usize = 12;

/// The task.
#[derive(Debug, Clone)]
pub struct Battleship {
    spec: EnvSpec,
    stream: Stream,
    size: usize,
    /// 1 where a ship lies, `[B, B]`.
    board: Vec<u8>,
    /// Cells guessed before, `[B, B]`.
    guessed: Vec<bool>,
    hits: usize,
    time: usize,
}

impl Battleship {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let size: usize = level.pick([8, 10, 12]);
        let cells = size * size;
        let worst = -(cells as f64) / (cells - SHIP_CELLS) as f64;
        let spec = EnvSpec {
            max_steps: Some(cells),
            hidden: "the ships and the cells guessed so far".to_owned(),
            unit_reward: 1.0 / SHIP_CELLS as f64,
            return_range: (worst, 1.0),
            doc: "Sink four ships on a board that is never shown.".to_owned(),
            ..spec("Battleship", level, legacy, Space::Discrete(2), Space::MultiDiscrete(vec![size; 2]))
        };
        Battleship {
            spec,
            stream: Stream::default(),
            size,
            board: vec![0; cells],
            guessed: vec![false; cells],
            hits: 0,
            time: 0,
        }
    }

    fn start(&mut self, obs: &mut [u8]) {
        self.guessed.fill(false);
        self.hits = 0;
        self.time = 0;
        obs[0] = 0;
    }
}

/// Ship by ship: uniform start cell, axis and direction, drawn again while it leaves the board or overlaps. Touching is
/// fine.
fn place(board: &mut [u8], size: usize, rng: &mut impl Rng) {
    board.fill(0);
    for length in SHIPS {
        loop {
            let (row, column) = (rng.random_range(0..size), rng.random_range(0..size));
            let (along_rows, forward): (bool, bool) = (rng.random(), rng.random());
            let from = if along_rows { row } else { column };
            let low = if forward { Some(from) } else { (from + 1).checked_sub(length) };
            let Some(low) = low.filter(|l| l + length <= size) else { continue };
            let cell = |i: usize| if along_rows { (low + i) * size + column } else { row * size + low + i };
            if (0..length).all(|i| board[cell(i)] == 0) {
                (0..length).for_each(|i| board[cell(i)] = 1);
                break;
            }
        }
    }
}

impl Env for Battleship {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        place(&mut self.board, self.size, self.stream.begin(seed));
        self.start(obs);
    }

    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let cells = self.board.len();
        let cell = (action[0].max(0) as usize * self.size + action[1].max(0) as usize) % cells;
        let hit = self.board[cell] == 1 && !self.guessed[cell];
        self.guessed[cell] = true;
        self.hits += usize::from(hit);
        self.time += 1;
        obs[0] = u8::from(hit);
        let reward = if hit { 1.0 / SHIP_CELLS as f64 } else { -1.0 / (cells - SHIP_CELLS) as f64 };
        Step { reward, terminated: self.hits == SHIP_CELLS, truncated: self.time >= cells }
    }

    fn hidden(&self) -> Value {
        json!({"board": self.board.chunks(self.size).collect::<Vec<_>>()})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let board = hidden.grid("board", self.size, self.size, 2)?;
        let ships: usize = board.iter().sum();
        if ships != SHIP_CELLS {
            return Err(hidden.error("board", format!("{ships} ship cells"), SHIP_CELLS));
        }
        self.board = board.into_iter().map(|c| c as u8).collect();
        self.start(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let cell = |i: usize| match (self.board[i] == 1, self.guessed[i]) {
            (true, true) => 'X',
            (false, true) => 'o',
            (true, false) => '#',
            (false, false) => '.',
        };
        let line = |r: usize| (0..self.size).map(|c| cell(r * self.size + c)).chain(['\n']).collect::<String>();
        Some((0..self.size).map(line).collect())
    }

    fn picture(&self) -> Option<Picture> {
        let cell = |r: usize, c: usize| match (self.board[r * self.size + c] == 1, self.guessed[r * self.size + c]) {
            (true, true) => (paint::RED, "X".to_owned(), paint::WHITE),
            (true, false) => (paint::SLATE, String::new(), paint::INK),
            (false, true) => (paint::PALE, "O".to_owned(), paint::INK),
            (false, false) => (paint::PALE, String::new(), paint::INK),
        };
        Some(Picture::board(self.size, self.size, cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_misses_and_ends_by_hand() {
        let mut env = Battleship::new(Level::Easy, false);
        let mut obs = [0];
        env.reset_into(Some(2), &mut obs);
        let board = env.board.clone();
        let ship = board.iter().position(|c| *c == 1).unwrap();
        let at = |i: usize| [(i / 8) as i32, (i % 8) as i32];
        assert_eq!(env.step_into(&at(ship), &mut obs).reward, 1.0 / 12.0);
        assert_eq!(obs, [1]);
        assert_eq!(env.step_into(&at(ship), &mut obs).reward, -1.0 / 52.0, "a hit cell again is a miss");
        assert_eq!(obs, [0]);
        let rest: Vec<usize> = (0..64).filter(|i| board[*i] == 1 && *i != ship).collect();
        for (n, cell) in rest.iter().enumerate() {
            assert_eq!(env.step_into(&at(*cell), &mut obs).terminated, n == 10);
        }
        env.reset_into(Some(2), &mut obs);
        let water = board.iter().position(|c| *c == 0).unwrap();
        let mut total = 0.0;
        for t in 1..=64 {
            let step = env.step_into(&at(water), &mut obs);
            assert_eq!((step.terminated, step.truncated), (false, t == 64));
            total += step.reward;
        }
        assert!((total + 64.0 / 52.0).abs() < 1e-12);
    }

    #[test]
    fn every_board_has_twelve_cells_and_a_ship_reaches_every_cell() {
        let mut env = Battleship::new(Level::Easy, false);
        let (mut obs, mut seen) = ([0], [0u32; 64]);
        for seed in 0..2_000 {
            env.reset_into(Some(seed), &mut obs);
            assert_eq!(env.board.iter().map(|c| usize::from(*c)).sum::<usize>(), 12);
            (0..64).for_each(|i| seen[i] += u32::from(env.board[i]));
        }
        // The four corners are alike by symmetry; edges are rarer than the middle.
        let corners = [seen[0], seen[7], seen[56], seen[63]];
        assert!(corners.iter().all(|c| (100..350).contains(c)), "{corners:?}");
        assert!(seen[27] > corners[0]);
    }
}
