//! Each wrapper by hand, on real tasks with a known hidden state.

use serde_json::json;

use super::*;
use crate::registry::{EnvArgs, make};
use crate::space::Space;

fn env(name: &str) -> BoxEnv {
    make(name, &EnvArgs::default()).unwrap()
}

/// Plays discrete actions from a seed; observation rows as floats, and the steps.
fn play(env: &mut BoxEnv, seed: u64, actions: &[i32]) -> (Vec<Vec<f32>>, Vec<Step>) {
    let mut obs = ObsBuffer::for_space(&env.spec().observation_space, 1);
    let row = |o: &ObsBuffer| (0..o.len()).map(|i| o.view().get(i)).collect::<Vec<f32>>();
    env.reset(Some(seed), obs.view_mut()).unwrap();
    let (mut rows, mut steps) = (vec![row(&obs)], Vec::new());
    for a in actions {
        steps.push(env.step(ActionRef::Discrete(&[*a]), obs.view_mut()).unwrap());
        rows.push(row(&obs));
        assert!(
            env.spec().observation_space.contains_row(obs.view()),
            "{} {:?}",
            env.spec().observation_space,
            rows.last()
        );
    }
    (rows, steps)
}

const ACTIONS: [i32; 6] = [0, 1, 2, 3, 2, 1];

#[test]
fn time_limit_truncates_and_then_refuses() {
    let mut limited = TimeLimit::new(env("RepeatFirstEasy"), 3).unwrap().boxed();
    assert_eq!(limited.spec().max_steps, Some(3));
    let (_, steps) = play(&mut limited, 1, &ACTIONS[..3]);
    assert_eq!(steps.iter().map(|s| s.truncated).collect::<Vec<_>>(), [false, false, true]);
    let refused = limited.step(ActionRef::Discrete(&[0]), ObsBuffer::U8(vec![0]).view_mut());
    assert!(matches!(refused, Err(EnvError::EpisodeOver { .. })));
    assert!(TimeLimit::new(env("RepeatFirstEasy"), 0).is_err());
}

#[test]
fn frame_skip_adds_rewards_and_stops_at_the_end() {
    let (_, plain) = play(&mut env("RepeatFirstEasy"), 1, &[2; 51]);
    let mut skipping = FrameSkip::new(env("RepeatFirstEasy"), 4).unwrap().boxed();
    assert_eq!(skipping.spec().max_steps, Some(13));
    let (_, steps) = play(&mut skipping, 1, &[2; 13]);
    for (i, s) in steps.iter().enumerate() {
        let sum: f64 = plain[4 * i..(4 * i + 4).min(51)].iter().map(|s| s.reward).sum();
        assert!((s.reward - sum).abs() < 1e-12 && s.terminated == (i == 12));
    }
}

#[test]
fn delayed_observation_is_that_of_d_steps_ago() {
    let (plain, _) = play(&mut env("RepeatFirstEasy"), 1, &ACTIONS);
    for d in [0, 1, 3] {
        let mut delayed = DelayedObservation::new(env("RepeatFirstEasy"), d).unwrap().boxed();
        for _ in 0..2 {
            // Twice: the second episode must not see the first.
            let (rows, _) = play(&mut delayed, 1, &ACTIONS);
            for (t, row) in rows.iter().enumerate() {
                assert_eq!(*row, plain[t.saturating_sub(d)], "delay {d}, step {t}");
            }
        }
    }
}

