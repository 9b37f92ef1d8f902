//! HigherLower: is the next card higher or lower? POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(13)`: rank of the newest card, ace lowest |
//! | action | `Discrete(2)`: 0 higher, 1 lower |
//! | reward | ±1/N, 0 for equal ranks; N = 52, 104, 156 |
//! | end | terminated by the step that deals the last card: N−1 steps |
//! | hidden | the cards already gone and those to come |
//! | best play | about 0.527, 0.514, 0.512 (card counter); "higher if rank ≤ 6" without memory gets 0.497: this task does not rank memories |
#![doc = include_str!("../../docs/HigherLower.md")]

use serde_json::{Value, json};

use super::deck::{Deck, picture, rank};
use super::{ANSWER_GAMMA, Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::Picture;
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct HigherLower {
    spec: EnvSpec,
    stream: Stream,
    deck: Deck,
    dealt: usize,
    unit: f64,
}

impl HigherLower {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let packs = level.pick([1, 2, 3]);
        let n = 52 * packs;
        let spec = EnvSpec {
            max_steps: Some(n - 1),
            hidden: "the cards already gone and those to come".to_owned(),
            unit_reward: 1.0 / n as f64,
            prompt_rewards: true,
            suggested_gamma: ANSWER_GAMMA,
            doc: "Guess whether the next card is higher or lower.".to_owned(),
            ..spec("HigherLower", level, legacy, Space::Discrete(13), Space::Discrete(2))
        };
        HigherLower { spec, stream: Stream::default(), deck: Deck::new(packs), dealt: 0, unit: 1.0 / n as f64 }
    }

    fn start(&mut self, obs: &mut [u8]) {
        self.dealt = 1;
        obs[0] = rank(self.deck.cards()[0]);
    }
}

impl Env for HigherLower {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        self.deck.shuffle(self.stream.begin(seed));
        self.start(obs);
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let Some(&next) = self.deck.cards().get(self.dealt) else {
            return Step { terminated: true, ..Step::default() };
        };
        let (before, now) = (rank(self.deck.cards()[self.dealt - 1]), rank(next));
        let reward = match (now.cmp(&before), action[0]) {
            (std::cmp::Ordering::Equal, _) => 0.0,
            (std::cmp::Ordering::Greater, 0) | (std::cmp::Ordering::Less, 1) => self.unit,
            _ => -self.unit,
        };
        self.dealt += 1;
        obs[0] = now;
        Step { reward, terminated: self.dealt == self.deck.n(), truncated: false }
    }

    fn hidden(&self) -> Value {
        json!({"deck": self.deck.to_json()})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        self.deck.read(&Hidden { env: &self.spec.name, value: hidden }, "deck")?;
        self.start(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        Some(picture(&self.deck.cards()[..self.dealt], 1))
    }

    fn picture(&self) -> Option<Picture> {
        let mut p = Picture::new(13.0, 2.0);
        super::deck::draw(&mut p, 0.0, "higher or lower", &self.deck.cards()[..self.dealt], 13, 1);
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_pay_nothing_and_right_is_one_in_n() {
        let mut env = HigherLower::new(Level::Easy, false);
        let mut obs = [0];
        env.reset_into(Some(1), &mut obs);
        // Cards in index order: four aces, four twos, ..
        let deck: Vec<usize> = (0..52).collect();
        env.set_hidden(&json!({"deck": deck}), &mut obs).unwrap();
        for t in 0..51 {
            let step = env.step_into(&[i32::from(t == 7)], &mut obs);
            let expected = match t {
                7 => -1.0 / 52.0,
                t if t % 4 == 3 => 1.0 / 52.0,
                _ => 0.0,
            };
            assert_eq!((step.reward, step.terminated), (expected, t == 50), "step {t}");
        }
    }
}
