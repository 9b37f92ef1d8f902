//! Checkpoints: the field cases, keeping and deleting, paths, versions, hostile files, Hugging Face folders.

#[path = "support/cases_checkpoint.rs"]
mod cases_checkpoint;
#[path = "support/cases_huggingface.rs"]
mod cases_huggingface;

use std::fs;
use std::path::Path;

use cases_checkpoint::*;
use mamba_rl::Error;
use mamba_rl::checkpoint::{Checkpoints, SaveRequest, first_difference, load, load_config, load_weights, resolve};
use serde_json::json;

#[test]
fn ck_3_five_kills() {
    ck_3_kills(5);
}

#[test]
#[ignore = "100 kills take about half a minute"]
fn ck_3_hundred_kills() {
    ck_3_kills(100);
}

#[cfg(unix)]
#[test]
fn ck_3_refused_writes() {
    ck_3_write_failures();
}

#[test]
fn ck_4_cut_and_flipped() {
    ck_4_damage();
}

#[test]
fn ck_5_tensors_and_fields() {
    ck_5_mismatch();
}

#[test]
fn newest_and_best_are_kept() {
    let (run, layout) = (tempfile::tempdir().unwrap(), small(4));
    let mut store = Checkpoints::open(run.path(), 2).unwrap();
    assert!(Checkpoints::newest(run.path()).unwrap().is_none());
    for step in [10, 20, 30] {
        save(&mut store, &layout, step, None).unwrap();
        if step == 10 {
            store.mark_best(10).unwrap();
        }
    }
    store.finish().unwrap();
    assert_eq!(names(run.path()), ["best.json", "step-10", "step-20", "step-30"]);
    assert!(store.mark_best(11).is_err());
    // The mark outlives the process, and a new mark frees the old one.
    let mut store = Checkpoints::open(run.path(), 2).unwrap();
    save(&mut store, &layout, 100, None).unwrap();
    store.finish().unwrap();
    assert_eq!(names(run.path()), ["best.json", "step-10", "step-100", "step-30"]);
    assert_eq!(Checkpoints::best(run.path()).unwrap().unwrap(), run.path().join("checkpoints/step-10"));
    store.mark_best(100).unwrap();
    store.finish().unwrap();
    assert_eq!(names(run.path()), ["best.json", "step-100", "step-30"]);
    assert_eq!(Checkpoints::newest(run.path()).unwrap().unwrap(), run.path().join("checkpoints/step-100"));
    fs::write(run.path().join("checkpoints/best.json"), "{").unwrap();
    assert!(Checkpoints::open(run.path(), 2).unwrap_err().to_string().contains("best.json"));
    assert!(matches!(Checkpoints::open(run.path(), 0).unwrap_err(), Error::Config { .. }));
}

#[test]
fn same_step_is_replaced() {
    let (run, dir) = one_checkpoint(&small(4));
    let mut store = Checkpoints::open(run.path(), 1).unwrap();
    let mut replay = Segments { made: 3, saved: 2, fail: false };
    save(&mut store, &small(8), 7, Some(&mut replay)).unwrap();
    load_and_prove(&dir, &small(8));
    assert_eq!(names(run.path()), ["step-7"]);
    // A kill between the two renames: the old one is put back; after both, it goes.
    let aside = run.path().join("checkpoints/.old-step-7");
    fs::rename(&dir, &aside).unwrap();
    Checkpoints::open(run.path(), 1).unwrap();
    load_and_prove(&dir, &small(8));
    fs::create_dir(&aside).unwrap();
    Checkpoints::open(run.path(), 1).unwrap();
    assert_eq!(names(run.path()), ["step-7"]);
}

