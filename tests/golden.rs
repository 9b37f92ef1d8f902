//! Every golden file against the library, in f32 and f64. Format and rules: `tests/golden/README.md`.
//!
//! Walks `tests/golden` and, where it is set, the folder named by `MAMBA_RL_GOLDEN_DIR`. Unknown kinds, tensors that
//! nobody read or compared, and kinds without a file are failures.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use support::golden::{Case, Precision, files_in, folders};
use support::{golden_hf, golden_mamba, golden_r2d2, golden_rl as rl, golden_rnn};

/// A kind, and what runs it.
type Row = (&'static str, fn(&Case));

/// One body for both precisions: the case says which.
macro_rules! both {
    ($body:path) => {{
        use $body as body;
        |case: &Case| match case.precision {
            Precision::F64 => body::<f64>(case),
            _ => body::<f32>(case),
        }
    }};
}

/// Kinds that are compared.
const KINDS: &[Row] = &[
    ("rl_value_rescale", both!(rl::value_rescale)),
    ("rl_nstep_double_q", both!(rl::nstep_double_q)),
    ("rl_r2d2_priority", both!(rl::r2d2_priority)),
    ("rl_is_weights", both!(rl::is_weights)),
    ("rl_sum_tree", rl::sum_tree),
    ("rl_actor_epsilon", both!(rl::actor_epsilon)),
    ("rl_epsilon_linear", both!(rl::epsilon_line)),
    ("rl_sequence_layout", rl::sequence_windows),
    ("rl_adamw", both!(rl::adamw)),
    ("rl_grad_clip", both!(rl::grad_clip)),
    ("rl_huber", both!(rl::huber_loss)),
    ("rl_dueling", both!(rl::dueling_head)),
    ("rl_c51", both!(rl::c51)),
    ("rl_qrdqn", both!(rl::qrdqn)),
    ("rl_squashed_gaussian", both!(rl::squashed_gaussian)),
    ("mamba_forward_zero", both!(golden_mamba::check)),
    ("mamba_forward_state", both!(golden_mamba::check)),
    ("mamba_short_t", both!(golden_mamba::check)),
    ("mamba_resets", both!(golden_mamba::check)),
    ("mamba_grad", both!(golden_mamba::check)),
    ("mamba_burnin", both!(golden_mamba::check)),
    ("mamba_dstate", both!(golden_mamba::check)),
    ("mamba_layers", both!(golden_mamba::check)),
    ("mamba_odd", both!(golden_mamba::check)),
    ("mamba_extreme_dt", both!(golden_mamba::check)),
    ("mamba_large", both!(golden_mamba::check)),
    ("mamba_zero_rows", both!(golden_mamba::check)),
    ("mamba_long", both!(golden_mamba::check)),
    ("mamba_chain", both!(golden_mamba::check)),
    ("lstm", both!(golden_rnn::check)),
    ("gru", both!(golden_rnn::check)),
    ("hf_mamba", both!(golden_hf::check)),
    ("r2d2_update", golden_r2d2::check),
];

/// Kinds of parts that do not exist yet. Being in both lists is a failure.
const NOT_YET: &[&str] = &[];

fn run(precision: Precision) {
    let bodies: BTreeMap<_, _> = KINDS.iter().copied().collect();
    let mut failures = Vec::new();
    for (i, folder) in folders().iter().enumerate() {
        let mut seen = BTreeSet::new();
        for file in files_in(folder) {
            let case = Case::load(&file, precision);
            seen.insert(case.kind.clone());
            match bodies.get(case.kind.as_str()) {
                Some(body) => {
                    body(&case);
                    failures.extend(case.finish());
                }
                None if NOT_YET.contains(&case.kind.as_str()) => {}
                None => failures.push(format!("{}: unknown kind `{}`", file.display(), case.kind)),
            }
        }
        // Only the repository's own folder must have a file of every kind.
        if i == 0 {
            let claimed = KINDS.iter().map(|row| row.0).chain(NOT_YET.iter().copied());
            failures
                .extend(claimed.filter(|kind| !seen.contains(*kind)).map(|kind| format!("no file of kind `{kind}`")));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn golden_files_in_f32() {
    run(Precision::F32);
}

#[test]
fn golden_files_in_f64() {
    run(Precision::F64);
}

#[test]
fn no_kind_is_both_done_and_missing() {
    let both: Vec<_> = KINDS.iter().filter(|row| NOT_YET.contains(&row.0)).map(|row| row.0).collect();
    assert!(both.is_empty(), "these exist now, take them off NOT_YET: {both:?}");
}

/// The harness itself notices what it must.
#[test]
fn a_wrong_or_forgotten_tensor_is_a_failure() {
    let file = folders()[0].join("rl_huber_00.safetensors");
    let case = Case::load(&file, Precision::F64);
    let x = case.f64s("input.x");
    case.compare("out.grad", &x);
    case.compare("out.value", &vec![f64::NAN; x.len()]);
    let failures = case.finish();
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert!(failures.iter().any(|f| f.contains("`out.smooth_l1` was neither read nor compared")), "{failures:?}");
}

/// The files are those that the manifest lists.
#[test]
fn the_manifest_is_complete() {
    let folder = &folders()[0];
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let listed = manifest.as_array().expect("a list");
    for entry in listed {
        let file = folder.join(entry["file"].as_str().expect("a name"));
        assert_eq!(std::fs::metadata(&file).map(|m| m.len()).ok(), entry["bytes"].as_u64(), "{}", file.display());
    }
    let listed: BTreeSet<_> = listed.iter().filter_map(|e| e["file"].as_str()).map(|f| folder.join(f)).collect();
    assert!(files_in(folder).iter().all(|f| listed.contains(f)));
}
