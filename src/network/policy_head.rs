//! Head of a Gaussian policy: hidden = ReLU(W f + b), then mean and bounded log σ of each component of the action.
//! log σ = ½(h − l) tanh(raw) + ½(h + l) with l = −5 and h = 2: smooth, so that no gradient is cut at a limit.

use super::layer::Layer;
use crate::device::{Kind, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::params::{Init, ParamLayout, ParamSpec, Params};
use crate::value::gaussian::{bounded_log_std, bounded_log_std_start};

/// Limits of log σ.
pub const LOG_STD: (f32, f32) = (-5.0, 2.0);
/// The last layer starts this much smaller, so that the first actions are spread evenly around the middle.
const SMALL: f32 = 0.01;

/// Policy head for `actions` components.
#[derive(Debug, Clone)]
pub(super) struct PolicyHead {
    hidden: Layer,
    out: Layer,
    actions: usize,
}

/// Working memory of the head for some rows; gradients only where it was made for training.
pub(crate) struct PolicyMemory<D: Backend> {
    hidden: D::Tensor,
    g_hidden: D::Tensor,
    /// Mean and raw log σ, [rows, 2, actions].
    pub out: D::Tensor,
    /// Gradient of `out`, [rows, 2, actions].
    pub g_out: D::Tensor,
}

impl PolicyHead {
    /// On features of width `d_input`.
    pub fn new(d_input: usize, hidden: usize, actions: usize) -> Self {
        PolicyHead {
            hidden: Layer::new("head.policy.hidden", d_input, hidden, true),
            out: Layer::new("head.policy.out", hidden, 2 * actions, true),
            actions,
        }
    }

    /// Parameters, named under `head.policy.`; σ starts at 1.
    pub fn parameters(&self) -> Vec<ParamSpec> {
        let mut specs = self.hidden.parameters(1.0);
        specs.extend(self.out.parameters(SMALL));
        if let Some(bias) = specs.last_mut() {
            let mut start = vec![0.0; self.actions];
            start.resize(2 * self.actions, bounded_log_std_start(LOG_STD));
            bias.init = Init::Values(start);
        }
        specs
    }

    pub fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        self.hidden.bind(layout)?;
        self.out.bind(layout)
    }

    /// Hidden units.
    pub fn hidden(&self) -> usize {
        self.hidden.d_out()
    }

    /// Components of an action.
    pub fn actions(&self) -> usize {
        self.actions
    }

    /// Memory for `rows` rows.
    pub fn memory<D: Backend>(&self, dev: &D, rows: usize, train: bool) -> Result<PolicyMemory<D>> {
        let back = if train { rows } else { 0 };
        let zeros = |len: usize| dev.zeros(len.max(1), Kind::Full);
        Ok(PolicyMemory {
            hidden: zeros(rows * self.hidden.d_out())?,
            g_hidden: zeros(back * self.hidden.d_out())?,
            out: zeros(rows * 2 * self.actions)?,
            g_out: zeros(back * 2 * self.actions)?,
        })
    }

    /// Elements of [`PolicyHead::memory`], for reports.
    pub fn memory_len(&self, rows: usize, train: bool) -> usize {
        rows * (self.hidden.d_out() + 2 * self.actions) * if train { 2 } else { 1 }
    }

    /// `memory.out` from features [rows, d_input].
    pub fn forward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        features: View<'_, D::Tensor>,
        memory: &mut PolicyMemory<D>,
    ) -> Result<()> {
        self.forward_into(dev, params, rows, features, &mut memory.hidden, &mut memory.out)
    }

    /// As [`PolicyHead::forward`], where no memory for training is kept: `hidden` [rows, hidden], `out` [rows, 2, actions].
    pub fn forward_into<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        features: View<'_, D::Tensor>,
        hidden: &mut D::Tensor,
        out: &mut D::Tensor,
    ) -> Result<()> {
        let n = rows * self.hidden.d_out();
        self.hidden.forward(dev, params, rows, features, ViewMut::new(hidden, 0, n), false)?;
        dev.relu(ViewMut::new(hidden, 0, n))?;
        let out = ViewMut::new(out, 0, rows * 2 * self.actions);
        self.out.forward(dev, params, rows, View::new(&*hidden, 0, n), out, false)
    }

    /// Parameter gradients (added) from `memory.g_out`, and g_features [rows, d_input] (overwritten) where it is wanted.
    #[allow(clippy::too_many_arguments)] // forward's arguments and the gradients
    pub fn backward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        features: View<'_, D::Tensor>,
        memory: &mut PolicyMemory<D>,
        g_features: Option<ViewMut<'_, D::Tensor>>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let n = rows * self.hidden.d_out();
        let g_out = View::new(&memory.g_out, 0, rows * 2 * self.actions);
        self.out.backward(dev, params, rows, View::new(&memory.hidden, 0, n), g_out, g_params)?;
        self.out.backward_x(dev, params, rows, g_out, ViewMut::new(&mut memory.g_hidden, 0, n), false)?;
        dev.relu_bwd(View::new(&memory.hidden, 0, n), ViewMut::new(&mut memory.g_hidden, 0, n))?;
        let g_hidden = View::new(&memory.g_hidden, 0, n);
        self.hidden.backward(dev, params, rows, features, g_hidden, g_params)?;
        g_features.map_or(Ok(()), |g| self.hidden.backward_x(dev, params, rows, g_hidden, g, false))
    }

    /// Mean and log σ from one row of `out`, [2, actions] each.
    pub fn read(raw: &[f32], out: &mut [f32]) {
        let (mean, log_std) = raw.split_at(raw.len() / 2);
        let n = mean.len();
        out[..n].copy_from_slice(mean);
        for (o, &x) in out[n..].iter_mut().zip(log_std) {
            *o = bounded_log_std(x, LOG_STD);
        }
    }
}
