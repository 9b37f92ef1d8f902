//! Environments in a Python process: batches, and every way in which the other side can fail. Interpreters here are small
//! shell scripts, so that each failure is the same on every machine; the real Gymnasium is tested where it is installed.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use mamba_rl_envs::{
    ActionRef, Autoreset, BoxEnv, EnvArgs, EnvError, ObsMut, PythonError, Result, Space, VecEnv, check, make,
};
use serde_json::{Value, json};

/// An executable script; it is one interpreter for each test that names it.
fn script(name: &str, body: &str) -> String {
    let folder = std::env::temp_dir().join(format!("mamba-rl-python-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// The server of `fake_gymnasium.py`; none without Python 3.
fn fake(name: &str) -> Option<String> {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3 on this machine");
        return None;
    }
    let server = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_gymnasium.py");
    Some(script(name, &format!("exec python3 '{}'", server.display())))
}

fn args(pairs: &[(&str, Value)]) -> EnvArgs {
    let args: BTreeMap<String, Value> = pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    EnvArgs { args, ..EnvArgs::default() }
}

fn open(id: &str, program: &str, more: &[(&str, Value)]) -> Result<BoxEnv> {
    make(id, &args(&[&[("python", json!(program)), ("timeout", json!(5))], more].concat()))
}

fn failure(result: Result<impl Sized>) -> PythonError {
    match result.err() {
        Some(EnvError::Python { problem, .. }) => problem,
        other => panic!("expected a failure of the Python process, got {other:?}"),
    }
}

/// Steps until something fails.
fn first_failure(env: &mut BoxEnv) -> (usize, PythonError) {
    let mut obs = [0u8];
    env.reset(Some(1), ObsMut::U8(&mut obs)).unwrap();
    for t in 1.. {
        match env.step(ActionRef::Discrete(&[2]), ObsMut::U8(&mut obs)) {
            Ok(step) => assert_eq!((step.reward, obs[0]), (2.0, ((t + 1) % 4) as u8)),
            Err(e) => return (t, failure(Err::<(), _>(e))),
        }
    }
    unreachable!()
}

#[test]
fn no_interpreter_and_no_gymnasium_are_named() {
    let missing = failure(make("python:CartPole-v1", &args(&[("python", json!("no-such-python"))])));
    assert!(matches!(missing, PythonError::Interpreter { .. }) && missing.to_string().contains("no-such-python"));
    if fake("probe").is_none() {
        return;
    }
    // Without its site packages a Python has no gymnasium.
    let bare = script("bare", "exec python3 -I -S \"$@\"");
    let e = failure(open("python:CartPole-v1", &bare, &[]));
    assert!(matches!(&e, PythonError::NoGymnasium { .. }) && e.to_string().contains("pip install gymnasium"), "{e}");
}

#[test]
fn a_child_that_dies_hangs_or_babbles_is_an_error() {
    let e = failure(open("python:A-v0", &script("dead", "echo 'out of luck' >&2; exit 3"), &[]));
    assert!(e.to_string().contains("exit status: 3") && e.to_string().contains("out of luck"), "{e}");
    let begun = Instant::now();
    let hanging = script("hanging", "exec sleep 100");
    let e = failure(make("python:A-v0", &args(&[("python", json!(hanging)), ("timeout", json!(0.2))])));
    assert!(matches!(e, PythonError::Hung { .. }) && begun.elapsed().as_secs_f64() < 5.0, "{e}");
    let e = failure(open("python:A-v0", &script("babble", "read line; echo hello; exec sleep 1"), &[]));
    assert!(matches!(&e, PythonError::Answer { found, .. } if found.contains("hello")), "{e}");
}

#[test]
fn another_protocol_is_refused() {
    let Some(fake) = fake("protocol") else { return };
    let e = failure(open("python:Count-v0", &fake, &[("protocol", json!(7))]));
    assert!(matches!(&e, PythonError::Protocol { found, expected: 1 } if found == "7"), "{e}");
}

#[test]
fn failures_in_mid_episode() {
    let Some(fake) = fake("failing") else { return };
    let mut raising = open("python:Count-v0", &fake, &[("raise_at", json!(5))]).unwrap();
    let (t, e) = first_failure(&mut raising);
    assert!(t == 5 && e.to_string() == "raised ValueError: out of cards", "{e}");
    let mut dying = open("python:Count-v0", &fake, &[("die_at", json!(3))]).unwrap();
    let (t, e) = first_failure(&mut dying);
    assert!(t == 3 && e.to_string().contains("signal: 9") && e.to_string().contains("about to die"), "{e}");
    let more = [("hang_at", json!(2)), ("timeout", json!(3.0))];
    let (t, e) = first_failure(&mut open("python:Count-v0", &fake, &more).unwrap());
    assert!(t == 2 && matches!(e, PythonError::Hung { .. }), "{e}");
    // A new copy gets a new child.
    assert!(open("python:Count-v0", &fake, &[("die_at", json!(3))]).is_ok());
    for (arg, bad) in [("timeout", json!(-1)), ("timeout", json!("long")), ("python", json!(3))] {
        assert!(matches!(make("python:Count-v0", &args(&[(arg, bad)])), Err(EnvError::BadArg { .. })));
    }
}

#[test]
fn it_keeps_the_contract() {
    let Some(fake) = fake("contract") else { return };
    let report = check(&|| open("python:Count-v0", &fake, &[])).unwrap();
    assert_eq!(report.longest, 20);
    let env = open("python:mod:Count/Two-v0", &fake, &[]).unwrap();
    let spec = env.spec();
    assert_eq!((spec.id.as_str(), spec.name.as_str()), ("python:mod:Count/Two-v0", "python-mod-Count-Two-v0"));
    assert_eq!((&spec.observation_space, &spec.action_space), (&Space::Discrete(4), &Space::Discrete(3)));
}

#[test]
fn all_copies_share_a_child_and_step_in_one_message() {
    let Some(fake) = fake("batch") else { return };
    let make = |_| open("python:Count-v0", &fake, &[("count", json!(true))]);
    let mut envs = VecEnv::new(&make, 3, 1, Autoreset::SameStep).unwrap();
    envs.reset().unwrap();
    for message in 1..=4 {
        let b = envs.step(ActionRef::Discrete(&[0, 1, 2])).unwrap();
        assert_eq!(b.reward, [message as f32; 3], "messages so far, as each copy hears it");
        assert_eq!(b.obs.view().get(2), 3.0, "copies in the longest message");
    }
}

#[test]
fn a_saved_state_plays_again_and_a_dead_child_breaks_the_episodes() {
    let Some(fake) = fake("saved") else { return };
    let vec = |more: &[(&str, Value)]| {
        let mut envs = VecEnv::new(&|_| open("python:Count-v0", &fake, more), 2, 1, Autoreset::SameStep).unwrap();
        envs.reset().unwrap();
        envs
    };
    let mut envs = vec![(), ()].into_iter().map(|()| vec(&[])).collect::<Vec<_>>();
    for _ in 0..27 {
        envs[0].step(ActionRef::Discrete(&[0, 1])).unwrap();
    }
    let saved = envs[0].save();
    assert_eq!(envs[1].restore(&saved).unwrap(), Vec::<usize>::new());
    assert_eq!(envs[1].last().obs, envs[0].last().obs);
    let mut dying = vec(&[("die_at", json!(7))]);
    let e = (0..20).find_map(|_| dying.step(ActionRef::Discrete(&[0, 1])).err()).unwrap();
    assert!(e.to_string().starts_with("python:Count-v0: the child process ended"), "{e}");
    let state = dying.save();
    assert!(state.copies.iter().all(|c| c.broken && c.episode_length == 6));
    assert_eq!(envs[1].restore(&state).unwrap(), [0, 1], "no such episode goes on");
    assert_eq!(envs[1].last().episode_number, [1, 1]);
}

#[test]
fn the_real_cart_pole_is_ours() {
    let found = ["python3", "python"].into_iter().find(|p| {
        let probe = std::process::Command::new(p).args(["-c", "import gymnasium"]).output();
        probe.is_ok_and(|o| o.status.success())
    });
    let Some(python) = std::env::var("MAMBA_RL_PYTHON").ok().or(found.map(str::to_owned)) else {
        eprintln!("skipped: no Python with gymnasium on this machine (MAMBA_RL_PYTHON names one)");
        return;
    };
    let theirs = || make("python:CartPole-v1", &args(&[("python", json!(python))]));
    check(&theirs).unwrap();
    let (mut theirs, mut ours) = (theirs().unwrap(), make("CartPole-v1", &EnvArgs::default()).unwrap());
    assert_eq!(theirs.spec().max_steps, Some(500));
    let (mut a, mut b) = ([0f32; 4], [0f32; 4]);
    theirs.reset(Some(3), ObsMut::F32(&mut a)).unwrap();
    let state: Vec<f64> = a.iter().map(|x| f64::from(*x)).collect();
    ours.reset(Some(1), ObsMut::F32(&mut b)).unwrap();
    ours.set_state(&state).unwrap();
    for t in 0.. {
        let action = if t % 2 == 0 { [1] } else { [0] };
        let x = theirs.step(ActionRef::Discrete(&action), ObsMut::F32(&mut a)).unwrap();
        let y = ours.step(ActionRef::Discrete(&action), ObsMut::F32(&mut b)).unwrap();
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "step {t}: {a:?} {b:?}");
        assert_eq!((x.reward, x.terminated), (y.reward, y.terminated));
        if x.done() {
            break;
        }
    }
    let unknown = failure(make("python:NoSuchTask-v0", &args(&[("python", json!(python))])));
    assert!(matches!(&unknown, PythonError::Make { text } if text.contains("NoSuchTask")), "{unknown}");
    let blackjack = make("python:Blackjack-v1", &args(&[("python", json!(python))])).unwrap();
    assert_eq!(blackjack.spec().observation_space.to_string(), "Tuple(Discrete(32), Discrete(11), Discrete(2))");
}
