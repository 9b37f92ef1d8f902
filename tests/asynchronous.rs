//! Actor threads beside the learner: they end at once, whatever they wait for, and they act with weights no older than
//! documented. The names are those of the field cases.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mamba_rl::config::{Config, Flags};
use mamba_rl::replay::SequenceBatch;
use mamba_rl::train::{Fleet, Next, Parts, StepReport, make_env};
use rand::SeedableRng;

const ACTORS: usize = 4;
const QUEUE: usize = 2;
const EVERY: u64 = 8;

/// Four actors of two copies, a queue of two, greedy.
fn small() -> Config {
    let sets = [
        "train.mode=async",
        "train.steps=10000000",
        "env.num_envs=8",
        "actor.threads=4",
        "actor.queue=2",
        "actor.publish_every=8",
        "backbone.d_model=8",
        "network.head_hidden=8",
        "learner.batch=2",
        "exploration.kind=linear",
        "exploration.start=0.0",
        "exploration.end=0.0",
    ];
    let mut config = Config::load(None, None, &sets.map(str::to_owned), &Flags::default()).expect("a config");
    let env = make_env(&config.env.id, false, &serde_json::json!({})).expect("the task");
    config.resolve(env.spec()).expect("resolves");
    config
}

fn parts(config: &Config) -> (Parts, Vec<f32>) {
    let parts = Parts::new(config, None).expect("parts");
    let mut weights = Vec::new();
    parts.learner.weights(&mut weights).expect("weights");
    (parts, weights)
}

fn report(fleet: &mut Fleet) -> StepReport {
    loop {
        match fleet.wait().expect("actors run") {
            Next::Step(report) => return report,
            Next::Nothing => {}
            Next::Ended => panic!("actors ended by themselves"),
        }
    }
}

/// Actor threads of this process, by name; none where the system does not tell.
fn actor_threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |t: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(t.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|n| n.starts_with("actor-")).count()
}

/// Learner stops at update 50 with the queue full: how long until everything is gone.
fn stop_while_the_queue_is_full() -> Duration {
    let config = small();
    let (mut parts, weights) = parts(&config);
    let replay = parts.replay.clone();
    let mut fleet = Fleet::start(&config, &replay, 0, 0, &weights).expect("a fleet");
    let (mut batch, mut rng) = (SequenceBatch::default(), rand_chacha::ChaCha8Rng::seed_from_u64(5));
    while parts.learner.updates() < 50 {
        report(&mut fleet);
        let sampled = {
            let replay = replay.lock().expect("no panic");
            replay.len_sequences() >= 2 && replay.sample(2, &mut rng, &mut batch).is_ok()
        };
        if sampled {
            parts.learner.update(&batch).expect("learns");
        }
    }
    // nobody takes from the queue any more: two reports lie in it and every actor waits with one more
    std::thread::sleep(Duration::from_millis(100));
    assert!(cfg!(not(target_os = "linux")) || actor_threads() == ACTORS);
    let begun = Instant::now();
    drop(fleet);
    begun.elapsed()
}

/// The kernel takes a joined thread off its list a moment after the join has returned.
fn none_is_left() -> bool {
    (0..100).any(|_| {
        actor_threads() == 0 || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    })
}

#[test]
fn cc_1_a_full_queue_holds_nobody() {
    let _one = ONE.lock();
    for _ in 0..5 {
        assert!(stop_while_the_queue_is_full() < Duration::from_secs(5));
        assert!(none_is_left(), "a thread is left");
    }
}

#[test]
#[ignore = "100 starts and stops: half a minute"]
fn cc_1_a_full_queue_holds_nobody_100_times() {
    let _one = ONE.lock();
    for n in 0..100 {
        assert!(stop_while_the_queue_is_full() < Duration::from_secs(5), "stop {n}");
        assert!(none_is_left(), "a thread is left after stop {n}");
    }
}

/// Tests that count threads of the process run one after another.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn cc_3_every_actor_takes_new_weights_within_the_lag() {
    let _one = ONE.lock();
    let config = small();
    let (parts, mut weights) = parts(&config);
    let mut fleet = Fleet::start(&config, &Arc::clone(&parts.replay), 0, 0, &weights).expect("a fleet");
    for _ in 0..20 {
        let r = report(&mut fleet);
        assert_eq!((r.version, r.publications), (0, 0));
    }
    let bias = parts.learner.layout().slot("head.advantage.bias").expect("a bias");
    weights[bias.at + 3] = 1e4; // action 3 is now always best
    fleet.publish(EVERY - 1, &weights);
    // too early: nothing is handed over before `publish_every` updates
    assert!((0..20).all(|_| report(&mut fleet).version == 0));
    fleet.publish(EVERY, &weights);
    // with old weights, of each actor: what lies in the queue, one report in its hands, one in the making
    let (mut seen, mut late) = ([0; ACTORS], [0; ACTORS]);
    let patience = Instant::now();
    while seen != [EVERY; ACTORS] {
        assert!(patience.elapsed() < Duration::from_secs(30), "versions {seen:?} after half a minute");
        let r = report(&mut fleet);
        assert!(r.version >= seen[r.actor], "versions only rise");
        seen[r.actor] = r.version;
        if r.version == 0 {
            late[r.actor] += 1;
        } else {
            assert_eq!(r.version, EVERY);
            assert!(r.actions.iter().all(|&a| a == 3), "actor {} chose {:?}", r.actor, r.actions);
        }
    }
    assert!(late.iter().all(|&n| n <= QUEUE + 2), "{late:?} steps with old weights");
    assert_eq!(fleet.versions(), [EVERY; ACTORS]);
}

#[test]
fn all_steps_are_reported_and_then_it_ends() {
    let _one = ONE.lock();
    let mut config = small();
    config.train.steps = 100; // 12 vector steps of 8 copies
    let (parts, weights) = parts(&config);
    let mut fleet = Fleet::start(&config, &parts.replay, 0, 0, &weights).expect("a fleet");
    let mut steps = 0;
    loop {
        match fleet.wait().expect("actors run") {
            Next::Step(r) => steps += r.steps,
            Next::Nothing => {}
            Next::Ended => break,
        }
    }
    assert_eq!(steps, 96);
}
