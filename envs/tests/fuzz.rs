//! Random actions, legal and illegal, for every task under both rule sets: no panic, every observation in its space,
//! every return within the task's bounds, and an illegal action is an error that names the space and changes nothing.

use mamba_rl_envs::{
    ActionBuffer, BoxEnv, EnvArgs, EnvError, EnvSpec, ObsBuffer, Registry, Space, make, random_action,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// An action outside the space.
fn illegal(space: &Space, rng: &mut impl Rng) -> ActionBuffer {
    let n = space.flat_len();
    let inside = random_action(space, None, rng);
    match (inside, rng.random_range(0..4)) {
        (ActionBuffer::Discrete(_), 0) => ActionBuffer::Continuous(vec![0.0; n]),
        (ActionBuffer::Continuous(_), 0) => ActionBuffer::Discrete(vec![0; n]),
        (ActionBuffer::Discrete(a), 1) => ActionBuffer::Discrete([a, vec![0]].concat()),
        (ActionBuffer::Continuous(_), 1) => ActionBuffer::Continuous(Vec::new()),
        (ActionBuffer::Discrete(mut a), _) => {
            let size = |i: usize| if let Space::MultiDiscrete(ns) = space { ns[i] } else { space.n_actions().unwrap() };
            let i = rng.random_range(0..n);
            let far = rng.random_range(size(i) as i64..=i64::from(i32::MAX)) as i32;
            a[i] = [-1, i32::MIN, i32::MAX, size(i) as i32, far][rng.random_range(0..5)];
            ActionBuffer::Discrete(a)
        }
        (ActionBuffer::Continuous(mut a), _) => {
            a[0] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e6, -1e6][rng.random_range(0..6)];
            ActionBuffer::Continuous(a)
        }
    }
}

struct Play {
    env: BoxEnv,
    spec: EnvSpec,
    obs: ObsBuffer,
    total: f64,
    length: usize,
}

impl Play {
    fn start(&mut self, seed: u64) {
        self.env.reset(Some(seed), self.obs.view_mut()).unwrap();
        (self.total, self.length) = (0.0, 0);
        self.look();
    }

    fn look(&self) {
        let s = &self.spec;
        assert!(s.observation_space.contains_row(self.obs.view()), "{}: {:?} outside its space", s.id, self.obs);
    }

    fn refuse(&mut self, rng: &mut impl Rng) {
        let (action, before) = (illegal(&self.spec.action_space, rng), self.obs.clone());
        match self.env.step(action.view(), self.obs.view_mut()) {
            Err(EnvError::Action { space, .. }) => assert_eq!(space, self.spec.action_space.to_string()),
            other => panic!("{}: {action:?} gave {other:?}", self.spec.id),
        }
        assert_eq!(self.obs, before, "{}: {action:?} wrote an observation", self.spec.id);
    }

    /// True at the end of the episode.
    fn step(&mut self, rng: &mut impl Rng) -> bool {
        let action = random_action(&self.spec.action_space, None, rng);
        let step = self.env.step(action.view(), self.obs.view_mut()).unwrap();
        self.look();
        self.total += step.reward;
        self.length += 1;
        assert!(
            step.reward.is_finite() && self.spec.max_steps.is_none_or(|max| self.length <= max),
            "{}",
            self.spec.id
        );
        if !step.done() {
            return false;
        }
        let (low, high) = self.spec.return_range;
        let slack = 1e-9 * (1.0 + self.length as f64);
        assert!((low - slack..=high + slack).contains(&self.total), "{}: return {}", self.spec.id, self.total);
        let late = self.env.step(action.view(), self.obs.view_mut());
        assert!(matches!(late, Err(EnvError::EpisodeOver { .. })), "{}: {late:?}", self.spec.id);
        true
    }
}

fn fuzz(actions: usize) {
    for entry in Registry::bundled().list() {
        for legacy in [false, true] {
            let env = make(&entry.spec.id, &EnvArgs { legacy, ..EnvArgs::default() }).unwrap();
            let (spec, mut rng) = (env.spec().clone(), ChaCha8Rng::seed_from_u64(5));
            let obs = ObsBuffer::for_space(&spec.observation_space, 1);
            let mut play = Play { env, spec, obs, total: 0.0, length: 0 };
            let mut episode = 0;
            play.start(episode);
            for _ in 0..actions / 2 {
                if rng.random_range(0..8) == 0 {
                    play.refuse(&mut rng);
                } else if play.step(&mut rng) {
                    episode += 1;
                    play.start(episode);
                }
            }
        }
    }
}

#[test]
fn random_actions_break_nothing() {
    fuzz(10_000);
}

#[test]
#[ignore = "a million actions per task take about a minute"]
fn a_million_random_actions_break_nothing() {
    fuzz(1_000_000);
}
