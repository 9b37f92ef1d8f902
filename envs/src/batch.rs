//! N copies of one typed environment, stepped together: the fast form. Buffers are allocated once; a step allocates
//! nothing. Ended copies are reset in the same step from their own streams; the true last observation stays in
//! `final_obs`.

use crate::buffer::{ActElem, ObsElem};
use crate::env::{Env, EnvSpec};
use crate::error::{EnvError, Result};
use crate::seed::episode_seed;
use crate::space::Space;

/// N typed copies with autoreset in the same step.
pub struct Batch<E: Env> {
    envs: Vec<E>,
    flat_len: usize,
    action_len: usize,
    started: bool,
    obs: Vec<E::Obs>,
    final_obs: Vec<E::Obs>,
    reward: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    episode_return: Vec<f64>,
    episode_length: Vec<u32>,
    running_return: Vec<f64>,
    running_length: Vec<u32>,
}

impl<E: Env> Batch<E> {
    /// `n` copies; `make` gets the copy's number. Errors: no copies.
    pub fn new(n: usize, make: impl Fn(usize) -> E) -> Result<Self> {
        let envs: Vec<E> = (0..n).map(make).collect();
        let Some(first) = envs.first() else {
            return Err(EnvError::Length { what: "copies of a batch".to_owned(), found: 0, expected: 1 });
        };
        let space = &first.spec().observation_space;
        if space.dtype() != E::Obs::DTYPE {
            let (found, expected) = (E::Obs::DTYPE.to_string(), space.dtype().to_string());
            return Err(EnvError::Dtype { what: first.spec().name.clone(), found, expected });
        }
        let (flat_len, action_len) = (space.flat_len(), first.spec().action_space.flat_len());
        if flat_len == 0 || action_len == 0 {
            let what = format!("{}: elements of an observation and of an action", first.spec().name);
            return Err(EnvError::Length { what, found: 0, expected: 1 });
        }
        Ok(Batch {
            flat_len,
            action_len,
            started: false,
            obs: vec![E::Obs::default(); n * flat_len],
            final_obs: vec![E::Obs::default(); n * flat_len],
            reward: vec![0.0; n],
            terminated: vec![false; n],
            truncated: vec![false; n],
            episode_return: vec![0.0; n],
            episode_length: vec![0; n],
            running_return: vec![0.0; n],
            running_length: vec![0; n],
            envs,
        })
    }

    /// What the task is.
    pub fn spec(&self) -> &EnvSpec {
        self.envs[0].spec()
    }

    /// Starts an episode in every copy; each copy's stream is seeded from (seed, copy).
    pub fn reset(&mut self, seed: u64) {
        for (i, (env, obs)) in self.envs.iter_mut().zip(self.obs.chunks_exact_mut(self.flat_len)).enumerate() {
            env.reset_into(Some(episode_seed(seed, i as u64, 0)), obs);
        }
        self.running_return.fill(0.0);
        self.running_length.fill(0);
        self.started = true;
    }

    /// One step of every copy; `actions` is `[N, action_len]`. Errors: before the first reset, an action outside the
    /// space, another number of actions; nothing is stepped then.
    pub fn step(&mut self, actions: &[E::Act]) -> Result<()> {
        self.check(actions)?;
        let rows = self.obs.chunks_exact_mut(self.flat_len).zip(actions.chunks_exact(self.action_len));
        for (i, (env, (obs, action))) in self.envs.iter_mut().zip(rows).enumerate() {
            let step = env.step_into(action, obs);
            self.reward[i] = step.reward as f32;
            self.terminated[i] = step.terminated;
            self.truncated[i] = step.truncated;
            self.running_return[i] += step.reward;
            self.running_length[i] += 1;
            if step.done() {
                self.final_obs[i * self.flat_len..(i + 1) * self.flat_len].copy_from_slice(obs);
                self.episode_return[i] = std::mem::take(&mut self.running_return[i]);
                self.episode_length[i] = std::mem::take(&mut self.running_length[i]);
                env.reset_into(None, obs);
            }
        }
        Ok(())
    }

