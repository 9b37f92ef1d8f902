//! Concentration: find pairs of face-down cards. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `MultiDiscrete([V + 1; N])`: symbol of each position, V = face down; E/M colours (V 2), H ranks (V 13); N = 52, 104, 52 |
//! | action | `Discrete(N)`: the position to flip |
//! | reward | pair +2/N; no pair or the same position twice −2/T; a solved card −1/T × cards flipped this turn; first card of a turn 0 |
//! | end | terminated when all are solved; truncated on step T = 104, 208, 104; both may be set |
//! | hidden | the symbols of face-down cards; a flipped pair is visible in one observation |
//! | best play | about 0.816, 0.815, 0.698 (perfect memory, greedy turns); random −0.19, −0.18, −0.83 |
#![doc = include_str!("../../docs/Concentration.md")]

use rand::seq::SliceRandom;
use serde_json::{Value, json};

use super::deck::{colour, rank};
use super::{Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct Concentration {
    spec: EnvSpec,
    stream: Stream,
    /// The symbols in order, `[N]`: each shuffle starts from here, so that a seed alone decides.
    sorted: Vec<u8>,
    /// Symbol of each position, `[N]`.
    symbols: Vec<u8>,
    face_down: u8,
    /// Solved cards' symbols, `face_down` elsewhere, `[N]`.
    solved: Vec<u8>,
    n_solved: usize,
    /// First card of the turn.
    first: Option<usize>,
    time: usize,
    limit: usize,
}

impl Concentration {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let (packs, v) = level.pick([(1, 2u8), (2, 2), (1, 13)]);
        let n: usize = 52 * packs;
        let symbol = level.pick([colour, colour, rank]);
        // T = ceil(2N − N/(2N−1)); the fraction lies between 0 and 1.
        let limit = 2 * n;
        let observation = Space::MultiDiscrete(vec![usize::from(v) + 1; n]);
        let spec = EnvSpec {
            max_steps: Some(limit),
            hidden: "the symbols of face-down cards".to_owned(),
            unit_reward: 2.0 / n as f64,
            // a card is judged as soon as it lies open
            suggested_gamma: Some(0.0),
            // what lay where is a sum over the episode
            suggested_rotate: true,
            suggested_batch: Some(4),
            doc: "Find pairs of face-down cards.".to_owned(),
            ..spec("Concentration", level, legacy, observation, Space::Discrete(n))
        };
        let sorted: Vec<u8> = (0..n as u16).map(symbol).collect();
        Concentration {
            spec,
            stream: Stream::default(),
            symbols: sorted.clone(),
            sorted,
            face_down: v,
            solved: vec![v; n],
            n_solved: 0,
            first: None,
            time: 0,
            limit,
        }
    }

    fn start(&mut self, obs: &mut [u8]) {
        self.solved.fill(self.face_down);
        self.n_solved = 0;
        self.first = None;
        self.time = 0;
        obs.fill(self.face_down);
    }
}

