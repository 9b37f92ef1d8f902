//! Mazes of both labyrinths: hunt-and-kill with random hunting, entrances on opposite borders, and the 3×3 view.
//! Rules of `mazelib` as POPGym 1.0.7 uses it. Cell codes: 0 free, 1 wall, 2 start, 3 goal.

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

pub(crate) const FREE: u8 = 0;
pub(crate) const WALL: u8 = 1;
pub(crate) const START: u8 = 2;
pub(crate) const GOAL: u8 = 3;

/// A square grid of G × G cells with a start.
#[derive(Debug, Clone)]
pub(crate) struct Maze {
    pub side: usize,
    /// Row-major, `[G, G]`.
    pub cells: Vec<u8>,
    pub start: (usize, usize),
}

impl Maze {
    /// All walls; `rooms` × `rooms` rooms fit.
    pub fn new(rooms: usize) -> Self {
        let side = 2 * rooms + 1;
        Maze { side, cells: vec![WALL; side * side], start: (0, 1) }
    }

    #[inline]
    pub fn at(&self, row: usize, column: usize) -> u8 {
        self.cells[row * self.side + column]
    }

    /// A new maze; the goal is written only where asked, else it stays a wall.
    pub fn generate(&mut self, with_goal: bool, rng: &mut impl Rng) {
        self.cells.fill(WALL);
        let side = self.side;
        let room = |rng: &mut _| (odd(side, rng), odd(side, rng));
        let first = room(rng);
        self.open(first);
        self.walk(first, rng);
        // The hunt: G² jumps to random rooms; with small probability a room stays closed.
        for _ in 0..side * side {
            let at = room(rng);
            if self.at(at.0, at.1) == FREE {
                self.walk(at, rng);
            }
        }
        let (a, b) = (odd(side, rng), odd(side, rng));
        let last = side - 1;
        let (start, goal) = match rng.random_range(0..4) {
            0 => ((0, a), (last, b)),
            1 => ((last, a), (0, b)),
            2 => ((a, 0), (b, last)),
            _ => ((a, last), (b, 0)),
        };
        self.start = start;
        self.cells[start.0 * side + start.1] = START;
        if with_goal {
            self.cells[goal.0 * side + goal.1] = GOAL;
        }
    }

    fn open(&mut self, (row, column): (usize, usize)) {
        self.cells[row * self.side + column] = FREE;
    }

    /// Random walk over closed rooms two cells away, opening the wall between, until stuck.
    fn walk(&mut self, mut at: (usize, usize), rng: &mut impl Rng) {
        loop {
            let (r, c) = at;
            let mut closed = [(0, 0); 4];
            let mut n = 0;
            let ways = [
                (r.checked_sub(2), Some(c)),
                ((r + 2 < self.side).then_some(r + 2), Some(c)),
                (Some(r), c.checked_sub(2)),
                (Some(r), (c + 2 < self.side).then_some(c + 2)),
            ];
            for way in ways {
                if let (Some(i), Some(j)) = way
                    && self.at(i, j) == WALL
                {
                    closed[n] = (i, j);
                    n += 1;
                }
            }
            let Some(&next) = closed[..n].choose(rng) else { return };
            self.open(((r + next.0) / 2, (c + next.1) / 2));
            self.open(next);
            at = next;
        }
    }

    /// Where an action leads: 0 left, 1 right, 2 up, 3 down; clamped to the grid, and walls stop it.
    #[inline]
    pub fn go(&self, (r, c): (usize, usize), action: i32) -> (usize, usize) {
        let to = match action {
            0 => (r, c.saturating_sub(1)),
            1 => (r, (c + 1).min(self.side - 1)),
            2 => (r.saturating_sub(1), c),
            _ => ((r + 1).min(self.side - 1), c),
        };
        if self.at(to.0, to.1) == WALL { (r, c) } else { to }
    }

    /// The 3×3 view, row-major. At the top and left border the window is cut and padded at its end, so the agent is
    /// then not in its centre: the original's behaviour.
    #[inline]
    pub fn view(&self, (r, c): (usize, usize), out: &mut [u8]) {
        let (top, left) = (r.saturating_sub(1), c.saturating_sub(1));
        for i in 0..3 {
            for j in 0..3 {
                let (row, column) = (top + i, left + j);
                let inside = row <= r + 1 && column <= c + 1 && row < self.side && column < self.side;
                out[3 * i + j] = if inside { self.at(row, column) } else { WALL };
            }
        }
    }
}

/// A uniform odd number below `side`.
fn odd(side: usize, rng: &mut impl Rng) -> usize {
    2 * rng.random_range(0..side / 2) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn mazes_are_trees_whose_goal_can_be_reached() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut closed_rooms, mut sides) = (0, [0; 4]);
        for _ in 0..300 {
            let mut maze = Maze::new(5);
            maze.generate(true, &mut rng);
            let free = maze.cells.iter().filter(|c| **c == FREE).count();
            // A spanning tree of n rooms has n + (n − 1) free cells.
            closed_rooms += usize::from(free != 49);
            assert_eq!(free % 2, 1);
            let (mut seen, mut queue) = (vec![false; 121], vec![maze.start]);
            while let Some(at) = queue.pop() {
                if !std::mem::replace(&mut seen[at.0 * 11 + at.1], true) {
                    queue.extend((0..4).map(|a| maze.go(at, a)));
                }
            }
            let goal = maze.cells.iter().position(|c| *c == GOAL).unwrap();
            assert!(seen[goal], "{maze:?}");
            let side = [maze.start.0 == 0, maze.start.0 == 10, maze.start.1 == 0, maze.start.1 == 10];
            sides[side.iter().position(|s| *s).unwrap()] += 1;
        }
        assert!(closed_rooms <= 3, "{closed_rooms}");
        assert!(sides.iter().all(|s| (45..110).contains(s)), "{sides:?}");
    }

    #[test]
    fn the_view_is_cut_at_the_top_and_left() {
        let mut maze = Maze::new(1);
        maze.cells = vec![1, 2, 1, 1, 0, 3, 1, 1, 1];
        let mut out = [9; 9];
        maze.view((1, 1), &mut out);
        assert_eq!(out, [1, 2, 1, 1, 0, 3, 1, 1, 1]);
        maze.view((0, 1), &mut out);
        assert_eq!(out, [1, 2, 1, 1, 0, 3, 1, 1, 1], "own cell in row 0, padding below");
        maze.view((1, 2), &mut out);
        assert_eq!(out, [2, 1, 1, 0, 3, 1, 1, 1, 1], "padding to the right");
    }
}
