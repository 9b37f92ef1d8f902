//! What goes into the network at a step: observation | previous action (one-hot, a block per component; of a `Box` a number
//! in [−1, 1] per component) | previous reward as the learner sees it | is-first flag. At an episode's first step previous
//! action and reward are zero and the flag is 1, which separates "the previous action was 0" from "there was none" (POPGym's
//! wrappers do the same).

use mamba_rl_envs::{ActionRef, ObsRef, Space, write_features};

use super::ActionBounds;
use crate::config::InputSection;
use crate::error::{Error, Result};

/// The step before, where there is one in the same episode.
#[derive(Debug, Clone, Copy)]
pub struct Previous<'a> {
    /// Its action, one element per component.
    pub action: ActionRef<'a>,
    /// Its reward, scaled as the learner sees it.
    pub reward: f32,
}

/// Places of the input's parts.
#[derive(Debug, Clone)]
pub struct InputLayout {
    observation: Space,
    action: Space,
    input: InputSection,
    d_observation: usize,
    d_action: usize,
    /// Of a `Box` of actions.
    bounds: Option<ActionBounds>,
}

impl InputLayout {
    /// Input of a network for these spaces.
    pub fn new(observation: &Space, action: &Space, input: &InputSection) -> Self {
        InputLayout {
            d_observation: observation.onehot_len(),
            d_action: action.onehot_len(),
            bounds: ActionBounds::new(action).ok(),
            observation: observation.clone(),
            action: action.clone(),
            input: input.clone(),
        }
    }

    /// Features per step.
    pub fn len(&self) -> usize {
        let flags = usize::from(self.input.previous_reward) + usize::from(self.input.is_first);
        self.d_observation + if self.input.previous_action { self.d_action } else { 0 } + flags
    }

    /// Is there no feature at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Observation space.
    pub fn observation(&self) -> &Space {
        &self.observation
    }

    /// Action space.
    pub fn action(&self) -> &Space {
        &self.action
    }

    /// Writes one step's features, `[len()]`. `previous` is None at an episode's first step.
    ///
    /// # Errors
    /// `Env` when the observation row or the action has another length or type than its space.
    pub fn write(
        &self,
        obs: ObsRef<'_>,
        previous: Option<Previous<'_>>,
        is_first: bool,
        out: &mut [f32],
    ) -> Result<()> {
        let (observation, rest) = out.split_at_mut(self.d_observation);
        write_features(&self.observation, obs, observation)?;
        let mut at = 0;
        if self.input.previous_action {
            let block = &mut rest[..self.d_action];
            block.fill(0.0);
            match previous.map(|p| p.action) {
                Some(ActionRef::Discrete(parts)) => {
                    let (mut i, mut offset) = (0, 0);
                    self.action.visit(&mut |part| {
                        if let Ok(a) = usize::try_from(parts[i])
                            && a < part.features()
                        {
                            block[offset + a] = 1.0;
                        }
                        i += 1;
                        offset += part.features();
                    });
                }
                Some(ActionRef::Continuous(values)) => match &self.bounds {
                    Some(bounds) => bounds.from_env(values, block)?,
                    None => {
                        let problem = format!("the previous action {values:?} is not in {}", self.action);
                        return Err(Error::Usage(problem));
                    }
                },
                None => {}
            }
            at = self.d_action;
        }
        if self.input.previous_reward {
            rest[at] = previous.map_or(0.0, |p| p.reward);
            at += 1;
        }
        if self.input.is_first {
            rest[at] = f32::from(u8::from(is_first));
        }
        Ok(())
    }
}
