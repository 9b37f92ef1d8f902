//! RepeatFirst: name the suit of the first card, at every step. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(4)`: suit of the newest card; nothing marks the first one |
//! | action | `Discrete(4)`: a suit |
//! | reward | ±1/(N−1) for the first card's suit, N = 52, 416, 832; the first answer is trivial |
//! | end | terminated by the step that deals the last card: N−1 steps |
//! | hidden | the first card's suit, shown once |
//! | best play | 1 (perfect memory); guessing −0.5 |
#![doc = include_str!("../../docs/RepeatFirst.md")]

use serde_json::{Value, json};

use super::deck::{Deck, picture, suit};
use super::{ANSWER_GAMMA, Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::Picture;
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct RepeatFirst {
    spec: EnvSpec,
    stream: Stream,
    deck: Deck,
    dealt: usize,
    unit: f64,
}

impl RepeatFirst {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let packs = level.pick([1, 8, 16]);
        let unit = 1.0 / (52 * packs - 1) as f64;
        let spec = EnvSpec {
            max_steps: Some(52 * packs - 1),
            hidden: "the suit of the first card, shown once".to_owned(),
            unit_reward: unit,
            prompt_rewards: true,
            suggested_gamma: ANSWER_GAMMA,
            doc: "Name the suit of the first card, at every step.".to_owned(),
            ..spec("RepeatFirst", level, legacy, Space::Discrete(4), Space::Discrete(4))
        };
        RepeatFirst { spec, stream: Stream::default(), deck: Deck::new(packs), dealt: 0, unit }
    }

    fn deal(&mut self, obs: &mut [u8]) {
        if let (Some(card), Some(o)) = (self.deck.cards().get(self.dealt), obs.first_mut()) {
            *o = suit(*card);
            self.dealt += 1;
        }
    }
}

impl Env for RepeatFirst {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        self.deck.shuffle(self.stream.begin(seed));
        self.dealt = 0;
        self.deal(obs);
    }

    #[inline]
    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        let right = i32::from(suit(self.deck.cards()[0])) == action[0];
        self.deal(obs);
        let reward = if right { self.unit } else { -self.unit };
        Step { reward, terminated: self.dealt == self.deck.n(), truncated: false }
    }

    fn hidden(&self) -> Value {
        json!({"deck": self.deck.to_json()})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        self.deck.read(&Hidden { env: &self.spec.name, value: hidden }, "deck")?;
        self.dealt = 0;
        self.deal(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        Some(format!(
            "first {}newest {}",
            picture(&self.deck.cards()[..1], 0),
            picture(&self.deck.cards()[..self.dealt], 1)
        ))
    }

    fn picture(&self) -> Option<Picture> {
        let mut p = Picture::new(13.0, 4.0);
        let below = super::deck::draw(&mut p, 0.0, "first", &self.deck.cards()[..1], 13, 1);
        super::deck::draw(&mut p, below, "newest", &self.deck.cards()[..self.dealt], 13, 0);
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_suit_is_right_to_the_end() {
        let mut env = RepeatFirst::new(Level::Easy, false);
        let mut obs = [0];
        env.reset_into(Some(3), &mut obs);
        let first = i32::from(obs[0]);
        let mut total = 0.0;
        for t in 0..51 {
            let step = env.step_into(&[if t == 7 { (first + 1) % 4 } else { first }], &mut obs);
            assert_eq!(step.reward, if t == 7 { -1.0 / 51.0 } else { 1.0 / 51.0 });
            assert_eq!((obs[0], step.terminated), (suit(env.deck.cards()[t + 1]), t == 50));
            total += step.reward;
        }
        assert!((total - 49.0 / 51.0).abs() < 1e-12);
    }

    #[test]
    fn sizes_of_the_three_levels() {
        assert_eq!(Level::ALL.map(|l| RepeatFirst::new(l, false).spec.max_steps), [Some(51), Some(415), Some(831)]);
    }
}