#[test]
fn rewards_are_clipped_and_scaled_and_the_spec_follows() {
    let (_, plain) = play(&mut env("RepeatFirstEasy"), 1, &ACTIONS);
    let mut clipped = ClipReward::new(env("RepeatFirstEasy"), -0.01, 0.5).unwrap().boxed();
    let (_, steps) = play(&mut clipped, 1, &ACTIONS);
    assert!(steps.iter().zip(&plain).all(|(a, b)| a.reward == b.reward.clamp(-0.01, 0.5)));
    assert!(steps.iter().any(|s| s.reward == -0.01) && steps.iter().any(|s| s.reward > 0.0));
    let mut scaled = ScaleReward::new(env("RepeatFirstEasy"), -51.0).unwrap().boxed();
    let (_, steps) = play(&mut scaled, 1, &ACTIONS);
    assert!(steps.iter().zip(&plain).all(|(a, b)| a.reward == b.reward * -51.0));
    assert_eq!((scaled.spec().unit_reward, scaled.spec().return_range), (1.0, (-51.0, 51.0)));
    assert!(ClipReward::new(env("RepeatFirstEasy"), 1.0, -1.0).is_err());
    assert!(ScaleReward::new(env("RepeatFirstEasy"), f64::NAN).is_err());
}

#[test]
fn statistics_see_the_rewards_of_their_own_place() {
    let mut stats = RecordEpisodeStatistics::new(ScaleReward::new(env("RepeatFirstEasy"), 51.0).unwrap()).unwrap();
    let mut obs = ObsBuffer::U8(vec![0]);
    for seed in 0..2 {
        stats.reset(Some(seed), obs.view_mut()).unwrap();
        let ObsBuffer::U8(first) = obs.clone() else { panic!("a byte") };
        for _ in 0..51 {
            stats.step(ActionRef::Discrete(&[i32::from(first[0])]), obs.view_mut()).unwrap();
        }
    }
    let ended: Vec<_> = stats.wrapper().ended().iter().map(|e| (e.episode_return.round(), e.episode_length)).collect();
    assert_eq!(ended, [(51.0, 51), (51.0, 51)]);
}

#[test]
fn normalized_observations_have_mean_zero_and_variance_one() {
    let mut layer = NormalizeObservation::new(env("CartPole-v1")).unwrap();
    let mut obs = ObsBuffer::F32(vec![0.0; 4]);
    for seed in 0..3_000 {
        layer.reset(Some(seed), obs.view_mut()).unwrap();
    }
    layer.wrapper_mut().update = false;
    let (mut sum, mut square) = ([0.0f64; 4], [0.0f64; 4]);
    for seed in 0..3_000 {
        layer.reset(Some(seed), obs.view_mut()).unwrap();
        for i in 0..4 {
            let x = f64::from(obs.view().get(i));
            sum[i] += x / 3_000.0;
            square[i] += x * x / 3_000.0;
        }
    }
    assert!(sum.iter().all(|m| m.abs() < 1e-4) && square.iter().all(|s| (s - 1.0).abs() < 1e-3), "{sum:?} {square:?}");
    assert!(NormalizeObservation::new(env("RepeatFirstEasy")).is_err());
}

#[test]
fn flattened_observations_are_one_hot() {
    let (plain, _) = play(&mut env("AutoencodeEasy"), 1, &ACTIONS);
    let mut flat = FlattenObservation::new(env("AutoencodeEasy")).unwrap().boxed();
    assert_eq!(flat.spec().observation_space.to_string(), "Box(0.0, 1.0, (6,), float32)");
    let (rows, _) = play(&mut flat, 1, &ACTIONS);
    for (row, p) in rows.iter().zip(&plain) {
        let mut hot = [0.0; 6];
        hot[p[0] as usize] = 1.0;
        hot[2 + p[1] as usize] = 1.0;
        assert_eq!(row.as_slice(), hot);
    }
}

#[test]
fn masked_observations_keep_what_is_asked() {
    let (plain, _) = play(&mut env("CartPole-v1"), 1, &[0, 1, 1]);
    let mut masked = MaskObservation::new(env("CartPole-v1"), &[true, false, true, false]).unwrap().boxed();
    let shown = masked.spec().observation_space.to_string();
    assert_eq!(shown, env("PositionOnlyCartPoleEasy").spec().observation_space.to_string());
    assert_eq!(masked.spec().hidden, "elements [1, 3] of the observation");
    let (rows, _) = play(&mut masked, 1, &[0, 1, 1]);
    assert!(rows.iter().zip(&plain).all(|(a, b)| a.as_slice() == [b[0], b[2]]));
    let only = MaskObservation::new(env("AutoencodeEasy"), &[false, true]).unwrap();
    assert_eq!(only.spec().observation_space, Space::Discrete(4));
    assert!(MaskObservation::new(env("CartPole-v1"), &[true]).is_err());
    assert!(MaskObservation::new(env("CartPole-v1"), &[false; 4]).is_err());
}

