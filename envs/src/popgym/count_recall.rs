//! CountRecall: how often has the queried symbol been shown so far? POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `MultiDiscrete(`[V, V]`)`: newest value and query; V = 2 colours, 4 suits, 13 ranks |
//! | action | `Discrete(c_max + 1)`: a count; c_max = N/V = 26, 26, 16 |
//! | reward | ±1/(N−1) for the count of the query, the value in the same observation included; N = 52, 104, 208 |
//! | end | terminated by the step that deals the last cards: N−1 steps; the last observation is never asked about |
//! | hidden | the counts |
//! | legacy | actions 0..c_max−1 (releases before 1.0.7): "all copies seen" cannot be answered |
//! | best play | 1 (perfect counting); guessing 2/27−1, 2/27−1, 2/17−1 |
#![doc = include_str!("../../docs/CountRecall.md")]

use serde_json::{Value, json};

use super::deck::{Deck, colour, picture, rank, suit};
use super::{Level, RECALL_GAMMA, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Picture, colour as paint};
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct CountRecall {
    spec: EnvSpec,
    stream: Stream,
    values: Deck,
    queries: Deck,
    symbol: fn(u16) -> u8,
    counts: [u16; 13],
    dealt: usize,
    unit: f64,
}

impl CountRecall {
    /// The task at a difficulty; `legacy` has one action less.
    pub fn new(level: Level, legacy: bool) -> Self {
        let (packs, symbols) = level.pick([(1, 2), (2, 4), (4, 13)]);
        let n = 52 * packs;
        let actions = n / symbols + usize::from(!legacy);
        let unit = 1.0 / (n - 1) as f64;
        let spec = EnvSpec {
            max_steps: Some(n - 1),
            hidden: "how often each symbol has been shown".to_owned(),
            unit_reward: unit,
            prompt_rewards: true,
            suggested_gamma: RECALL_GAMMA,
            suggested_rotate: true,
            doc: "Say how often the queried symbol has been shown so far.".to_owned(),
            ..spec("CountRecall", level, legacy, Space::MultiDiscrete(vec![symbols; 2]), Space::Discrete(actions))
        };
        CountRecall {
            spec,
            stream: Stream::default(),
            values: Deck::new(packs),
            queries: Deck::new(packs),
            symbol: level.pick([colour, suit, rank]),
            counts: [0; 13],
            dealt: 0,
            unit,
        }
    }

    fn start(&mut self, obs: &mut [u8]) {
        self.counts = [0; 13];
        self.dealt = 0;
        self.deal(obs);
    }

    fn deal(&mut self, obs: &mut [u8]) {
        if let (Some(value), Some(query)) = (self.values.cards().get(self.dealt), self.queries.cards().get(self.dealt))
        {
            let shown = [(self.symbol)(*value), (self.symbol)(*query)];
            self.counts[usize::from(shown[0])] += 1;
            self.dealt += 1;
            obs.copy_from_slice(&shown);
        }
    }
}

impl Env for CountRecall {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        let rng = self.stream.begin(seed);
        self.values.shuffle(rng);
        self.queries.shuffle(rng);
        self.start(obs);
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let query = (self.symbol)(self.queries.cards()[self.dealt - 1]);
        let right = i32::from(self.counts[usize::from(query)]) == action[0];
        self.deal(obs);
        let reward = if right { self.unit } else { -self.unit };
        Step { reward, terminated: self.dealt == self.values.n(), truncated: false }
    }

    fn hidden(&self) -> Value {
        json!({"values": self.values.to_json(), "queries": self.queries.to_json()})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        let hidden = Hidden { env: &self.spec.name, value: hidden };
        let mut queries = self.queries.clone();
        queries.read(&hidden, "queries")?;
        self.values.read(&hidden, "values")?;
        self.queries = queries;
        self.start(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        let query = picture(&self.queries.cards()[..self.dealt], 1);
        Some(format!("shown {}query {query}counts {:?}\n", picture(&self.values.cards()[..self.dealt], 1), self.counts))
    }

    fn picture(&self) -> Option<Picture> {
        let mut p = Picture::new(13.0, 5.0);
        let below = super::deck::draw(&mut p, 0.0, "shown", &self.values.cards()[..self.dealt], 13, 0);
        let Some(&query) = self.queries.cards()[..self.dealt].last() else { return Some(p) };
        p.text([0.05, below + 0.15], 0.3, "how often this", paint::INK);
        super::deck::draw_card(&mut p, [0.0, below + 0.6], query, paint::GOLD);
        let symbols = self.values.cards().iter().map(|c| (self.symbol)(*c)).max().map_or(1, |s| usize::from(s) + 1);
        for (s, &count) in self.counts[..symbols].iter().enumerate() {
            let x = 2.0 + 11.0 * s as f32 / symbols as f32;
            let tall = 1.6 * f32::from(count) / (self.values.n() / symbols) as f32;
            let asked = usize::from((self.symbol)(query)) == s;
            p.rect(
                [x, below + 2.4 - tall],
                [8.0 / symbols as f32, tall],
                if asked { paint::GOLD } else { paint::SLATE },
            );
            p.text([x, below + 2.5], 0.3, count.to_string(), paint::INK);
        }
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A perfect counter that sees observations alone.
    fn perfect(level: Level, legacy: bool) -> (f64, usize) {
        let mut env = CountRecall::new(level, legacy);
        let most = env.spec.action_space.n_actions().unwrap() as i32 - 1;
        let (mut obs, mut counts, mut total, mut steps) = ([0, 0], [0; 13], 0.0, 0);
        env.reset_into(Some(5), &mut obs);
        loop {
            counts[usize::from(obs[0])] += 1;
            let step = env.step_into(&[counts[usize::from(obs[1])].min(most)], &mut obs);
            total += step.reward;
            steps += 1;
            if step.done() {
                return (total, steps);
            }
        }
    }

    #[test]
    fn perfect_counting_gets_one() {
        for (level, n) in [(Level::Easy, 51), (Level::Medium, 103), (Level::Hard, 207)] {
            let (total, steps) = perfect(level, false);
            assert!((total - 1.0).abs() < 1e-12 && steps == n, "{level}: {total} in {steps}");
        }
    }

    #[test]
    fn old_rules_cannot_answer_the_full_count() {
        let of = |l, legacy| CountRecall::new(l, legacy).spec.action_space;
        assert_eq!(Level::ALL.map(|l| of(l, false).n_actions()), [Some(27), Some(27), Some(17)]);
        assert_eq!(Level::ALL.map(|l| of(l, true).n_actions()), [Some(26), Some(26), Some(16)]);
        assert!(perfect(Level::Hard, true).0 < 1.0 - 1e-3);
    }
}
