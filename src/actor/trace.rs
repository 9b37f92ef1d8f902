//! What the actor remembers of running episodes, to give new sequences their own priority: Q of the actions taken, the
//! value of each observation, rewards. The TD errors come from the very functions that the learner uses, bootstrapping
//! with the acting network. Source: R2D2 (Kapturowski et al., 2019), Sec. 2.3; Ape-X (Horgan et al., 2018).

use crate::error::{Error, Result};
use crate::value::n_step::{NStepOut, NStepRow, n_step_targets};
use crate::value::priority::sequence_priority;

/// What the TD errors depend on; the learner's own settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceConfig {
    /// γ.
    pub gamma: f32,
    /// n.
    pub n_step: usize,
    /// ε of value rescaling.
    pub rescaling: Option<f32>,
    /// Time limits end without a value.
    pub truncation_is_terminal: bool,
    /// Share of the largest error.
    pub eta: f32,
}

/// How the observation after a span's last step is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SpanEnd {
    /// The episode goes on; its value has been recorded.
    Running,
    /// Terminated: no value.
    Terminated,
    /// Truncated: the value of the true final observation.
    Truncated(f32),
}

/// One running episode of one copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// Q of the action taken, one per step begun.
    pub q_taken: Vec<f32>,
    /// Value (not rescaled) of the observation, one per step begun.
    pub value: Vec<f32>,
    /// Scaled reward, one per step done.
    pub reward: Vec<f32>,
}

impl Trace {
    /// Forgets the episode, keeping the memory.
    pub fn clear(&mut self) {
        self.q_taken.clear();
        self.value.clear();
        self.reward.clear();
    }

    /// Priority of the learnt span [start, start + len).
    ///
    /// # Errors
    /// `Usage` when the span lies outside what was recorded.
    pub fn priority(&self, c: TraceConfig, start: usize, len: usize, end: SpanEnd) -> Result<f32> {
        let stop = start + len;
        let running = end == SpanEnd::Running;
        if stop > self.reward.len() || (running && stop >= self.value.len()) {
            let found = self.reward.len();
            return Err(Error::Usage(format!(
                "internal: span {start}..{stop} of an episode with {found} recorded steps"
            )));
        }
        let mut next_value = self.value[start + 1..(stop + usize::from(running)).max(start + 1)].to_vec();
        let (mut terminated, mut truncated) = (vec![false; len], vec![false; len]);
        match end {
            SpanEnd::Running => {}
            SpanEnd::Terminated => {
                terminated[len - 1] = true;
                next_value.push(0.0);
            }
            SpanEnd::Truncated(value) => {
                terminated[len - 1] = c.truncation_is_terminal;
                truncated[len - 1] = true;
                next_value.push(if c.truncation_is_terminal { 0.0 } else { value });
            }
        }
        let mask = vec![true; len];
        let (mut target, mut raw, mut steps) = (vec![0.0; len], vec![0.0; len], vec![0; len]);
        let (mut bootstrap, mut full) = (vec![false; len], vec![false; len]);
        let row = NStepRow {
            reward: &self.reward[start..stop],
            terminated: &terminated,
            truncated: &truncated,
            mask: &mask,
            next_value: &next_value,
        };
        let out = NStepOut {
            target: &mut target,
            raw: &mut raw,
            steps: &mut steps,
            bootstrap: &mut bootstrap,
            full: &mut full,
        };
        n_step_targets(row, c.gamma, c.n_step, c.rescaling, out)
            .map_err(|e| Error::Usage(format!("internal: trace: {e}")))?;
        for (t, q) in target.iter_mut().zip(&self.q_taken[start..stop]) {
            *t -= q;
        }
        Ok(sequence_priority(&target, &mask, c.eta))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_errors_by_hand() {
        let trace = Trace { q_taken: vec![1.0, 2.0], value: vec![5.0, 4.0], reward: vec![1.0, 1.0] };
        let c = TraceConfig { gamma: 0.5, n_step: 1, rescaling: None, truncation_is_terminal: false, eta: 1.0 };
        // δ = (1 + 0.5·4 − 1, 1 − 2) = (2, −1)
        assert_eq!(trace.priority(c, 0, 2, SpanEnd::Terminated).unwrap(), 2.0);
        // δ₁ = 1 + 0.5·10 − 2 = 4
        assert_eq!(trace.priority(c, 0, 2, SpanEnd::Truncated(10.0)).unwrap(), 4.0);
        let terminal = TraceConfig { truncation_is_terminal: true, ..c };
        assert_eq!(trace.priority(terminal, 1, 1, SpanEnd::Truncated(10.0)).unwrap(), 1.0);
        assert_eq!(trace.priority(c, 0, 1, SpanEnd::Running).unwrap(), 2.0);
        assert!(trace.priority(c, 0, 2, SpanEnd::Running).is_err());
    }
}
