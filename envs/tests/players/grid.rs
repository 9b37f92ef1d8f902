//! Players of Battleship, MineSweeper and the labyrinths.

use mamba_rl_envs::EnvSpec;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::{indices, mean};

/// One bit of observation and no memory of the cells tried: any player shoots by chance from at most as many
/// distributions as there are observations. The even one is simulated. (One cell for ever is far worse.)
pub fn targets(spec: &EnvSpec) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let side = spec.action_space.parts()[0].features();
    let memoryless = mean(spec, 300, |_, _, _| (0..2).map(|_| rng.random_range(0..side) as i32).collect());
    let knowing = mean(spec, 20, |env, _, t| {
        let hidden = env.hidden();
        let wanted: Vec<usize> = match hidden.get("board") {
            Some(board) => {
                let cells: Vec<usize> = board.as_array().unwrap().iter().flat_map(indices).collect();
                (0..side * side).filter(|i| cells[*i] == 1).collect()
            }
            None => {
                let mines: Vec<Vec<usize>> = hidden["mines"].as_array().unwrap().iter().map(indices).collect();
                (0..side * side).filter(|i| !mines.contains(&vec![i / side, i % side])).collect()
            }
        };
        vec![(wanted[t] / side) as i32, (wanted[t] % side) as i32]
    });
    (memoryless, knowing)
}

/// Cells left, right, up and down of the centre of the view.
const AROUND: [usize; 4] = [3, 5, 1, 7];
/// Turning right from each action.
const RIGHT_OF: [usize; 4] = [2, 3, 1, 0];

/// Memoryless: the right-hand rule, a function of the view and of the last action shown beside it. Knowing: the
/// shortest way out, or a walk through the tree that enters the deepest branch last.
pub fn labyrinth(spec: &EnvSpec) -> (f64, f64) {
    let memoryless = mean(spec, 200, |_, obs, _| {
        let view: Vec<usize> = (0..10).map(|i| obs.view().get(i) as usize).collect();
        if view[9] == 4 {
            // At the start, on a border: the view is shifted at the top and left.
            let own = view.iter().position(|c| *c == 2).unwrap();
            return vec![match own {
                1 => 3,
                3 => 1,
                _ if view[1] == 0 => 2,
                _ => 0,
            }];
        }
        let open = |a: &usize| view[AROUND[*a]] == 0 || view[AROUND[*a]] == 3;
        let right = RIGHT_OF[view[9]];
        let left = RIGHT_OF[RIGHT_OF[right]];
        let back = RIGHT_OF[right];
        vec![[right, view[9], left, back].into_iter().find(open).unwrap() as i32]
    });
    let mut plan = Vec::new();
    let knowing = mean(spec, 200, |env, _, t| {
        if t == 0 {
            plan = walk(&env.hidden());
        }
        vec![plan[t]]
    });
    (memoryless, knowing)
}

const MOVES: [(i32, i32); 4] = [(0, -1), (0, 1), (-1, 0), (1, 0)];

/// Actions along the tree: to the goal if there is one, else through all of it.
fn walk(hidden: &Value) -> Vec<i32> {
    let grid: Vec<Vec<usize>> = hidden["grid"].as_array().unwrap().iter().map(indices).collect();
    let start = indices(&hidden["start"]);
    let to_goal = grid.iter().flatten().any(|c| *c == 3);
    let mut path = Vec::new();
    tree(&grid, (start[0] as i32, start[1] as i32), None, to_goal, &mut path);
    path
}

/// Depth of the subtree at a cell entered by `from`; writes its walk, deepest branch last and not walked back. With a
/// goal the depth counts only where the goal lies, and the way there alone is written.
fn tree(grid: &[Vec<usize>], at: (i32, i32), from: Option<usize>, to_goal: bool, walk: &mut Vec<i32>) -> Option<usize> {
    let cell = |(r, c): (i32, i32)| grid.get(r as usize).and_then(|row| row.get(c as usize)).copied().unwrap_or(1);
    if to_goal && cell(at) == 3 {
        return Some(0);
    }
    let mut branches = Vec::new();
    for (a, (dr, dc)) in MOVES.into_iter().enumerate() {
        let next = (at.0 + dr, at.1 + dc);
        // 0 and 1 are opposite, so are 2 and 3.
        if cell(next) != 1 && from != Some(a ^ 1) {
            let mut inner = Vec::new();
            if let Some(depth) = tree(grid, next, Some(a), to_goal, &mut inner) {
                branches.push((depth + 1, a, inner));
            }
        }
    }
    branches.sort_by_key(|b| b.0);
    let deepest = branches.last().map(|b| b.0);
    let n = branches.len();
    for (i, (_, a, inner)) in branches.into_iter().enumerate() {
        walk.push(a as i32);
        walk.extend(&inner);
        if i + 1 < n {
            // Back to this cell: from where the inner walk ended, the moves that were not undone, in reverse.
            walk.extend(way_back(&inner, a));
        }
    }
    if to_goal { deepest } else { Some(deepest.unwrap_or(0)) }
}

/// Undoes a walk in a tree by the shortest way.
fn way_back(inner: &[i32], a: usize) -> Vec<i32> {
    let mut open: Vec<i32> = vec![a as i32];
    for m in inner {
        if open.last() == Some(&(m ^ 1)) {
            open.pop();
        } else {
            open.push(*m);
        }
    }
    open.into_iter().rev().map(|m| m ^ 1).collect()
}
