//! The contract of an environment as one call: `check` plays a task at random and reports the first rule it breaks.
//! Use it on your own task; the bundled ones all pass it.
//!
//! Rules: a sensible spec; observations in the space, with its type and length, wholly written; rewards finite;
//! episodes no longer than `max_steps`; returns in `return_range`; a seed repeats the episode, in a fresh copy and in a
//! used one; unseeded resets go on from the seed; seeds differ; copies are independent; actions outside the space or
//! not legal are errors that change nothing; no step before the reset or after the end; `hidden` can be set; a frame is
//! printed; copies that are stepped together are the environment alone, and autoreset keeps the final observation.

mod copies;

pub use copies::{VectorSteps, check_copies};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::buffer::{ActionBuffer, ActionRef, ObsBuffer};
use crate::env::{BoxEnv, DynEnv, EnvSpec, Step, split_action};
use crate::error::{EnvError, Result};
use crate::space::{Part, Space};

/// How much is played.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Random episodes, each from its own seed. Default 8.
    pub episodes: u64,
    /// Steps after which an episode without `max_steps` is left. Default 10,000.
    pub patience: usize,
    /// True for a task whose every episode is the same by design. Default false.
    pub deterministic: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { episodes: 8, patience: 10_000, deterministic: false }
    }
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Plain name.
    pub env: String,
    /// Ended episodes.
    pub episodes: usize,
    /// Steps in all.
    pub steps: usize,
    /// Lowest and highest return.
    pub returns: (f64, f64),
    /// Longest episode.
    pub longest: usize,
}

/// A uniform random action that the mask allows (row-major joint actions, `[n_actions]`); infinite bounds count as ±1.
pub fn random_action(space: &Space, legal: Option<&[bool]>, rng: &mut impl Rng) -> ActionBuffer {
    if let (Some(mask), Some(n)) = (legal, space.n_actions()) {
        let allowed: Vec<usize> = (0..n).filter(|i| mask.get(*i).copied().unwrap_or(false)).collect();
        let joint = allowed.choose(rng).copied().unwrap_or(0);
        return ActionBuffer::Discrete(split_action(space, joint).unwrap_or_default());
    }
    let (mut discrete, mut continuous) = (Vec::new(), Vec::new());
    space.visit(&mut |part| match part {
        Part::Discrete(n) => discrete.push(rng.random_range(0..n.clamp(1, 1 << 31) as u32) as i32),
        Part::Box { low, high, .. } => {
            for (&l, &h) in low.iter().zip(high) {
                let (l, h) = match (l.is_finite(), h.is_finite()) {
                    (true, true) => (l, h),
                    (true, false) => (l, l.max(-1.0) + 2.0),
                    (false, true) => (h.min(1.0) - 2.0, h),
                    (false, false) => (-1.0, 1.0),
                };
                // Interpolated, since the width of a very wide box is no number.
                let at: f32 = rng.random();
                continuous.push((l * (1.0 - at) + h * at).clamp(l, h.max(l)));
            }
        }
    });
    if space.is_discrete() { ActionBuffer::Discrete(discrete) } else { ActionBuffer::Continuous(continuous) }
}

/// Checks a task with default options.
///
/// ```
/// use mamba_rl_envs::{EnvArgs, check, make};
/// let report = check(&|| make("popgym-RepeatPreviousEasy-v0", &EnvArgs::default()))?;
/// assert_eq!(report.longest, 51);
/// # Ok::<(), mamba_rl_envs::EnvError>(())
/// ```
pub fn check(make: &dyn Fn() -> Result<BoxEnv>) -> Result<Report> {
    check_with(make, &Options::default())
}

/// Checks a task. Error: `Contract`, naming the rule that was broken and what was found.
pub fn check_with(make: &dyn Fn() -> Result<BoxEnv>, options: &Options) -> Result<Report> {
    let spec = make()?.spec().clone();
    let checker = Checker { make, spec: &spec, options };
    checker.spec_is_sensible()?;
    checker.order_of_calls()?;
    let mut report = Report {
        env: spec.name.clone(),
        episodes: 0,
        steps: 0,
        returns: (f64::INFINITY, f64::NEG_INFINITY),
        longest: 0,
    };
    let mut env = make()?;
    for seed in 0..options.episodes {
        let episode = checker.episode(env.as_mut(), Some(seed), seed)?;
        checker.bounds(&episode)?;
        checker.after_the_end(env.as_mut(), &episode)?;
        report.episodes += usize::from(episode.ended);
        report.steps += episode.steps.len();
        report.returns = (report.returns.0.min(episode.total), report.returns.1.max(episode.total));
        report.longest = report.longest.max(episode.steps.len());
        // `env` has a history, a new copy has none.
        let mut fresh = make()?;
        let again = checker.episode(fresh.as_mut(), Some(seed), seed)?;
        checker.same("a seed repeats the episode", &episode, &again)?;
        let next = checker.episode(env.as_mut(), None, seed)?;
        let next_again = checker.episode(fresh.as_mut(), None, seed)?;
        checker.same("an unseeded reset goes on from the seed", &next, &next_again)?;
    }
    checker.seeds_differ()?;
    checker.independent()?;
    checker.bad_actions()?;
    checker.hidden_can_be_set()?;
    copies::check_bundled(make, options)?;
    Ok(report)
}

