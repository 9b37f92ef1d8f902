//! What chance draws: shuffles, ships, mines, arms, mazes and starts have the distributions of the rules, within five
//! standard errors; equal seeds repeat, different ones differ, and copies on many threads give the bits of one.

use std::collections::HashMap;

use mamba_rl_envs::{ActionBuffer, Autoreset, EnvArgs, ObsBuffer, Registry, VecEnv, episode_seed, make, random_action};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Hidden states of `n` episodes.
fn hidden(name: &str, n: usize) -> Vec<Value> {
    let mut env = make(name, &EnvArgs::default()).unwrap();
    let mut obs = ObsBuffer::for_space(&env.spec().observation_space, 1);
    let one = |i| {
        env.reset(Some(episode_seed(21, 0, i)), obs.view_mut()).unwrap();
        env.hidden()
    };
    (0..n as u64).map(one).collect()
}

fn list(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn cells(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().flat_map(|row| list(row).into_iter().map(|x| x as usize)).collect()
}

/// A count of n independent events of probability p.
fn assert_share(what: &str, count: usize, n: usize, p: f64) {
    let (expected, error) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
    assert!((count as f64 - expected).abs() <= 5.0 * error, "{what}: {count} of {n}, expected {expected} ± {error}");
}

/// Mean and second moment about it of uniform draws.
fn assert_uniform(what: &str, values: &[f64], low: f64, high: f64) {
    assert!(values.iter().all(|v| (low..=high).contains(v)), "{what} outside [{low}, {high}]");
    let bins = 10;
    for bin in 0..bins {
        let (from, to) = (f64::from(bin), f64::from(bin + 1));
        let at = |v: f64| (v - low) / (high - low) * f64::from(bins);
        let inside = values.iter().filter(|v| (from..to).contains(&at(**v))).count();
        assert_share(what, inside, values.len(), 1.0 / f64::from(bins));
    }
}

fn shuffles(n: usize) {
    for (name, field, cards) in [("RepeatPreviousEasy", "deck", 52), ("CountRecallMedium", "queries", 104)] {
        let decks: Vec<Vec<usize>> =
            hidden(name, n).iter().map(|h| list(&h[field]).into_iter().map(|c| c as usize).collect()).collect();
        for position in [0, 1, cards / 2, cards - 1] {
            for card in 0..cards {
                let count = decks.iter().filter(|d| d[position] == card).count();
                assert_share(&format!("{name}: card {card} at {position}"), count, n, 1.0 / cards as f64);
            }
        }
        // Neighbours: a biased shuffle that keeps runs would show here.
        let runs = decks.iter().flat_map(|d| d.windows(2)).filter(|w| w[1] == w[0] + 1).count();
        let pairs = n * (cards - 1);
        assert_share(&format!("{name}: successors"), runs, pairs, 1.0 / cards as f64);
    }
    let boards = hidden("ConcentrationHard", n);
    for position in [0, 25, 51] {
        for symbol in 0..13 {
            let at = |h: &&Value| list(&h["symbols_by_position"])[position] as usize == symbol;
            assert_share("symbol", boards.iter().filter(at).count(), n, 1.0 / 13.0);
        }
    }
}

/// The rule once more, as enumeration: of all (start, axis, direction) that fit, one at random, ship by ship.
fn ships_again(size: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut board = vec![0; size * size];
    for length in [2i64, 3, 3, 4] {
        let mut fits = Vec::new();
        for start in 0..(size * size) as i64 {
            let (r, c) = (start / size as i64, start % size as i64);
            for (dr, dc) in [(0, 1), (0, -1), (1, 0), (-1, 0)] {
                let line: Vec<(i64, i64)> = (0..length).map(|i| (r + i * dr, c + i * dc)).collect();
                let inside = |x: i64| (0..size as i64).contains(&x);
                if line.iter().all(|(r, c)| inside(*r) && inside(*c) && board[(r * size as i64 + c) as usize] == 0) {
                    fits.push(line);
                }
            }
        }
        for (r, c) in &fits[rng.random_range(0..fits.len())] {
            board[(r * size as i64 + c) as usize] = 1;
        }
    }
    board
}

fn ships(n: usize) {
    for (name, size) in [("BattleshipEasy", 8), ("BattleshipHard", 12)] {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let (mut ours, mut again) = (vec![0usize; size * size], vec![0usize; size * size]);
        for h in hidden(name, n) {
            let board = cells(&h["board"]);
            assert_eq!(board.iter().sum::<usize>(), 12);
            ours.iter_mut().zip(board).for_each(|(sum, c)| *sum += c);
            again.iter_mut().zip(ships_again(size, &mut rng)).for_each(|(sum, c)| *sum += c);
        }
        for (cell, (a, b)) in ours.iter().zip(&again).enumerate() {
            let p = (a + b) as f64 / (2 * n) as f64;
            let error = (2.0 * n as f64 * p * (1.0 - p)).sqrt();
            assert!((*a as f64 - *b as f64).abs() <= 5.0 * error, "{name} cell {cell}: {a} and {b} of {n}");
        }
    }
}

fn mines(n: usize) {
    for (name, size, m) in [("MineSweeperEasy", 4, 2), ("MineSweeperHard", 8, 10)] {
        let cells = size * size;
        let (mut one, mut two) = (vec![0; cells], 0);
        for h in hidden(name, n) {
            let at: Vec<usize> =
                h["mines"].as_array().unwrap().iter().map(list).map(|p| p[0] as usize * size + p[1] as usize).collect();
            assert_eq!(at.len(), m);
            at.iter().for_each(|c| one[*c] += 1);
            two += usize::from(at.contains(&0) && at.contains(&(size + 1)));
        }
        for (cell, count) in one.iter().enumerate() {
            assert_share(&format!("{name}: mine at {cell}"), *count, n, m as f64 / cells as f64);
        }
        let both = (m * (m - 1)) as f64 / (cells * (cells - 1)) as f64;
        assert_share(&format!("{name}: mines at 0 and {}", size + 1), two, n, both);
    }
}

fn starts(n: usize) {
    let arms = hidden("MultiarmedBanditMedium", n);
    for arm in [0, 7, 19] {
        let p: Vec<f64> = arms.iter().map(|h| list(&h["probabilities"])[arm]).collect();
        assert_uniform("arm", &p, 0.0, 1.0);
    }
    for (name, bounds) in
        [("PositionOnlyCartPoleEasy", vec![0.05; 4]), ("PositionOnlyPendulumEasy", vec![std::f64::consts::PI, 1.0])]
    {
        let states: Vec<Vec<f64>> = hidden(name, n).iter().map(|h| list(&h["state"])).collect();
        for (i, bound) in bounds.iter().enumerate() {
            assert_uniform(name, &states.iter().map(|s| s[i]).collect::<Vec<_>>(), -bound, *bound);
        }
    }
}

/// Cells that can be reached from `start`; walls are 1.
fn reached(grid: &[usize], side: usize, start: usize) -> usize {
    let (mut seen, mut open) = (vec![false; grid.len()], vec![start]);
    seen[start] = true;
    while let Some(i) = open.pop() {
        let (r, c) = (i / side, i % side);
        let next = [
            (r > 0).then(|| i - side),
            (r + 1 < side).then(|| i + side),
            (c > 0).then(|| i - 1),
            (c + 1 < side).then(|| i + 1),
        ];
        for j in next.into_iter().flatten() {
            if grid[j] != 1 && !std::mem::replace(&mut seen[j], true) {
                open.push(j);
            }
        }
    }
    seen.into_iter().filter(|s| *s).count()
}

fn mazes(n: usize) {
    for (name, rooms) in [("LabyrinthEscapeEasy", 5), ("LabyrinthEscapeHard", 9), ("LabyrinthExploreMedium", 7)] {
        let side = 2 * rooms + 1;
        let mut sides: HashMap<&str, usize> = HashMap::new();
        let mut closed = 0;
        for h in hidden(name, n) {
            let (grid, start) = (cells(&h["grid"]), list(&h["start"]));
            let (r, c) = (start[0] as usize, start[1] as usize);
            let border = match (r, c) {
                (0, _) => "top",
                (_, 0) => "left",
                (r, _) if r == side - 1 => "bottom",
                (_, c) if c == side - 1 => "right",
                other => panic!("{name}: the start {other:?} is not on the border"),
            };
            *sides.entry(border).or_default() += 1;
            let free = grid.iter().filter(|x| **x == 0).count();
            let goals: Vec<usize> = (0..grid.len()).filter(|i| grid[*i] == 3).collect();
            assert_eq!(goals.len(), usize::from(name.contains("Escape")), "{name}");
            for g in &goals {
                let opposite = (side - 1 - r == g / side && r.min(side - 1 - r) == 0)
                    || (side - 1 - c == g % side && c.min(side - 1 - c) == 0);
                assert!(opposite, "{name}: the goal is on the other side");
            }
            assert_eq!(reached(&grid, side, r * side + c), free + 1 + goals.len(), "{name}: all can be reached");
            // A tree over the open rooms: one passage less than rooms.
            let open =
                (0..rooms * rooms).filter(|i| grid[(2 * (i / rooms) + 1) * side + 2 * (i % rooms) + 1] == 0).count();
            assert_eq!(free, 2 * open - 1, "{name}: no loops");
            closed += rooms * rooms - open;
        }
        assert!(closed <= n / 100, "{name}: {closed} rooms stayed closed in {n} mazes");
        for (side, count) in &sides {
            assert_share(&format!("{name}: start at the {side}"), *count, n, 0.25);
        }
    }
}

#[test]
fn chance_draws_what_the_rules_say() {
    let n = 1_500;
    shuffles(n);
    ships(n);
    mines(n);
    starts(n);
    mazes(n / 5);
}

#[test]
#[ignore = "ten thousand episodes of every kind take about a minute"]
fn chance_draws_what_the_rules_say_in_ten_thousand_episodes() {
    let n = 10_000;
    shuffles(n);
    ships(n);
    mines(n);
    starts(n);
    mazes(n);
}

#[test]
fn seeds_repeat_and_threads_do_not_matter() {
    for entry in Registry::bundled().list() {
        let vec = |seed, parallel| {
            let make = |_| make(&entry.spec.id, &EnvArgs::default());
            let mut envs = VecEnv::new(&make, 5, seed, Autoreset::SameStep).unwrap().parallel(parallel);
            envs.reset().unwrap();
            envs
        };
        let (mut one, mut again, mut threads, mut other) = (vec(1, false), vec(1, false), vec(1, true), vec(2, false));
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let space = &entry.spec.action_space;
        let mut differ = false;
        for _ in 0..150 {
            let mut actions = ActionBuffer::for_space(space, 0);
            (0..5).for_each(|_| assert!(actions.extend(random_action(space, None, &mut rng).view())));
            let expected = one.step(actions.view()).unwrap().clone();
            assert_eq!(again.step(actions.view()).unwrap(), &expected, "{}", entry.spec.id);
            assert_eq!(threads.step(actions.view()).unwrap(), &expected, "{}", entry.spec.id);
            let b = other.step(actions.view()).unwrap();
            differ |= b.obs != expected.obs || b.reward != expected.reward;
        }
        assert_eq!(one.save(), threads.save(), "{}", entry.spec.id);
        assert!(differ, "{}: another seed plays the same", entry.spec.id);
    }
}
