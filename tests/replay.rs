//! The replay against field cases, against a plain model of itself, through files, and against bad input.

mod support;

use mamba_rl::replay::sequence::sequence_layout;
use mamba_rl::replay::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::alloc::{Counting, allocations};
use support::counter::CounterReplay;
use support::{cases_replay as cases, counter};

macro_rules! field_cases {
    ($($name:ident),*) => { $(#[test] fn $name() { cases::$name(); })* };
}

field_cases!(
    rp_1_tree_does_not_drift,
    rp_2_bad_priorities_and_weights,
    rp_3_priority_of_new_items,
    rp_4_priority_ignores_weights,
    rp_5_stale_handles,
    rp_6_wrap_around,
    rp_7_burn_in_stays_in_its_episode,
    rp_8_memory
);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every window that a batch of all sequences holds: (episode, first learnt step, burn-in, learnt steps), sorted.
fn all_windows(replay: &mut CounterReplay) -> Vec<(u64, usize, usize, usize)> {
    let n = replay.inner.len_sequences();
    if n == 0 {
        return Vec::new();
    }
    let mut batch = SequenceBatch::new();
    replay.sample(n, &mut batch);
    replay.check(&batch);
    let row = |row: usize| {
        let at = |slot| batch.at(slot, row);
        let first = at((0..batch.slots).find(|&s| batch.learn[at(s)] == 1).expect("a learnt step"));
        let count = |mask: &[u8]| (0..batch.slots).filter(|&s| mask[at(s)] == 1).count();
        let (learnt, valid) = (count(&batch.learn), count(&batch.valid));
        (batch.episode[first], batch.step_in_episode[first] as usize, valid - learnt, learnt)
    };
    let mut windows: Vec<_> = (0..n).map(row).collect();
    windows.sort_unstable();
    windows
}

/// A lane of the plain model: finished and running episodes as (id, steps).
#[derive(Default)]
struct ModelLane {
    running: Option<(u64, usize)>,
}

/// Random writing on three lanes, with ends, abandoned episodes and eviction, against the rule applied to a plain list.
#[test]
fn random_writing_matches_a_plain_model() {
    for (seed, layout) in [(1, Layout::Window), (2, Layout::Episode { max_episode: 9 }), (3, Layout::Window)] {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let capacity = 60;
        let config = ReplayConfig { layout, alpha: 0.0, ..cases::window(capacity, 3, 5, 2) };
        let mut replay = CounterReplay::new(3, config);
        let mut lanes: Vec<ModelLane> = (0..3).map(|_| ModelLane::default()).collect();
        let mut finished: Vec<(u64, usize)> = Vec::new();
        let mut next = 0;
        for _ in 0..3_000 {
            let lane = rng.random_range(0..3usize);
            match lanes[lane].running {
                None => {
                    replay.begin(lane);
                    lanes[lane].running = Some((next, 0));
                    next += 1;
                }
                Some(_) if rng.random_range(0..60) == 0 => {
                    replay.abandon(lane);
                    lanes[lane].running = None;
                }
                Some((id, steps)) => {
                    // No lane may hold so much that a running episode is trimmed: the model does not know that.
                    let end = steps >= 18 || rng.random_range(0..8) == 0;
                    replay.push(lane, end, false);
                    lanes[lane].running = Some((id, steps + 1)).filter(|_| !end);
                    if end {
                        finished.push((id, steps + 1));
                    }
                }
            }
            let running: Vec<_> = lanes.iter().filter_map(|l| l.running).collect();
            let total = |f: &[(u64, usize)]| f.iter().chain(&running).map(|e| e.1).sum::<usize>();
            while total(&finished) > capacity {
                finished.remove(0);
            }
            assert_eq!(replay.inner.len_steps(), total(&finished));
            let mut want = Vec::new();
            for (i, &(id, steps)) in finished.iter().chain(&running).enumerate() {
                let done = i < finished.len();
                let whole = matches!(layout, Layout::Episode { max_episode } if steps <= max_episode);
                if whole && done {
                    want.push((id, 0, 0, steps));
                } else if !whole {
                    let spans = sequence_layout(steps, 3, 5, 2).into_iter().filter(|s| done || s.len == 5);
                    want.extend(spans.map(|s| (id, s.start, s.burn_in, s.len)));
                }
            }
            want.sort_unstable();
            assert_eq!(all_windows(&mut replay), want);
        }
    }
}

/// Memory carried into an episode: no reset there, and every window from its first step starts from its own state.
#[test]
fn carried_memory_is_an_episodes_start() {
    let config = ReplayConfig { alpha: 0.0, ..cases::window(100, 4, 4, 2) };
    let mut replay = SequenceReplay::new(counter::spec(1), config.clone()).unwrap();
    for carried in [false, true] {
        replay.begin_with(0, ObsSlice::F32(&[0.5]), None, carried).unwrap();
        for t in 0..8 {
            assert_eq!(replay.wants_state(0), if t == 0 { carried } else { t % 2 == 0 });
            let step = PushStep {
                state: Some(&[17.0 + t as f32]),
                action: ActionSlice::Discrete(&[0]),
                reward: 0.0,
                terminated: t == 7,
                truncated: false,
                next_obs: ObsSlice::F32(&[0.5]),
                next_legal: None,
            };
            replay.push(0, step).unwrap();
        }
    }
    let (mut batch, mut starts) = (SequenceBatch::new(), [0, 0]);
    replay.sample(replay.len_sequences(), &mut ChaCha8Rng::seed_from_u64(1), &mut batch).unwrap();
    for row in 0..batch.batch {
        let at = (0..batch.slots).map(|s| batch.at(s, row)).find(|&at| batch.valid_obs[at] == 1).unwrap();
        let (episode, step) = (batch.episode[at], batch.step_in_episode[at]);
        let cleared = step == 0 && episode == 0;
        assert_eq!(batch.reset[at] == 1, cleared);
        assert_eq!(batch.state[row], if cleared { 0.0 } else { 17.0 + step as f32 });
        assert_eq!(batch.has_prev[at] == 1, step > 0, "the episode before is no previous step");
        starts[episode as usize] += usize::from(step == 0);
    }
    assert_eq!(starts, [3, 3], "spans at 0, 2 and 4 burn in from the first step");
    let mut seams = SequenceReplay::new(counter::spec(1), ReplayConfig { seams: true, ..config }).unwrap();
    let error = seams.begin_with(0, ObsSlice::F32(&[0.5]), None, true).unwrap_err().to_string();
    assert!(error.contains("`seams` is true"), "{error}");
}

/// With seams a lane is one row of slots, cut by the same rule; nothing is learnt at a final observation.
#[test]
fn seams_join_episodes_with_a_reset() {
    // Episode ends after step 0, 4 and 9 of 10, each within one window of 11 slots and one more.
    for end in [0usize, 4, 9] {
        let config = ReplayConfig { seams: true, alpha: 0.0, ..cases::window(100, 0, 11, 11) };
        let mut replay = CounterReplay::new(1, config);
        replay.begin(0);
        for t in 0..12 {
            replay.push(0, t == end, false);
            if t == end {
                replay.begin(0);
            }
        }
        assert_eq!(replay.inner.len_sequences(), 1);
        let mut batch = SequenceBatch::new();
        replay.sample(1, &mut batch);
        replay.check(&batch);
        assert_eq!((batch.slots, batch.n_learnt()), (12, 10));
        let resets: Vec<usize> = (0..12).filter(|&s| batch.reset[s] == 1).collect();
        assert_eq!(resets, [0, end + 2]);
        let holes: Vec<usize> = (0..11).filter(|&s| batch.valid[s] == 0).collect();
        assert_eq!(holes, [end + 1]);
        assert!(batch.valid_obs.iter().all(|&v| v == 1) && batch.terminated[end]);
        let mut spans = Vec::new();
        replay.inner.drain_closed(|s| spans.push((s.episode, s.start, s.lane_step, s.len, s.ends_episode)));
        assert_eq!(spans, [(0, 0, 0, 10, end == 9)]);
    }
    // Long random streams, evicted and abandoned.
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let config = ReplayConfig { seams: true, ..cases::window(50, 3, 6, 2) };
    let mut replay = CounterReplay::new(1, config);
    let mut batch = SequenceBatch::new();
    let mut seen_seam = 0;
    for step in 0..3_000 {
        if step == 0 || rng.random_range(0..40) == 0 {
            replay.begin(0);
        }
        let end = rng.random_range(0..9) == 0;
        replay.push(0, end, false);
        if end {
            replay.begin(0);
        }
        if replay.inner.len_sequences() > 0 {
            replay.sample(4, &mut batch);
            replay.check(&batch);
            seen_seam += (0..4).filter(|&r| (1..batch.slots).any(|s| batch.reset[batch.at(s, r)] == 1)).count();
        }
    }
    assert!(seen_seam > 1_000, "{seen_seam}");
}

/// A window of a running episode can be drawn as soon as the observation after its span is there.
#[test]
fn windows_of_a_running_episode() {
    let mut replay = CounterReplay::new(1, cases::window(100, 2, 4, 2));
    replay.begin(0);
    let closed: Vec<usize> = (0..10).map(|_| replay.push(0, false, false).closed).collect();
    assert_eq!(closed, [0, 0, 0, 1, 0, 1, 0, 1, 0, 1]);
    let mut spans = Vec::new();
    replay.inner.drain_closed(|s| spans.push((s.start, s.len, s.ends_episode)));
    assert_eq!(spans, [(0, 4, false), (2, 4, false), (4, 4, false), (6, 4, false)]);
    assert_eq!(replay.push(0, true, false).closed, 1);
    replay.inner.drain_closed(|s| spans.push((s.start, s.len, s.ends_episode)));
    assert_eq!(spans[4], (8, 3, true));
    replay.begin(0);
    replay.push(0, false, false);
    replay.abandon(0);
    assert_eq!((replay.inner.len_steps(), replay.inner.len_sequences()), (11, 5));
}

#[test]
fn states_are_asked_for_where_windows_start() {
    let wanted = |config: ReplayConfig| -> Vec<usize> {
        let mut replay = CounterReplay::new(1, config);
        replay.begin(0);
        let mut wanted = Vec::new();
        for t in 0..12 {
            if replay.inner.wants_state(0) {
                wanted.push(t);
            }
            replay.push(0, false, false);
        }
        wanted
    };
    assert_eq!(wanted(cases::window(100, 3, 4, 4)), [1, 5, 9]);
    assert_eq!(wanted(cases::window(100, 0, 4, 2)), [2, 4, 6, 8, 10]);
    let zero = ReplayConfig { initial_state: InitialState::Zero, ..cases::window(100, 3, 4, 4) };
    assert!(wanted(zero.clone()).is_empty());
    let mut replay = CounterReplay::new(1, zero);
    replay.episode(0, 30);
    assert_eq!(all_windows(&mut replay).len(), 8);
    assert_eq!(replay.inner.state_bytes(), 0);
}

#[test]
fn a_prefix_leads_to_its_window() {
    let mut replay = CounterReplay::new(1, cases::window(100, 2, 4, 2));
    replay.episode(0, 5);
    replay.episode(0, 20);
    let (mut batch, mut prefix) = (SequenceBatch::new(), SequenceBatch::new());
    replay.sample(30, &mut batch);
    for row in 0..30 {
        let window = (0..batch.slots).find(|&s| batch.valid[batch.at(s, row)] == 1).expect("a step");
        let begin = replay.inner.prefix(batch.handle[row], 100, &mut prefix).expect("a whole episode");
        replay.check(&prefix);
        assert_eq!((prefix.batch, prefix.reset[0], prefix.step_in_episode[0]), (1, 1, 0));
        assert_eq!(prefix.burn_in, begin + batch.burn_in - window);
        for slot in window..batch.slots {
            let (here, there) = (batch.at(slot, row), begin + slot - window);
            let found = prefix.step_in_episode.get(there).copied().unwrap_or(-1);
            assert_eq!(found, batch.step_in_episode[here]);
            assert_eq!(prefix.learn.get(there).copied().unwrap_or(0), batch.learn[here]);
        }
        assert_eq!(replay.inner.prefix(batch.handle[row], 3, &mut prefix), None);
    }
}

/// From stored states and from zeros: windows from inside an episode beside their whole way, the same steps learnt.
#[test]
fn windows_beside_their_prefixes() {
    for initial_state in [InitialState::Stored, InitialState::Zero] {
        let mut replay = CounterReplay::new(1, ReplayConfig { initial_state, ..cases::window(100, 2, 4, 2) });
        replay.episode(0, 5);
        replay.episode(0, 20);
        let (mut windows, mut prefixes) = (SequenceBatch::new(), SequenceBatch::new());
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let rows = replay.inner.sample_prefixes(4, 100, &mut rng, &mut windows, &mut prefixes).expect("windows");
        assert_eq!((rows, windows.batch, prefixes.batch), (4, 4, 4), "{initial_state:?}");
        replay.check(&windows);
        replay.check(&prefixes);
        for row in 0..rows {
            let first = (0..windows.slots).find(|&s| windows.valid[windows.at(s, row)] == 1).expect("a step");
            assert!(windows.step_in_episode[windows.at(first, row)] > 0, "begins inside its episode");
            assert_eq!(windows.state[row] == 0.0, initial_state == InitialState::Zero);
            let steps = |b: &SequenceBatch, mask: &[u8]| -> Vec<i32> {
                (0..b.slots).map(|s| b.at(s, row)).filter(|&at| mask[at] == 1).map(|at| b.step_in_episode[at]).collect()
            };
            assert_eq!(steps(&prefixes, &prefixes.valid)[0], 0);
            assert_eq!(steps(&windows, &windows.learn), steps(&prefixes, &prefixes.learn));
        }
    }
}

/// Longer than the `Episode` layout keeps whole: cut as windows, counted, with the states of all windows.
#[test]
fn long_episodes_are_cut_and_counted() {
    let config = ReplayConfig { layout: Layout::Episode { max_episode: 9 }, ..cases::window(100, 2, 4, 2) };
    let mut replay = CounterReplay::new(1, config);
    replay.episode(0, 9);
    assert_eq!((replay.inner.long_episodes(), all_windows(&mut replay)), (0, vec![(0, 0, 0, 9)]));
    replay.episode(0, 10);
    assert_eq!(replay.inner.long_episodes(), 1);
    let want = [(0, 0, 0, 9), (1, 0, 0, 4), (1, 2, 2, 4), (1, 4, 2, 4), (1, 6, 2, 4)];
    assert_eq!(replay.inner.len_sequences(), 5);
    let mut seen: Vec<_> = (0..40).flat_map(|_| all_windows(&mut replay)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, want);
}

/// A running episode longer than the replay loses its oldest steps and the windows that need them.
#[test]
fn an_endless_episode_stays_within_the_capacity() {
    let mut replay = CounterReplay::new(1, ReplayConfig { alpha: 0.0, ..cases::window(20, 2, 4, 2) });
    replay.begin(0);
    for step in 1..500 {
        replay.push(0, false, false);
        let kept = replay.inner.len_steps();
        assert_eq!(kept, step.min(20));
        for (_, start, burn_in, _) in all_windows(&mut replay) {
            assert!(start - burn_in >= step - kept);
        }
    }
    assert!(replay.inner.len_sequences() >= 6);
    assert!(replay.inner.state_bytes() <= 12 * 4, "{}", replay.inner.state_bytes());
}

/// Lanes that together exceed the capacity are trimmed in turn; a window without all its slots is never made.
#[test]
fn endless_episodes_share_a_small_replay() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut replay = CounterReplay::new(3, ReplayConfig { alpha: 0.0, ..cases::window(12, 2, 3, 1) });
        (0..3).for_each(|lane| replay.begin(lane));
        let mut drawn = 0;
        for _ in 0..300 {
            let lane = rng.random_range(0..3);
            // A lane that starts again leaves the others room to grow, from a beginning that is gone.
            if rng.random_range(0..20) == 0 {
                replay.begin(lane);
            }
            replay.push(lane, false, false);
            assert!(replay.inner.len_steps() <= 12);
            drawn += all_windows(&mut replay).len();
        }
        assert!(drawn > 0);
    }
}

