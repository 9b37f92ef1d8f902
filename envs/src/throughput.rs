//! Steps per second of the bundled tasks, on one thread.
//!
//! What is timed: the typed batched form ([`Batch`]) with autoreset, episode statistics and observations written, or
//! the erased one ([`VecEnv`]); uniform random actions drawn beforehand. The rate is the best of many slices of 2 ms,
//! so that other load on the machine counts little.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::batch::Batch;
use crate::buffer::{ActElem, ActionBuffer};
use crate::classic::{Acrobot, CartPole, MountainCar, MountainCarContinuous, Pendulum};
use crate::conformance::random_action;
use crate::env::{Env, EnvSpec};
use crate::error::Result;
use crate::popgym::{
    Autoencode, Battleship, Concentration, CountRecall, HigherLower, Labyrinth, Level, MineSweeper, MultiarmedBandit,
    PartialCartPole, PartialPendulum, RepeatFirst, RepeatPrevious,
};
use crate::probe::{DEFAULT_LENGTH, TMaze};
use crate::registry::{EnvArgs, make};
use crate::space::Space;
use crate::vector::{Autoreset, VecEnv};

/// Vector steps with actions of their own before these repeat.
const PLAYS: usize = 256;
const SLICE: Duration = Duration::from_millis(2);

/// Random actions of `copies` copies for `PLAYS` vector steps.
pub fn random_plays(space: &Space, copies: usize) -> Vec<ActionBuffer> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let play = |_| {
        let mut all = ActionBuffer::for_space(space, 0);
        for _ in 0..copies {
            all.extend(random_action(space, None, &mut rng).view());
        }
        all
    };
    (0..PLAYS).map(play).collect()
}

/// Calls per second of `step`, times `copies`: the best slice within `budget`.
fn best(copies: usize, budget: Duration, mut step: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let (begun, mut best, mut at) = (Instant::now(), 0.0f64, 0);
    let block = (1024 / copies.max(1)).max(1);
    while begun.elapsed() < budget || best == 0.0 {
        let (slice, mut n) = (Instant::now(), 0);
        while slice.elapsed() < SLICE {
            for _ in 0..block {
                step(at % PLAYS)?;
                at += 1;
            }
            n += block;
        }
        best = best.max((n * copies) as f64 / slice.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Steps per second of a typed task in a batch of `copies`. Error: no copies.
pub fn batch_rate<E: Env>(new: impl Fn(usize) -> E, copies: usize, budget: Duration) -> Result<f64> {
    let mut batch = Batch::new(copies, new)?;
    batch.reset(1);
    let plays = random_plays(&batch.spec().action_space, copies);
    best(copies, budget, |i| batch.step(E::Act::from_ref(plays[i].view()).unwrap_or_default()))
}

/// Steps per second of a registered task in a vector environment of `copies`. Errors: unknown id, no copies.
pub fn erased_rate(id: &str, copies: usize, budget: Duration) -> Result<f64> {
    let mut envs = VecEnv::new(&|_| make(id, &EnvArgs::default()), copies, 1, Autoreset::SameStep)?;
    envs.reset()?;
    let plays = random_plays(&envs.spec().action_space, copies);
    best(copies, budget, |i| envs.step(plays[i].view()).map(|_| ()))
}

/// What to do with each typed task.
pub trait Visitor {
    /// Gets the task's spec and how to make it.
    fn visit<E: Env>(&mut self, spec: &EnvSpec, new: &dyn Fn() -> E) -> Result<()>;
}

/// Shows every bundled task in its typed form to `v`, in the registry's order.
pub fn visit_all(v: &mut impl Visitor) -> Result<()> {
    fn one<E: Env>(v: &mut impl Visitor, new: impl Fn() -> E) -> Result<()> {
        v.visit(new().spec(), &new)
    }
    fn family<E: Env>(v: &mut impl Visitor, new: fn(Level, bool) -> E) -> Result<()> {
        Level::ALL.into_iter().try_for_each(|level| one(v, || new(level, false)))
    }
    family(v, RepeatFirst::new)?;
    family(v, RepeatPrevious::new)?;
    family(v, Autoencode::new)?;
    family(v, CountRecall::new)?;
    family(v, HigherLower::new)?;
    family(v, Concentration::new)?;
    family(v, Battleship::new)?;
    family(v, MineSweeper::new)?;
    family(v, MultiarmedBandit::new)?;
    family(v, PartialCartPole::position_only)?;
    family(v, PartialCartPole::noisy)?;
    family(v, |level, legacy| PartialCartPole::velocity_only(level, legacy, false))?;
    family(v, PartialPendulum::position_only)?;
    family(v, PartialPendulum::noisy)?;
    family(v, Labyrinth::escape)?;
    family(v, Labyrinth::explore)?;
    one(v, CartPole::new)?;
    one(v, Acrobot::new)?;
    one(v, MountainCar::new)?;
    one(v, MountainCarContinuous::new)?;
    one(v, Pendulum::new)?;
    one(v, || TMaze::new(DEFAULT_LENGTH))
}

/// Steps per second of every bundled task in batches of each size of `copies`, `budget` for each; `each` gets the id,
/// the copies and the rate as they come.
pub fn all_rates(copies: &[usize], budget: Duration, each: &mut dyn FnMut(&str, usize, f64)) -> Result<()> {
    struct Rates<'a> {
        copies: &'a [usize],
        budget: Duration,
        each: &'a mut dyn FnMut(&str, usize, f64),
    }
    impl Visitor for Rates<'_> {
        fn visit<E: Env>(&mut self, spec: &EnvSpec, new: &dyn Fn() -> E) -> Result<()> {
            for &n in self.copies {
                let rate = batch_rate(|_| new(), n, self.budget)?;
                (self.each)(&spec.id, n, rate);
            }
            Ok(())
        }
    }
    visit_all(&mut Rates { copies, budget, each })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::bundled_registry;

    #[test]
    fn every_registered_task_is_visited_and_has_a_rate() {
        let mut ids = Vec::new();
        all_rates(&[1], Duration::ZERO, &mut |id, copies, rate| {
            assert!(copies == 1 && rate > 0.0, "{id}: {rate}");
            ids.push(id.to_owned());
        })
        .unwrap();
        let ours = |id: &String| !id.starts_with("gymnasium-rs:");
        assert_eq!(ids, bundled_registry().list().iter().map(|e| e.spec.id.clone()).filter(ours).collect::<Vec<_>>());
        assert!(erased_rate("TMaze-v0", 2, Duration::ZERO).unwrap() > 0.0);
        assert!(erased_rate("TMaze-v0", 0, Duration::ZERO).is_err());
    }
}