#[test]
fn flat_actions_are_row_major() {
    let mut flat = FlattenAction::new(env("BattleshipMedium")).unwrap().boxed();
    assert_eq!(flat.spec().action_space, Space::Discrete(100));
    let mut board = vec![vec![0; 10]; 10];
    board[3][7..10].fill(1);
    board[0][..9].fill(1);
    let mut obs = ObsBuffer::U8(vec![0]);
    flat.set_hidden(&json!({"board": board}), obs.view_mut()).unwrap();
    let mut hit = |a: i32| flat.step(ActionRef::Discrete(&[a]), obs.view_mut()).unwrap().reward > 0.0;
    assert!(hit(37) && !hit(73) && hit(8) && !hit(9));
    assert!(matches!(flat.step(ActionRef::Discrete(&[100]), obs.view_mut()), Err(EnvError::Action { .. })));
    assert!(FlattenAction::new(env("Pendulum-v1")).is_err());
}

#[test]
fn discretized_torques_are_evenly_spaced() {
    let mut env = DiscretizeAction::new(env("Pendulum-v1"), 5).unwrap().boxed();
    assert_eq!(env.spec().action_space, Space::Discrete(5));
    let mut obs = ObsBuffer::F32(vec![0.0; 3]);
    for (a, torque) in [-2.0, -1.0, 0.0, 1.0, 2.0].into_iter().enumerate() {
        env.set_hidden(&json!({"state": [0.0, 0.0]}), obs.view_mut()).unwrap();
        env.step(ActionRef::Discrete(&[a as i32]), obs.view_mut()).unwrap();
        assert!((f64::from(obs.view().get(2)) - 0.15 * torque).abs() < 1e-7, "{a}");
    }
}

#[test]
fn previous_action_and_first_flag_as_in_the_published_experiments() {
    let (plain, _) = play(&mut env("RepeatFirstEasy"), 1, &ACTIONS);
    let mut both = FirstStepFlag::new(PreviousAction::new(env("RepeatFirstEasy")).unwrap()).unwrap().boxed();
    assert_eq!(both.spec().observation_space.to_string(), "Tuple(Discrete(4), Discrete(4), Discrete(2))");
    for _ in 0..2 {
        let (rows, _) = play(&mut both, 1, &ACTIONS);
        for (t, row) in rows.iter().enumerate() {
            let previous = if t == 0 { 0 } else { ACTIONS[t - 1] };
            assert_eq!(row.as_slice(), [plain[t][0], previous as f32, if t == 0 { 1.0 } else { 0.0 }]);
        }
    }
    let pendulum = PreviousAction::new(env("Pendulum-v1")).unwrap();
    assert_eq!(pendulum.spec().observation_space.flat_len(), 4);
    let cart = FirstStepFlag::new(env("CartPole-v1")).unwrap().boxed();
    assert_eq!(cart.spec().observation_space.dtype(), crate::space::Dtype::F32);
}

#[test]
fn wrapped_tasks_keep_hidden_state_and_frames() {
    let mut wrapped = PreviousAction::new(TimeLimit::new(env("TMaze-v0"), 5).unwrap()).unwrap().boxed();
    let mut obs = ObsBuffer::U8(vec![0; 2]);
    wrapped.set_hidden(&json!({"sign": "down"}), obs.view_mut()).unwrap();
    assert_eq!((obs.view(), wrapped.hidden()["sign"].as_str()), (ObsRef::U8(&[2, 0]), Some("down")));
    assert!(wrapped.render_text().contains("sign v"));
}
