//! The contract of stepping many copies: each one is its environment played alone, and what autoreset replaces is kept.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Checker, Options, random_action};
use crate::buffer::{ActionBuffer, ActionRef, ObsBuffer};
use crate::env::BoxEnv;
use crate::error::{EnvError, Result};
use crate::seed::episode_seed;
use crate::vector::{Autoreset, StepBatch, VecEnv};

/// Anything that steps N copies with autoreset: [`VecEnv`], or one of your own.
pub trait VectorSteps {
    /// Starts episode 0 in every copy.
    fn reset(&mut self) -> Result<&StepBatch>;
    /// One step of every copy; `actions` is flat `[N, action_len]`.
    fn step(&mut self, actions: ActionRef<'_>) -> Result<&StepBatch>;
}

impl VectorSteps for VecEnv {
    fn reset(&mut self) -> Result<&StepBatch> {
        VecEnv::reset(self)
    }

    fn step(&mut self, actions: ActionRef<'_>) -> Result<&StepBatch> {
        VecEnv::step(self, actions)
    }
}

/// Copies that are compared.
const COPIES: usize = 3;
/// Episodes of each.
const EPISODES: u64 = 3;

/// Checks `vector`, copies of what `make` makes, in the given mode, against the same environments played alone. Copy i
/// must start its k-th episode with `episode_seed(base_seed, i, k)`. Error: `Contract`, naming the rule that was broken.
pub fn check_copies(
    make: &dyn Fn() -> Result<BoxEnv>,
    vector: &mut dyn VectorSteps,
    (base_seed, mode): (u64, Autoreset),
    options: &Options,
) -> Result<()> {
    let spec = make()?.spec().clone();
    let checker = Checker { make, spec: &spec, options };
    let n = vector.reset()?.reward.len();
    let mut alone = (0..n).map(|i| Alone::new(&checker, base_seed, i)).collect::<Result<Vec<_>>>()?;
    let mut rng = ChaCha8Rng::seed_from_u64(base_seed);
    let most = spec.max_steps.unwrap_or(options.patience).min(options.patience);
    for _ in 0..EPISODES as usize * (most + 1) {
        let mut actions = ActionBuffer::for_space(&spec.action_space, 0);
        let mut each = Vec::new();
        for copy in &alone {
            let action = if copy.over {
                random_action(&spec.action_space, None, &mut rng) // ignored
            } else {
                checker.action(copy.env.as_ref(), &mut rng)?
            };
            actions.extend(action.view());
            each.push(action);
        }
        let batch = vector.step(actions.view())?;
        for (i, (copy, action)) in alone.iter_mut().zip(&each).enumerate() {
            copy.follow(&checker, batch, (i, mode), action.view())?;
        }
        if alone.iter().all(|copy| copy.episode >= EPISODES) {
            break;
        }
    }
    Ok(())
}

/// [`VecEnv`] in both modes.
pub(super) fn check_bundled(make: &dyn Fn() -> Result<BoxEnv>, options: &Options) -> Result<()> {
    for mode in [Autoreset::SameStep, Autoreset::NextStep] {
        let mut vector = VecEnv::new(&|_| make(), COPIES, 5, mode)?;
        check_copies(make, &mut vector, (5, mode), options)?;
    }
    Ok(())
}

/// A copy's environment, played alone.
struct Alone {
    env: BoxEnv,
    base: u64,
    copy: u64,
    episode: u64,
    total: f64,
    length: u32,
    /// Ended, waits for the step that resets (`NextStep`).
    over: bool,
    obs: ObsBuffer,
}

impl Alone {
    fn new(checker: &Checker<'_>, base: u64, copy: usize) -> Result<Self> {
        let (env, obs) = ((checker.make)()?, checker.poisoned());
        let mut new = Alone { env, base, copy: copy as u64, episode: 0, total: 0.0, length: 0, over: false, obs };
        new.start()?;
        Ok(new)
    }

    fn start(&mut self) -> Result<()> {
        (self.total, self.length, self.over) = (0.0, 0, false);
        self.env.reset(Some(episode_seed(self.base, self.copy, self.episode)), self.obs.view_mut())
    }

    /// The same step alone, and what the copy's row says of it.
    fn follow(
        &mut self,
        checker: &Checker<'_>,
        batch: &StepBatch,
        (i, mode): (usize, Autoreset),
        action: ActionRef<'_>,
    ) -> Result<()> {
        let len = self.obs.len();
        let broken = |rule: &'static str, found: String| {
            Err(EnvError::Contract { env: checker.spec.name.clone(), rule, found: format!("copy {i}: {found}") })
        };
        if self.over {
            self.episode += 1;
            self.start()?;
            if batch.valid[i] || batch.obs.row(i, len) != self.obs.view() {
                return broken("the step after an end resets", format!("{:?}", batch.obs.row(i, len)));
            }
            return Ok(());
        }
        let step = self.env.step(action, self.obs.view_mut())?;
        self.total += step.reward;
        self.length += 1;
        let row = (batch.reward[i], batch.terminated[i], batch.truncated[i], batch.valid[i]);
        let own = (step.reward as f32, step.terminated, step.truncated, true);
        if row != own {
            return broken("a copy is its environment alone", format!("{row:?} in place of {own:?}"));
        }
        if step.done() {
            if batch.final_obs.row(i, len) != self.obs.view() {
                let found = format!("{:?} in place of {:?}", batch.final_obs.row(i, len), self.obs);
                return broken("the final observation outlives the autoreset", found);
            }
            let (row, own) = ((batch.episode_return[i], batch.episode_length[i]), (self.total, self.length));
            if row != own {
                return broken("episode statistics are those of the episode", format!("{row:?} in place of {own:?}"));
            }
            match mode {
                Autoreset::NextStep => self.over = true,
                Autoreset::SameStep => {
                    self.episode += 1;
                    self.start()?;
                }
            }
        }
        if batch.obs.row(i, len) != self.obs.view() {
            let found = format!("{:?} in place of {:?}", batch.obs.row(i, len), self.obs);
            return broken("a copy is its environment alone", found);
        }
        Ok(())
    }
}
