//! Autoencode: watch a deck, then recite the suits backwards. POPGym 1.0.7.
//!
//! | | |
//! |---|---|
//! | observation | `Tuple(Discrete(2), Discrete(4))`: mode (1 watch, 0 play) and suit |
//! | action | `Discrete(4)`: a suit; ignored while watching |
//! | reward | watch 0; play ±1/N for the most recently dealt card not yet recited, N = 52, 104, 156 |
//! | end | terminated by the step that recites the last card: N−1 watch + N play steps |
//! | hidden | the suits seen while watching; the play phase shows (0, 0) only |
//! | best play | 1 (perfect memory); guessing −0.5 |
//!
//! The last card is shown together with the play flag. Last in, first out: a reverse copy, delays from 0 to 2N−2 steps.
#![doc = include_str!("../../docs/Autoencode.md")]

use serde_json::{Value, json};

use super::deck::{Deck, picture, suit};
use super::{Level, RECALL_GAMMA, spec};
use crate::env::{Env, EnvSpec, Step};
use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::Picture;
use crate::seed::Stream;
use crate::space::Space;

/// The task.
#[derive(Debug, Clone)]
pub struct Autoencode {
    spec: EnvSpec,
    stream: Stream,
    deck: Deck,
    dealt: usize,
    /// Cards not yet recited.
    left: usize,
    unit: f64,
}

impl Autoencode {
    /// The task at a difficulty; no rule changed between releases.
    pub fn new(level: Level, legacy: bool) -> Self {
        let packs = level.pick([1, 2, 3]);
        let n = 52 * packs;
        let observation = Space::Tuple(vec![Space::Discrete(2), Space::Discrete(4)]);
        let spec = EnvSpec {
            max_steps: Some(2 * n - 1),
            hidden: "the suits shown in the watch phase".to_owned(),
            unit_reward: 1.0 / n as f64,
            prompt_rewards: true,
            suggested_gamma: RECALL_GAMMA,
            suggested_rotate: true,
            doc: "Watch the suits of a deck, then recite them backwards.".to_owned(),
            ..spec("Autoencode", level, legacy, observation, Space::Discrete(4))
        };
        Autoencode { spec, stream: Stream::default(), deck: Deck::new(packs), dealt: 0, left: n, unit: 1.0 / n as f64 }
    }

    fn start(&mut self, obs: &mut [u8]) {
        self.dealt = 1;
        self.left = self.deck.n();
        obs.copy_from_slice(&[1, suit(self.deck.cards()[0])]);
    }
}

impl Env for Autoencode {
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
        if let Some(card) = self.deck.cards().get(self.dealt) {
            self.dealt += 1;
            obs.copy_from_slice(&[u8::from(self.dealt < self.deck.n()), suit(*card)]);
            return Step::default();
        }
        obs.copy_from_slice(&[0, 0]);
        self.left = self.left.saturating_sub(1);
        let right = i32::from(suit(self.deck.cards()[self.left])) == action[0];
        Step { reward: if right { self.unit } else { -self.unit }, terminated: self.left == 0, truncated: false }
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
        let cards = self.deck.cards();
        Some(if self.dealt < cards.len() {
            format!("watch {}", picture(&cards[..self.dealt], 1))
        } else {
            format!("play, next answer {}", picture(&cards[..self.left], 1))
        })
    }

    fn picture(&self) -> Option<Picture> {
        let mut p = Picture::new(13.0, 3.4);
        let cards = self.deck.cards();
        let (label, shown) =
            if self.dealt < cards.len() { ("watch", &cards[..self.dealt]) } else { ("recite", &cards[..self.left]) };
        super::deck::draw(&mut p, 0.0, label, shown, 26, 1);
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_then_recite_backwards_by_hand() {
        let mut env = Autoencode::new(Level::Easy, false);
        let mut obs = [0, 0];
        env.reset_into(Some(3), &mut obs);
        let suits: Vec<u8> = env.deck.cards().iter().map(|c| suit(*c)).collect();
        assert_eq!(obs, [1, suits[0]]);
        for t in 0..51 {
            assert_eq!(env.step_into(&[0], &mut obs), Step::default());
            // The last card comes with the play flag.
            assert_eq!(obs, [u8::from(t < 50), suits[t + 1]], "watch step {t}");
        }
        let mut total = 0.0;
        for t in 0..52 {
            let step = env.step_into(&[i32::from(suits[51 - t])], &mut obs);
            assert_eq!((obs, step.reward, step.terminated), ([0, 0], 1.0 / 52.0, t == 51), "play step {t}");
            total += step.reward;
        }
        assert!((total - 1.0).abs() < 1e-12);
    }

    #[test]
    fn sizes_of_the_three_levels() {
        assert_eq!(Level::ALL.map(|l| Autoencode::new(l, false).spec.max_steps), [Some(103), Some(207), Some(311)]);
    }
}
