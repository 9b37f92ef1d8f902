//! A replay through files: the same bits, only what is new, and damage that is told by file, expected and found.

mod support;

use mamba_rl::replay::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use support::cases_replay::window;
use support::counter::spec;

/// One step of random writing on three lanes; the stored state is random too. Depends on nothing but `rng` and the
/// replay, so that two equal replays stay equal.
fn write_step(replay: &mut SequenceReplay, running: &mut [bool; 3], rng: &mut ChaCha8Rng) {
    let lane = rng.random_range(0..3usize);
    let obs = [rng.random::<f32>()];
    if !running[lane] || rng.random_range(0..50) == 0 {
        replay.begin(lane, ObsSlice::F32(&obs), None).unwrap();
        running[lane] = true;
        return;
    }
    let state = [rng.random::<f32>()];
    let end = rng.random_range(0..9);
    let step = PushStep {
        state: Some(&state),
        action: ActionSlice::Discrete(&[rng.random_range(0..5)]),
        reward: rng.random(),
        terminated: end == 0,
        truncated: end == 1,
        next_obs: ObsSlice::F32(&obs),
        next_legal: None,
    };
    replay.push(lane, step).unwrap();
    running[lane] = end > 1;
    let mut handles = Vec::new();
    replay.drain_closed(|span| handles.push(span.handle));
    let priorities: Vec<f32> = handles.iter().map(|_| rng.random_range(0.1..3.0)).collect();
    // Every other one keeps the running maximum.
    replay.set_priority(&handles[..handles.len() / 2], &priorities);
}

fn draw(replay: &SequenceReplay, seed: u64) -> SequenceBatch {
    let mut batch = SequenceBatch::new();
    replay.sample(16, &mut ChaCha8Rng::seed_from_u64(seed), &mut batch).unwrap();
    batch
}

fn configs() -> Vec<ReplayConfig> {
    let base = window(120, 3, 6, 2);
    vec![
        base.clone(),
        ReplayConfig { layout: Layout::Episode { max_episode: 10 }, state_dtype: StateDtype::F16, ..base.clone() },
        ReplayConfig { seams: true, state_dtype: StateDtype::Bf16, ..base },
    ]
}

/// What a checkpoint does: link the older segments into the new folder, then save there.
fn save(replay: &mut SequenceReplay, old: &Path, new: &Path) -> Vec<SegmentInfo> {
    std::fs::create_dir_all(new).unwrap();
    let before = replay.segment_list();
    let list = replay.save_segments(new).unwrap();
    for info in list.iter().filter(|info| before.contains(info)) {
        std::fs::hard_link(old.join(&info.file), new.join(&info.file)).unwrap();
    }
    list
}