#[test]
fn every_kind_of_data_comes_back() {
    let spec = ReplaySpec {
        obs_kind: ObsKind::I32,
        obs_len: 2,
        action: ActionKind::Continuous { len: 3 },
        legal_len: 2,
        state_len: 0,
        lanes: 1,
    };
    let mut replay = SequenceReplay::new(spec, ReplayConfig::default()).unwrap();
    replay.begin(0, ObsSlice::I32(&[1, 2]), Some(&[true, false])).unwrap();
    for (t, truncated) in [(0, false), (1, true)] {
        let step = PushStep {
            state: None,
            action: ActionSlice::Continuous(&[t as f32, 0.5, -0.5]),
            reward: 1.5 * (t + 1) as f32,
            terminated: false,
            truncated,
            next_obs: ObsSlice::I32(&[10 * (t + 1), 3]),
            next_legal: if t == 0 { Some(&[false, true]) } else { None },
        };
        replay.push(0, step).unwrap();
    }
    let mut batch = SequenceBatch::new();
    replay.sample(1, &mut ChaCha8Rng::seed_from_u64(0), &mut batch).unwrap();
    assert_eq!((batch.slots, batch.burn_in, batch.batch), (4, 0, 1));
    assert_eq!(batch.obs, ObsRows::I32(vec![1, 2, 10, 3, 20, 3, 0, 0]));
    assert_eq!(replay.obs_of(&batch, 1, 0), ObsSlice::I32(&[10, 3]));
    assert_eq!(batch.legal, [true, false, false, true, true, true, true, true]);
    assert_eq!(batch.action.continuous(), [0.0, 0.5, -0.5, 1.0, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(batch.prev_action.continuous()[3..9], batch.action.continuous()[..6]);
    assert_eq!((&batch.reward[..], &batch.prev_reward[..]), (&[1.5, 3.0, 0.0, 0.0][..], &[0.0, 1.5, 3.0, 0.0][..]));
    assert_eq!(batch.truncated, [false, true, false, false]);
    assert_eq!((&batch.valid[..], &batch.valid_obs[..]), (&[1, 1, 0, 0][..], &[1, 1, 1, 0][..]));
    assert_eq!((&batch.learn[..], &batch.reset[..]), (&[1, 1, 0, 0][..], &[1, 0, 0, 0][..]));
    assert_eq!((&batch.has_prev[..], &batch.step_in_episode[..]), (&[0, 1, 1, 0][..], &[0, 1, 2, -1][..]));
}

#[test]
fn bad_input_is_named_and_changes_nothing() {
    let new = |config| SequenceReplay::new(counter::spec(2), config).map(|_| ());
    let message = |config| new(config).unwrap_err().to_string();
    assert!(message(cases::window(0, 0, 1, 1)).contains("`capacity` is 0"));
    assert!(message(cases::window(9, 5, 5, 1)).contains("`capacity` is 9, expected at least burn_in + length = 10"));
    assert!(message(cases::window(9, 0, 2, 3)).contains("`period` is 3, expected at most length = 2"));
    assert!(message(ReplayConfig { alpha: f64::NAN, ..cases::window(9, 0, 2, 2) }).contains("`alpha` is NaN"));
    assert!(message(ReplayConfig { eta: 1.5, ..cases::window(9, 0, 2, 2) }).contains("`eta`"));
    assert!(message(ReplayConfig { seams: true, ..ReplayConfig::default() }).contains("`seams`"));
    assert!(new(ReplayConfig::default()).is_ok());

    let mut replay = SequenceReplay::new(counter::spec(2), cases::window(9, 0, 2, 2)).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    assert!(matches!(replay.sample(1, &mut rng, &mut SequenceBatch::new()), Err(ReplayError::Empty)));
    let step = PushStep {
        state: None,
        action: ActionSlice::Discrete(&[0]),
        reward: 0.0,
        terminated: false,
        truncated: false,
        next_obs: ObsSlice::F32(&[0.0]),
        next_legal: None,
    };
    assert!(matches!(replay.push(1, step), Err(ReplayError::NotBegun { lane: 1 })));
    assert!(matches!(replay.push(2, step), Err(ReplayError::Lane { lane: 2, lanes: 2 })));
    let error = replay.begin(0, ObsSlice::U8(&[0]), None).unwrap_err().to_string();
    assert_eq!(error, "`obs` is 1 x U8, expected 1 x F32");
    replay.begin(0, ObsSlice::F32(&[0.0]), None).unwrap();
    let error = replay.push(0, PushStep { action: ActionSlice::Discrete(&[0, 1]), ..step }).unwrap_err();
    assert!(error.to_string().contains("`action` is Discrete { parts: 2 }, expected Discrete { parts: 1 }"));
    assert!(replay.push(0, PushStep { next_legal: Some(&[true]), ..step }).unwrap_err().to_string().contains("flags"));
    replay.push(0, step).unwrap();
    replay.push(0, step).unwrap();
    assert!(matches!(replay.push(0, step), Err(ReplayError::MissingState { lane: 0 })));
    assert!(matches!(replay.push(0, PushStep { state: Some(&[0.0; 2]), ..step }), Err(ReplayError::Shape { .. })));
    assert_eq!(replay.len_steps(), 2);
    replay.push(0, PushStep { state: Some(&[0.0]), ..step }).unwrap();
}

/// Once the replay is full and the batch has its size, neither writing nor drawing allocates.
#[test]
fn the_steady_state_allocates_nothing() {
    for config in [cases::window(500, 4, 8, 4), ReplayConfig { capacity: 500, ..ReplayConfig::default() }] {
        let mut replay = SequenceReplay::new(counter::spec(2), config).unwrap();
        let (mut rng, mut batch) = (ChaCha8Rng::seed_from_u64(0), SequenceBatch::new());
        let mut handles = Vec::with_capacity(1_000);
        let mut run = |steps: std::ops::Range<usize>| {
            for step in steps {
                for lane in 0..2 {
                    if step % (20 + lane) == 0 {
                        replay.begin(lane, ObsSlice::F32(&[0.0]), None).unwrap();
                    }
                    let step = PushStep {
                        state: Some(&[1.0]),
                        action: ActionSlice::Discrete(&[0]),
                        reward: 0.0,
                        terminated: step % (20 + lane) == 19 + lane,
                        truncated: false,
                        next_obs: ObsSlice::F32(&[0.0]),
                        next_legal: None,
                    };
                    replay.push(lane, step).unwrap();
                }
                replay.drain_closed(|span| handles.push(span.handle));
                let report = replay.set_priority(&handles, &[0.5; 1_000][..handles.len()]);
                assert_eq!(report.applied, handles.len());
                handles.clear();
                if step > 100 {
                    replay.sample(16, &mut rng, &mut batch).unwrap();
                }
            }
        };
        run(0..2_000);
        assert_eq!(allocations(|| run(2_000..4_000)), 0);
    }
}
