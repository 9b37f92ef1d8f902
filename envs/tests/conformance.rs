//! Every bundled task keeps the contract; planted faults are found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mamba_rl_envs::wrapper::{DelayedObservation, FirstStepFlag, FlattenAction, FlattenObservation, FrameSkip};
use mamba_rl_envs::wrapper::{PreviousAction, ScaleReward, TimeLimit};
use mamba_rl_envs::{
    ActionRef, Autoreset, BoxEnv, DynEnv, EnvArgs, EnvError, EnvSpec, ObsMut, Options, Registry, Result, Space, Step,
    StepBatch, VecEnv, VectorSteps, check, check_copies, check_with, episode_seed, make,
};
use serde_json::Value;

#[test]
fn every_bundled_task_conforms() {
    let registry = Registry::bundled();
    assert_eq!(registry.list().len(), 16 * 3 + 5 + 1 + usize::from(cfg!(feature = "gymnasium")));
    for entry in registry.list() {
        for legacy in [false, true] {
            let args = EnvArgs { legacy, ..EnvArgs::default() };
            let report = check(&|| registry.make(&entry.spec.id, &args)).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(report.episodes, 8, "{}", entry.spec.id);
            let made = registry.make(&entry.spec.id, &args).unwrap();
            if !legacy {
                assert_eq!(made.spec(), &entry.spec, "the listed spec is that of the task");
            }
        }
    }
}

#[test]
fn tasks_with_arguments_conform() {
    for (id, arg, value) in [
        ("TMaze-v0", "length", Value::from(1)),
        ("TMaze-v0", "length", Value::from(300)),
        ("Pendulum-v1", "torques", Value::from(5)),
        ("PositionOnlyPendulumHard", "torques", Value::from(11)),
        ("VelocityOnlyCartPoleEasy", "velocity_at_reset", Value::from(true)),
    ] {
        let args = EnvArgs { args: BTreeMap::from([(arg.to_owned(), value)]), ..EnvArgs::default() };
        check(&|| make(id, &args)).unwrap_or_else(|e| panic!("{e}"));
    }
    for (id, arg, value) in [
        ("TMaze-v0", "length", Value::from(0)),
        ("TMaze-v0", "length", Value::from("ten")),
        ("Pendulum-v1", "torques", Value::from(1)),
        ("VelocityOnlyCartPoleEasy", "velocity_at_reset", Value::from(1)),
    ] {
        let args = EnvArgs { args: BTreeMap::from([(arg.to_owned(), value)]), ..EnvArgs::default() };
        match make(id, &args).map(|_| ()) {
            Err(EnvError::BadArg { arg: named, .. }) => assert_eq!(named, arg),
            other => panic!("{id} {arg}: {other:?}"),
        }
    }
}

