//! Field cases RP-1 to RP-8: the priority tree, ring-buffer edges, window cutting, memory.

use super::counter::CounterReplay;
use mamba_rl::replay::sum_tree::SumTree;
use mamba_rl::replay::*;
use mamba_rl::value::n_step::{NStepOut, NStepRow, n_step_targets};
use mamba_rl::value::priority::sequence_priority;
use mamba_rl::value::td_error::{Loss, TdRow, td_loss};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Windows of `length` learnt steps after `burn_in`, one every `period`.
pub fn window(capacity: usize, burn_in: usize, length: usize, period: usize) -> ReplayConfig {
    ReplayConfig { capacity, layout: Layout::Window, burn_in, length, period, ..ReplayConfig::default() }
}

/// Handles of everything that closed since the last call.
pub fn closed(replay: &mut CounterReplay) -> Vec<Handle> {
    let mut handles = Vec::new();
    replay.inner.drain_closed(|span| handles.push(span.handle));
    handles
}

pub fn rp_1_tree_does_not_drift() {
    let (capacity, filled) = (131_072, 65_536);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut tree = SumTree::new(capacity);
    for leaf in 0..filled {
        assert!(tree.set(leaf, rng.random_range(0.1..5.0)));
    }
    for _ in 0..1_000_000 {
        assert!(tree.set(rng.random_range(0..filled), rng.random_range(0.1..5.0)));
    }
    let sum: f64 = tree.weights().sum();
    assert!((tree.total() - sum).abs() / tree.total() <= 1e-6);
    for _ in 0..1_000_000 {
        let leaf = tree.find(rng.random::<f64>() * tree.total()).expect("a leaf");
        assert!(leaf < filled);
    }
    assert!(tree.find(tree.total()).is_some_and(|leaf| leaf < filled));
}

