//! `VecEnv`: autoreset in both modes, masks, save and restore in mid-episode, parallel stepping.

use mamba_rl_envs::wrapper::{FlattenAction, TimeLimit};
use mamba_rl_envs::{
    ActElem, ActionBuffer, ActionRef, Autoreset, BoxEnv, DynEnv, Env, EnvArgs, EnvError, EnvSpec, ObsBuffer, ObsMut,
    Options, Result, Space, Step, VecEnv, VecEnvState, check_with, erase, joint_action, make, random_action,
    split_action,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Observation = step counter; ends after `length` steps, terminated if odd, truncated if even; action 1 is not legal
/// at even steps.
struct Counter {
    spec: EnvSpec,
    length: i32,
    time: i32,
}

impl Counter {
    fn new(length: i32) -> Self {
        let spec = EnvSpec {
            max_steps: Some(length as usize),
            ..EnvSpec::new("Counter-v0", "Counter", Space::Discrete(1000), Space::Discrete(2))
        };
        Counter { spec, length, time: 0 }
    }
}

impl Env for Counter {
    type Obs = i32;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
    fn reset_into(&mut self, _seed: Option<u64>, obs: &mut [i32]) {
        self.time = 0;
        obs[0] = 0;
    }
    fn step_into(&mut self, _action: &[i32], obs: &mut [i32]) -> Step {
        self.time += 1;
        obs[0] = self.time;
        let done = self.time == self.length;
        let odd = self.length % 2 == 1;
        Step { reward: f64::from(self.time), terminated: done && odd, truncated: done && !odd }
    }
    fn has_legal_mask(&self) -> bool {
        true
    }
    fn legal_into(&self, mask: &mut [bool]) {
        mask.copy_from_slice(&[true, self.time % 2 == 1]);
    }
}

fn counters(mode: Autoreset) -> VecEnv {
    let lengths = [3, 4];
    let mut envs = VecEnv::new(&|i| Ok(erase(Counter::new(lengths[i]))), 2, 1, mode).unwrap();
    envs.reset().unwrap();
    envs
}

fn ints(b: &ObsBuffer) -> Vec<i32> {
    match b {
        ObsBuffer::I32(v) => v.clone(),
        other => panic!("expected i32, got {other:?}"),
    }
}

#[test]
fn same_step_by_hand() {
    let mut envs = counters(Autoreset::SameStep);
    assert_eq!((ints(&envs.last().obs), envs.last().is_first.clone()), (vec![0, 0], vec![true, true]));
    assert_eq!(envs.last().legal, Some(vec![true, false, true, false]));
    for t in 1..=3 {
        envs.step(ActionRef::Discrete(&[0, 0])).unwrap();
        assert!(t == 3 || envs.last().episode_number == [0, 0]);
    }
    let b = envs.last();
    assert_eq!((ints(&b.obs), ints(&b.final_obs)[0]), (vec![0, 3], 3));
    assert_eq!((b.terminated.clone(), b.truncated.clone()), (vec![true, false], vec![false, false]));
    assert_eq!((b.reward.clone(), b.valid.clone()), (vec![3.0, 3.0], vec![true, true]));
    assert_eq!((b.episode_return[0], b.episode_length[0]), (6.0, 3));
    assert_eq!((b.episode_number.clone(), b.is_first.clone()), (vec![1, 0], vec![true, false]));
    assert_eq!(b.legal, Some(vec![true, false, true, true]), "of the new episode's first observation");
    assert_eq!(b.final_legal.as_ref().unwrap()[..2], [true, true], "of the last one");
    let b = envs.step(ActionRef::Discrete(&[0, 0])).unwrap();
    assert_eq!((ints(&b.obs), ints(&b.final_obs)[1]), (vec![1, 0], 4));
    assert_eq!((b.terminated.clone(), b.truncated.clone()), (vec![false, false], vec![false, true]));
    assert_eq!((b.episode_return[1], b.episode_length[1]), (10.0, 4));
}

#[test]
fn next_step_by_hand() {
    let mut envs = counters(Autoreset::NextStep);
    for _ in 0..3 {
        envs.step(ActionRef::Discrete(&[0, 0])).unwrap();
    }
    let b = envs.last();
    assert_eq!((ints(&b.obs), ints(&b.final_obs)[0], b.terminated[0]), (vec![3, 3], 3, true));
    assert_eq!((b.is_first[0], b.valid[0], b.episode_number[0]), (false, true, 0));
    let b = envs.step(ActionRef::Discrete(&[0, 0])).unwrap();
    assert_eq!((ints(&b.obs), b.valid.clone()), (vec![0, 4], vec![false, true]));
    assert_eq!((b.reward[0], b.terminated[0], b.is_first[0], b.episode_number[0]), (0.0, false, true, 1));
    let b = envs.step(ActionRef::Discrete(&[0, 0])).unwrap();
    assert_eq!((ints(&b.obs), b.valid.clone()), (vec![1, 0], vec![true, false]));
}

#[test]
fn bad_actions_are_named() {
    let mut envs = counters(Autoreset::SameStep);
    assert!(matches!(envs.step(ActionRef::Discrete(&[0])), Err(EnvError::Length { found: 1, expected: 2, .. })));
    assert!(matches!(envs.step(ActionRef::Discrete(&[0, 1])), Err(EnvError::IllegalNow { .. })));
    let error = envs.step(ActionRef::Discrete(&[2, 0])).unwrap_err().to_string();
    assert_eq!(error, "Counter: action 2 is not in Discrete(2)");
    assert!(matches!(envs.step(ActionRef::Continuous(&[0.0, 0.0])), Err(EnvError::Action { .. })));
    let none = VecEnv::new(&|_| Ok(erase(Counter::new(3))), 0, 1, Autoreset::SameStep);
    assert!(matches!(none.map(|_| ()), Err(EnvError::Length { .. })));
    let mixed = |i| make(["RepeatFirstEasy", "HigherLowerEasy"][i], &EnvArgs::default());
    assert!(matches!(VecEnv::new(&mixed, 2, 1, Autoreset::SameStep).map(|_| ()), Err(EnvError::Space { .. })));
}

fn actions(envs: &VecEnv, rng: &mut ChaCha8Rng) -> ActionBuffer {
    let space = &envs.spec().action_space;
    let mut all = ActionBuffer::for_space(space, 0);
    for _ in 0..envs.num_envs() {
        assert!(all.extend(random_action(space, None, rng).view()));
    }
    all
}

fn vector(id: &str, n: usize, mode: Autoreset) -> VecEnv {
    let mut envs = VecEnv::new(&|_| make(id, &EnvArgs::default()), n, 5, mode).unwrap();
    envs.reset().unwrap();
    envs
}

const SOME: [&str; 8] = [
    "RepeatPreviousEasy",
    "ConcentrationHard",
    "BattleshipEasy",
    "MineSweeperEasy",
    "MultiarmedBanditEasy",
    "NoisyPositionOnlyCartPoleEasy",
    "NoisyPositionOnlyPendulumEasy",
    "LabyrinthExploreEasy",
];

#[test]
fn parallel_stepping_gives_the_same_bits() {
    for id in SOME {
        let mut one = vector(id, 7, Autoreset::SameStep);
        let mut many = vector(id, 7, Autoreset::SameStep).parallel(true);
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..150 {
            let a = actions(&one, &mut rng);
            assert_eq!(one.step(a.view()).unwrap(), many.step(a.view()).unwrap(), "{id}");
        }
    }
}

#[test]
fn a_restored_run_goes_on_with_the_same_bits() {
    for mode in [Autoreset::SameStep, Autoreset::NextStep] {
        for id in SOME {
            for stop in [0, 1, 40, 111] {
                let mut whole = vector(id, 3, mode);
                let mut rng = ChaCha8Rng::seed_from_u64(2);
                for _ in 0..stop {
                    let a = actions(&whole, &mut rng);
                    whole.step(a.view()).unwrap();
                }
                // Through JSON, as in a checkpoint.
                let saved = serde_json::to_string(&whole.save()).unwrap();
                let mut resumed = vector(id, 3, mode);
                let state: VecEnvState = serde_json::from_str(&saved).unwrap();
                assert_eq!(resumed.restore(&state).unwrap(), Vec::<usize>::new(), "{id} at {stop}");
                assert_eq!(resumed.last().obs, whole.last().obs);
                assert_eq!(resumed.last().episode_number, whole.last().episode_number);
                assert_eq!(resumed.last().is_first, whole.last().is_first);
                assert_eq!(resumed.save(), whole.save());
                for t in 0..120 {
                    let a = actions(&whole, &mut rng);
                    let (w, r) = (whole.step(a.view()).unwrap(), resumed.step(a.view()).unwrap());
                    let ended: Vec<usize> = (0..3).filter(|i| w.terminated[*i] || w.truncated[*i]).collect();
                    assert_eq!((&w.obs, &w.reward, &w.valid), (&r.obs, &r.reward, &r.valid), "{id} {t} after {stop}");
                    assert_eq!((&w.terminated, &w.truncated), (&r.terminated, &r.truncated));
                    for i in ended {
                        assert_eq!(w.episode_return[i].to_bits(), r.episode_return[i].to_bits());
                        assert_eq!(w.episode_length[i], r.episode_length[i]);
                    }
                }
            }
        }
    }
}

/// A task whose stream is not decided by its seed.
struct Unrepeatable(BoxEnv, u64);

impl DynEnv for Unrepeatable {
    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }
    fn reset(&mut self, _seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        self.1 += 1;
        self.0.reset(Some(self.1), obs)
    }
    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        self.0.step(action, obs)
    }
}

