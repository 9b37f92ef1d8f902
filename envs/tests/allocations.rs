//! In the steady state neither `Batch` nor `VecEnv` allocates, episode ends and resets included.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mamba_rl_envs::classic::CartPole;
use mamba_rl_envs::popgym::{Concentration, Labyrinth, Level, MineSweeper, PartialPendulum, RepeatPrevious};
use mamba_rl_envs::{ActionBuffer, Autoreset, Batch, Env, EnvArgs, VecEnv, make, random_action};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged; counting touches a thread-local number only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    f();
    ALLOCATIONS.with(Cell::get) - before
}

/// `n` flat random actions of 16 copies.
fn plays(space: &mamba_rl_envs::Space, n: usize) -> Vec<ActionBuffer> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let play = |_| {
        let mut all = ActionBuffer::for_space(space, 0);
        (0..16).for_each(|_| assert!(all.extend(random_action(space, None, &mut rng).view())));
        all
    };
    (0..n).map(play).collect()
}

fn batch<E: Env>(new: impl Fn(usize) -> E) -> usize {
    let mut batch = Batch::new(16, new).unwrap();
    batch.reset(1);
    let plays = plays(&batch.spec().action_space, 400);
    let mut step = |p: &ActionBuffer| {
        batch.step(<E::Act as mamba_rl_envs::ActElem>::from_ref(p.view()).unwrap()).unwrap();
    };
    plays.iter().take(3).for_each(&mut step);
    counted(|| plays.iter().skip(3).for_each(&mut step))
}

#[test]
fn the_counter_counts() {
    assert_eq!(counted(|| drop(std::hint::black_box(vec![1u8; 8]))), 1);
}

#[test]
fn batches_do_not_allocate() {
    assert_eq!(batch(|_| RepeatPrevious::new(Level::Easy, false)), 0);
    assert_eq!(batch(|_| Concentration::new(Level::Easy, false)), 0);
    assert_eq!(batch(|_| CartPole::new()), 0);
    assert_eq!(batch(|_| PartialPendulum::noisy(Level::Easy, false)), 0);
    assert_eq!(batch(|_| Labyrinth::explore(Level::Easy, false)), 0);
    assert_eq!(batch(|_| MineSweeper::new(Level::Easy, false)), 0);
}

#[test]
fn vector_environments_do_not_allocate_once_their_logs_have_grown() {
    for id in ["RepeatPreviousEasy", "PositionOnlyCartPoleEasy", "MultiarmedBanditEasy", "PositionOnlyPendulumEasy"] {
        let mut envs = VecEnv::new(&|_| make(id, &EnvArgs::default()), 16, 1, Autoreset::SameStep).unwrap();
        envs.reset().unwrap();
        let plays = plays(&envs.spec().action_space, 1000);
        let mut step = |p: &ActionBuffer| assert_eq!(envs.step(p.view()).unwrap().reward.len(), 16);
        plays.iter().take(400).for_each(&mut step);
        assert_eq!(counted(|| plays.iter().skip(400).for_each(&mut step)), 0, "{id}");
    }
}