/// Seeds tried before a task counts as one that ignores them: two equally likely starts agree with chance 2^-31.
const SEEDS: u64 = 32;

/// Everything that an episode showed.
#[derive(Debug, Clone, PartialEq)]
struct Episode {
    hidden: Value,
    obs: Vec<ObsBuffer>,
    steps: Vec<Step>,
    total: f64,
    ended: bool,
}

struct Checker<'a> {
    make: &'a dyn Fn() -> Result<BoxEnv>,
    spec: &'a EnvSpec,
    options: &'a Options,
}

impl Checker<'_> {
    fn broken<T>(&self, rule: &'static str, found: impl Into<String>) -> Result<T> {
        Err(EnvError::Contract { env: self.spec.name.clone(), rule, found: found.into() })
    }

    fn spec_is_sensible(&self) -> Result<()> {
        let s = self.spec;
        let rule = "the spec is sensible";
        if s.id.is_empty() || s.name.is_empty() || s.hidden.is_empty() {
            return self.broken(rule, "id, name or hidden is empty");
        }
        if (self.make)()?.spec() != s {
            return self.broken(rule, "two copies have different specs");
        }
        for (what, space) in [("observation space", &s.observation_space), ("action space", &s.action_space)] {
            let empty = space.parts().iter().any(|p| matches!(p, Part::Discrete(0)));
            let bounds = |p: &Part<'_>| match p {
                Part::Box { low, high, .. } => low.len() == high.len() && low.iter().zip(*high).all(|(l, h)| l <= h),
                Part::Discrete(_) => true,
            };
            let shaped = match space {
                Space::Box { low, shape, .. } => shape.iter().product::<usize>() == low.len(),
                _ => true,
            };
            if empty || space.flat_len() == 0 || !space.parts().iter().all(bounds) || !shaped {
                return self.broken(rule, format!("{what} {space}"));
            }
        }
        if matches!(s.action_space, Space::Tuple(_)) {
            return self.broken(rule, format!("action space {}: tuples are for observations", s.action_space));
        }
        if !(s.unit_reward > 0.0 && s.unit_reward.is_finite() && s.return_range.0 <= s.return_range.1) {
            return self.broken(rule, format!("unit reward {}, return range {:?}", s.unit_reward, s.return_range));
        }
        Ok(())
    }

    fn action(&self, env: &dyn DynEnv, rng: &mut impl Rng) -> Result<ActionBuffer> {
        if !env.has_legal_mask() {
            return Ok(random_action(&self.spec.action_space, None, rng));
        }
        let Some(n) = self.spec.action_space.n_actions() else {
            return self.broken("masks are for discrete actions", self.spec.action_space.to_string());
        };
        let mut mask = vec![false; n];
        env.legal(&mut mask);
        if !mask.contains(&true) {
            return self.broken("some action is legal", "none");
        }
        Ok(random_action(&self.spec.action_space, Some(&mask), rng))
    }

    /// A row that no environment leaves as it is: not in most spaces.
    fn poisoned(&self) -> ObsBuffer {
        let mut obs = ObsBuffer::for_space(&self.spec.observation_space, 1);
        match &mut obs {
            ObsBuffer::U8(v) => v.fill(u8::MAX),
            ObsBuffer::I32(v) => v.fill(i32::MIN),
            ObsBuffer::F32(v) => v.fill(f32::NAN),
        }
        obs
    }

    fn inside(&self, when: &str, obs: &ObsBuffer) -> Result<()> {
        if self.spec.observation_space.contains_row(obs.view()) {
            return Ok(());
        }
        let found = format!("{obs:?} {when} is not in {}", self.spec.observation_space);
        self.broken("observations lie in the space", found)
    }

    fn start(&self, env: &mut dyn DynEnv, seed: Option<u64>) -> Result<Episode> {
        let mut obs = self.poisoned();
        env.reset(seed, obs.view_mut())?;
        self.inside("at reset", &obs)?;
        Ok(Episode { hidden: env.hidden(), obs: vec![obs], steps: Vec::new(), total: 0.0, ended: false })
    }

    fn advance(&self, env: &mut dyn DynEnv, e: &mut Episode, action: ActionRef<'_>) -> Result<()> {
        let mut obs = self.poisoned();
        let step = env.step(action, obs.view_mut())?;
        self.inside(&format!("after step {}", e.steps.len()), &obs)?;
        if !step.reward.is_finite() {
            return self.broken("rewards are finite", format!("{} at step {}", step.reward, e.steps.len()));
        }
        e.obs.push(obs);
        e.steps.push(step);
        e.total += step.reward;
        e.ended = step.done();
        Ok(())
    }

    /// One episode of random actions, decided by `seed` and the play.
    fn episode(&self, env: &mut dyn DynEnv, reset: Option<u64>, seed: u64) -> Result<Episode> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut e = self.start(env, reset)?;
        let most = self.spec.max_steps.unwrap_or(self.options.patience);
        while !e.ended && e.steps.len() < most {
            let action = self.action(env, &mut rng)?;
            self.advance(env, &mut e, action.view())?;
        }
        if env.render_text().trim().is_empty() {
            return self.broken("a frame is printed", "an empty frame");
        }
        Ok(e)
    }

    fn bounds(&self, e: &Episode) -> Result<()> {
        if let (Some(max), false) = (self.spec.max_steps, e.ended) {
            return self.broken("episodes end within max_steps", format!("no end after {max} steps"));
        }
        let (low, high) = self.spec.return_range;
        // Sums of many small rewards round.
        let slack = 1e-9 * (1.0 + e.steps.len() as f64);
        if e.ended && !(low - slack..=high + slack).contains(&e.total) {
            return self.broken("returns lie in return_range", format!("{} outside [{low}, {high}]", e.total));
        }
        Ok(())
    }

    fn after_the_end(&self, env: &mut dyn DynEnv, e: &Episode) -> Result<()> {
        if !e.ended {
            return Ok(());
        }
        let action = ActionBuffer::for_space(&self.spec.action_space, 1);
        for _ in 0..2 {
            if let Ok(step) = env.step(action.view(), self.poisoned().view_mut()) {
                return self.broken("no step after the end", format!("a step with reward {}", step.reward));
            }
        }
        Ok(())
    }

    fn order_of_calls(&self) -> Result<()> {
        let action = ActionBuffer::for_space(&self.spec.action_space, 1);
        if (self.make)()?.step(action.view(), self.poisoned().view_mut()).is_ok() {
            return self.broken("no step before the reset", "a step");
        }
        let space = &self.spec.observation_space;
        let mut long = ObsBuffer::zeros(space.dtype(), space.flat_len() + 1);
        if (self.make)()?.reset(Some(0), long.view_mut()).is_ok() {
            return self.broken("a buffer of another length is an error", format!("{} elements taken", long.len()));
        }
        Ok(())
    }

    fn same(&self, rule: &'static str, a: &Episode, b: &Episode) -> Result<()> {
        if a == b {
            return Ok(());
        }
        let at = a.obs.iter().zip(&b.obs).position(|(x, y)| x != y);
        let found = match at {
            Some(0) => "another first observation".to_owned(),
            Some(t) => format!("another observation after step {}", t - 1),
            None => "other rewards, ends or hidden state".to_owned(),
        };
        self.broken(rule, found)
    }

    /// Of several seeds under the same actions, not all give one and the same episode.
    fn seeds_differ(&self) -> Result<()> {
        if self.options.deterministic {
            return Ok(());
        }
        let mut env = (self.make)()?;
        let first = self.episode(env.as_mut(), Some(0), 0)?;
        for seed in 1..SEEDS {
            if self.episode(env.as_mut(), Some(seed), 0)? != first {
                return Ok(());
            }
        }
        self.broken("seeds differ", format!("{SEEDS} seeds gave one and the same episode"))
    }

    /// Stepping a second copy in between changes nothing in the first.
    fn independent(&self) -> Result<()> {
        let (mut alone, mut one, mut other) = ((self.make)()?, (self.make)()?, (self.make)()?);
        let alone = self.episode(alone.as_mut(), Some(3), 5)?;
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut other_rng = ChaCha8Rng::seed_from_u64(6);
        let mut e = self.start(one.as_mut(), Some(3))?;
        let mut disturbing = self.start(other.as_mut(), Some(4))?;
        while e.steps.len() < alone.steps.len() {
            let action = self.action(one.as_ref(), &mut rng)?;
            self.advance(one.as_mut(), &mut e, action.view())?;
            if disturbing.ended {
                disturbing = self.start(other.as_mut(), None)?;
            }
            let action = self.action(other.as_ref(), &mut other_rng)?;
            self.advance(other.as_mut(), &mut disturbing, action.view())?;
        }
        self.same("copies are independent", &alone, &e)
    }

    /// Actions that the space does not contain: of the other kind, too long, beyond each bound, NaN.
    fn outside(&self) -> Vec<ActionBuffer> {
        let space = &self.spec.action_space;
        let null = ActionBuffer::for_space(space, 1);
        let other_kind = match &null {
            ActionBuffer::Discrete(v) => ActionBuffer::Continuous(vec![0.0; v.len()]),
            ActionBuffer::Continuous(v) => ActionBuffer::Discrete(vec![0; v.len()]),
        };
        let mut bad = vec![other_kind, ActionBuffer::for_space(space, 2), ActionBuffer::for_space(space, 0)];
        for (i, part) in space.parts().iter().enumerate() {
            let mut put = |value: f32| {
                let mut action = null.clone();
                match &mut action {
                    ActionBuffer::Discrete(v) => v[i] = value as i32,
                    ActionBuffer::Continuous(v) => {
                        let at = i.min(v.len() - 1);
                        v[at] = value;
                    }
                }
                bad.push(action);
            };
            match part {
                Part::Discrete(n) => {
                    put(*n as f32);
                    put(-1.0);
                }
                Part::Box { low, high, .. } => {
                    put(f32::NAN);
                    high.last().filter(|h| h.is_finite()).into_iter().for_each(|h| put(h + h.abs().max(1.0)));
                    low.last().filter(|l| l.is_finite()).into_iter().for_each(|l| put(l - l.abs().max(1.0)));
                }
            }
        }
        bad.retain(|a| !space.contains_action(a.view()));
        bad
    }

    /// Bad actions are errors, and the episode goes on as if they had not been tried.
    fn bad_actions(&self) -> Result<()> {
        let bad = self.outside();
        let (mut plain, mut env) = ((self.make)()?, (self.make)()?);
        let plain = self.episode(plain.as_mut(), Some(9), 9)?;
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut e = self.start(env.as_mut(), Some(9))?;
        while e.steps.len() < plain.steps.len() {
            if e.steps.len() < 3 {
                for action in &bad {
                    if env.step(action.view(), self.poisoned().view_mut()).is_ok() {
                        let found = format!("{} taken, not in {}", action.view(), self.spec.action_space);
                        return self.broken("an action outside the space is an error", found);
                    }
                }
            }
            self.illegal_is_refused(env.as_mut())?;
            let action = self.action(env.as_ref(), &mut rng)?;
            self.advance(env.as_mut(), &mut e, action.view())?;
        }
        self.same("a refused action changes nothing", &plain, &e)
    }

    fn illegal_is_refused(&self, env: &mut dyn DynEnv) -> Result<()> {
        let Some(n) = self.spec.action_space.n_actions().filter(|_| env.has_legal_mask()) else { return Ok(()) };
        let mut mask = vec![true; n];
        env.legal(&mut mask);
        let refused = mask.iter().position(|ok| !ok).and_then(|i| split_action(&self.spec.action_space, i));
        if let Some(action) = refused
            && env.step(ActionRef::Discrete(&action), self.poisoned().view_mut()).is_ok()
        {
            return self.broken("an action that is not legal is an error", format!("{action:?} taken"));
        }
        Ok(())
    }

    fn hidden_can_be_set(&self) -> Result<()> {
        let mut env = (self.make)()?;
        let e = self.start(env.as_mut(), Some(2))?;
        if e.hidden.is_null() {
            return Ok(());
        }
        let mut other = (self.make)()?;
        self.start(other.as_mut(), Some(1))?;
        let mut obs = self.poisoned();
        other.set_hidden(&e.hidden, obs.view_mut())?;
        self.inside("in a set state", &obs)?;
        if other.hidden() != e.hidden {
            return self.broken("hidden can be set", format!("{} became {}", e.hidden, other.hidden()));
        }
        if other.set_hidden(&Value::from("nonsense"), obs.view_mut()).is_ok() {
            return self.broken("hidden can be set", "nonsense was taken");
        }
        Ok(())
    }
}