#[test]
fn a_loaded_replay_is_the_same_bits() {
    for config in configs() {
        let dir = tempfile::tempdir().unwrap();
        let mut replay = SequenceReplay::new(spec(3), config.clone()).unwrap();
        let (mut running, mut rng) = ([false; 3], ChaCha8Rng::seed_from_u64(11));
        let mut folder = dir.path().join("0");
        for save_number in 1..=12 {
            for _ in 0..70 {
                write_step(&mut replay, &mut running, &mut rng);
            }
            let next = dir.path().join(save_number.to_string());
            let list = save(&mut replay, &folder, &next);
            folder = next;
            let mut loaded = SequenceReplay::load(spec(3), config.clone(), &folder).unwrap();
            assert_eq!(loaded.segment_list(), list);
            assert_eq!(loaded.len_steps(), replay.len_steps());
            assert_eq!(loaded.len_sequences(), replay.len_sequences());
            assert_eq!(draw(&loaded, save_number), draw(&replay, save_number));
            // Handles drawn before the save still mean the same, and both go on alike.
            let handles = draw(&replay, 3).handle;
            let mut twin_running = running;
            let mut twin_rng = rng.clone();
            for _ in 0..150 {
                write_step(&mut loaded, &mut twin_running, &mut twin_rng);
            }
            let mut original = SequenceReplay::load(spec(3), config.clone(), &folder).unwrap();
            std::mem::swap(&mut original, &mut replay);
            let (mut original_running, mut original_rng) = (running, rng.clone());
            for _ in 0..150 {
                write_step(&mut original, &mut original_running, &mut original_rng);
            }
            assert_eq!(original.set_priority(&handles, &[2.5; 16]), loaded.set_priority(&handles, &[2.5; 16]));
            assert_eq!(draw(&original, 4), draw(&loaded, 4));
            assert_eq!(original.stale_total(), loaded.stale_total());
            // Saved again from both: the same bytes in every file that is written.
            let (a, b) = (dir.path().join("a"), dir.path().join("b"));
            let (list_a, list_b) = (save(&mut original, &folder, &a), save(&mut loaded, &folder, &b));
            assert_eq!(list_a, list_b);
            for file in list_a.iter().map(|s| s.file.as_str()).chain(["replay-open.bin", "replay-index.bin"]) {
                assert_eq!(std::fs::read(a.join(file)).unwrap(), std::fs::read(b.join(file)).unwrap(), "{file}");
            }
            std::fs::remove_dir_all(a).unwrap();
            std::fs::remove_dir_all(b).unwrap();
        }
    }
}

#[test]
fn a_save_writes_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let mut replay = SequenceReplay::new(spec(3), window(100_000, 3, 6, 2)).unwrap();
    let (mut running, mut rng) = ([false; 3], ChaCha8Rng::seed_from_u64(2));
    let mut write = |replay: &mut SequenceReplay, n| (0..n).for_each(|_| write_step(replay, &mut running, &mut rng));
    write(&mut replay, 20_000);
    let first = replay.save_segments(dir.path()).unwrap();
    assert_eq!(replay.save_segments(dir.path()).unwrap(), first, "nothing new, no new file");
    write(&mut replay, 200);
    let second = replay.save_segments(dir.path()).unwrap();
    assert_eq!((first.len(), second.len(), &second[0]), (1, 2, &first[0]));
    assert!(second[1].bytes * 50 < second[0].bytes);
    // A checkpoint that failed afterwards: the next save writes its part again.
    replay.keep_segments(&first);
    assert_eq!(replay.save_segments(dir.path()).unwrap(), second);
    replay.keep_segments(&[]);
    let other = tempfile::tempdir().unwrap();
    assert_eq!(replay.save_segments(other.path()).unwrap().len(), 1);
    let loaded = SequenceReplay::load(spec(3), window(100_000, 3, 6, 2), other.path()).unwrap();
    assert_eq!(draw(&loaded, 1), draw(&replay, 1));
}

#[test]
fn segments_of_evicted_episodes_are_dropped() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut replay = SequenceReplay::new(spec(3), window(120, 3, 6, 2)).unwrap();
    let (mut running, mut rng) = ([false; 3], ChaCha8Rng::seed_from_u64(4));
    (0..300).for_each(|_| write_step(&mut replay, &mut running, &mut rng));
    let old = replay.save_segments(first.path()).unwrap();
    (0..2_000).for_each(|_| write_step(&mut replay, &mut running, &mut rng));
    let new = replay.save_segments(second.path()).unwrap();
    assert!(new.iter().all(|segment| !old.contains(segment)));
    assert!(SequenceReplay::load(spec(3), window(120, 3, 6, 2), second.path()).is_ok());
}

