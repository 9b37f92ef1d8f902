//! Refuses a config that cannot be meant: each value by its range, then the pairs that contradict each other.
//! Every message names the keys involved, what was found and what was expected.

use super::{ActingKind, Config, CriticKind, ReplayLayout, Suggested};
use crate::device::Choice;
use crate::error::{Error, Result};

impl Config {
    /// Checks everything that can be known without the task. [`Config::resolve`] checks again with the task's values.
    ///
    /// # Errors
    /// `Config` for a value outside its range or two values that contradict each other; `Usage` for what this version
    /// does not have; `Device` for a device or code path that is not here.
    pub fn validate(&self) -> Result<()> {
        super::keys::check_all(&self.to_table()?)?;
        self.check_backbone()?;
        self.check_learner()?;
        self.check_exploration()?;
        self.check_replay()?;
        self.check_run()
    }

    fn check_backbone(&self) -> Result<()> {
        let b = &self.backbone;
        if b.dt_min >= b.dt_max {
            let problem = format!("{} is not below `backbone.dt_max` {}; expected dt_min < dt_max", b.dt_min, b.dt_max);
            return Err(Error::config("backbone.dt_min", problem));
        }
        if b.name == "mamba" && b.rotate.turns() && !b.d_state.is_multiple_of(2) {
            let problem =
                format!("is {}, but `backbone.rotate` turns pairs of states; expected an even number", b.d_state);
            return Err(Error::config("backbone.d_state", problem));
        }
        Ok(())
    }

    fn check_learner(&self) -> Result<()> {
        let l = &self.learner;
        if let Suggested::Value(n) = l.n_step
            && n > l.length
        {
            let problem = format!("{n} is more than `learner.length` {}; expected n_step <= length", l.length);
            return Err(Error::config("learner.n_step", problem));
        }
        if l.target_tau > 0.0 && l.target_period > 0 {
            let problem = format!(
                "{} and `learner.target_period` {} are both set; expected one of them to be 0 (soft or hard target)",
                l.target_tau, l.target_period
            );
            return Err(Error::config("learner.target_tau", problem));
        }
        if l.atom_min >= l.atom_max {
            let problem =
                format!("{} is not below `learner.atom_max` {}; expected atom_min < atom_max", l.atom_min, l.atom_max);
            return Err(Error::config("learner.atom_min", problem));
        }
        if l.critic == CriticKind::C51 && l.rescaling > 0.0 {
            let problem = format!(
                "is \"c51\", whose mass moves along a straight line, but `learner.rescaling` is {}; expected 0, or critic \
                 \"two-hot\"",
                l.rescaling
            );
            return Err(Error::config("learner.critic", problem));
        }
        if l.critic != CriticKind::Expected && self.agent.name == "rsac" {
            let problem = "predicts a distribution, but the critics of `agent.name` \"rsac\" predict expected returns; expected \
                           \"expected\"";
            return Err(Error::config("learner.critic", problem));
        }
        if l.acting == ActingKind::Target && self.agent.name == "rsac" {
            let problem = "is \"target\", but the target network of `agent.name` \"rsac\" has no policy; expected \"online\" or \
                           \"suggested\"";
            return Err(Error::config("learner.acting", problem));
        }
        let bootstraps = !matches!(l.gamma, Suggested::Value(0.0));
        if l.target_tau == 0.0 && l.target_period == 0 && bootstraps {
            let problem = "and `learner.target_period` are both 0, so the target network would never move; expected one \
                           of them above 0 (or `learner.gamma` 0)";
            return Err(Error::config("learner.target_tau", problem));
        }
        Ok(())
    }

    fn check_exploration(&self) -> Result<()> {
        let e = &self.exploration;
        if e.start < e.end {
            let problem = format!("{} is less than `exploration.end` {}; expected start >= end", e.start, e.end);
            return Err(Error::config("exploration.start", problem));
        }
        Ok(())
    }