#[test]
fn segments_are_shared_and_outlive_their_first_checkpoint() {
    let (run, layout) = (tempfile::tempdir().unwrap(), small(4));
    let mut store = Checkpoints::open(run.path(), 1).unwrap();
    let mut replay = Segments::default();
    let mut sizes = Vec::new();
    for step in 1..=4 {
        replay.made += 1;
        sizes.push(save(&mut store, &layout, step, Some(&mut replay)).unwrap().bytes);
    }
    let dir = run.path().join("checkpoints/step-4");
    let loaded = load_and_prove(&dir, &layout);
    assert_eq!(loaded.dir, dir);
    for i in 0..4 {
        assert!(dir.join(format!("replay-{i}.seg")).is_file());
    }
    // A save costs one segment and the fixed files, however long the run: only state.json grows, by a line.
    assert!(sizes.iter().all(|s| s - sizes[0] < 300), "{sizes:?}");
    // A new process shares the same files.
    let mut store = Checkpoints::open(run.path(), 2).unwrap();
    let dir5 = save(&mut store, &layout, 5, Some(&mut replay)).unwrap().path;
    load_and_prove(&dir5, &layout);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = |d: &Path| fs::metadata(d.join("replay-0.seg")).unwrap().ino();
        assert_eq!(inode(&dir), inode(&dir5));
    }
    // Segments that nobody holds are an error, not a hole.
    let other = tempfile::tempdir().unwrap();
    let mut store = Checkpoints::open(other.path(), 2).unwrap();
    let message = save(&mut store, &layout, 1, Some(&mut replay)).unwrap_err().to_string();
    assert!(message.contains("replay-0.seg"), "{message}");
    assert!(names(other.path()).is_empty());
}

#[test]
fn stale_temporaries_go_and_incomplete_folders_are_ignored() {
    let layout = small(4);
    let (run, dir) = one_checkpoint(&layout);
    let folder = run.path().join("checkpoints");
    fs::create_dir(folder.join(".tmp-step-9-1")).unwrap();
    fs::write(folder.join(".tmp-step-9-1/model.safetensors"), "x").unwrap();
    fs::write(folder.join(".tmp-best.json-1"), "x").unwrap();
    fs::create_dir(folder.join("step-9")).unwrap();
    fs::copy(dir.join("model.safetensors"), folder.join("step-9/model.safetensors")).unwrap();
    fs::create_dir(folder.join("step-010")).unwrap();
    assert_eq!(Checkpoints::newest(run.path()).unwrap().unwrap(), dir);
    Checkpoints::open(run.path(), 2).unwrap();
    assert_eq!(names(run.path()), ["step-010", "step-7", "step-9"]);
    let listed = Checkpoints::list(run.path()).unwrap();
    assert_eq!(listed.iter().map(|l| (l.step, l.problem.is_none())).collect::<Vec<_>>(), [(9, false), (7, true)]);
}

