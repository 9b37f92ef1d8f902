//! A replay whose every observation is a running number, so that a test can tell what each slot must hold.
//!
//! Lane l counts from l·2²⁰: f32 holds such numbers exactly. Reward = the counter of the observation it follows,
//! action = counter mod 7, stored state = number of steps the episode had before.

use mamba_rl::replay::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

pub struct CounterReplay {
    pub inner: SequenceReplay,
    pub rng: ChaCha8Rng,
    next: Vec<f32>,
    step: Vec<usize>,
    first: HashMap<u64, f32>,
    n_episodes: u64,
    running: Vec<bool>,
    /// Counters of all steps pushed, in order; with one lane without those of abandoned episodes.
    pushed: Vec<f32>,
}

pub fn spec(lanes: usize) -> ReplaySpec {
    ReplaySpec {
        obs_kind: ObsKind::F32,
        obs_len: 1,
        action: ActionKind::Discrete { parts: 1 },
        legal_len: 0,
        state_len: 1,
        lanes,
    }
}

impl CounterReplay {
    pub fn new(lanes: usize, config: ReplayConfig) -> Self {
        CounterReplay {
            inner: SequenceReplay::new(spec(lanes), config).expect("a valid configuration"),
            rng: ChaCha8Rng::seed_from_u64(7),
            next: (0..lanes).map(|l| (l << 20) as f32).collect(),
            step: vec![0; lanes],
            first: HashMap::new(),
            n_episodes: 0,
            running: vec![false; lanes],
            pushed: Vec::new(),
        }
    }

    pub fn begin(&mut self, lane: usize) {
        self.abandon(lane);
        self.inner.begin(lane, ObsSlice::F32(&[self.next[lane]]), None).expect("a valid observation");
        self.first.insert(self.n_episodes, self.next[lane]);
        self.n_episodes += 1;
        self.next[lane] += 1.0;
        self.step[lane] = 0;
    }

    /// Drops the running episode, if there is one.
    pub fn abandon(&mut self, lane: usize) {
        self.inner.abandon(lane);
        if std::mem::take(&mut self.running[lane]) && self.next.len() == 1 {
            self.pushed.truncate(self.pushed.len() - self.step[lane]);
        }
    }

    pub fn push(&mut self, lane: usize, terminated: bool, truncated: bool) -> Pushed {
        let now = self.next[lane] - 1.0;
        let state = [self.step[lane] as f32];
        let pushed = self.inner.push(
            lane,
            PushStep {
                state: self.inner.wants_state(lane).then_some(&state[..]),
                action: ActionSlice::Discrete(&[now as i32 % 7]),
                reward: now,
                terminated,
                truncated,
                next_obs: ObsSlice::F32(&[self.next[lane]]),
                next_legal: None,
            },
        );
        self.running[lane] = !(terminated || truncated);
        self.pushed.push(now);
        self.next[lane] += 1.0;
        self.step[lane] += 1;
        pushed.expect("a valid step")
    }

    /// A whole episode that terminates.
    pub fn episode(&mut self, lane: usize, steps: usize) {
        self.begin(lane);
        for t in 1..=steps {
            self.push(lane, t == steps, false);
        }
    }

    pub fn sample(&mut self, n: usize, batch: &mut SequenceBatch) {
        self.inner.sample(n, &mut self.rng, batch).expect("a sequence to draw");
    }

    /// Counter of an episode's first observation.
    pub fn first_of(&self, episode: u64) -> f32 {
        self.first[&episode]
    }

    /// Counter in entry `at` of the `[S, B]` fields.
    pub fn counter_at(&self, batch: &SequenceBatch, at: usize) -> f32 {
        match &batch.obs {
            ObsRows::F32(obs) => obs[at],
            other => panic!("{other:?}"),
        }
    }

    /// Checks that every slot of the batch holds what it must.
    pub fn check(&self, batch: &SequenceBatch) {
        // With one lane the steps that are kept are the last ones pushed.
        let n_lanes = self.inner.spec().lanes;
        let oldest = if n_lanes == 1 { self.pushed[self.pushed.len() - self.inner.len_steps()] } else { 0.0 };
        let zero_state = self.inner.config().initial_state == InitialState::Zero;
        for row in 0..batch.batch {
            let mut before: Option<usize> = None;
            for slot in 0..batch.slots {
                let at = batch.at(slot, row);
                if batch.valid_obs[at] == 0 {
                    assert_eq!((batch.valid[at], batch.learn[at], batch.reset[at]), (0, 0, 0));
                    assert_eq!((batch.episode[at], batch.step_in_episode[at]), (NO_EPISODE, -1));
                    continue;
                }
                let counter = self.counter_at(batch, at);
                let step = batch.step_in_episode[at];
                assert_eq!(counter, self.first_of(batch.episode[at]) + step as f32);
                assert_eq!(batch.reset[at] == 1, step == 0);
                assert_eq!(batch.has_prev[at] == 1, step > 0);
                let prev = if step > 0 { (counter - 1.0, (counter as i32 - 1) % 7) } else { (0.0, 0) };
                assert_eq!((batch.prev_reward[at], batch.prev_action.discrete()[at]), prev);
                if batch.valid[at] == 1 {
                    assert!(counter >= oldest, "{counter} was overwritten, the oldest is {oldest}");
                    assert_eq!((batch.reward[at], batch.action.discrete()[at]), (counter, counter as i32 % 7));
                }
                assert_eq!(batch.learn[at], batch.valid[at] & u8::from(slot >= batch.burn_in));
                match before {
                    None => {
                        // With seams a window may start on a final observation, whose state nothing reads.
                        let unread = batch.valid[at] == 0;
                        let state = if zero_state || unread { 0.0 } else { step as f32 };
                        assert_eq!(batch.state[row], state);
                    }
                    Some(b) => {
                        assert_eq!(b, batch.at(slot - 1, row), "no hole in a row");
                        assert_eq!(self.counter_at(batch, b) + 1.0, counter);
                        assert!(self.inner.config().seams || batch.episode[b] == batch.episode[at]);
                    }
                }
                before = Some(at);
            }
            assert!(before.is_some());
        }
    }
}
