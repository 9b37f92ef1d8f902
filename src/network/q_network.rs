//! The Q-network: features → encoder (optional) → recurrent backbone → dueling head, and past the body a shortcut to the
//! head (optional).
//! One forward for acting, burn-in, target and training; training keeps a tape.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use super::policy::{Policy, StepMemory};
use super::trunk::{Trunk, TrunkMemory};
use super::{Critic, DuelingHead, Encoder};
use crate::backbone::{Backbone, Part, Parts, SeqShape, Sequence, State};
use crate::device::{Kind, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::params::{ParamLayout, Params};

/// Encoder, backbone and head with their parameters' layout.
pub struct QNetwork<D: Backend> {
    trunk: Trunk<D>,
    head: DuelingHead,
    layout: Arc<ParamLayout>,
}

/// Buffers of one network over sequences up to a shape: the tape and gradients only where `train`.
pub struct Workspace<D: Backend> {
    shape: SeqShape,
    trunk: TrunkMemory<D>,
    head: Vec<D::Tensor>,
    /// Q-values, [T, B, actions]; of a distributional critic its numbers, [T, B, N, actions].
    pub q: D::Tensor,
    /// Gradient of `q`, as `q`.
    pub g_q: D::Tensor,
}

impl<D: Backend> Workspace<D> {
    /// The largest shape it serves.
    pub fn shape(&self) -> SeqShape {
        self.shape
    }
}

impl<D: Backend> QNetwork<D> {
    /// Joins the parts and lays out the parameters.
    ///
    /// # Errors
    /// `Config` when the widths do not fit or two parameters share a name.
    pub fn new(
        d_input: usize,
        encoder: Option<Box<dyn Encoder<D>>>,
        backbone: Box<dyn Backbone<D>>,
        mut head: DuelingHead,
    ) -> Result<Self> {
        let mut trunk = Trunk::new("", d_input, encoder, backbone)?;
        let mut specs = trunk.parameters();
        specs.extend(head.parameters());
        let layout = Arc::new(ParamLayout::new(specs)?);
        trunk.bind(&layout)?;
        head.bind(&layout)?;
        Ok(QNetwork { trunk, head, layout })
    }

    /// Names, shapes and places of the parameters.
    pub fn layout(&self) -> &Arc<ParamLayout> {
        &self.layout
    }

    /// Start values, drawn from `rng`.
    pub fn initial(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        self.layout.initial(rng)
    }

    /// Features a step.
    pub fn d_input(&self) -> usize {
        self.trunk.d_input()
    }

    /// Actions.
    pub fn actions(&self) -> usize {
        self.head.actions()
    }

    /// What the head predicts of the return.
    pub fn critic(&self) -> &Critic {
        self.head.critic()
    }

    /// Numbers of a step: actions times those of the critic.
    pub fn d_output(&self) -> usize {
        self.head.d_output()
    }

    /// The recurrent body.
    pub fn backbone(&self) -> &dyn Backbone<D> {
        self.trunk.backbone()
    }

    /// Parts of the recurrent state.
    pub fn state_layout(&self) -> &[Part] {
        self.trunk.state_layout()
    }

    /// A zero state for `batch` rows.
    ///
    /// # Errors
    /// Device errors.
    pub fn zero_state(&self, dev: &D, batch: usize) -> Result<State<D>> {
        Parts::zeros(dev, self.state_layout(), batch)
    }

    /// Buffers for sequences up to `shape`.
    ///
    /// # Errors
    /// Device errors (out of memory).
    pub fn workspace(&self, dev: &D, shape: SeqShape, train: bool) -> Result<Workspace<D>> {
        let rows = shape.rows();
        let back = if train { rows } else { 0 };
        let zeros = |len: usize| dev.zeros(len.max(1), Kind::Full);
        Ok(Workspace {
            shape,
            trunk: self.trunk.memory(dev, shape, train)?,
            head: Parts::<D>::zeros(dev, &self.head.memory_layout(rows, train), 1)?.bufs,
            q: zeros(rows * self.head.d_output())?,
            g_q: zeros(back * self.head.d_output())?,
        })
    }

    /// Elements of a workspace's (tape, scratch) for `shape`, for reports.
    pub fn workspace_len(&self, shape: SeqShape, train: bool) -> (usize, usize) {
        let (tape, trunk) = self.trunk.memory_len(shape, train);
        let (rows, pass) = (shape.rows(), if train { 2 } else { 1 });
        let head = self.head.memory_layout(rows, train).iter().map(|p| p.len).sum::<usize>();
        (tape, trunk + head + rows * pass * self.head.d_output())
    }

    /// Advances `state` over the sequence without heads and without a tape: burn-in.
    ///
    /// # Errors
    /// Device errors.
    pub fn burn_in(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        ws: &mut Workspace<D>,
    ) -> Result<()> {
        self.trunk.forward(dev, params, seq, state, &mut ws.trunk, false)
    }

    /// Q-values [T, B, actions], or the critic's numbers [T, B, N, actions], into `ws.q`; `state` becomes the state after the last step; keeps a tape where `train`.
    ///
    /// # Errors
    /// Device errors.
    pub fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        ws: &mut Workspace<D>,
        train: bool,
    ) -> Result<()> {
        self.trunk.forward(dev, params, seq, state, &mut ws.trunk, train)?;
        self.q_of_features(dev, params, seq, &ws.trunk, &mut ws.head, &mut ws.q)
    }

    fn q_of_features(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        trunk: &TrunkMemory<D>,
        head: &mut [D::Tensor],
        q: &mut D::Tensor,
    ) -> Result<()> {
        let rows = seq.shape.rows();
        let features = View::new(&trunk.features, 0, rows * self.trunk.d_output());
        self.head.forward(dev, params, rows, features, seq.x, head, ViewMut::new(q, 0, rows * self.head.d_output()))
    }

    /// Adds the parameter gradients of `ws.g_q` to `g_params`, through the forward that kept `ws`'s tape.
    /// No gradient leaves through the initial state: burn-in is a constant.
    ///
    /// # Errors
    /// `Usage` when `ws` keeps no tape; device errors.
    pub fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        ws: &mut Workspace<D>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        ws.trunk.check_tape()?;
        let rows = seq.shape.rows();
        let n = rows * self.trunk.d_output();
        let g_q = View::new(&ws.g_q, 0, rows * self.head.d_output());
        let TrunkMemory { features, g_features, .. } = &mut ws.trunk;
        let (features, g_features) = (View::new(&*features, 0, n), ViewMut::new(g_features, 0, n));
        self.head.backward(dev, params, rows, features, seq.x, &mut ws.head, g_q, g_features, g_params)?;
        self.trunk.backward(dev, params, seq, &mut ws.trunk, g_params)
    }
}

