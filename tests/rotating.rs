//! The rotating state as a whole: what it can learn, what is saved of it, and that Mamba-1 is left as it was.

#[allow(dead_code)] // the program's own part
#[path = "../examples/delay_line.rs"]
mod delay_line;
mod support;

use std::path::Path;

use mamba_rl::checkpoint::{
    CONFIG_FILE, Checkpoints, MODEL_FILE, SaveRequest, load, load_huggingface, load_weights, resolve,
};
use mamba_rl::config::{Config, Flags, RotateKind};
use mamba_rl::learner::{Learner, R2d2Config};
use mamba_rl::network::Description;
use mamba_rl_envs::{EnvArgs, make};
use serde_json::{Value, json};
use support::rig::{Rig, Setup};

fn rig(rotate: RotateKind) -> Rig {
    Rig::new(&Setup::task("PositionOnlyCartPoleEasy").rotating(rotate))
}

/// Saves a rig's weights as step 1 of a run folder.
fn saved(rig: &Rig, run: &Path) -> std::path::PathBuf {
    let request = SaveRequest {
        step: 1,
        layout: rig.learner.layout(),
        params: &rig.values,
        optimizer: None,
        config: &rig.description.to_json(),
        state: &Value::Null,
        blobs: &[],
        replay: None,
    };
    Checkpoints::open(run, 2).unwrap().save(request).unwrap();
    resolve(run).unwrap()
}

/// A delay of 31 steps: with turning states in under 300 updates (they need about 75); Mamba-1 stands near chance when they
/// have it.
#[test]
fn a_delay_is_learnt_where_states_turn() {
    for (name, config) in delay_line::bodies(16).iter().filter(|b| b.0 != "gru") {
        if *name == "mamba" {
            let outcome = delay_line::learn(config, 31, 100, 1).unwrap();
            assert!((0.2..0.6).contains(&outcome.accuracy), "{name}: {}", outcome.accuracy);
        } else {
            let outcome = delay_line::learn(config, 31, 300, 1).unwrap();
            assert!(outcome.reached[2].is_some(), "{name}: {} after 300 updates", outcome.accuracy);
        }
    }
}

/// Each kind of body is refused the other's weights, in one line that names both kinds; its own come back to the bit.
#[test]
fn a_checkpoint_of_the_other_kind_is_refused() {
    let rigs = [rig(RotateKind::Off), rig(RotateKind::Learned), rig(RotateKind::Fixed)];
    for theirs in &rigs {
        let run = tempfile::tempdir().unwrap();
        let dir = saved(theirs, run.path());
        let rotates = theirs.description.backbone.rotate != RotateKind::Off;
        for ours in &rigs {
            let (layout, config) = (ours.learner.layout(), ours.description.to_json());
            let whole = load(&dir, layout, Some(&config)).map(|l| l.params);
            if ours.description == theirs.description {
                assert_eq!(whole.unwrap(), theirs.values);
                continue;
            }
            let text = whole.unwrap_err().to_string();
            assert!(text.contains("mamba_rl.backbone.rotate") && text.contains(CONFIG_FILE), "{text}");
            let alone = load_weights(&dir, layout);
            if rotates && ours.description.backbone.rotate != RotateKind::Off {
                // fixed and learnt angles are the same tensors
                assert_eq!(alone.unwrap(), theirs.values);
                continue;
            }
            assert!(text.contains("Mamba-1") && text.contains("a rotating state"), "{text}");
            let text = alone.unwrap_err().to_string();
            for word in ["Mamba-1", "a rotating state", "mixer.theta", "backbone.rotate", MODEL_FILE] {
                assert!(text.contains(word), "`{word}` is not in: {text}");
            }
        }
    }
}

/// `config.json` says what it is: Mamba-1 in the form that it always had, readable by others; a turning body with its flag,
/// and with a model type that others refuse.
#[test]
fn the_description_of_a_checkpoint_tells_the_kind() {
    let json = rig(RotateKind::Off).description.to_json();
    assert_eq!((&json["model_type"], &json["state_size"]), (&json!("mamba"), &json!(4)));
    assert!(json["mamba_rl"]["backbone"].get("rotate").is_none(), "{json}");
    let read = |json: &Value| Description::from_json(Path::new("x"), json.clone()).unwrap();
    assert_eq!(read(&json), rig(RotateKind::Off).description);

    let turning = rig(RotateKind::Learned);
    let json = turning.description.to_json();
    assert_eq!(json["mamba_rl"]["backbone"]["rotate"], "learned");
    assert_eq!(json.as_object().unwrap().len(), 2, "keys of transformers: {json}");
    assert_eq!(read(&json), turning.description);
    let refused = turning.description.huggingface().unwrap_err();
    assert!(refused.is_usage() && refused.to_string().contains("backbone.rotate"), "{refused}");
    let run = tempfile::tempdir().unwrap();
    let text = load_huggingface(&saved(&turning, run.path())).unwrap_err().to_string();
    assert!(text.contains("model_type") && text.contains("mamba_rl_rotating") && text.contains("mamba\""), "{text}");
    let theirs = rig(RotateKind::Off).description.huggingface().unwrap();
    assert_eq!((theirs.d_state, theirs.dt_rank), (4, 1));
}

/// Updates move angles that are learnt, and not by a bit those that are fixed, in both networks.
#[test]
fn fixed_angles_stand_still() {
    for rotate in [RotateKind::Fixed, RotateKind::Learned] {
        let base = Setup::task("PositionOnlyCartPoleEasy");
        let learner = R2d2Config { lr_backbone: 1e-2, lr_heads: 1e-2, weight_decay: 0.1, ..base.learner.clone() };
        let mut rig = Rig::new(&Setup { learner, ..base.rotating(rotate) });
        rig.steps(30);
        let batch = rig.all();
        (0..5).for_each(|_| assert!(rig.learner.update(&batch).unwrap().grad_norm > 0.0));
        let slot = rig.learner.layout().slot("backbone.layers.1.mixer.theta").unwrap();
        for net in [rig.learner.online(), rig.learner.target()] {
            let stands = net.flat[slot.range()] == rig.values[slot.range()];
            assert_eq!(stands, rotate == RotateKind::Fixed);
        }
    }
}

/// The hash of settings knows the key, and other bodies than Mamba may have any number of states beside it.
#[test]
fn settings_with_turning_states() {
    let load = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
        Config::load(None, None, &sets, &Flags::default()).unwrap()
    };
    let [off, fixed, learned] =
        ["off", "fixed", "learned"].map(|r| load(&[&format!("backbone.rotate={r}")]).config_hash().unwrap());
    // as before there were the keys `backbone.rotate`, `learner.lr_decay` and `learner.acting`
    let mut before = load(&["backbone.rotate=off", "learner.acting=online", "learner.batch=8"]);
    before.resolve(make("RepeatPreviousEasy", &EnvArgs::default()).unwrap().spec()).unwrap();
    assert_eq!(before.config_hash().unwrap(), "16f74a49");
    assert!(load(&["learner.lr_decay=0.5"]).config_hash().unwrap() != Config::default().config_hash().unwrap());
    assert!(off != fixed && off != learned && fixed != learned);
    load(&["backbone.rotate=learned", "backbone.name=gru", "backbone.d_state=15"]);
    let text = load(&["backbone.rotate=fixed"]).to_toml().unwrap();
    assert!(text.contains("rotate = \"fixed\""), "{text}");
}
