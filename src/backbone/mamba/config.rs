//! Sizes and starting values of a Mamba backbone. Defaults are those of the official code where it has one.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Do pairs of states turn by a constant angle per step?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rotate {
    /// No: Mamba-1, real states.
    #[default]
    Off,
    /// Yes, by angles that stay as they start.
    Fixed,
    /// Yes, by angles that are learnt.
    Learned,
}

/// A Mamba backbone: `n_layers` residual blocks of width `d_model` and a final norm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MambaConfig {
    /// Features per step that go in. No useful default: 1.
    pub d_input: usize,
    /// Width of the residual stream. Default 64.
    pub d_model: usize,
    /// Blocks. Default 1.
    pub n_layers: usize,
    /// States per channel. Default 16 (official code).
    pub d_state: usize,
    /// Do pairs of states turn? Default off. On, the block is no longer Mamba-1: see `docs/rotating-state.md`.
    pub rotate: Rotate,
    /// Taps of the convolution. Default 4 (official code).
    pub d_conv: usize,
    /// d_inner / d_model. Default 2 (official code).
    pub expand: usize,
    /// Rank of the step-size projection. Default none: ⌈d_model / 16⌉ (official code).
    pub dt_rank: Option<usize>,
    /// Smallest step size at the start. Default 0.001 (official code).
    pub dt_min: f32,
    /// Largest step size at the start. Default 0.1 (official code).
    pub dt_max: f32,
    /// ε of the norms. Default 1e-5 (official code).
    pub rms_eps: f64,
    /// Have in_proj and out_proj a bias? Default false (official code).
    pub proj_bias: bool,
    /// Has the convolution a bias? Default true (official code).
    pub conv_bias: bool,
    /// Is there a linear map from d_input to d_model before the blocks? Default true. Without it d_input = d_model.
    pub input_proj: bool,
}

impl Default for MambaConfig {
    fn default() -> Self {
        MambaConfig {
            d_input: 1,
            d_model: 64,
            n_layers: 1,
            d_state: 16,
            rotate: Rotate::Off,
            d_conv: 4,
            expand: 2,
            dt_rank: None,
            dt_min: 1e-3,
            dt_max: 0.1,
            rms_eps: 1e-5,
            proj_bias: false,
            conv_bias: true,
            input_proj: true,
        }
    }
}

/// Fails unless `value` lies in [1, limit], naming the field, the value and the limit.
pub(crate) fn size(field: &str, value: usize, limit: usize) -> Result<()> {
    if (1..=limit).contains(&value) {
        return Ok(());
    }
    Err(Error::config(format!("backbone.{field}"), format!("is {value}; it must lie in 1..={limit}")))
}

impl MambaConfig {
    /// Channels of a block: expand · d_model.
    pub fn d_inner(&self) -> usize {
        self.expand * self.d_model
    }

    /// Rank of the step-size projection.
    pub fn rank(&self) -> usize {
        self.dt_rank.unwrap_or(self.d_model.div_ceil(16))
    }

    /// Do pairs of states turn?
    pub fn rotates(&self) -> bool {
        self.rotate != Rotate::Off
    }

    /// # Errors
    /// `Config` naming the field, its value and the limit.
    pub fn validate(&self) -> Result<()> {
        size("d_input", self.d_input, 1 << 20)?;
        size("d_model", self.d_model, 1 << 14)?;
        size("n_layers", self.n_layers, 256)?;
        size("d_state", self.d_state, 1024)?;
        size("d_conv", self.d_conv, 128)?;
        size("expand", self.expand, 16)?;
        size("dt_rank", self.rank(), 1 << 14)?;
        let refuse = |field: &str, problem: String| Err(Error::config(format!("backbone.{field}"), problem));
        if self.rotates() && !self.d_state.is_multiple_of(2) {
            let problem = format!("is {}; with `backbone.rotate` states come in pairs: it must be even", self.d_state);
            return refuse("d_state", problem);
        }
        // written so that NaN is refused too
        if !(self.dt_min > 0.0 && self.dt_min.is_finite()) {
            return refuse("dt_min", format!("is {}; it must be above 0", self.dt_min));
        }
        if !(self.dt_max >= self.dt_min && self.dt_max.is_finite()) {
            return refuse(
                "dt_max",
                format!("is {}; it must be finite and at least dt_min = {}", self.dt_max, self.dt_min),
            );
        }
        if !(self.rms_eps > 0.0 && self.rms_eps < 1.0) {
            return refuse("rms_eps", format!("is {}; it must lie between 0 and 1", self.rms_eps));
        }
        if !self.input_proj && self.d_input != self.d_model {
            let problem =
                format!("is {}; without an input projection it must be d_model = {}", self.d_input, self.d_model);
            return refuse("d_input", problem);
        }
        Ok(())
    }
}
