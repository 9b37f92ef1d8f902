//! POPGym's tasks (Morad, Kortvelesy, Bettini, Liwicki, Prorok, ICLR 2023, arXiv 2303.01859), rules of release 1.0.7,
//! restated; `legacy` selects the rules of the releases that the published tables used where they differ
//! (CountRecall's action count, MineSweeper's step limit). One file per family, three difficulties each.
//!
//! Ids are `popgym-<Name><Difficulty>-v0`; old names (`Stateless…`) are aliases. Returns lie in about [-1, 1].

mod autoencode;
mod bandit;
mod battleship;
mod cart_pole;
mod concentration;
mod count_recall;
mod deck;
mod higher_lower;
mod labyrinth;
mod maze;
mod mine_sweeper;
mod pendulum;
mod repeat_first;
mod repeat_previous;

pub use autoencode::Autoencode;
pub use bandit::MultiarmedBandit;
pub use battleship::Battleship;
pub use cart_pole::PartialCartPole;
pub use concentration::Concentration;
pub use count_recall::CountRecall;
pub use higher_lower::HigherLower;
pub use labyrinth::Labyrinth;
pub use mine_sweeper::MineSweeper;
pub use pendulum::PartialPendulum;
pub use repeat_first::RepeatFirst;
pub use repeat_previous::RepeatPrevious;

use serde::{Deserialize, Serialize};

use crate::env::{Env, EnvSpec, erase};
use crate::registry::Entry;
use crate::space::Space;

/// Difficulty of a POPGym task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Easy.
    Easy,
    /// Medium.
    Medium,
    /// Hard.
    Hard,
}

impl Level {
    /// All three.
    pub const ALL: [Level; 3] = [Level::Easy, Level::Medium, Level::Hard];

    /// The entry for this difficulty of an (easy, medium, hard) table.
    pub fn pick<T>(self, [easy, medium, hard]: [T; 3]) -> T {
        match self {
            Level::Easy => easy,
            Level::Medium => medium,
            Level::Hard => hard,
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.pick(["Easy", "Medium", "Hard"]))
    }
}

/// The discount that suits tasks whose actions do not change the future: each answer is paid at once, so a long horizon
/// only adds noise to the target.
const ANSWER_GAMMA: Option<f64> = Some(0.5);

/// The discount of answers that need much memory: what an answer pays is all there is to learn.
const RECALL_GAMMA: Option<f64> = Some(0.0);

fn spec(family: &str, level: Level, legacy: bool, observation: Space, action: Space) -> EnvSpec {
    let (id, name) = (format!("popgym-{family}{level}-v0"), format!("{family}{level}"));
    EnvSpec { legacy, return_range: (-1.0, 1.0), ..EnvSpec::new(&id, &name, observation, action) }
}

/// Ids and plain names of an older family name.
fn old_names(family: &str, level: Level) -> Vec<String> {
    vec![format!("popgym-{family}{level}-v0"), format!("{family}{level}")]
}

fn family<E: Env + 'static>(new: fn(Level, bool) -> E) -> Vec<Entry> {
    let entry = |level| {
        Entry::new(new(level, false).spec().clone(), Vec::new(), move |args| Ok(erase(new(level, args.legacy))))
    };
    Level::ALL.map(entry).into()
}

fn pendulums(new: fn(Level, bool) -> PartialPendulum) -> Vec<Entry> {
    Level::ALL.map(|level| crate::classic::torque_task(move |args| new(level, args.legacy))).into()
}

/// All POPGym tasks.
pub(crate) fn entries() -> Vec<Entry> {
    [
        family(RepeatFirst::new),
        family(RepeatPrevious::new),
        family(Autoencode::new),
        family(CountRecall::new),
        family(HigherLower::new),
        family(Concentration::new),
        family(Battleship::new),
        family(MineSweeper::new),
        family(MultiarmedBandit::new),
        family(PartialCartPole::position_only),
        family(PartialCartPole::noisy),
        cart_pole::velocity_entries(),
        pendulums(PartialPendulum::position_only),
        pendulums(PartialPendulum::noisy),
        family(Labyrinth::escape),
        family(Labyrinth::explore),
    ]
    .into_iter()
    .flatten()
    .collect()
}
