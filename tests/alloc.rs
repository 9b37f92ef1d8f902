//! The steady state allocates nothing: learner, unrolling, acting with the replay, counted over all threads of a pool of
//! two after a few steps to warm up. One test, since the count is of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use mamba_rl::bench::{Learning, SHAPES, Stepping, Unroll};
use mamba_rl::config::{Config, Flags};
use mamba_rl::replay::SequenceBatch;
use mamba_rl::train::{Parts, make_env};
use rand::SeedableRng;

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of all threads during `calls` calls after `warm` others.
fn steady(warm: usize, calls: usize, f: &mut dyn FnMut()) -> usize {
    (0..warm).for_each(|_| f());
    let before = COUNT.load(Ordering::SeqCst);
    (0..calls).for_each(|_| f());
    COUNT.load(Ordering::SeqCst) - before
}

#[test]
fn the_steady_state_allocates_nothing() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    pool.install(|| {
        let counted = steady(0, 1, &mut || drop(std::hint::black_box(vec![0_u8; 100])));
        assert!(counted >= 1, "the count counts");
        for shape in [SHAPES[0], SHAPES[1]] {
            let mut learning = Learning::new(shape).expect("a learner");
            assert_eq!(steady(3, 3, &mut || learning.step().expect("runs")), 0, "a learner's step");
            let mut train = Unroll::new(shape, true).expect("a network");
            assert_eq!(steady(3, 3, &mut || train.forward_backward().expect("runs")), 0, "forward and backward");
            for rows in [1, 64] {
                let mut stepping = Stepping::new(shape, rows).expect("a network");
                assert_eq!(steady(3, 10, &mut || stepping.step().expect("runs")), 0, "a step of {rows} rows");
            }
        }
        acting(&["learner.batch=4"]);
        let windows = ["replay.layout=window", "learner.length=16", "learner.burn_in=8", "learner.batch=4"];
        acting(&[&windows[..], &["env.id=popgym-PositionOnlyPendulumHard-v0"]].concat());
        acting(&[&windows[..], &["learner.critic=qr", "learner.atoms=7"]].concat());
    });
}

/// Environment, actor, replay and learner together, once the replay is full and gives back what it takes.
fn acting(more: &[&str]) {
    let sets = [&["env.num_envs=8", "replay.capacity=1024", "backbone.d_model=16"], more].concat();
    let sets: Vec<String> = sets.into_iter().map(str::to_owned).collect();
    let mut config = Config::load(None, None, &sets, &Flags::default()).expect("a config");
    let env = make_env(&config.env.id, false, &serde_json::json!({})).expect("the task");
    config.resolve(env.spec()).expect("resolves");
    let mut parts = Parts::new(&config, None).expect("parts");
    let first = parts.envs.reset().expect("first observations");
    let replay = parts.replay.clone();
    parts.actor.begin(first, &mut replay.lock().expect("one thread")).expect("begins");
    let (mut batch, mut rng) = (SequenceBatch::default(), rand_chacha::ChaCha8Rng::seed_from_u64(3));
    let mut weights = Vec::new();
    let mut vector_step = || {
        let mut replay = replay.lock().expect("one thread");
        let actions = parts.actor.act(parts.envs.last(), 0, Some(&mut replay)).expect("acts");
        parts.envs.step(actions).expect("steps");
        parts.actor.observe(parts.envs.last(), &mut replay).expect("stores");
        if replay.len_sequences() >= 4 {
            replay.sample(4, &mut rng, &mut batch).expect("a batch");
            parts.learner.update(&batch).expect("learns");
            replay.set_priority(&batch.handle, parts.learner.priorities());
            parts.learner.weights(&mut weights).expect("weights");
            parts.actor.set_weights(&weights).expect("takes them");
        }
    };
    assert_eq!(steady(600, 120, &mut vector_step), 0, "acting and learning, {more:?}");
}