pub fn rp_2_bad_priorities_and_weights() {
    let config = ReplayConfig { alpha: 0.6, beta: 0.4, ..window(100, 0, 1, 1) };
    let mut replay = CounterReplay::new(1, config);
    for _ in 0..4 {
        replay.episode(0, 1);
    }
    let handles = closed(&mut replay);
    let report = replay.inner.set_priority(&handles, &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!((report.applied, report.stale, report.refused), (4, 0, 0));
    let mut batch = SequenceBatch::new();
    let mut expect = |replay: &mut CounterReplay, want: [f32; 4]| {
        replay.sample(64, &mut batch);
        for (handle, weight) in batch.handle.iter().zip(&batch.weight) {
            let i = handles.iter().position(|h| h == handle).expect("one of four");
            assert!((weight - want[i]).abs() <= 1e-4, "item {i}: {weight}, expected {}", want[i]);
            assert!(*weight > 0.0 && *weight <= 1.0);
        }
        assert!(handles.iter().all(|h| batch.handle.contains(h)));
    };
    expect(&mut replay, [1.0, 0.8467, 0.7682, 0.7170]);
    let report = replay.inner.set_priority(&handles[..3], &[f32::NAN, f32::INFINITY, -1.0]);
    assert_eq!((report.applied, report.stale, report.refused), (0, 0, 3));
    assert_eq!(replay.inner.refused_total(), 3);
    expect(&mut replay, [1.0, 0.8467, 0.7682, 0.7170]);
    // All-zero TD errors: a floor above zero, equal weights.
    let zero = sequence_priority(&[0.0f32; 3], &[true; 3], 0.9).expect("fitting lengths");
    assert_eq!(replay.inner.set_priority(&handles, &[zero; 4]).applied, 4);
    assert!(handles.iter().all(|&h| replay.inner.priority(h).is_some_and(|p| p > 0.0)));
    expect(&mut replay, [1.0; 4]);
}

pub fn rp_3_priority_of_new_items() {
    let mut replay = CounterReplay::new(1, window(100, 0, 1, 1));
    replay.episode(0, 1);
    let first = closed(&mut replay)[0];
    assert_eq!(replay.inner.priority(first), Some(1.0));
    replay.inner.set_priority(&[first], &[0.37]);
    replay.episode(0, 1);
    let second = closed(&mut replay)[0];
    assert!(replay.inner.priority(second).is_some_and(|p| (p - 0.37).abs() <= 1e-6));
    replay.inner.set_priority(&[second], &[0.21]);
    replay.episode(0, 1);
    assert_eq!(replay.inner.priority(second), Some(0.21));
    let third = closed(&mut replay)[0];
    assert!(replay.inner.priority(third).is_some_and(|p| (p - 0.37).abs() <= 1e-6));
}

pub fn rp_4_priority_ignores_weights() {
    let (td_error, learnt) = ([0.5f32, -2.0, 1.0], [true; 3]);
    let mut replay = CounterReplay::new(1, window(100, 0, 3, 3));
    replay.episode(0, 3);
    let handles = closed(&mut replay);
    let written = [1.0f32, 0.1].map(|weight| {
        let mut g = [0.0; 3];
        let row = TdRow { td_error: &td_error, learnt: &learnt, weight, n_learnt: 3 };
        let loss = td_loss(row, Loss::Squared, &mut g).expect("fitting lengths");
        let priority = sequence_priority(&td_error, &learnt, 0.9).expect("fitting lengths");
        replay.inner.set_priority(&handles, &[priority]);
        (loss, replay.inner.priority(handles[0]).expect("a live handle"))
    });
    assert!((written[0].0 - 10.0 * written[1].0).abs() < 1e-6, "the loss is weighted once");
    assert_eq!(written[0].1, written[1].1);
}

pub fn rp_5_stale_handles() {
    let mut replay = CounterReplay::new(1, window(8, 0, 1, 1));
    for _ in 0..8 {
        replay.episode(0, 1);
    }
    let old = closed(&mut replay)[3];
    for _ in 0..8 {
        replay.episode(0, 1);
    }
    let new = closed(&mut replay);
    assert_eq!((replay.inner.len_sequences(), replay.inner.len_steps()), (8, 8));
    let before: Vec<_> = new.iter().map(|&h| replay.inner.priority(h)).collect();
    let report = replay.inner.set_priority(&[old, new[5]], &[99.0, 0.25]);
    assert_eq!((report.applied, report.stale, report.refused), (1, 1, 0));
    assert_eq!((replay.inner.stale_total(), replay.inner.priority(old)), (1, None));
    for (i, &h) in new.iter().enumerate() {
        assert_eq!(replay.inner.priority(h), if i == 5 { Some(0.25) } else { before[i] });
    }
}

/// The 3-step sums of a row of counters, worked out again from the counters alone.
fn check_three_step(replay: &CounterReplay, batch: &SequenceBatch, row: usize) {
    let at: Vec<usize> = (0..batch.slots).map(|slot| batch.at(slot, row)).collect();
    let reward: Vec<f64> = at.iter().map(|&i| f64::from(batch.reward[i])).collect();
    let [terminated, truncated] = [&batch.terminated, &batch.truncated].map(|v| at.iter().map(|&i| v[i]).collect());
    let (terminated, truncated): (Vec<bool>, Vec<bool>) = (terminated, truncated);
    let mask: Vec<bool> = at.iter().map(|&i| batch.valid[i] == 1).collect();
    let n = at.len();
    let (mut target, mut raw, mut steps) = (vec![0.0; n], vec![0.0; n], vec![0; n]);
    let (mut bootstrap, mut full) = (vec![false; n], vec![false; n]);
    let row_in = NStepRow {
        reward: &reward,
        terminated: &terminated,
        truncated: &truncated,
        mask: &mask,
        next_value: &vec![0.0; n],
    };
    let out =
        NStepOut { target: &mut target, raw: &mut raw, steps: &mut steps, bootstrap: &mut bootstrap, full: &mut full };
    n_step_targets(row_in, 1.0, 3, None, out).expect("fitting lengths");
    for (slot, &i) in at.iter().enumerate().filter(|&(slot, _)| mask[slot]) {
        let counter = f64::from(replay.counter_at(batch, i));
        let m = steps[slot] as f64;
        assert_eq!(target[slot], m * counter + m * (m - 1.0) / 2.0);
    }
}

pub fn rp_6_wrap_around() {
    for capacity in [10, 64] {
        for (burn_in, length, period, episode) in [(2, 3, 2, 7), (0, 5, 1, 13), (4, 1, 1, usize::MAX), (0, 5, 5, 4)] {
            let mut replay = CounterReplay::new(1, window(capacity, burn_in, length, period));
            let mut batch = SequenceBatch::new();
            let written = capacity * 34 / 10;
            let mut left = 0;
            for step in 0..written {
                if left == 0 {
                    replay.begin(0);
                    left = episode;
                }
                left -= 1;
                replay.push(0, left == 0 && step % 2 == 0, left == 0);
                assert!(replay.inner.len_steps() <= capacity);
                if replay.inner.len_sequences() > 0 {
                    replay.sample(5, &mut batch);
                    replay.check(&batch);
                }
            }
            for _ in 0..1_000 {
                replay.sample(100, &mut batch);
                replay.check(&batch);
                for row in 0..100 {
                    check_three_step(&replay, &batch, row);
                }
            }
        }
    }
}

pub fn rp_7_burn_in_stays_in_its_episode() {
    let mut replay = CounterReplay::new(1, ReplayConfig { alpha: 0.0, ..window(1_000, 20, 10, 5) });
    for steps in [13, 18, 20, 5] {
        replay.episode(0, steps);
    }
    let mut batch = SequenceBatch::new();
    let n = replay.inner.len_sequences();
    replay.sample(n, &mut batch);
    replay.check(&batch);
    let mut starts_of_second = 0;
    for row in 0..n {
        let at = |slot| batch.at(slot, row);
        let learnt = (0..batch.slots).find(|&s| batch.learn[at(s)] == 1).expect("a learnt step");
        let burn_in: Vec<_> = (0..learnt).filter(|&s| batch.valid[at(s)] == 1).collect();
        assert!(burn_in.iter().all(|&s| batch.episode[at(s)] == batch.episode[at(learnt)]));
        if batch.episode[at(learnt)] == 1 && batch.step_in_episode[at(learnt)] == 0 {
            starts_of_second += 1;
            assert_eq!((burn_in.len(), batch.reset[at(learnt)], batch.state[row]), (0, 1, 0.0));
        }
    }
    assert_eq!(starts_of_second, 1);
}

/// Resident bytes of this process, where the system tells.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

pub fn rp_8_memory() {
    let (steps, obs_len, state_len) = (100_000, 84 * 84, 16);
    let spec = ReplaySpec {
        obs_kind: ObsKind::U8,
        obs_len,
        action: ActionKind::Discrete { parts: 1 },
        legal_len: 0,
        state_len,
        lanes: 1,
    };
    let mut replay = SequenceReplay::new(spec, window(steps, 40, 80, 40)).expect("a valid configuration");
    let before = resident_bytes();
    let mut obs = vec![0u8; obs_len];
    for step in 0..steps {
        if step % 1_000 == 0 {
            replay.begin(0, ObsSlice::U8(&obs), None).expect("a valid observation");
        }
        obs[step % obs_len] = obs[step % obs_len].wrapping_add(1);
        let state = replay.wants_state(0).then_some(&[0.5f32; 16][..]);
        let step = PushStep {
            state,
            action: ActionSlice::Discrete(&[1]),
            reward: 0.0,
            terminated: step % 1_000 == 999,
            truncated: false,
            next_obs: ObsSlice::U8(&obs),
            next_legal: None,
        };
        replay.push(0, step).expect("a valid step");
    }
    assert_eq!(replay.len_steps(), steps);
    let held = replay.observation_bytes() + replay.transition_bytes();
    assert!(held <= 780_000_000, "{held} bytes");
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        assert!(after.saturating_sub(before) <= 780_000_000, "{} bytes resident", after.saturating_sub(before));
    }
    // Windows overlap by half; states are one per window start, and none where it is the episode's.
    let windows = replay.len_sequences();
    assert_eq!(windows, 100 * mamba_rl::replay::sequence::sequence_layout(1_000, 40, 80, 40).len());
    assert!(replay.state_bytes() <= windows * state_len * 4, "{} bytes of states", replay.state_bytes());
    assert!(replay.state_bytes() >= (windows - 200) * state_len * 4);
}