/// What acts gives Q-values, [rows, actions].
impl<D: Backend> Policy<D> for QNetwork<D> {
    fn layout(&self) -> &Arc<ParamLayout> {
        &self.layout
    }

    fn d_input(&self) -> usize {
        self.trunk.d_input()
    }

    fn d_output(&self) -> usize {
        self.actions()
    }

    fn d_raw(&self) -> usize {
        self.head.d_output()
    }

    fn state_layout(&self) -> &[Part] {
        self.trunk.state_layout()
    }

    fn step_memory(&self, dev: &D, rows: usize, _: bool) -> Result<StepMemory<D>> {
        Ok(StepMemory {
            trunk: self.trunk.memory(dev, SeqShape { time: 1, batch: rows }, false)?,
            beside: None,
            state: Parts { bufs: Vec::new() },
            head: Parts::<D>::zeros(dev, &self.head.memory_layout(rows, false), 1)?.bufs,
            out: dev.zeros((rows * self.head.d_output()).max(1), Kind::Full)?,
        })
    }

    fn step(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        memory: &mut StepMemory<D>,
    ) -> Result<()> {
        self.trunk.forward(dev, params, seq, state, &mut memory.trunk, false)?;
        self.q_of_features(dev, params, seq, &memory.trunk, &mut memory.head, &mut memory.out)
    }

    fn read(&self, raw: &[f32], out: &mut [f32]) {
        self.critic().expected(raw, self.actions(), out);
    }
}
