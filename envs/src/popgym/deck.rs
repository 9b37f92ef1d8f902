//! Packs of 52 cards. Card i of a deck: within its pack j = i mod 52, rank = j / 4 (0 ace, lowest, .. 12 king),
//! suit = j mod 4 (0 spade, 1 diamond, 2 club, 3 heart), colour = j mod 2 (0 black, 1 red).

use rand::Rng;
use rand::seq::SliceRandom;
use serde_json::Value;

use crate::error::Result;
use crate::hidden::Hidden;

/// Suit of a card, 0..4. 52 is a multiple of 4, so the pack does not matter.
#[inline]
pub fn suit(card: u16) -> u8 {
    (card & 3) as u8
}

/// Colour of a card, 0..2.
#[inline]
pub fn colour(card: u16) -> u8 {
    (card & 1) as u8
}

/// Rank of a card, 0..13.
#[inline]
pub fn rank(card: u16) -> u8 {
    (card % 52 / 4) as u8
}

/// A shuffled deck in the order it is dealt: `cards()[0]` comes first.
#[derive(Debug, Clone)]
pub struct Deck {
    cards: Vec<u16>,
}

impl Deck {
    /// `packs` packs, sorted, 1 to 1,000.
    pub fn new(packs: usize) -> Self {
        Deck { cards: (0..52 * packs.clamp(1, 1_000) as u16).collect() }
    }

    /// Uniform random order, the same from the same stream whatever the order was before.
    #[inline]
    pub fn shuffle(&mut self, rng: &mut impl Rng) {
        self.cards.iter_mut().zip(0..).for_each(|(card, i)| *card = i);
        self.cards.shuffle(rng);
    }

    /// Card indices in dealing order.
    #[inline]
    pub fn cards(&self) -> &[u16] {
        &self.cards
    }

    /// Number of cards N.
    #[inline]
    pub fn n(&self) -> usize {
        self.cards.len()
    }

    pub(crate) fn to_json(&self) -> Value {
        Value::from(self.cards.clone())
    }

    /// Takes the order from a hidden state: each card once.
    pub(crate) fn read(&mut self, hidden: &Hidden<'_>, field: &str) -> Result<()> {
        let order = hidden.indices(field, self.n(), self.n())?;
        let mut seen = vec![false; self.n()];
        for &card in &order {
            if std::mem::replace(&mut seen[card], true) {
                return Err(hidden.error(field, format!("card {card} twice"), "each card once"));
            }
        }
        self.cards = order.into_iter().map(|c| c as u16).collect();
        Ok(())
    }
}

/// The cards shown so far as text, newest last, the one `lag` back (1 = newest) in brackets; 0 marks none.
pub(crate) fn picture(shown: &[u16], lag: usize) -> String {
    const RANKS: [&str; 13] = ["A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K"];
    const SUITS: [char; 4] = ['♠', '♦', '♣', '♥'];
    let from = shown.len().saturating_sub(lag.max(13));
    let mut line = String::new();
    for (i, &card) in shown.iter().enumerate().skip(from) {
        let name = format!("{}{}", RANKS[usize::from(rank(card))], SUITS[usize::from(suit(card))]);
        let marked = lag > 0 && i + lag == shown.len();
        line += &if marked { format!("[{name}] ") } else { format!("{name} ") };
    }
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_has_four_of_each_rank_and_thirteen_of_each_suit() {
        let d = Deck::new(2);
        assert_eq!(d.n(), 104);
        for r in 0..13 {
            assert_eq!(d.cards().iter().filter(|c| rank(**c) == r).count(), 8);
        }
        for s in 0..4 {
            assert_eq!(d.cards().iter().filter(|c| suit(**c) == s).count(), 26);
        }
        assert!(d.cards().iter().all(|c| colour(*c) == suit(*c) % 2));
        assert_eq!((rank(0), rank(4), rank(51), rank(52), suit(53)), (0, 1, 12, 0, 1));
    }
}
