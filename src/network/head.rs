//! Dueling head on the backbone's features: hidden = ReLU(W f + b) (or f itself), value and advantage are linear in it,
//! q = value + advantage − mean(advantage). A distributional critic has N numbers per action, each combined like that.
//! With a shortcut the advantages are linear in the step's own input x as well, past the body: advantage += V x.
//! Sources: Wang et al., 2016; observations that reach the heads directly after Ni et al., 2022.

use super::Critic;
use super::layer::Layer;
use crate::backbone::Part;
use crate::device::{Kind, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::params::{Group, Init, ParamLayout, ParamSpec, Params};

/// Parts of the head's working memory.
const HIDDEN: usize = 0;
const G_HIDDEN: usize = 3;
const G_SECOND: usize = 4;
const G_VALUE: usize = 5;
const G_ADVANTAGE: usize = 6;

/// Dueling Q head.
#[derive(Debug, Clone)]
pub struct DuelingHead {
    d_input: usize,
    hidden: usize,
    actions: usize,
    critic: Critic,
    shortcut: Option<Layer>,
    hidden_w: Slot,
    hidden_b: Slot,
    value_w: Slot,
    value_b: Slot,
    advantage_w: Slot,
    advantage_b: Slot,
}

impl DuelingHead {
    /// A head for `actions` actions on `d_input` features; `hidden` 0 makes it linear.
    pub fn new(d_input: usize, hidden: usize, actions: usize) -> Self {
        let none = Slot::default();
        DuelingHead {
            d_input,
            hidden,
            actions,
            critic: Critic::Expected,
            shortcut: None,
            hidden_w: none,
            hidden_b: none,
            value_w: none,
            value_b: none,
            advantage_w: none,
            advantage_b: none,
        }
    }

    /// The same head for another prediction of the return.
    pub fn predicting(self, critic: Critic) -> Self {
        DuelingHead { critic, ..self }
    }

    /// The same head with a shortcut from steps of `d_step` features, after [`DuelingHead::predicting`].
    pub fn with_shortcut(self, d_step: usize) -> Self {
        let shortcut = Some(Layer::new("head.shortcut", d_step, self.d_output(), false));
        DuelingHead { shortcut, ..self }
    }

    /// Actions.
    pub fn actions(&self) -> usize {
        self.actions
    }

    /// What is predicted.
    pub fn critic(&self) -> &Critic {
        &self.critic
    }

    /// Numbers of a step, N · actions.
    pub fn d_output(&self) -> usize {
        self.critic.numbers() * self.actions
    }

    /// Parameters, named under `head.`; PyTorch's default uniform start.
    pub fn parameters(&self) -> Vec<ParamSpec> {
        let mut specs = Vec::new();
        let mut linear = |name: &str, d_in: usize, d_out: usize| {
            let init = || Init::Uniform(1.0 / (d_in as f32).sqrt());
            specs.push(ParamSpec::new(format!("head.{name}.weight"), &[d_out, d_in], Group::HeadsDecayed, init()));
            specs.push(ParamSpec::new(format!("head.{name}.bias"), &[d_out], Group::HeadsPlain, init()));
        };
        if self.hidden > 0 {
            linear("hidden", self.d_input, self.hidden);
        }
        linear("value", self.width(), self.critic.numbers());
        linear("advantage", self.width(), self.d_output());
        specs.extend(self.shortcut.iter().flat_map(|s| s.parameters(1.0)));
        specs
    }

    /// Finds its parameters.
    ///
    /// # Errors
    /// `Config` naming one that is missing.
    pub fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        if self.hidden > 0 {
            self.hidden_w = layout.slot("head.hidden.weight")?;
            self.hidden_b = layout.slot("head.hidden.bias")?;
        }
        self.value_w = layout.slot("head.value.weight")?;
        self.value_b = layout.slot("head.value.bias")?;
        self.advantage_w = layout.slot("head.advantage.weight")?;
        self.advantage_b = layout.slot("head.advantage.bias")?;
        self.shortcut.as_mut().map_or(Ok(()), |s| s.bind(layout))
    }

    /// Working memory for `rows` rows; the gradients' part only where `train`.
    pub fn memory_layout(&self, rows: usize, train: bool) -> Vec<Part> {
        let back = if train { rows } else { 0 };
        let part = |name: &str, len: usize| Part::new(format!("head.{name}"), len, Kind::Full);
        vec![
            part("hidden", rows * self.hidden),
            part("value", rows * self.critic.numbers()),
            part("advantage", rows * self.d_output()),
            part("g_hidden", back * self.width()),
            part("g_second", back * self.width()),
            part("g_value", back * self.critic.numbers()),
            part("g_advantage", back * self.d_output()),
        ]
    }

    fn width(&self) -> usize {
        if self.hidden > 0 { self.hidden } else { self.d_input }
    }

    /// q [rows, N, actions] from features [rows, d_input] and, with a shortcut, the steps' input [rows, d_step].
    ///
    /// # Errors
    /// Device errors.
    #[allow(clippy::too_many_arguments)] // both inputs, where they go and what lies between
    pub fn forward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        features: View<'_, D::Tensor>,
        step: View<'_, D::Tensor>,
        memory: &mut [D::Tensor],
        q: ViewMut<'_, D::Tensor>,
    ) -> Result<()> {
        let [hidden, value, advantage, ..] = memory else { return Err(no_memory(memory.len())) };
        let n_hidden = rows * self.hidden;
        if self.hidden > 0 {
            let input = LinearIn { x: features, w: params.view(self.hidden_w), b: Some(params.view(self.hidden_b)) };
            let shape = LinearShape { rows, d_in: self.d_input, d_out: self.hidden };
            dev.linear(shape, input, ViewMut::new(hidden, 0, n_hidden), false)?;
            dev.relu(ViewMut::new(hidden, 0, n_hidden))?;
        }
        let x = if self.hidden > 0 { View::new(&*hidden, 0, n_hidden) } else { features };
        let shape = |d_out| LinearShape { rows, d_in: self.width(), d_out };
        let input = LinearIn { x, w: params.view(self.value_w), b: Some(params.view(self.value_b)) };
        let (n, n_adv) = (rows * self.critic.numbers(), rows * self.d_output());
        dev.linear(shape(self.critic.numbers()), input, ViewMut::new(value, 0, n), false)?;
        let input = LinearIn { x, w: params.view(self.advantage_w), b: Some(params.view(self.advantage_b)) };
        dev.linear(shape(self.d_output()), input, ViewMut::new(advantage, 0, n_adv), false)?;
        if let Some(s) = &self.shortcut {
            s.forward(dev, params, rows, step, ViewMut::new(advantage, 0, n_adv), true)?;
        }
        let advantage = View::new(&*advantage, 0, n_adv);
        dev.dueling(n, self.actions, View::new(&*value, 0, n), advantage, q)
    }

    /// Parameter gradients (added) and g_features [rows, d_input] (overwritten) from g_q [rows, N, actions].
    ///
    /// # Errors
    /// Device errors.
    #[allow(clippy::too_many_arguments)] // forward's arguments and the gradients
    pub fn backward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        features: View<'_, D::Tensor>,
        step: View<'_, D::Tensor>,
        memory: &mut [D::Tensor],
        g_q: View<'_, D::Tensor>,
        mut g_features: ViewMut<'_, D::Tensor>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let found = memory.len();
        let Ok([hidden, g_hidden, g_second, g_value, g_advantage]) =
            memory.get_disjoint_mut([HIDDEN, G_HIDDEN, G_SECOND, G_VALUE, G_ADVANTAGE])
        else {
            return Err(no_memory(found));
        };
        let (n_hidden, n_adv, n_width) = (rows * self.hidden, rows * self.d_output(), rows * self.width());
        let n = rows * self.critic.numbers();
        let (to_value, to_adv) = (ViewMut::new(g_value, 0, n), ViewMut::new(g_advantage, 0, n_adv));
        dev.dueling_bwd(n, self.actions, g_q, to_value, to_adv)?;
        let x = if self.hidden > 0 { View::new(&*hidden, 0, n_hidden) } else { features };
        let shape = |d_out| LinearShape { rows, d_in: self.width(), d_out };
        let back = |d_out, w: Slot, b: Slot, g_y, g_x, g_params: &mut D::Tensor| {
            let input = LinearIn { x, w: params.view(w), b: Some(params.view(b)) };
            dev.linear_bwd(shape(d_out), input, LinearGrad { g_y, g_x: Some(g_x), g_params, w, b: Some(b) })
        };
        let g_v = View::new(&*g_value, 0, n);
        back(self.critic.numbers(), self.value_w, self.value_b, g_v, ViewMut::new(g_second, 0, n_width), g_params)?;
        let g_a = View::new(&*g_advantage, 0, n_adv);
        if let Some(s) = &self.shortcut {
            s.backward(dev, params, rows, step, g_a, g_params)?;
        }
        let to = if self.hidden > 0 { ViewMut::new(g_hidden, 0, n_width) } else { g_features.again() };
        back(self.d_output(), self.advantage_w, self.advantage_b, g_a, to, g_params)?;
        let second = View::new(&*g_second, 0, n_width);
        if self.hidden == 0 {
            return dev.add_assign(second, g_features);
        }
        dev.add_assign(second, ViewMut::new(g_hidden, 0, n_hidden))?;
        dev.relu_bwd(View::new(&*hidden, 0, n_hidden), ViewMut::new(g_hidden, 0, n_hidden))?;
        let input = LinearIn { x: features, w: params.view(self.hidden_w), b: Some(params.view(self.hidden_b)) };
        let (g_y, w, b) = (View::new(&*g_hidden, 0, n_hidden), self.hidden_w, Some(self.hidden_b));
        let shape = LinearShape { rows, d_in: self.d_input, d_out: self.hidden };
        dev.linear_bwd(shape, input, LinearGrad { g_y, g_x: Some(g_features), g_params, w, b })
    }
}

fn no_memory(got: usize) -> crate::Error {
    let want = G_ADVANTAGE + 1;
    crate::Error::Shape { op: "dueling head", arg: "memory", shape: "[parts of memory_layout]".into(), want, got }
}
