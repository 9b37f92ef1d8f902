//! RepeatPrevious: name the suit of the card seen k-1 steps ago. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Discrete(4)`: suit of the newest card |
//! | action | `Discrete(4)`: a suit |
//! | reward | with h = t+1 cards dealt: ±1/(N−k) for the suit of the k-th newest if h ≥ k, else 0 |
//! | end | terminated by the step that deals the last of N = 52, 104, 156 cards: N−1 steps |
//! | hidden | the cards still to come; the suits seen are no longer shown |
//! | k | 4, 32, 64; k = 1 would be the card being shown, so the lag is 3, 31, 63 |
//! | best play | 1 (perfect memory); guessing −0.5 |
#![doc = include_str!("../../docs/RepeatPrevious.md")]

use serde_json::{Value, json};

use super::deck::{Deck, suit};
use super::{ANSWER_GAMMA, Level, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::Picture;
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct RepeatPrevious {
    spec: EnvSpec,
    stream: Stream,
    deck: Deck,
    k: usize,
    dealt: usize,
    unit: f64,
}

impl RepeatPrevious {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let (packs, k) = level.pick([(1, 4), (2, 32), (3, 64)]);
        let n = 52 * packs;
        let unit = 1.0 / (n - k) as f64;
        let spec = EnvSpec {
            max_steps: Some(n - 1),
            hidden: "the suits of earlier cards and of those to come".to_owned(),
            unit_reward: unit,
            prompt_rewards: true,
            suggested_gamma: ANSWER_GAMMA,
            suggested_rotate: true,
            doc: format!("Name the suit of the card shown {} steps ago.", k - 1),
            ..spec("RepeatPrevious", level, legacy, Space::Discrete(4), Space::Discrete(4))
        };
        RepeatPrevious { spec, stream: Stream::default(), deck: Deck::new(packs), k, dealt: 0, unit }
    }

    fn deal(&mut self, obs: &mut [u8]) {
        if let (Some(card), Some(o)) = (self.deck.cards().get(self.dealt), obs.first_mut()) {
            *o = suit(*card);
            self.dealt += 1;
        }
    }
}

impl Env for RepeatPrevious {
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
        let reward = match self.dealt.checked_sub(self.k) {
            Some(i) if i32::from(suit(self.deck.cards()[i])) == action[0] => self.unit,
            Some(_) => -self.unit,
            None => 0.0,
        };
        self.deal(obs);
        Step { reward, terminated: self.dealt == self.deck.n(), truncated: false }
    }

    fn hidden(&self) -> Value {
        json!({"deck": self.deck.to_json(), "k": self.k})
    }

    fn set_hidden(&mut self, hidden: &Value, obs: &mut [u8]) -> Result<()> {
        self.deck.read(&Hidden { env: &self.spec.name, value: hidden }, "deck")?;
        self.dealt = 0;
        self.deal(obs);
        Ok(())
    }

    fn render_text(&self) -> Option<String> {
        Some(super::deck::picture(&self.deck.cards()[..self.dealt], self.k))
    }

    fn picture(&self) -> Option<Picture> {
        let keep = self.k.max(13);
        let mut p = Picture::new(13.0, 0.6 + 1.4 * keep.div_ceil(13) as f32);
        super::deck::draw(&mut p, 0.0, "shown, asked for", &self.deck.cards()[..self.dealt], keep, self.k);
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_rewards_and_end_by_hand() {
        let mut env = RepeatPrevious::new(Level::Easy, false);
        let mut obs = [9];
        env.reset_into(Some(1), &mut obs);
        let suits: Vec<u8> = env.deck.cards().iter().map(|c| suit(*c)).collect();
        assert_eq!(obs[0], suits[0]);
        let mut total = 0.0;
        for t in 0..51 {
            // Step t is asked after t+1 cards; the answer is the one shown three steps before.
            let right = if t >= 3 { suits[t - 3] } else { 0 };
            let step = env.step_into(&[i32::from(right)], &mut obs);
            assert_eq!(step.reward, if t >= 3 { 1.0 / 48.0 } else { 0.0 }, "step {t}");
            assert_eq!((obs[0], step.terminated, step.truncated), (suits[t + 1], t == 50, false), "step {t}");
            total += step.reward;
        }
        assert!((total - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_wrong_answer_costs_the_same() {
        let mut env = RepeatPrevious::new(Level::Easy, false);
        let mut obs = [0];
        env.reset_into(Some(1), &mut obs);
        let wrong = (i32::from(suit(env.deck.cards()[0])) + 1) % 4;
        (0..3).for_each(|_| assert_eq!(env.step_into(&[0], &mut obs).reward, 0.0));
        assert_eq!(env.step_into(&[wrong], &mut obs).reward, -1.0 / 48.0);
    }

    #[test]
    fn sizes_of_the_three_levels() {
        let of = |l| RepeatPrevious::new(l, false).spec;
        assert_eq!(Level::ALL.map(|l| of(l).max_steps), [Some(51), Some(103), Some(155)]);
        assert!(Level::ALL.iter().all(|&l| of(l).suggested_rotate && of(l).suggested_d_conv.is_none()));
        assert_eq!(of(Level::Hard).unit_reward, 1.0 / 92.0);
    }
}
