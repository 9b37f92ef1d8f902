//! Steps per second of the typed batched form (64 copies) and of `VecEnv`, on one thread.
//!
//! cargo run --release -p mamba-rl-envs --example throughput

use std::time::Instant;

use mamba_rl_envs::classic::{Acrobot, CartPole, MountainCar, Pendulum};
use mamba_rl_envs::popgym::{
    Autoencode, Battleship, Concentration, CountRecall, HigherLower, Labyrinth, Level, MineSweeper, MultiarmedBandit,
    PartialCartPole, PartialPendulum, RepeatFirst, RepeatPrevious,
};
use mamba_rl_envs::probe::TMaze;
use mamba_rl_envs::{ActElem, ActionBuffer, Autoreset, Batch, Env, EnvArgs, VecEnv, make, random_action};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const COPIES: usize = 64;
const PLAYS: usize = 256;
const SLICES: usize = 60;
/// Seconds.
const SLICE: f64 = 0.003;

/// Random actions, drawn before the clock starts.
fn plays(space: &mamba_rl_envs::Space) -> Vec<ActionBuffer> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let play = |_| {
        let mut all = ActionBuffer::for_space(space, 0);
        for _ in 0..COPIES {
            all.extend(random_action(space, None, &mut rng).view());
        }
        all
    };
    (0..PLAYS).map(play).collect()
}

/// Millions of steps per second: the best of short slices, so that other load on the machine counts little.
fn rate(mut step: impl FnMut(usize)) -> f64 {
    let mut best = 0.0f64;
    for _ in 0..SLICES {
        let (start, mut n) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < SLICE {
            (0..PLAYS).for_each(&mut step);
            n += PLAYS * COPIES;
        }
        best = best.max(n as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    best
}

fn row<E: Env>(new: impl Fn(usize) -> E) -> Result<(), Box<dyn std::error::Error>> {
    let mut batch = Batch::new(COPIES, new)?;
    batch.reset(1);
    let spec = batch.spec().clone();
    let plays = plays(&spec.action_space);
    let typed = rate(|i| {
        let actions = E::Act::from_ref(plays[i].view()).unwrap_or_default();
        batch.step(actions).expect("random actions lie in the space");
    });
    let mut envs = VecEnv::new(&|_| make(&spec.id, &EnvArgs::default()), COPIES, 1, Autoreset::SameStep)?;
    envs.reset()?;
    let erased = rate(|i| {
        envs.step(plays[i].view()).expect("random actions lie in the space");
    });
    println!("{:28} {typed:8.1} {erased:8.1}", spec.name);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:28} {:>8} {:>8}   million steps/s, {COPIES} copies, one thread", "task", "Batch", "VecEnv");
    row(|_| RepeatFirst::new(Level::Easy, false))?;
    row(|_| RepeatPrevious::new(Level::Easy, false))?;
    row(|_| Autoencode::new(Level::Easy, false))?;
    row(|_| CountRecall::new(Level::Easy, false))?;
    row(|_| CountRecall::new(Level::Hard, false))?;
    row(|_| HigherLower::new(Level::Easy, false))?;
    row(|_| Concentration::new(Level::Easy, false))?;
    row(|_| Battleship::new(Level::Easy, false))?;
    row(|_| MineSweeper::new(Level::Easy, false))?;
    row(|_| MultiarmedBandit::new(Level::Easy, false))?;
    row(|_| CartPole::new())?;
    row(|_| PartialCartPole::position_only(Level::Easy, false))?;
    row(|_| PartialCartPole::noisy(Level::Easy, false))?;
    row(|_| Pendulum::new())?;
    row(|_| PartialPendulum::position_only(Level::Easy, false))?;
    row(|_| Labyrinth::escape(Level::Easy, false))?;
    row(|_| Acrobot::new())?;
    row(|_| MountainCar::new())?;
    row(|_| TMaze::new(10))?;
    Ok(())
}
