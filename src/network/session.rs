//! A trained agent driven step by step inside somebody's loop: `observe(obs, reward, is_first) → action`, greedy.
//! No thread, no allocation per step, `Send`; the memory can be saved and put back.

use mamba_rl_envs::{ActionRef, ObsRef};

use super::{Actions, Description, InputLayout, Policy, Previous, Stepper};
use crate::device::Cpu;
use crate::error::{Error, Result};
use crate::params::Params;

/// One agent with its memory, on the CPU.
pub struct Session {
    description: Description,
    dev: Cpu,
    net: Box<dyn Policy<Cpu>>,
    params: Params<Cpu>,
    stepper: Stepper<Cpu>,
    input: InputLayout,
    reward_scale: f32,
    features: Vec<f32>,
    action: Actions,
    /// Is `action` an action of the running episode?
    acted: bool,
    /// Episodes that share one memory.
    episodes_per_trial: u64,
    /// Episodes begun in the running trial.
    begun: u64,
}

impl Session {
    /// From a network's description and its parameters, `[layout len]`.
    ///
    /// # Errors
    /// `Config` or `Shape` when the two do not fit.
    pub fn new(description: &Description, values: &[f32]) -> Result<Self> {
        let dev = Cpu::default();
        let net = description.build_policy::<Cpu>()?;
        let params = Params::new(&dev, net.layout().clone(), values)?;
        let stepper = Stepper::for_play(&dev, &*net, 1, 1)?;
        let input = description.input();
        let features = vec![0.0; input.len()];
        let action = Actions::new(&description.action_space, 1)?;
        let reward_scale = description.reward_scale as f32;
        let (acted, begun) = (false, 0);
        let episodes_per_trial = description.episodes_per_trial.max(1) as u64;
        Ok(Session {
            description: description.clone(),
            dev,
            net,
            params,
            stepper,
            input,
            reward_scale,
            features,
            action,
            acted,
            episodes_per_trial,
            begun,
        })
    }

    /// From a checkpoint: a folder `step-N`, its `model.safetensors`, or a run folder (its newest complete checkpoint).
    ///
    /// # Errors
    /// `Checkpoint` naming the file, tensor or field.
    pub fn from_checkpoint(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let dir = crate::checkpoint::resolve(path.as_ref())?;
        let description = Description::from_json(&dir, crate::checkpoint::load_config(&dir)?)?;
        let net = description.build_policy::<Cpu>()?;
        let values = crate::checkpoint::load_weights(&dir, net.layout())?;
        Session::new(&description, &values)
    }

    /// What the agent is and which task it was trained on.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Greedy action (one element per component: the best index, or tanh of the mean between the bounds) for an
    /// observation. `reward` is the raw reward of the action before (ignored where `is_first`); `is_first` clears the memory
    /// (an agent of trials: at every trial's first episode, from the session's start); `legal` `[actions]` marks the allowed
    /// joint actions.
    ///
    /// # Errors
    /// `Env` when the observation does not have the space's length, holds an index outside it or a number that is not
    /// finite; `Usage` for a reward that is not finite, a mask of another length or one that allows nothing. After any of
    /// them the memory is as it was.
    pub fn observe(
        &mut self,
        obs: ObsRef<'_>,
        legal: Option<&[bool]>,
        reward: f32,
        is_first: bool,
    ) -> Result<ActionRef<'_>> {
        let first = is_first || !self.acted;
        if !first && !reward.is_finite() {
            return Err(Error::Usage(format!("the reward is {reward}, expected a finite number")));
        }
        if let Some(mask) = legal {
            self.check_mask(mask)?;
        }
        let action = self.action.all();
        let previous = (!first).then_some(Previous { action, reward: reward * self.reward_scale });
        self.input.write(obs, previous, first, &mut self.features)?;
        let clear = first && self.begun.is_multiple_of(self.episodes_per_trial);
        self.stepper.step(&self.dev, &*self.net, &self.params, &self.features, &[u8::from(clear)])?;
        if first {
            self.begun = self.begun % self.episodes_per_trial + 1;
        }
        self.action.set_greedy(0, self.stepper.q(0), legal)?;
        self.acted = true;
        Ok(self.action.all())
    }

    /// What the policy gave for the last observation: Q-values `[actions]`; of continuous actions mean and log σ before tanh,
    /// [2, components].
    pub fn q_values(&self) -> &[f32] {
        self.stepper.q(0)
    }

    /// Numbers in the memory.
    pub fn memory_len(&self) -> usize {
        crate::backbone::state_len(self.net.state_layout()) + self.action.flat_len() + 2
    }

    /// Copies the memory (recurrent state, previous action, place in the trial) out, `[memory_len()]`.
    ///
    /// # Errors
    /// `Shape` when `out` has another length.
    pub fn save_memory(&self, out: &mut [f32]) -> Result<()> {
        self.check(out.len())?;
        let n = crate::backbone::state_len(self.net.state_layout());
        self.stepper.read_state(&self.dev, &*self.net, 0, &mut out[..n])?;
        self.action.write_floats(&mut out[n..n + self.action.flat_len()]);
        out[n + self.action.flat_len()] = f32::from(u8::from(self.acted));
        out[n + self.action.flat_len() + 1] = self.begun as f32;
        Ok(())
    }

    /// Puts back what [`Session::save_memory`] gave.
    ///
    /// # Errors
    /// `Shape` when `from` has another length.
    pub fn restore_memory(&mut self, from: &[f32]) -> Result<()> {
        self.check(from.len())?;
        let n = crate::backbone::state_len(self.net.state_layout());
        self.stepper.write_state(&self.dev, &*self.net, 0, &from[..n])?;
        self.action.read_floats(&from[n..n + self.action.flat_len()]);
        self.acted = from[n + self.action.flat_len()] != 0.0;
        self.begun = from[n + self.action.flat_len() + 1] as u64;
        Ok(())
    }

    /// Error unless the mask has an element for each joint action and allows one.
    fn check_mask(&self, legal: &[bool]) -> Result<()> {
        let problem = match self.description.action_space.n_actions() {
            None => "a mask of legal actions is for discrete actions".into(),
            Some(n) if n != legal.len() => {
                format!("the mask of legal actions has {} elements, expected {n}", legal.len())
            }
            Some(_) if !legal.contains(&true) => "the mask of legal actions forbids every action".into(),
            Some(_) => return Ok(()),
        };
        Err(Error::Usage(problem))
    }

    fn check(&self, got: usize) -> Result<()> {
        let want = self.memory_len();
        if want == got {
            return Ok(());
        }
        Err(Error::Shape { op: "session", arg: "memory", shape: "[memory_len]".into(), want, got })
    }
}