impl Env for Concentration {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        self.symbols.copy_from_slice(&self.sorted);
        self.symbols.shuffle(self.stream.begin(seed));
        self.start(obs);
    }

    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let (n, a) = (self.symbols.len(), action[0].max(0) as usize % self.symbols.len());
        let penalty = -1.0 / self.limit as f64;
        self.time += 1;
        obs.copy_from_slice(&self.solved);
        obs[a] = self.symbols[a];
        let before = self.first.take();
        if let Some(f) = before {
            obs[f] = self.symbols[f];
        }
        let reward = if self.solved[a] != self.face_down {
            penalty * if before.is_some() { 2.0 } else { 1.0 }
        } else if let Some(f) = before {
            if f != a && self.symbols[f] == self.symbols[a] {
                self.solved[f] = self.symbols[f];
                self.solved[a] = self.symbols[a];
                self.n_solved += 2;
                1.0 / (n as f64 / 2.0)
            } else {
                2.0 * penalty
            }
        } else {
            self.first = Some(a);
            0.0
        };
        Step { reward, terminated: self.n_solved == n, truncated: self.time >= self.limit }
    }

    fn hidden(&self) -> Value {
        json!({"symbols_by_position": self.symbols, "face_down": self.face_down})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let (n, v) = (self.symbols.len(), usize::from(self.face_down));
        let symbols = hidden.indices("symbols_by_position", n, v)?;
        for s in 0..v {
            let count = symbols.iter().filter(|x| **x == s).count();
            if count != n / v {
                let found = format!("symbol {s} {count} times");
                return Err(hidden.error("symbols_by_position", found, format!("{} times", n / v)));
            }
        }
        self.symbols = symbols.into_iter().map(|s| s as u8).collect();
        self.start(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let mut text = String::new();
        for (i, &s) in self.solved.iter().enumerate() {
            let shown = if self.first == Some(i) { self.symbols[i] } else { s };
            text += &if shown == self.face_down { " .".to_owned() } else { format!("{shown:2}") };
            text.push(if i % 13 == 12 { '\n' } else { ' ' });
        }
        Some(text)
    }

    fn picture(&self) -> Option<Picture> {
        let columns = 13;
        let cell = |r: usize, c: usize| {
            let i = r * columns + c;
            let (mark, solved) = (self.symbols[i].to_string(), self.solved[i] != self.face_down);
            match (self.first == Some(i), solved) {
                (true, _) => (paint::GOLD, mark, paint::INK),
                (_, true) => (paint::WHITE, mark, paint::GREEN),
                // Face down: pale to the reader, unseen by the agent.
                _ => (paint::SLATE, mark, paint::PALE),
            }
        };
        Some(Picture::board(self.symbols.len() / columns, columns, cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> (Concentration, Vec<u8>) {
        let mut env = Concentration::new(Level::Easy, false);
        let mut obs = vec![0; 52];
        let symbols: Vec<usize> = (0..52).map(|i| i % 2).collect();
        env.reset_into(Some(0), &mut obs);
        env.set_hidden(&json!({"symbols_by_position": symbols}), &mut obs).unwrap();
        assert_eq!(obs, vec![2; 52]);
        (env, obs)
    }

    #[test]
    fn a_turn_by_hand() {
        let (mut env, mut obs) = started();
        let p = -1.0 / 104.0;
        let mut step = |a: i32| {
            let s = env.step_into(&[a], &mut obs);
            (s.reward, obs.iter().enumerate().filter(|(_, o)| **o != 2).map(|(i, _)| i).collect::<Vec<_>>())
        };
        assert_eq!(step(0), (0.0, vec![0]));
        assert_eq!(step(1), (2.0 * p, vec![0, 1]), "different symbols");
        assert_eq!(step(5), (0.0, vec![5]), "turned back");
        assert_eq!(step(5), (2.0 * p, vec![5]), "the same position twice");
        assert_eq!(step(0), (0.0, vec![0]));
        assert_eq!(step(2), (1.0 / 26.0, vec![0, 2]), "a pair stays");
        assert_eq!(step(2), (p, vec![0, 2]), "a solved card first");
        assert_eq!(step(4), (0.0, vec![0, 2, 4]), "the turn began anew");
        assert_eq!(step(0), (2.0 * p, vec![0, 2, 4]), "a solved card second");
        assert_eq!(step(6), (0.0, vec![0, 2, 6]));
    }

    #[test]
    fn clearing_terminates_and_the_limit_truncates() {
        let (mut env, mut obs) = started();
        let order: Vec<i32> = (0..52).step_by(2).chain((1..52).step_by(2)).collect();
        let mut total = 0.0;
        for (t, a) in order.iter().enumerate() {
            let step = env.step_into(&[*a], &mut obs);
            total += step.reward;
            assert_eq!((step.terminated, step.truncated), (t == 51, false));
        }
        assert!((total - 1.0).abs() < 1e-12);
        let (mut env, mut obs) = started();
        for t in 1..=104 {
            let step = env.step_into(&[0], &mut obs);
            assert_eq!((step.terminated, step.truncated), (false, t == 104));
        }
        let limits = Level::ALL.map(|l| Concentration::new(l, false).limit);
        let formula = |n: f64| (2.0 * n - n / (2.0 * n - 1.0)).ceil() as usize;
        assert_eq!(limits, [formula(52.0), formula(104.0), formula(52.0)]);
    }
}
