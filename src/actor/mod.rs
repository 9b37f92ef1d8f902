//! Acting: all copies of the environment advance together, each with its own carried state (conv window and SSM state
//! of every layer), ε-greedy over the legal actions or by a sample of the Gaussian policy. The actor writes into the replay,
//! with the state before a step where a window may start there, and gives new sequences their own priority; where actions
//! are continuous they keep the running maximum, as acting computes no values.

mod exploration;
mod trace;

pub use exploration::Exploration;
pub use trace::{SpanEnd, Trace, TraceConfig, TraceWork};

use mamba_rl_envs::{ActionRef, ObsRef, StepBatch};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::backbone::state_len;
use crate::error::{Error, Result};
use crate::network::{Actions, InputLayout, Policy, Previous, Stepper, no_legal};
use crate::ops::Backend;
use crate::params::Params;
use crate::replay::{ActionSlice, ClosedSpan, Handle, ObsSlice, PushStep, SequenceReplay};
use crate::value::gaussian::squashed_sample;
use crate::value::rescaling::rescale_inverse;
use crate::value::td_error::legal_argmax;

/// Settings of an actor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActorConfig {
    /// ε.
    pub exploration: Exploration,
    /// What priorities depend on.
    pub trace: TraceConfig,
    /// Factor on rewards.
    pub reward_scale: f32,
    /// Episodes between two clearings of memory.
    pub episodes_per_trial: u64,
    /// Copy 0 of this actor is this one among all actors' copies, and this lane of the replay.
    pub first: usize,
    /// Copies of all actors.
    pub total: usize,
}

/// A span whose bootstrap value comes with the next forward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Waiting {
    handle: Handle,
    lane: usize,
    start: usize,
    len: usize,
}

/// Acts for all copies with one network.
pub struct Actor<D: Backend> {
    dev: D,
    net: Box<dyn Policy<D>>,
    params: Params<D>,
    stepper: Stepper<D>,
    input: InputLayout,
    config: ActorConfig,
    rng: ChaCha8Rng,
    features: Vec<f32>,
    reset: Vec<u8>,
    /// Last actions, one element per component, [N, components].
    actions: Actions,
    /// Joint actions; 0 where actions are continuous.
    n_actions: usize,
    /// Last scaled rewards, `[N]`.
    rewards: Vec<f32>,
    /// State before the step, for lanes where replay wants it, [N, state_len].
    states: Vec<f32>,
    wanted: Vec<bool>,
    traces: Vec<Trace>,
    work: TraceWork,
    /// False where the running episode is not stored; the next one is.
    stored: Vec<bool>,
    waiting: Vec<Waiting>,
    closed: Vec<ClosedSpan>,
}

/// What a resumed run needs of an actor beside its floats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActorState {
    rng: ChaCha8Rng,
    /// Discrete ones; continuous ones are among the floats.
    actions: Vec<i32>,
    stored: Vec<bool>,
    waiting: Vec<Waiting>,
    trace_lengths: Vec<usize>,
}

impl<D: Backend> Actor<D> {
    /// An actor for `copies` copies with weights `values` `[parameters]`; `shards` as for the learner.
    ///
    /// # Errors
    /// `Shape` when the length differs; `Usage` for a space that no agent acts in; device errors.
    #[allow(clippy::too_many_arguments)] // the parts of an actor, each named at the one call
    pub fn new(
        dev: D,
        net: Box<dyn Policy<D>>,
        input: InputLayout,
        config: ActorConfig,
        values: &[f32],
        copies: usize,
        shards: usize,
        rng: ChaCha8Rng,
    ) -> Result<Self> {
        let params = Params::new(&dev, net.layout().clone(), values)?;
        let stepper = Stepper::new(&dev, &*net, copies, shards)?;
        let state = state_len(net.state_layout());
        Ok(Actor {
            features: vec![0.0; copies * input.len()],
            reset: vec![0; copies],
            actions: Actions::new(input.action(), copies)?,
            n_actions: input.action().n_actions().unwrap_or(0),
            rewards: vec![0.0; copies],
            states: vec![0.0; copies * state],
            wanted: vec![false; copies],
            traces: vec![Trace::default(); copies],
            work: TraceWork::default(),
            stored: vec![true; copies],
            waiting: Vec::new(),
            closed: Vec::new(),
            dev,
            net,
            params,
            stepper,
            input,
            config,
            rng,
        })
    }