#[test]
fn copies_that_do_not_repeat_are_named_and_start_anew() {
    let build = |shift: u64| {
        let make = move |i: usize| -> Result<BoxEnv> {
            let env = make("RepeatPreviousEasy", &EnvArgs::default())?;
            Ok(if i == 1 { Box::new(Unrepeatable(env, shift)) } else { env })
        };
        let mut envs = VecEnv::new(&make, 3, 5, Autoreset::SameStep).unwrap();
        envs.reset().unwrap();
        envs
    };
    let mut whole = build(100);
    for _ in 0..60 {
        whole.step(ActionRef::Discrete(&[0, 1, 2])).unwrap();
    }
    let mut resumed = build(500);
    assert_eq!(resumed.restore(&whole.save()).unwrap(), [1]);
    assert_eq!(resumed.last().is_first, [false, true, false]);
    assert_eq!(resumed.last().episode_number, [1, 2, 1]);
    assert_eq!(resumed.save().copies[0], whole.save().copies[0]);
    // A saved state of another task, size or seed is refused by field.
    let state = whole.save();
    for (field, bad) in [
        ("id", VecEnvState { id: "other".into(), ..state.clone() }),
        ("copies", VecEnvState { copies: state.copies[..2].to_vec(), ..state.clone() }),
        ("base_seed", VecEnvState { base_seed: 6, ..state.clone() }),
    ] {
        match resumed.restore(&bad) {
            Err(EnvError::State { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    // Actions beyond the end, as from a damaged file, do not panic.
    let mut damaged = state.clone();
    damaged.copies[0].actions = ActionBuffer::Discrete(vec![0; 1000]);
    damaged.copies[2].actions = ActionBuffer::Continuous(vec![0.0; 3]);
    assert_eq!(resumed.restore(&damaged).unwrap(), [0, 1, 2]);
    assert_eq!(i32::wrap(&[1]), ActionRef::Discrete(&[1]));
}

/// A 2 × 3 board where no cell may be taken twice; taking the last one ends.
struct Board {
    spec: EnvSpec,
    taken: [bool; 6],
}

impl Env for Board {
    type Obs = u8;
    type Act = i32;
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
    fn reset_into(&mut self, _: Option<u64>, obs: &mut [u8]) {
        self.taken = [false; 6];
        obs[0] = 0;
    }
    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        self.taken[(action[0] * 3 + action[1]) as usize] = true;
        obs[0] = self.taken.iter().filter(|t| **t).count() as u8;
        Step { reward: 1.0, terminated: obs[0] == 6, truncated: false }
    }
    fn has_legal_mask(&self) -> bool {
        true
    }
    fn legal_into(&self, mask: &mut [bool]) {
        mask.iter_mut().zip(&self.taken).for_each(|(m, t)| *m = !t);
    }
}

fn board() -> Result<BoxEnv> {
    let spec = EnvSpec {
        max_steps: Some(6),
        return_range: (0.0, 6.0),
        ..EnvSpec::new("Board-v0", "Board", Space::Discrete(7), Space::MultiDiscrete(vec![2, 3]))
    };
    Ok(erase(Board { spec, taken: [false; 6] }))
}

#[test]
fn masks_pass_through_wrappers_and_joint_actions_are_row_major() {
    let options = Options { deterministic: true, ..Options::default() };
    check_with(&board, &options).unwrap();
    let flat = || Ok(TimeLimit::new(FlattenAction::new(board()?)?, 5)?.boxed());
    check_with(&flat, &options).unwrap();
    let mut envs = VecEnv::new(&|_| flat(), 1, 0, Autoreset::SameStep).unwrap();
    envs.reset().unwrap();
    let b = envs.step(ActionRef::Discrete(&[4])).unwrap();
    assert_eq!(b.legal, Some(vec![true, true, true, true, false, true]));
    assert!(matches!(envs.step(ActionRef::Discrete(&[4])), Err(EnvError::IllegalNow { .. })));
    let mut pairs = VecEnv::new(&|_| board(), 1, 0, Autoreset::SameStep).unwrap();
    pairs.reset().unwrap();
    let b = pairs.step(ActionRef::Discrete(&[1, 1])).unwrap();
    assert_eq!(b.legal, Some(vec![true, true, true, true, false, true]));
    for joint in 0..6 {
        let space = Space::MultiDiscrete(vec![2, 3]);
        let parts = split_action(&space, joint).unwrap();
        assert_eq!(
            (joint_action(&space, ActionRef::Discrete(&parts)), &parts[..]),
            (joint, &[joint as i32 / 3, joint as i32 % 3][..])
        );
    }
    assert_eq!(split_action(&Space::MultiDiscrete(vec![2, 3]), 6), None);
}
