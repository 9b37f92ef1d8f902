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

/// Arrays over a span's steps for [`Trace::priority`], kept so that a running actor allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct TraceWork {
    next_value: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    mask: Vec<bool>,
    target: Vec<f32>,
    raw: Vec<f32>,
    steps: Vec<usize>,
    bootstrap: Vec<bool>,
    full: Vec<bool>,
}

impl TraceWork {
    fn reset(&mut self, len: usize) {
        self.next_value.clear();
        for v in [&mut self.target, &mut self.raw] {
            v.clear();
            v.resize(len, 0.0);
        }
        for v in [&mut self.terminated, &mut self.truncated, &mut self.bootstrap, &mut self.full] {
            v.clear();
            v.resize(len, false);
        }
        self.mask.clear();
        self.mask.resize(len, true);
        self.steps.clear();
        self.steps.resize(len, 0);
    }
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
    pub fn priority(
        &self,
        c: TraceConfig,
        start: usize,
        len: usize,
        end: SpanEnd,
        work: &mut TraceWork,
    ) -> Result<f32> {
        let stop = start + len;
        let running = end == SpanEnd::Running;
        if stop > self.reward.len() || (running && stop >= self.value.len()) {
            let found = self.reward.len();
            return Err(Error::Usage(format!(
                "internal: span {start}..{stop} of an episode with {found} recorded steps"
            )));
        }
        let w = work;
        w.reset(len);
        w.next_value.extend_from_slice(&self.value[start + 1..(stop + usize::from(running)).max(start + 1)]);
        match end {
            SpanEnd::Running => {}
            SpanEnd::Terminated => {
                w.terminated[len - 1] = true;
                w.next_value.push(0.0);
            }
            SpanEnd::Truncated(value) => {
                w.terminated[len - 1] = c.truncation_is_terminal;
                w.truncated[len - 1] = true;
                w.next_value.push(if c.truncation_is_terminal { 0.0 } else { value });
            }
        }
        let row = NStepRow {
            reward: &self.reward[start..stop],
            terminated: &w.terminated,
            truncated: &w.truncated,
            mask: &w.mask,
            next_value: &w.next_value,
        };
        let out = NStepOut {
            target: &mut w.target,
            raw: &mut w.raw,
            steps: &mut w.steps,
            bootstrap: &mut w.bootstrap,
            full: &mut w.full,
        };
        let own_bug = |e| Error::Usage(format!("internal: trace: {e}"));
        n_step_targets(row, c.gamma, c.n_step, c.rescaling, out).map_err(own_bug)?;
        for (t, q) in w.target.iter_mut().zip(&self.q_taken[start..stop]) {
            *t -= q;
        }
        sequence_priority(&w.target, &w.mask, c.eta).map_err(own_bug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_errors_by_hand() {
        let mut work = TraceWork::default();
        let trace = Trace { q_taken: vec![1.0, 2.0], value: vec![5.0, 4.0], reward: vec![1.0, 1.0] };
        let c = TraceConfig { gamma: 0.5, n_step: 1, rescaling: None, truncation_is_terminal: false, eta: 1.0 };
        // δ = (1 + 0.5·4 − 1, 1 − 2) = (2, −1)
        assert_eq!(trace.priority(c, 0, 2, SpanEnd::Terminated, &mut work).unwrap(), 2.0);
        // δ₁ = 1 + 0.5·10 − 2 = 4
        assert_eq!(trace.priority(c, 0, 2, SpanEnd::Truncated(10.0), &mut work).unwrap(), 4.0);
        let terminal = TraceConfig { truncation_is_terminal: true, ..c };
        assert_eq!(trace.priority(terminal, 1, 1, SpanEnd::Truncated(10.0), &mut work).unwrap(), 1.0);
        assert_eq!(trace.priority(c, 0, 1, SpanEnd::Running, &mut work).unwrap(), 2.0);
        assert!(trace.priority(c, 0, 2, SpanEnd::Running, &mut work).is_err());
    }
}