#[test]
fn damaged_files_are_named() {
    let config = window(1_000, 3, 6, 2);
    let dir = tempfile::tempdir().unwrap();
    let mut replay = SequenceReplay::new(spec(3), config.clone()).unwrap();
    let (mut running, mut rng) = ([false; 3], ChaCha8Rng::seed_from_u64(9));
    (0..500).for_each(|_| write_step(&mut replay, &mut running, &mut rng));
    let segment = replay.save_segments(dir.path()).unwrap()[0].file.clone();
    let load = |config: &ReplayConfig| SequenceReplay::load(spec(3), config.clone(), dir.path());
    assert!(load(&config).is_ok());
    for file in [segment.as_str(), "replay-open.bin", "replay-index.bin"] {
        let path = dir.path().join(file);
        let good = std::fs::read(&path).unwrap();
        // Any cut and any changed byte is an error that names the file, never a panic.
        for cut in [0, 7, 19, 40, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..cut]).unwrap();
            let error = load(&config).unwrap_err();
            let named = error.to_string().contains(file);
            let typed = matches!(error, ReplayError::Size { .. } | ReplayError::Checksum { .. });
            assert!(named && typed, "{error}");
        }
        for at in (0..good.len()).step_by(good.len() / 17) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            let error = load(&config).unwrap_err();
            assert!(matches!(&error, ReplayError::Checksum { path, .. } if path.ends_with(file)), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = load(&config).unwrap_err();
        assert!(matches!(&error, ReplayError::Io { path, .. } if path.ends_with(file)), "{error}");
        std::fs::write(&path, &good).unwrap();
    }
    let error = load(&ReplayConfig { burn_in: 4, ..config.clone() }).unwrap_err().to_string();
    assert!(error.contains("`burn_in` is 3, expected 4"), "{error}");
    let other = ReplaySpec { obs_len: 2, ..spec(3) };
    let error = SequenceReplay::load(other, config, dir.path()).unwrap_err().to_string();
    assert!(error.contains("`obs_len` is 1, expected 2"), "{error}");
}

/// An index with a right checksum and nonsense inside: an error, no panic and no huge allocation.
#[test]
fn nonsense_with_a_right_checksum_is_refused() {
    let config = window(1_000, 3, 6, 2);
    let dir = tempfile::tempdir().unwrap();
    let mut replay = SequenceReplay::new(spec(3), config.clone()).unwrap();
    let (mut running, mut rng) = ([false; 3], ChaCha8Rng::seed_from_u64(9));
    (0..300).for_each(|_| write_step(&mut replay, &mut running, &mut rng));
    replay.save_segments(dir.path()).unwrap();
    let path = dir.path().join("replay-index.bin");
    let good = std::fs::read(&path).unwrap();
    let (mut refused, mut rng) = (0, ChaCha8Rng::seed_from_u64(1));
    for _ in 0..500 {
        let mut bad = good[..good.len() - 4].to_vec();
        let at = rng.random_range(0..bad.len());
        bad[at] = rng.random();
        bad.extend(crc32fast::hash(&bad).to_le_bytes());
        std::fs::write(&path, &bad).unwrap();
        match SequenceReplay::load(spec(3), config.clone(), dir.path()) {
            Err(_) => refused += 1,
            // Some bytes are plain values, such as a priority: then the replay must work.
            Ok(mut replay) => {
                drop(draw(&replay, 1));
                let (mut running, mut rng) = (running, ChaCha8Rng::seed_from_u64(3));
                (0..300).for_each(|_| write_step(&mut replay, &mut running, &mut rng));
            }
        }
    }
    assert!(refused > 150, "{refused}");
}

#[test]
fn an_unwritable_folder_is_an_error_and_nothing_counts_as_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut replay = SequenceReplay::new(spec(3), window(1_000, 3, 6, 2)).unwrap();
    let (mut running, mut rng) = ([false; 3], ChaCha8Rng::seed_from_u64(9));
    (0..300).for_each(|_| write_step(&mut replay, &mut running, &mut rng));
    let file = dir.path().join("a file");
    std::fs::write(&file, "in place of a folder").unwrap();
    assert!(matches!(replay.save_segments(&file), Err(ReplayError::Io { .. })));
    assert!(replay.segment_list().is_empty());
    assert_eq!(replay.save_segments(dir.path()).unwrap().len(), 1);
}