    /// Takes new weights, `[parameters]`.
    ///
    /// # Errors
    /// Device errors.
    pub fn set_weights(&mut self, values: &[f32]) -> Result<()> {
        let n = values.len();
        self.dev.upload(values, crate::device::ViewMut::new(&mut self.params.flat, 0, n))
    }

    /// The running episode of copy i is not in the replay: it is not stored, and nothing waits for it.
    pub fn skip_episode(&mut self, i: usize) {
        self.stored[i] = false;
        self.waiting.retain(|w| w.lane != i);
    }

    /// Copy i stands at the first observation of an episode that is stored.
    pub fn start_over(&mut self, i: usize) {
        self.skip_episode(i);
        self.stored[i] = true;
        self.traces[i].clear();
    }

    /// Is memory carried into episode number `episode` (from 0) of a copy, rather than cleared before it?
    pub fn carries(&self, episode: u64) -> bool {
        !episode.is_multiple_of(self.config.episodes_per_trial)
    }

    /// Mean ε over all actors' copies after `env_step` environment steps; None where actions are continuous.
    pub fn epsilon_mean(&self, env_step: u64) -> Option<f64> {
        (self.n_actions > 0).then(|| self.config.exploration.mean(self.config.total, env_step))
    }

    /// What the policy gave for copy i at its last observation: Q-values `[actions]`, or mean and log σ [2, components].
    pub fn q_values(&self, i: usize) -> &[f32] {
        self.stepper.q(i)
    }