    /// Replay must hold one window; in layout `episode` also the longest episode that is kept whole.
    fn check_replay(&self) -> Result<()> {
        let (r, l) = (&self.replay, &self.learner);
        let window = l.burn_in + l.length;
        if r.capacity < window {
            let problem = format!(
                "{} is less than one window: `learner.burn_in` {} + `learner.length` {} = {window} steps",
                r.capacity, l.burn_in, l.length
            );
            return Err(Error::config("replay.capacity", problem));
        }
        if r.layout == ReplayLayout::Episode && r.capacity < r.max_episode {
            let problem = format!(
                "{} is less than `replay.max_episode` {}, the longest episode kept whole; raise one or lower the other",
                r.capacity, r.max_episode
            );
            return Err(Error::config("replay.capacity", problem));
        }
        if r.seams && r.layout == ReplayLayout::Episode {
            let problem = "is true, but `replay.layout` is \"episode\", which never joins two episodes; expected false, or \
                           layout \"window\"";
            return Err(Error::config("replay.seams", problem));
        }
        if r.seams && self.env.episodes_per_trial > 1 {
            let problem = format!(
                "is true, but `env.episodes_per_trial` is {}: memory carried over an episode's end cannot be replayed \
                 across the final observation in between; expected false, or 1 episode per trial",
                self.env.episodes_per_trial
            );
            return Err(Error::config("replay.seams", problem));
        }
        if r.period > l.length {
            let problem = format!(
                "{} is more than `learner.length` {}, so steps between windows would never be learnt",
                r.period, l.length
            );
            return Err(Error::config("replay.period", problem));
        }
        Ok(())
    }

    /// Copies advance together: what all of them are in the middle of must fit, and a batch, or the oldest steps go before
    /// a sequence is whole. `max_steps` is the task's longest episode, 0 where it has none.
    pub(super) fn check_batch(&self, max_steps: usize) -> Result<()> {
        let (r, batch, copies) = (&self.replay, self.batch(), self.env.num_envs);
        let whole = r.layout == ReplayLayout::Episode;
        let sequence = match max_steps {
            0 => self.learner.length,
            n if whole && n <= r.max_episode => n,
            n if whole => r.max_episode.max(self.learner.length.min(n)),
            n => self.learner.length.min(n),
        };
        let need = batch.max(copies).saturating_mul(sequence);
        if r.capacity < need {
            let problem = format!(
                "{} is less than {sequence} steps of a sequence for each of `env.num_envs` {copies} and `learner.batch` \
                 {batch} = {need}, so a batch might never come together",
                r.capacity
            );
            return Err(Error::config("replay.capacity", problem));
        }
        Ok(())
    }

    fn check_run(&self) -> Result<()> {
        let t = &self.train;
        if t.mode == "async" && self.actor.threads > self.env.num_envs {
            let problem = format!(
                "{} is more than `env.num_envs` {}; expected a copy for every thread",
                self.actor.threads, self.env.num_envs
            );
            return Err(Error::config("actor.threads", problem));
        }
        if self.agent.name == "rsac" && self.network.head_hidden == 0 {
            let problem = "is 0, but the critics of `agent.name` \"rsac\" are linear in the action then, so that its best \
                           action would always be a bound; expected at least 1";
            return Err(Error::config("network.head_hidden", problem));
        }
        if self.agent.name == "rsac" && self.network.shortcut {
            let problem = "is true, but only the advantages of agent \"r2d2\" have a shortcut; expected false";
            return Err(Error::config("network.shortcut", problem));
        }
        let device = Choice::new(&t.device)?;
        device.check()?;
        if t.precision == "f16" && self.agent.name == "rsac" {
            let problem = "is \"f16\", but agent \"rsac\" has no loss scale, so that small gradients would be lost; use bf16 or f32";
            return Err(Error::config("train.precision", problem));
        }
        if t.precision != "f32" && device == Choice::Cpu {
            let problem = format!(
                "is \"{}\", but `train.device` \"{}\" runs on the CPU, which computes in f32; use --precision f32",
                t.precision, t.device
            );
            return Err(Error::config("train.precision", problem));
        }
        let paths = simd_paths();
        if t.simd != "auto" && !paths.contains(&t.simd.as_str()) {
            let problem = format!("is \"{}\", which this CPU lacks; it has: {}", t.simd, paths.join(", "));
            return Err(Error::config("train.simd", problem));
        }
        if t.steps < self.env.num_envs as u64 {
            let problem = format!(
                "{} is less than `env.num_envs` {}, so not one step of all copies fits; raise one or lower the other",
                t.steps, self.env.num_envs
            );
            return Err(Error::config("train.steps", problem));
        }
        if self.learner.start_after >= t.steps {
            let problem = format!(
                "{} is not below `train.steps` {}, so nothing would be learnt",
                self.learner.start_after, t.steps
            );
            return Err(Error::config("learner.start_after", problem));
        }
        Ok(())
    }
}

/// Code paths that this CPU can run, best first: of `avx512`, `avx2` and `portable`.
pub fn simd_paths() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let fast = [
        ("avx512", std::is_x86_feature_detected!("avx512f")),
        ("avx2", std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let fast: [(&str, bool); 0] = [];
    fast.into_iter().filter(|(_, here)| *here).map(|(name, _)| name).chain(["portable"]).collect()
}
