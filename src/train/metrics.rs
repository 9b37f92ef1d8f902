//! Sums between two log lines, and MMER: the maximum over windows of the mean training return
//! (Morad et al., 2023: "max-mean episodic reward").

use serde::{Deserialize, Serialize};

use crate::learner::Update;

/// A running mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Mean {
    sum: f64,
    n: u64,
}

impl Mean {
    pub fn add(&mut self, x: f64) {
        self.sum += x;
        self.n += 1;
    }

    pub fn get(&self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / self.n as f64)
    }
}

/// MMER over windows of environment steps; an episode counts in the window in which it ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mmer {
    window: Option<u64>,
    mean: Mean,
    best: Option<f64>,
}

impl Mmer {
    /// An episode with this return ended at `step`; windows are `every` steps long.
    pub fn add(&mut self, step: u64, every: u64, episode_return: f64) {
        let window = step / every.max(1);
        if self.window != Some(window) {
            self.close();
            self.window = Some(window);
        }
        self.mean.add(episode_return);
    }

    fn close(&mut self) {
        if let Some(mean) = self.mean.get() {
            self.best = Some(self.best.map_or(mean, |b| b.max(mean)));
        }
        self.mean = Mean::default();
    }

    /// The run has come to `step`: a window that is over counts.
    pub fn advance(&mut self, step: u64, every: u64) {
        if self.window.is_some_and(|w| step / every.max(1) > w) {
            self.close();
            self.window = None;
        }
    }

    /// Largest mean of a whole window so far; of the running one where there is no other.
    pub fn best(&self) -> Option<f64> {
        self.best.or(self.mean.get())
    }
}

/// What has been seen since the last log line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Since {
    pub episodic_return: Mean,
    pub episodic_length: Mean,
    pub td_loss: Mean,
    pub q_values: Mean,
    pub grad_norm: Mean,
    #[serde(default)]
    pub policy_loss: Mean,
    #[serde(default)]
    pub entropy: Mean,
    #[serde(default)]
    pub temperature: Mean,
    pub updates: u64,
    pub steps: u64,
    /// Seconds of training at the last log line: time-derived, so not compared between runs.
    pub wall_s: f64,
    pub delta_q: Mean,
    /// Updates that the weights of actor threads were behind; none in synchronous mode.
    #[serde(default)]
    pub policy_lag: Mean,
    /// Bits of sums that are not finite do not survive JSON; their tags do.
    pub nonfinite: Vec<String>,
}

impl Since {
    pub fn update(&mut self, u: &Update) {
        self.updates += 1;
        let mut add = |tag: &str, mean: &mut Mean, x: f64| {
            if x.is_finite() {
                mean.add(x);
            } else if !self.nonfinite.iter().any(|t| t == tag) {
                self.nonfinite.push(tag.to_string());
            }
        };
        add("losses/td_loss", &mut self.td_loss, u.loss);
        add("losses/q_values", &mut self.q_values, u.q_mean);
        add("losses/grad_norm", &mut self.grad_norm, u.grad_norm);
        if let Some(p) = &u.policy {
            add("losses/policy_loss", &mut self.policy_loss, p.loss);
            add("learner/entropy", &mut self.entropy, p.entropy);
            add("learner/temperature", &mut self.temperature, p.temperature);
        }
    }

    /// Value to log: NaN where one of the values was not finite.
    pub fn value(&self, tag: &str, mean: Mean) -> Option<f64> {
        if self.nonfinite.iter().any(|t| t == tag) { Some(f64::NAN) } else { mean.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mmer_is_the_largest_window_mean() {
        let mut m = Mmer::default();
        assert_eq!(m.best(), None);
        for (step, r) in [(1, 0.0), (9, 1.0), (11, 0.75), (15, 0.75), (25, 0.0)] {
            m.add(step, 10, r);
        }
        assert_eq!(m.best(), Some(0.75));
        m.add(26, 10, 10.0); // a lucky start of a window is no window
        assert_eq!(m.best(), Some(0.75));
        m.advance(30, 10);
        assert_eq!(m.best(), Some(5.0));
    }
}