    /// Recurrent state of copy i, `[state_len]`.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_state(&self, i: usize, out: &mut [f32]) -> Result<()> {
        self.stepper.read_state(&self.dev, &*self.net, i, out)
    }

    /// Numbers per stored state.
    pub fn state_len(&self) -> usize {
        state_len(self.net.state_layout())
    }

    /// Stores the first observations of all copies.
    ///
    /// # Errors
    /// Replay errors.
    pub fn begin(&mut self, first: &StepBatch, replay: &mut SequenceReplay) -> Result<()> {
        let (len, n) = (self.row_len(), self.n_actions);
        for i in 0..self.reset.len() {
            let legal = first.legal.as_ref().map(|l| &l[i * n..(i + 1) * n]);
            replay.begin(self.config.first + i, obs_slice(first.obs.row(i, len)), legal)?;
        }
        Ok(())
    }

    /// Chooses actions for the observations of `batch`, after `env_step` environment steps of the run. Reads the states
    /// that `replay` wants before it moves them on, and gives waiting sequences their priority.
    ///
    /// # Errors
    /// `Env` for observations that do not fit; `Usage` when no action is legal; device errors.
    pub fn act(
        &mut self,
        batch: &StepBatch,
        env_step: u64,
        replay: Option<&mut SequenceReplay>,
    ) -> Result<ActionRef<'_>> {
        let copies = self.reset.len();
        if let Some(replay) = &replay {
            self.read_wanted(replay)?;
        }
        self.write_features(batch)?;
        self.stepper.step(&self.dev, &*self.net, &self.params, &self.features, &self.reset)?;
        for i in 0..copies {
            if self.n_actions == 0 {
                self.sample(i)?;
            } else {
                let legal = batch.legal.as_ref().map(|l| &l[i * self.n_actions..(i + 1) * self.n_actions]);
                self.explore(i, legal, env_step)?;
            }
        }
        if let Some(replay) = replay {
            self.serve_waiting(replay)?;
        }
        Ok(self.actions.all())
    }

    /// ε-greedy over the legal actions, by copy i's Q-values.
    fn explore(&mut self, i: usize, legal: Option<&[bool]>, env_step: u64) -> Result<()> {
        let q = self.stepper.q(i);
        let best = legal_argmax(q, legal).ok_or_else(|| no_legal(i))?;
        let epsilon = self.config.exploration.epsilon(self.config.first + i, self.config.total, env_step);
        let explore = self.rng.random::<f64>() < epsilon;
        let action = if explore { random_legal(&mut self.rng, self.n_actions, legal) } else { best };
        self.actions.set_joint(i, action);
        let value = self.config.trace.rescaling.map_or(q[best], |eps| rescale_inverse(q[best], eps));
        self.traces[i].q_taken.push(q[action]);
        self.traces[i].value.push(value);
        Ok(())
    }

    /// A sample of the squashed Gaussian of copy i.
    fn sample(&mut self, i: usize) -> Result<()> {
        let (mean, log_std) = self.stepper.q(i).split_at(self.stepper.q(i).len() / 2);
        let rng = &mut self.rng;
        self.actions.set_unit(i, |k| squashed_sample(mean[k], log_std[k], StandardNormal.sample(rng)).action)
    }

    /// Copies the states that `replay` wants stored with the coming step. [`Actor::act`] does it where it is given the
    /// replay; an actor that shares one calls it before.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_wanted(&mut self, replay: &SequenceReplay) -> Result<()> {
        let n = self.state_len();
        for (i, wanted) in self.wanted.iter_mut().enumerate() {
            *wanted = self.stored[i] && replay.wants_state(self.config.first + i);
            if *wanted {
                self.stepper.read_state(&self.dev, &*self.net, i, &mut self.states[i * n..(i + 1) * n])?;
            }
        }
        Ok(())
    }

    fn write_features(&mut self, batch: &StepBatch) -> Result<()> {
        let d = self.input.len();
        for i in 0..self.reset.len() {
            let first = batch.is_first[i];
            let previous = (!first).then_some(Previous { action: self.actions.row(i), reward: self.rewards[i] });
            self.input.write(
                batch.obs.row(i, self.row_len()),
                previous,
                first,
                &mut self.features[i * d..(i + 1) * d],
            )?;
            self.reset[i] = u8::from(first && !self.carries(batch.episode_number[i]));
        }
        Ok(())
    }

    fn row_len(&self) -> usize {
        self.input.observation().flat_len()
    }

    /// Priorities of spans that waited for the value of the observation after them. [`Actor::act`] does it where it is
    /// given the replay; an actor that shares one calls it after.
    ///
    /// # Errors
    /// `Usage` for a span outside what was recorded.
    pub fn serve_waiting(&mut self, replay: &mut SequenceReplay) -> Result<()> {
        for w in &self.waiting {
            let trace = &self.traces[w.lane];
            let p = trace.priority(self.config.trace, w.start, w.len, SpanEnd::Running, &mut self.work)?;
            replay.set_priority(&[w.handle], &[p]);
        }
        self.waiting.clear();
        Ok(())
    }

    /// Stores what came of the actions that [`Actor::act`] chose, and begins new episodes.
    ///
    /// # Errors
    /// Replay and device errors.
    pub fn observe(&mut self, after: &StepBatch, replay: &mut SequenceReplay) -> Result<()> {
        let (len, n_actions, n) = (self.row_len(), self.n_actions, self.state_len());
        for i in 0..self.reset.len() {
            if !after.valid[i] {
                continue;
            }
            let done = after.terminated[i] || after.truncated[i];
            let reward = after.reward[i];
            self.rewards[i] = reward * self.config.reward_scale;
            if n_actions > 0 {
                self.traces[i].reward.push(self.rewards[i]);
            }
            let (obs, legal) = if done { (&after.final_obs, &after.final_legal) } else { (&after.obs, &after.legal) };
            if !self.stored[i] {
                continue;
            }
            let step = PushStep {
                state: self.wanted[i].then(|| &self.states[i * n..(i + 1) * n]),
                action: action_slice(self.actions.row(i)),
                reward,
                terminated: after.terminated[i],
                truncated: after.truncated[i],
                next_obs: obs_slice(obs.row(i, len)),
                next_legal: legal.as_ref().map(|l| &l[i * n_actions..(i + 1) * n_actions]),
            };
            replay.push(self.config.first + i, step)?;
        }
        self.closed.clear();
        // With seams a span may hold two episodes, of which the trace knows the last: the running maximum stands.
        let traced = n_actions > 0 && !replay.config().seams;
        let closed = &mut self.closed;
        replay.drain_closed(|span| {
            if traced {
                closed.push(span);
            }
        });
        self.prioritise(after, replay)?;
        for i in 0..self.reset.len() {
            if after.terminated[i] || after.truncated[i] {
                self.traces[i].clear();
            }
            if after.is_first[i] {
                self.stored[i] = true;
                let legal = after.legal.as_ref().map(|l| &l[i * n_actions..(i + 1) * n_actions]);
                replay.begin_with(
                    self.config.first + i,
                    obs_slice(after.obs.row(i, len)),
                    legal,
                    self.carries(after.episode_number[i]),
                )?;
            }
        }
        Ok(())
    }

    /// Own priorities of the spans that closed with an episode; the others wait for the next forward.
    fn prioritise(&mut self, after: &StepBatch, replay: &mut SequenceReplay) -> Result<()> {
        let first = self.config.first;
        let peek = self
            .closed
            .iter()
            .any(|s| s.ends_episode && after.truncated[s.lane - first] && !after.terminated[s.lane - first]);
        if peek {
            self.peek_final(after)?;
        }
        for i in 0..self.closed.len() {
            let span = self.closed[i];
            let (lane, start, len) = (span.lane - first, span.start, span.len);
            if !span.ends_episode && self.traces[lane].value.len() > start + len {
                // closed late: an episode that became too long to be kept whole
                let p = self.traces[lane].priority(self.config.trace, start, len, SpanEnd::Running, &mut self.work)?;
                replay.set_priority(&[span.handle], &[p]);
                continue;
            }
            if !span.ends_episode {
                self.waiting.push(Waiting { handle: span.handle, lane, start, len });
                continue;
            }
            let end = if after.terminated[lane] {
                SpanEnd::Terminated
            } else {
                let n = self.n_actions;
                let legal = after.final_legal.as_ref().map(|l| &l[lane * n..(lane + 1) * n]);
                let q = self.stepper.q(lane);
                let best = legal_argmax(q, legal).map_or(0.0, |a| q[a]);
                SpanEnd::Truncated(self.config.trace.rescaling.map_or(best, |eps| rescale_inverse(best, eps)))
            };
            let p = self.traces[lane].priority(self.config.trace, start, len, end, &mut self.work)?;
            replay.set_priority(&[span.handle], &[p]);
        }
        Ok(())
    }

    /// Q of the true final observations with the old episodes' states, which stay as they are.
    fn peek_final(&mut self, after: &StepBatch) -> Result<()> {
        let (d, len) = (self.input.len(), self.row_len());
        for i in 0..self.reset.len() {
            self.reset[i] = 0;
            if after.truncated[i] {
                let previous = Some(Previous { action: self.actions.row(i), reward: self.rewards[i] });
                let out = &mut self.features[i * d..(i + 1) * d];
                self.input.write(after.final_obs.row(i, len), previous, false, out)?;
            }
        }
        self.stepper.peek(&self.dev, &*self.net, &self.params, &self.features, &self.reset)
    }

    /// For a checkpoint: the small part, and the floats (states [N, state_len], then rewards, per copy traces, and continuous
    /// actions).
    ///
    /// # Errors
    /// Device errors.
    pub fn save(&self) -> Result<(ActorState, Vec<f32>)> {
        let n = self.state_len();
        let mut floats = vec![0.0; self.reset.len() * n];
        for (i, row) in floats.chunks_exact_mut(n.max(1)).enumerate() {
            self.read_state(i, row)?;
        }
        floats.extend_from_slice(&self.rewards);
        for t in &self.traces {
            for part in [&t.q_taken, &t.value, &t.reward] {
                floats.extend_from_slice(part);
            }
        }
        let mut actions = Vec::new();
        match self.actions.all() {
            ActionRef::Discrete(parts) => actions.extend_from_slice(parts),
            ActionRef::Continuous(values) => floats.extend_from_slice(values),
        }
        let state = ActorState {
            rng: self.rng.clone(),
            actions,
            stored: self.stored.clone(),
            waiting: self.waiting.clone(),
            trace_lengths: self.traces.iter().map(|t| t.reward.len()).collect(),
        };
        Ok((state, floats))
    }

    /// Puts back what [`Actor::save`] gave between two vector steps.
    ///
    /// # Errors
    /// `Shape` when the floats do not fit; nothing is changed then.
    pub fn restore(&mut self, state: &ActorState, floats: &[f32]) -> Result<()> {
        let (copies, n) = (self.reset.len(), self.state_len());
        let (discrete, continuous) = match self.actions.all() {
            ActionRef::Discrete(parts) => (parts.len(), 0),
            ActionRef::Continuous(values) => (0, values.len()),
        };
        let want = copies * (n + 1) + 3 * state.trace_lengths.iter().sum::<usize>() + continuous;
        let wrong = |arg, want, got| Error::Shape { op: "actor", arg, shape: "[copies, ..]".into(), want, got };
        if floats.len() != want {
            return Err(wrong("floats", want, floats.len()));
        }
        let lengths = [state.trace_lengths.len(), state.stored.len()];
        if lengths != [copies; 2] || state.actions.len() != discrete {
            return Err(wrong("copies", copies, state.trace_lengths.len()));
        }
        let (states, rest) = floats.split_at(copies * n);
        for (i, row) in states.chunks_exact(n.max(1)).enumerate() {
            self.stepper.write_state(&self.dev, &*self.net, i, row)?;
        }
        let (rewards, mut rest) = rest.split_at(copies);
        self.rewards.copy_from_slice(rewards);
        for (t, &len) in self.traces.iter_mut().zip(&state.trace_lengths) {
            for part in [&mut t.q_taken, &mut t.value, &mut t.reward] {
                let (now, later) = rest.split_at(len);
                part.clear();
                part.extend_from_slice(now);
                rest = later;
            }
        }
        self.rng = state.rng.clone();
        if continuous > 0 {
            self.actions.read_floats(rest);
        } else {
            self.actions.read_parts(&state.actions);
        }
        self.stored.copy_from_slice(&state.stored);
        self.waiting.clone_from(&state.waiting);
        Ok(())
    }
}

/// Uniform over the legal actions.
fn random_legal(rng: &mut ChaCha8Rng, n: usize, legal: Option<&[bool]>) -> usize {
    let Some(legal) = legal else { return rng.random_range(0..n) };
    let k = rng.random_range(0..legal.iter().filter(|&&l| l).count().max(1));
    (0..n).filter(|&a| legal[a]).nth(k).unwrap_or(0)
}

/// Environments' rows as replay's rows.
pub(crate) fn obs_slice(row: ObsRef<'_>) -> ObsSlice<'_> {
    match row {
        ObsRef::U8(v) => ObsSlice::U8(v),
        ObsRef::I32(v) => ObsSlice::I32(v),
        ObsRef::F32(v) => ObsSlice::F32(v),
    }
}

/// As [`obs_slice`], for actions.
fn action_slice(action: ActionRef<'_>) -> ActionSlice<'_> {
    match action {
        ActionRef::Discrete(parts) => ActionSlice::Discrete(parts),
        ActionRef::Continuous(values) => ActionSlice::Continuous(values),
    }
}
