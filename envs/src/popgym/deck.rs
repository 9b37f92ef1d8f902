//! Packs of 52 cards. Card i of a deck: within its pack j = i mod 52, rank = j / 4 (0 ace, lowest, .. 12 king),
//! suit = j mod 4 (0 spade, 1 diamond, 2 club, 3 heart), colour = j mod 2 (0 black, 1 red).

use rand::Rng;
use rand::seq::SliceRandom;
use serde_json::Value;

use crate::error::Result;
use crate::hidden::Hidden;
use crate::picture::{Colour, Picture, colour as paint};

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

const RANKS: [&str; 13] = ["A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K"];

/// The cards shown so far as text, newest last, the one `lag` back (1 = newest) in brackets; 0 marks none.
pub(crate) fn picture(shown: &[u16], lag: usize) -> String {
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

/// Draws the newest `keep` cards below a label, 13 to a line, the one `lag` back (1 = newest) on gold; 0 marks none. Gives
/// the height used up, the same for any number of cards.
pub(crate) fn draw(p: &mut Picture, top: f32, label: &str, cards: &[u16], keep: usize, lag: usize) -> f32 {
    p.text([0.05, top + 0.15], 0.3, label, paint::INK);
    let from = cards.len().saturating_sub(keep);
    for (i, &card) in cards.iter().enumerate().skip(from) {
        let (column, line) = ((i - from) % 13, (i - from) / 13);
        let at = [column as f32, top + 0.6 + 1.4 * line as f32];
        let marked = lag > 0 && i + lag == cards.len();
        draw_card(p, at, card, if marked { paint::GOLD } else { paint::WHITE });
    }
    top + 0.6 + 1.4 * keep.div_ceil(13) as f32
}

/// One card, 1 × 1.4 with its gap.
pub(crate) fn draw_card(p: &mut Picture, [x, y]: [f32; 2], card: u16, fill: Colour) {
    p.rect([x + 0.05, y + 0.05], [0.9, 1.3], paint::SLATE);
    p.rect([x + 0.08, y + 0.08], [0.84, 1.24], fill);
    let ink = if colour(card) == 1 { paint::RED } else { paint::INK };
    p.centred([x + 0.5, y + 0.42], 0.4, RANKS[usize::from(rank(card))], ink);
    draw_suit(p, [x + 0.5, y + 0.92], suit(card), ink);
}

fn draw_suit(p: &mut Picture, [x, y]: [f32; 2], suit: u8, ink: Colour) {
    let at = |dx: f32, dy: f32| [x + 0.28 * dx, y + 0.28 * dy];
    let stem = [at(0.0, 0.1), at(0.35, 1.0), at(-0.35, 1.0)];
    match suit {
        0 => {
            p.polygon(&[at(0.0, -1.0), at(0.8, 0.25), at(-0.8, 0.25)], ink);
            [-0.4, 0.4].into_iter().for_each(|dx| p.disc(at(dx, 0.25), 0.28 * 0.45, ink));
            p.polygon(&stem, ink);
        }
        1 => p.polygon(&[at(0.0, -1.0), at(0.7, 0.0), at(0.0, 1.0), at(-0.7, 0.0)], ink),
        2 => {
            [(0.0, -0.5), (-0.48, 0.2), (0.48, 0.2)]
                .into_iter()
                .for_each(|(dx, dy)| p.disc(at(dx, dy), 0.28 * 0.45, ink));
            p.polygon(&stem, ink);
        }
        _ => {
            p.polygon(&[at(0.0, 1.0), at(0.8, -0.25), at(-0.8, -0.25)], ink);
            [-0.4, 0.4].into_iter().for_each(|dx| p.disc(at(dx, -0.4), 0.28 * 0.45, ink));
        }
    }
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