    fn check(&self, actions: &[E::Act]) -> Result<()> {
        let spec = self.spec();
        if !self.started {
            return Err(EnvError::NotReset { env: spec.name.clone() });
        }
        if actions.len() != self.envs.len() * self.action_len {
            let (what, expected) = (format!("{}: actions", spec.name), self.envs.len() * self.action_len);
            return Err(EnvError::Length { what, found: actions.len(), expected });
        }
        // The common case as one pass without a branch per copy.
        if let (Space::Discrete(n), crate::buffer::ActionRef::Discrete(a)) = (&spec.action_space, E::Act::wrap(actions))
        {
            let n = u32::try_from(*n).unwrap_or(u32::MAX);
            if a.iter().fold(true, |ok, a| ok & ((*a as u32) < n)) {
                return Ok(());
            }
        }
        actions
            .chunks_exact(self.action_len)
            .try_for_each(|a| spec.action_space.check_action(&spec.name, E::Act::wrap(a)))
    }

    /// Number of copies.
    pub fn num_envs(&self) -> usize {
        self.envs.len()
    }
    /// What to act on next, `[N, flat_len]`.
    pub fn obs(&self) -> &[E::Obs] {
        &self.obs
    }
    /// True last observations, `[N, flat_len]`; a row is valid where the copy's episode just ended.
    pub fn final_obs(&self) -> &[E::Obs] {
        &self.final_obs
    }
    /// Rewards of the step, `[N]`.
    pub fn reward(&self) -> &[f32] {
        &self.reward
    }
    /// Which tasks ended, `[N]`.
    pub fn terminated(&self) -> &[bool] {
        &self.terminated
    }
    /// Whose time ran out, `[N]`.
    pub fn truncated(&self) -> &[bool] {
        &self.truncated
    }
    /// Return of each copy's last ended episode, `[N]`.
    pub fn episode_return(&self) -> &[f64] {
        &self.episode_return
    }
    /// Length of each copy's last ended episode, `[N]`.
    pub fn episode_length(&self) -> &[u32] {
        &self.episode_length
    }
    /// The copies.
    pub fn envs(&self) -> &[E] {
        &self.envs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::popgym::{Level, RepeatFirst};

    #[test]
    fn a_batch_is_its_copies_one_by_one() {
        let new = |_| RepeatFirst::new(Level::Easy, false);
        let mut batch = Batch::new(3, new).unwrap();
        assert!(matches!(batch.step(&[0, 0, 0]), Err(EnvError::NotReset { .. })));
        batch.reset(9);
        let mut alone: Vec<RepeatFirst> = (0..3).map(new).collect();
        let mut obs = [[0u8]; 3];
        (0..3).for_each(|i| alone[i].reset_into(Some(episode_seed(9, i as u64, 0)), &mut obs[i]));
        let mut total = [0.0; 3];
        for t in 0..120 {
            let actions = [0, 1, 2].map(|i| (t + i) % 4);
            batch.step(&actions).unwrap();
            for i in 0..3 {
                let step = alone[i].step_into(&[actions[i]], &mut obs[i]);
                total[i] += step.reward;
                assert_eq!((batch.reward()[i], batch.terminated()[i]), (step.reward as f32, t % 51 == 50));
                if step.done() {
                    assert_eq!(batch.final_obs()[i], obs[i][0]);
                    assert_eq!((batch.episode_return()[i], batch.episode_length()[i]), (total[i], 51));
                    total[i] = 0.0;
                    alone[i].reset_into(None, &mut obs[i]);
                }
                assert_eq!(batch.obs()[i], obs[i][0]);
            }
        }
        assert!(batch.envs().iter().zip(&alone).all(|(a, b)| a.hidden() == b.hidden()));
    }

    #[test]
    fn bad_actions_step_nothing() {
        let mut batch = Batch::new(2, |_| RepeatFirst::new(Level::Easy, false)).unwrap();
        batch.reset(1);
        let before = batch.obs().to_vec();
        for bad in [[0, 4], [-1, 0]] {
            assert!(matches!(batch.step(&bad), Err(EnvError::Action { .. })));
        }
        assert!(matches!(batch.step(&[0]), Err(EnvError::Length { found: 1, expected: 2, .. })));
        assert_eq!(batch.obs(), before);
        assert!(matches!(Batch::new(0, |_| RepeatFirst::new(Level::Easy, false)), Err(EnvError::Length { .. })));
    }
}
