//! What a replay stores ([`ReplaySpec`]) and how it is cut and drawn ([`ReplayConfig`]).

use super::error::{ReplayError, Result};
use super::rows::{ActionKind, ObsKind};

/// What one step looks like. Fixed for the life of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplaySpec {
    /// Number type of observations: they are stored in it.
    pub obs_kind: ObsKind,
    /// Numbers per observation.
    pub obs_len: usize,
    /// Kind and length of an action.
    pub action: ActionKind,
    /// Length of the legal-action mask, 0 for none.
    pub legal_len: usize,
    /// f32 numbers in one recurrent state (conv windows and h of all layers), 0 for none.
    pub state_len: usize,
    /// Environment copies that write side by side.
    pub lanes: usize,
}

/// How episodes become sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The whole episode from its zero state; one longer than `max_episode` steps is cut as in `Window`.
    Episode {
        /// Longest episode kept whole, in steps. Default 1,024.
        max_episode: usize,
    },
    /// Overlapping windows: burn-in and a learnt span (see [`super::sequence`]).
    Window,
}

/// How stored recurrent states are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateDtype {
    /// Exact.
    F32,
    /// Half the memory; values beyond ±65,504 are clamped there.
    F16,
    /// Half the memory, f32's range, 8 bits of precision.
    Bf16,
}

/// The state a window starts its burn-in from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialState {
    /// The actor's state at that step (R2D2's "stored state").
    Stored,
    /// Zeros (R2D2's "zero state").
    Zero,
}

/// Settings of a replay. `burn_in`, `length` and `period` also serve the `Episode` layout, for long episodes.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayConfig {
    /// Environment steps kept. Default 100,000.
    pub capacity: usize,
    /// How episodes are cut. Default whole episodes up to 1,024 steps.
    pub layout: Layout,
    /// Steps before a learnt span that only warm up the state. Default 40 (R2D2).
    pub burn_in: usize,
    /// Learnt steps of a window. Default 80 (R2D2).
    pub length: usize,
    /// Steps from one window to the next, at most `length`. Default 40 (R2D2).
    pub period: usize,
    /// `true`: windows are cut from a lane's steps in a row, episode ends included, with a reset at the seam. Then
    /// `length` counts slots, and each episode's final observation takes one. Default `false`.
    pub seams: bool,
    /// Exponent of priorities when drawing. Default 0.9 (R2D2).
    pub alpha: f64,
    /// Exponent of importance weights. Default 0.6 (R2D2).
    pub beta: f64,
    /// Share of the maximum in a sequence's priority, for the callers of
    /// [`sequence_priority`](crate::value::priority::sequence_priority). Default 0.9 (R2D2).
    pub eta: f64,
    /// How recurrent states are kept. Default f32.
    pub state_dtype: StateDtype,
    /// What a window starts from. Default the stored state.
    pub initial_state: InitialState,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        ReplayConfig {
            capacity: 100_000,
            layout: Layout::Episode { max_episode: 1024 },
            burn_in: 40,
            length: 80,
            period: 40,
            seams: false,
            alpha: 0.9,
            beta: 0.6,
            eta: 0.9,
            state_dtype: StateDtype::F32,
            initial_state: InitialState::Stored,
        }
    }
}

impl ReplayConfig {
    /// Longest episode that becomes one sequence, in steps; 0 in the `Window` layout.
    pub(super) fn whole_limit(&self) -> usize {
        match self.layout {
            Layout::Episode { max_episode } => max_episode.min(self.capacity),
            Layout::Window => 0,
        }
    }

    /// Checks every field, and the specification's.
    ///
    /// # Errors
    /// Names the first field that is outside its range.
    pub fn check(&self, spec: &ReplaySpec) -> Result<()> {
        let fail = |field, found: String, expected: String| Err(ReplayError::Config { field, expected, found });
        let action_len = spec.action.len();
        for (field, value) in [
            ("obs_len", spec.obs_len),
            ("action", action_len),
            ("lanes", spec.lanes),
            ("capacity", self.capacity),
            ("length", self.length),
            ("period", self.period),
        ] {
            if value == 0 {
                return fail(field, "0".into(), "at least 1".into());
            }
        }
        for (field, value) in [("capacity", self.capacity), ("burn_in", self.burn_in), ("length", self.length)] {
            if value > (1 << 31) {
                return fail(field, value.to_string(), "at most 2^31".into());
            }
        }
        if self.layout == (Layout::Episode { max_episode: 0 }) {
            return fail("max_episode", "0".into(), "at least 1".into());
        }
        if self.period > self.length {
            return fail("period", self.period.to_string(), format!("at most length = {}", self.length));
        }
        if self.burn_in + self.length > self.capacity {
            let expected = format!("at least burn_in + length = {}", self.burn_in + self.length);
            return fail("capacity", self.capacity.to_string(), expected);
        }
        if self.seams && self.layout != Layout::Window {
            return fail("seams", "true".into(), "false with the episode layout, which never joins episodes".into());
        }
        for (field, value) in [("alpha", self.alpha), ("beta", self.beta), ("eta", self.eta)] {
            let top = if field == "eta" { 1.0 } else { 10.0 };
            if !(0.0..=top).contains(&value) {
                return fail(field, value.to_string(), format!("0 to {top}"));
            }
        }
        Ok(())
    }
}