#[test]
fn wrapped_tasks_conform() {
    let env = |id: &str| make(id, &EnvArgs::default());
    let wrapped: [&dyn Fn() -> Result<BoxEnv>; 6] = [
        &|| Ok(TimeLimit::new(FlattenAction::new(env("BattleshipEasy")?)?, 20)?.boxed()),
        &|| Ok(FirstStepFlag::new(PreviousAction::new(env("MineSweeperHard")?)?)?.boxed()),
        &|| Ok(FirstStepFlag::new(PreviousAction::new(env("PositionOnlyPendulumEasy")?)?)?.boxed()),
        &|| Ok(FlattenObservation::new(env("CountRecallHard")?)?.boxed()),
        &|| Ok(DelayedObservation::new(ScaleReward::new(env("CartPole-v1")?, -0.5)?, 2)?.boxed()),
        &|| Ok(FrameSkip::new(env("PositionOnlyCartPoleEasy")?, 3)?.boxed()),
    ];
    for make in wrapped {
        check(make).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// What is wrong with the planted task.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    OutsideSpace,
    Unwritten,
    IgnoredSeed,
    SameForAllSeeds,
    HistoryLeaks,
    SharedState,
    RewardAfterEnd,
    NeverEnds,
    ReturnTooLarge,
    InfiniteReward,
    TakesAnyAction,
    RefusalCounts,
    TakesIllegal,
    AnyBuffer,
    StepsUnreset,
}

/// Six steps; the observation is a number from the seed, stirred by each action; action 2 is legal at even steps only.
struct Planted {
    spec: EnvSpec,
    fault: Fault,
    state: u64,
    time: Option<u64>,
    shared: Arc<AtomicU64>,
}

fn planted(fault: Fault, shared: &Arc<AtomicU64>) -> BoxEnv {
    let spec = EnvSpec {
        max_steps: Some(6),
        return_range: (0.0, 6.0),
        ..EnvSpec::new("Planted-v0", "Planted", Space::Discrete(200), Space::Discrete(3))
    };
    Box::new(Planted { spec, fault, state: 1, time: None, shared: shared.clone() })
}

impl Planted {
    fn show(&self, obs: ObsMut<'_>) -> Result<()> {
        match obs {
            ObsMut::U8(_) if self.fault == Fault::Unwritten && self.time == Some(3) => Ok(()),
            ObsMut::U8([o]) => {
                let outside = self.fault == Fault::OutsideSpace && self.time == Some(4);
                *o = if outside { 200 } else { (self.state % 200) as u8 };
                Ok(())
            }
            _ if self.fault == Fault::AnyBuffer => Ok(()),
            other => Err(EnvError::Length { what: "observation".into(), found: other.view().len(), expected: 1 }),
        }
    }
}

impl DynEnv for Planted {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        self.time = Some(0);
        self.state = match (seed, self.fault) {
            (_, Fault::SameForAllSeeds) => 7,
            (Some(_), Fault::IgnoredSeed) | (None, _) => episode_seed(self.state, 1, 1),
            (Some(seed), Fault::HistoryLeaks) => episode_seed(seed, self.state, 0),
            (Some(seed), _) => episode_seed(seed, 0, 0),
        };
        self.show(obs)
    }

    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        let over = || EnvError::EpisodeOver { env: "Planted".into() };
        let time = match self.time {
            None if self.fault == Fault::StepsUnreset => 0,
            None => return Err(EnvError::NotReset { env: "Planted".into() }),
            Some(6..) if self.fault == Fault::RewardAfterEnd => 5,
            Some(6..) => return Err(over()),
            Some(t) => t,
        };
        if self.fault != Fault::TakesAnyAction {
            let refused = self.spec.action_space.check_action("Planted", action);
            if refused.is_err() && self.fault == Fault::RefusalCounts {
                self.state += 1;
            }
            refused?;
        }
        let joint = mamba_rl_envs::joint_action(&self.spec.action_space, action);
        let mut legal = [true; 3];
        self.legal(&mut legal);
        if !legal.get(joint).copied().unwrap_or(true) && self.fault != Fault::TakesIllegal {
            return Err(EnvError::IllegalNow { env: "Planted".into(), space: "Discrete(3)".into(), found: "2".into() });
        }
        self.state = episode_seed(self.state, joint as u64, time);
        if self.fault == Fault::SharedState {
            self.state ^= self.shared.fetch_add(1, Ordering::Relaxed);
        }
        if self.fault != Fault::NeverEnds {
            self.time = Some(time + 1);
        }
        self.show(obs)?;
        let reward = match self.fault {
            Fault::ReturnTooLarge => 1.1,
            Fault::InfiniteReward if time == 2 => f64::INFINITY,
            _ => 1.0,
        };
        Ok(Step { reward, terminated: time + 1 == 6, truncated: false })
    }

    fn has_legal_mask(&self) -> bool {
        true
    }

    fn legal(&self, mask: &mut [bool]) {
        let even = self.time.unwrap_or(0).is_multiple_of(2);
        mask.iter_mut().enumerate().for_each(|(i, m)| *m = i != 2 || even);
    }
}

