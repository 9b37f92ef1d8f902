//! Plays one episode with a policy and records it, with text frames where wanted. Shared by `eval` and `rollout`.

use mamba_rl::network::Session;
use mamba_rl_envs::trace::{TraceEpisode, record_episode};
use mamba_rl_envs::{ActionBuffer, BoxEnv, DynEnv, EnvError, ObsRef, Space, Step};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Who acts.
pub enum Policy {
    /// Uniform over the legal actions.
    Random(Box<ChaCha8Rng>),
    /// A trained agent, greedy.
    Agent(Box<Session>),
}

impl Policy {
    /// The random policy of a seed.
    pub fn random(seed: u64) -> Self {
        Policy::Random(Box::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    fn act(&mut self, env: &dyn DynEnv, obs: ObsRef<'_>, before: Option<Step>) -> mamba_rl_envs::Result<ActionBuffer> {
        let spec = env.spec();
        let mut mask = Vec::new();
        if env.has_legal_mask() {
            mask.resize(spec.action_space.n_actions().unwrap_or(0), true);
            env.legal(&mut mask);
        }
        let legal = (!mask.is_empty()).then_some(mask.as_slice());
        match self {
            Policy::Random(rng) => Ok(random(&spec.action_space, legal, rng)),
            Policy::Agent(session) => {
                let reward = before.map_or(0.0, |s| s.reward as f32);
                let action = session.observe(obs, legal, reward, before.is_none());
                let other = |e| EnvError::Other { env: spec.name.clone(), source: Box::new(e) };
                action.map(|a| a.to_buffer()).map_err(other)
            }
        }
    }
}

/// Where an episode stands.
#[derive(Debug, Clone, Copy)]
pub struct At {
    step: usize,
    /// Of the step before.
    reward: Option<f64>,
    end: bool,
}

impl At {
    /// In words, the reward with as many decimals as there are or `decimals`.
    pub fn words(&self, decimals: Option<usize>) -> String {
        let reward = match (self.reward, decimals) {
            (None, _) => String::new(),
            (Some(r), None) => format!(", reward {r}"),
            (Some(r), Some(n)) => format!(", reward {r:.n$}"),
        };
        format!("step {}{reward}{}", self.step, if self.end { ", end" } else { "" })
    }
}

/// What looks at the environment before each step and once at the end.
pub type Watcher<'a> = dyn FnMut(&dyn DynEnv, At) + 'a;

/// Appends text frames.
pub fn text_frames(text: &mut String) -> impl FnMut(&dyn DynEnv, At) + '_ {
    |env, at| text.push_str(&format!("{}\n{}\n", at.words(None), env.render_text().trim_end()))
}

/// One episode.
pub fn play(
    env: &mut BoxEnv,
    policy: &mut Policy,
    seed: u64,
    watch: &mut Watcher<'_>,
) -> mamba_rl_envs::Result<TraceEpisode> {
    let mut step = 0;
    let episode = record_episode(env.as_mut(), seed, &mut |env, obs, before| {
        watch(env, At { step, reward: before.map(|s| s.reward), end: false });
        step += 1;
        policy.act(env, obs, before)
    })?;
    watch(env.as_ref(), At { step, reward: episode.rewards.last().copied(), end: true });
    Ok(episode)
}

fn random(space: &Space, legal: Option<&[bool]>, rng: &mut ChaCha8Rng) -> ActionBuffer {
    match space {
        Space::Box { low, high, .. } => {
            let draw = |(l, h): (&f32, &f32)| {
                // An unbounded side counts as 1 away from the other one, or from 0.
                let l1 = if l.is_finite() {
                    *l
                } else if h.is_finite() {
                    h - 1.0
                } else {
                    -1.0
                };
                let h1 = if h.is_finite() { *h } else { l1 + if l.is_finite() { 1.0 } else { 2.0 } };
                (l1 + (h1 - l1) * rng.random::<f32>()).clamp(l1, h1)
            };
            ActionBuffer::Continuous(low.iter().zip(high).map(draw).collect())
        }
        space => {
            let n = space.n_actions().unwrap_or(1);
            let allowed: Vec<usize> = (0..n).filter(|a| legal.is_none_or(|l| l[*a])).collect();
            let mut index = if allowed.is_empty() { 0 } else { allowed[rng.random_range(0..allowed.len())] };
            let sizes = if let Space::MultiDiscrete(ns) = space { ns.as_slice() } else { std::slice::from_ref(&n) };
            let mut parts = vec![0i32; sizes.len()];
            for (part, size) in parts.iter_mut().zip(sizes).rev() {
                *part = (index % size) as i32;
                index /= size;
            }
            ActionBuffer::Discrete(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_actions_lie_in_their_space_and_mask() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let spaces = [
            Space::Discrete(3),
            Space::MultiDiscrete(vec![2, 3]),
            Space::box_f32(&[-2.0, f32::NEG_INFINITY], &[2.0, 7.0]),
        ];
        for space in &spaces {
            for _ in 0..100 {
                let a = random(space, None, &mut rng);
                assert!(space.contains_action(a.view()), "{space}: {a:?}");
            }
        }
        let only = [false, false, false, false, true, false];
        assert_eq!(random(&spaces[1], Some(&only), &mut rng), ActionBuffer::Discrete(vec![1, 1]));
    }
}