#[test]
fn paths_are_resolved() {
    let layout = small(4);
    let (run, dir) = one_checkpoint(&layout);
    for path in [run.path(), &run.path().join("checkpoints"), &dir, &dir.join("model.safetensors")] {
        assert_eq!(resolve(path).unwrap(), dir, "{}", path.display());
    }
    let empty = tempfile::tempdir().unwrap();
    for path in [empty.path().to_path_buf(), empty.path().join("no"), dir.join("config.json")] {
        let error = resolve(&path).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    fs::remove_file(dir.join("state.json")).unwrap();
    for path in [&dir, &dir.join("model.safetensors")] {
        let error = resolve(path).unwrap_err();
        assert!(!error.is_usage() && error.to_string().contains("state.json"), "{error}");
    }
    assert!(resolve(run.path()).unwrap_err().to_string().contains("no complete checkpoint"));
}

/// Rewrites state.json and gives it the length and checksum it should have.
fn edit_state(dir: &Path, from: &str, to: &str) {
    let path = dir.join("state.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    let text = text.replace(from, to);
    let mut text = format!("{{\"bytes\":{:>20}{}", text.len(), &text[29..text.len() - 21]);
    let crc = crc32fast::hash(text.as_bytes());
    text.push_str(&format!(",\"crc32\":{crc:>10}}}\n"));
    fs::write(path, text).unwrap();
}

#[test]
fn a_newer_format_is_refused_and_never_passed_over() {
    let layout = small(4);
    let (run, dir) = one_checkpoint(&layout);
    let mut store = Checkpoints::open(run.path(), 3).unwrap();
    let newer = save(&mut store, &layout, 8, None).unwrap().path;
    edit_state(&newer, "\"format_version\":1", "\"format_version\":12");
    assert_eq!(Checkpoints::newest(run.path()).unwrap().unwrap(), newer);
    let message = refused(&newer, &layout, &newer.join("state.json"));
    assert!(message.contains("format version 12") && message.contains("supports 1 to 1"), "{message}");
    edit_state(&newer, "\"format_version\":12", "\"format_version\":1");
    load_and_prove(&newer, &layout);
    edit_state(&newer, "\"config.json\"", "\"../config.json\"");
    assert!(refused(&newer, &layout, &newer.join("state.json")).contains("`../config.json`"));
    edit_state(&newer, "\"step\":8", "\"step\":\"8\"");
    assert!(refused(&newer, &layout, &newer.join("state.json")).contains("JSON"));
    load_and_prove(&dir, &layout);
}

#[test]
fn wrong_lengths_and_names_are_refused_before_anything_is_there() {
    let (run, layout) = (tempfile::tempdir().unwrap(), small(4));
    let mut store = Checkpoints::open(run.path(), 1).unwrap();
    let (config, state) = (json!({}), json!(null));
    let params = values(&layout, 5, 0);
    let mut save = |params: &[f32], blob: &str| {
        let (layout, config, state) = (&layout, &config, &state);
        let blobs: &[(&str, &[u8])] = &[("a.bin", &[1, 2]), (blob, &[3])];
        store.save(SaveRequest { step: 1, layout, params, optimizer: None, config, state, blobs, replay: None })
    };
    assert!(matches!(save(&params[1..], "b.bin").unwrap_err(), Error::Shape { arg: "params", .. }));
    for name in ["../b.bin", "b/b.bin", "", "a.bin", "model.safetensors", "state.json"] {
        let message = save(&params, name).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
        assert!(names(run.path()).is_empty());
    }
    let dir = save(&params, "b.bin").unwrap().path;
    assert!(load(&dir, &layout, None).unwrap().optimizer.is_none());
    assert_eq!(load_config(&dir).unwrap(), config);
    assert_eq!(load_weights(&dir, &layout).unwrap(), params);
    fs::write(dir.join("b.bin"), [4]).unwrap();
    let message = load(&dir, &layout, None).unwrap_err().to_string();
    assert!(message.contains("b.bin") && message.contains("checksum"), "{message}");
}

#[test]
fn hostile_tensor_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let layout = layout(&[("w", &[2])]);
    let file = |n: u64, header: &str, data: &[u8]| [&n.to_le_bytes(), header.as_bytes(), data].concat();
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        let header = format!("{{\"w\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}");
        file(header.len() as u64, &header, &[0; 8])
    };
    fs::write(&path, tensor("F32", "[2]", "[0,8]")).unwrap();
    assert_eq!(load_weights(&path, &layout).unwrap(), [0.0, 0.0]);
    let deep = "[".repeat(100_000);
    let cases = [
        (Vec::new(), "has 0 bytes, expected at least 8"),
        (vec![1; 7], "has 7 bytes, expected at least 8"),
        (file(u64::MAX, "{}", &[]), "header of 18446744073709551615 bytes"),
        (file(100_000_001, "{}", &[]), "header of 100000001 bytes"),
        (file(99_999_999, "{}", &[]), "has 10 bytes, expected at least 100000007"),
        (file(deep.len() as u64, &deep, &[]), "header: "),
        (file(2, "{}", &[0; 4]), "has 14 bytes, expected 10"),
        (tensor("F32", "[2]", "[0,16]"), "header: "),
        (tensor("F32", "[2]", "[8,0]"), "header: "),
        (tensor("F32", "[18446744073709551615, 18446744073709551615]", "[0,8]"), "header: "),
        (tensor("F16", "[4]", "[0,8]"), "tensor `w` has type F16, expected F32"),
        (tensor("F32", "[1,2]", "[0,8]"), "tensor `w` has shape [1, 2], expected [2]"),
        (tensor("F32", "[2]", "[0,8]")[..69].to_vec(), "bytes, expected "),
    ];
    for (bytes, expected) in cases {
        fs::write(&path, bytes).unwrap();
        let message = load_weights(&path, &layout).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains(path.to_str().unwrap()), "{message}");
    }
}

#[test]
fn differences_are_found_by_path() {
    let a = json!({"x": 1, "y": {"z": [1, {"q": "s"}]}});
    assert_eq!(first_difference(&a, &a), None);
    assert_eq!(first_difference(&json!({"x": 1, "n": null}), &json!({"x": 1.0})), None);
    assert_eq!(first_difference(&a, &json!({"x": 2, "y": 3})), Some(("x".into(), json!(1), json!(2))));
    let b = json!({"x": 1, "y": {"z": [1, {"q": "t"}]}});
    assert_eq!(first_difference(&a, &b), Some(("y.z[1].q".into(), json!("s"), json!("t"))));
    assert_eq!(first_difference(&json!({}), &json!({"k": true})), Some(("k".into(), json!(null), json!(true))));
    let (big, bigger) = (json!(u64::MAX), json!(u64::MAX - 1));
    assert_eq!(first_difference(&big, &bigger), Some((String::new(), big.clone(), bigger.clone())));
}
