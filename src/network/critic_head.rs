//! Head of an action-value critic. The action enters here, behind the recurrent body:
//! q = w · ReLU(W_f f + W_a a + b) + c, with features f and an action a in [−1, 1] per component.
//! So dq/da needs this head alone and no second unroll.

use super::layer::Layer;
use crate::device::{Kind, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::params::{ParamLayout, ParamSpec, Params};

/// One critic.
#[derive(Debug, Clone)]
pub(super) struct CriticHead {
    hidden: Layer,
    action: Layer,
    out: Layer,
}

/// Working memory of one evaluation for some rows; gradients only where it was made for training.
pub(crate) struct CriticMemory<D: Backend> {
    hidden: D::Tensor,
    g_hidden: D::Tensor,
    /// Action values, `[rows]`.
    pub q: D::Tensor,
    /// Gradient of `q`, `[rows]`.
    pub g_q: D::Tensor,
}

/// What an evaluation reads.
pub(super) struct CriticIn<'a, T> {
    /// f, [rows, d_input].
    pub features: View<'a, T>,
    /// a, [rows, actions].
    pub action: View<'a, T>,
}

impl<T> Clone for CriticIn<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for CriticIn<'_, T> {}

impl CriticHead {
    /// Critic number `index` on features of width `d_input`.
    pub fn new(index: usize, d_input: usize, hidden: usize, actions: usize) -> Self {
        let layer =
            |name: &str, d_in, d_out, bias| Layer::new(format!("head.critic.{index}.{name}"), d_in, d_out, bias);
        CriticHead {
            hidden: layer("hidden", d_input, hidden, true),
            action: layer("action", actions, hidden, false),
            out: layer("out", hidden, 1, true),
        }
    }

    /// Parameters, named under `head.critic.INDEX.`.
    pub fn parameters(&self) -> Vec<ParamSpec> {
        [&self.hidden, &self.action, &self.out].into_iter().flat_map(|l| l.parameters(1.0)).collect()
    }

    pub fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        [&mut self.hidden, &mut self.action, &mut self.out].into_iter().try_for_each(|l| l.bind(layout))
    }

    /// Memory for `rows` rows.
    pub fn memory<D: Backend>(&self, dev: &D, rows: usize, train: bool) -> Result<CriticMemory<D>> {
        let back = if train { rows } else { 0 };
        let zeros = |len: usize| dev.zeros(len.max(1), Kind::Full);
        Ok(CriticMemory {
            hidden: zeros(rows * self.hidden.d_out())?,
            g_hidden: zeros(back * self.hidden.d_out())?,
            q: zeros(rows)?,
            g_q: zeros(back)?,
        })
    }

    /// Elements of [`CriticHead::memory`], for reports.
    pub fn memory_len(&self, rows: usize, train: bool) -> usize {
        rows * (self.hidden.d_out() + 1) * if train { 2 } else { 1 }
    }

    /// `memory.q` of features and actions.
    pub fn forward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: CriticIn<'_, D::Tensor>,
        memory: &mut CriticMemory<D>,
    ) -> Result<()> {
        let n = rows * self.hidden.d_out();
        self.hidden.forward(dev, params, rows, x.features, ViewMut::new(&mut memory.hidden, 0, n), false)?;
        self.action.forward(dev, params, rows, x.action, ViewMut::new(&mut memory.hidden, 0, n), true)?;
        dev.relu(ViewMut::new(&mut memory.hidden, 0, n))?;
        let q = ViewMut::new(&mut memory.q, 0, rows);
        self.out.forward(dev, params, rows, View::new(&memory.hidden, 0, n), q, false)
    }

    /// Parameter gradients (added) from `memory.g_q`, and g_features [rows, d_input]: written, or added where `add`.
    #[allow(clippy::too_many_arguments)] // forward's arguments and the gradients
    pub fn backward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: CriticIn<'_, D::Tensor>,
        memory: &mut CriticMemory<D>,
        g_features: ViewMut<'_, D::Tensor>,
        add: bool,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let n = rows * self.hidden.d_out();
        let g_q = View::new(&memory.g_q, 0, rows);
        self.out.backward(dev, params, rows, View::new(&memory.hidden, 0, n), g_q, g_params)?;
        self.backward_hidden(dev, params, rows, memory)?;
        let g_hidden = View::new(&memory.g_hidden, 0, n);
        self.hidden.backward(dev, params, rows, x.features, g_hidden, g_params)?;
        self.action.backward(dev, params, rows, x.action, g_hidden, g_params)?;
        self.hidden.backward_x(dev, params, rows, g_hidden, g_features, add)
    }

    /// g_action [rows, actions] from `memory.g_q`: written, or added where `add`. No parameter gets a gradient.
    pub fn backward_action<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        memory: &mut CriticMemory<D>,
        g_action: ViewMut<'_, D::Tensor>,
        add: bool,
    ) -> Result<()> {
        self.backward_hidden(dev, params, rows, memory)?;
        let g_hidden = View::new(&memory.g_hidden, 0, rows * self.hidden.d_out());
        self.action.backward_x(dev, params, rows, g_hidden, g_action, add)
    }

    /// Gradient in front of the ReLU from `memory.g_q`.
    fn backward_hidden<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        memory: &mut CriticMemory<D>,
    ) -> Result<()> {
        let n = rows * self.hidden.d_out();
        let to = ViewMut::new(&mut memory.g_hidden, 0, n);
        self.out.backward_x(dev, params, rows, View::new(&memory.g_q, 0, rows), to, false)?;
        dev.relu_bwd(View::new(&memory.hidden, 0, n), ViewMut::new(&mut memory.g_hidden, 0, n))
    }
}