#[test]
fn planted_faults_are_found() {
    let run = |fault| {
        let shared = Arc::new(AtomicU64::new(0));
        check(&move || Ok(planted(fault, &shared)))
    };
    let report = run(Fault::None).unwrap();
    assert_eq!((report.longest, report.returns), (6, (6.0, 6.0)));
    for (fault, expected) in [
        (Fault::OutsideSpace, "observations lie in the space"),
        (Fault::Unwritten, "observations lie in the space"),
        (Fault::IgnoredSeed, "a seed repeats the episode"),
        (Fault::SameForAllSeeds, "seeds differ"),
        (Fault::HistoryLeaks, "a seed repeats the episode"),
        (Fault::SharedState, "a seed repeats the episode"),
        (Fault::RewardAfterEnd, "no step after the end"),
        (Fault::NeverEnds, "episodes end within max_steps"),
        (Fault::ReturnTooLarge, "returns lie in return_range"),
        (Fault::InfiniteReward, "rewards are finite"),
        (Fault::TakesAnyAction, "an action outside the space is an error"),
        (Fault::RefusalCounts, "a refused action changes nothing"),
        (Fault::TakesIllegal, "an action that is not legal is an error"),
        (Fault::AnyBuffer, "a buffer of another length is an error"),
        (Fault::StepsUnreset, "no step before the reset"),
    ] {
        match run(fault) {
            Err(EnvError::Contract { rule, .. }) => assert_eq!(rule, expected, "{fault:?}"),
            other => panic!("{fault:?}: {other:?}"),
        }
    }
    let options = Options { deterministic: true, ..Options::default() };
    let shared = Arc::new(AtomicU64::new(0));
    check_with(&move || Ok(planted(Fault::SameForAllSeeds, &shared)), &options).unwrap();
}

/// What is wrong with the planted vector environment.
#[derive(Debug, Clone, Copy, PartialEq)]
enum VectorFault {
    None,
    FinalObservationOverwritten,
    OtherSeeds,
    CopiesSwapped,
    StatisticsLost,
}

/// A vector environment of someone else, on top of ours.
struct Faulty {
    inner: VecEnv,
    fault: VectorFault,
    out: StepBatch,
}

impl Faulty {
    fn spoil(&mut self) -> &StepBatch {
        self.out = self.inner.last().clone();
        match self.fault {
            VectorFault::FinalObservationOverwritten => self.out.final_obs = self.out.obs.clone(),
            VectorFault::CopiesSwapped => self.out.reward.reverse(),
            VectorFault::StatisticsLost => self.out.episode_length.fill(0),
            VectorFault::None | VectorFault::OtherSeeds => {}
        }
        &self.out
    }
}

impl VectorSteps for Faulty {
    fn reset(&mut self) -> Result<&StepBatch> {
        self.inner.reset()?;
        Ok(self.spoil())
    }

    fn step(&mut self, actions: ActionRef<'_>) -> Result<&StepBatch> {
        self.inner.step(actions)?;
        Ok(self.spoil())
    }
}

#[test]
fn faults_of_a_vector_environment_are_found() {
    let new = || make("BattleshipEasy", &EnvArgs::default());
    let run = |fault, mode| {
        let base = if fault == VectorFault::OtherSeeds { 2 } else { 1 };
        let inner = VecEnv::new(&|_| new(), 4, base, mode).unwrap();
        let out = inner.last().clone();
        check_copies(&new, &mut Faulty { inner, fault, out }, (1, mode), &Options::default())
    };
    for mode in [Autoreset::SameStep, Autoreset::NextStep] {
        run(VectorFault::None, mode).unwrap();
    }
    for (fault, expected) in [
        (VectorFault::FinalObservationOverwritten, "the final observation outlives the autoreset"),
        (VectorFault::OtherSeeds, "a copy is its environment alone"),
        (VectorFault::CopiesSwapped, "a copy is its environment alone"),
        (VectorFault::StatisticsLost, "episode statistics are those of the episode"),
    ] {
        match run(fault, Autoreset::SameStep) {
            Err(EnvError::Contract { rule, .. }) => assert_eq!(rule, expected, "{fault:?}"),
            other => panic!("{fault:?}: {other:?}"),
        }
    }
}
