//! Networks of a recurrent actor-critic: a policy and two critics on recurrent features.
//!
//! ```text
//! step → trunk of the actor  → h  → policy head          → mean, log σ
//! step → trunk of the critic → f  → critic head 0 and 1  → q₀(f, a), q₁(f, a)
//! ```
//! With one shared trunk h = f; the critics' loss alone trains it, and the policy reads it. Names in a checkpoint:
//! `encoder.*`, `input_proj.*`, `backbone.*` (trunk of the actor, or the shared one), the same behind `critic.` (trunk of the
//! critics), `head.policy.*`, `head.critic.0.*`, `head.critic.1.*` and `head.log_alpha` (the temperature's logarithm).
//! Sources: soft actor-critic (Haarnoja et al., 2018); separate recurrent trunks after Ni et al., 2022.

use std::sync::Arc;

use super::Encoder;
use super::critic_head::{CriticHead, CriticIn, CriticMemory};
use super::policy::{Policy, StepMemory};
use super::policy_head::{PolicyHead, PolicyMemory};
use super::trunk::{Trunk, TrunkMemory};
use crate::backbone::{Backbone, Part, Parts, SeqShape, Sequence, State};
use crate::device::{Kind, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::params::{Group, Init, ParamLayout, ParamSpec, Params};

/// Prefix of the critics' own trunk.
const CRITIC: &str = "critic.";
/// Name of the temperature's logarithm.
const LOG_ALPHA: &str = "head.log_alpha";

/// An encoder (optional) and a body.
pub type TrunkParts<D> = (Option<Box<dyn Encoder<D>>>, Box<dyn Backbone<D>>);

/// What an [`ActorCritic`] is made of.
pub struct ActorCriticParts<D: Backend> {
    /// Features a step.
    pub d_input: usize,
    /// Trunk of the critics, or of both.
    pub critic: TrunkParts<D>,
    /// Trunk of the actor; None: it reads the critics'.
    pub actor: Option<TrunkParts<D>>,
    /// Hidden units of each head, at least 1.
    pub head_hidden: usize,
    /// Components of an action.
    pub actions: usize,
    /// First temperature α.
    pub temperature: f32,
}

/// Policy, twin critics and temperature with their parameters' layout.
pub struct ActorCritic<D: Backend> {
    actor: Option<Trunk<D>>,
    critic: Trunk<D>,
    policy: PolicyHead,
    critics: [CriticHead; 2],
    log_alpha: Slot,
    layout: Arc<ParamLayout>,
    /// The actor's parts, then the critics'.
    state_layout: Vec<Part>,
}

/// Who a parameter belongs to: each has its own gradient norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Trunk of the actor and policy head.
    Actor,
    /// Trunk of the critics (also where it is shared) and critic heads.
    Critic,
    /// The temperature.
    Temperature,
}

/// Recurrent states of both trunks.
pub(crate) struct AcState<D: Backend> {
    actor: Option<State<D>>,
    critic: State<D>,
}

/// Buffers of the online networks over an unrolled sequence.
pub(crate) struct Online<D: Backend> {
    actor: Option<TrunkMemory<D>>,
    critic: TrunkMemory<D>,
    pub policy: PolicyMemory<D>,
    /// Critics at the stored actions.
    pub stored: [CriticMemory<D>; 2],
    /// Critics at actions that the policy drew anew.
    pub drawn: [CriticMemory<D>; 2],
    /// Stored actions in [−1, 1], [T, B, actions].
    pub stored_action: D::Tensor,
    /// Actions drawn anew, [T, B, actions].
    pub drawn_action: D::Tensor,
    /// Gradient of those, [T, B, actions].
    pub g_drawn: D::Tensor,
}

/// Buffers of the target critics.
pub(crate) struct Target<D: Backend> {
    critic: TrunkMemory<D>,
    pub drawn: [CriticMemory<D>; 2],
}

impl<D: Backend> ActorCritic<D> {
    /// Joins the parts and lays out the parameters.
    ///
    /// # Errors
    /// `Config` when widths do not fit or two parameters share a name.
    pub fn new(parts: ActorCriticParts<D>) -> Result<Self> {
        let ActorCriticParts { d_input, critic, actor, head_hidden, actions, temperature } = parts;
        let prefix = if actor.is_some() { CRITIC } else { "" };
        let mut critic = Trunk::new(prefix, d_input, critic.0, critic.1)?;
        let mut actor = actor.map(|a| Trunk::new("", d_input, a.0, a.1)).transpose()?;
        let mut policy = PolicyHead::new(actor.as_ref().unwrap_or(&critic).d_output(), head_hidden, actions);
        let mut critics = [0, 1].map(|i| CriticHead::new(i, critic.d_output(), head_hidden, actions));
        let mut specs = actor.as_ref().map_or(Vec::new(), Trunk::parameters);
        specs.extend(critic.parameters());
        specs.extend(policy.parameters());
        specs.extend(critics.iter().flat_map(CriticHead::parameters));
        specs.push(ParamSpec::new(LOG_ALPHA, &[1], Group::HeadsPlain, Init::Values(vec![temperature.ln()])));
        let layout = Arc::new(ParamLayout::new(specs)?);
        critic.bind(&layout)?;
        if let Some(a) = &mut actor {
            a.bind(&layout)?;
        }
        policy.bind(&layout)?;
        critics.iter_mut().try_for_each(|c| c.bind(&layout))?;
        let named = |who: &str, p: &Part| Part { name: format!("{who}{}", p.name), ..p.clone() };
        let mut state_layout: Vec<Part> = actor.iter().flat_map(|a| a.state_layout()).map(|p| named("", p)).collect();
        state_layout.extend(critic.state_layout().iter().map(|p| named(prefix, p)));
        let log_alpha = layout.slot(LOG_ALPHA)?;
        Ok(ActorCritic { actor, critic, policy, critics, log_alpha, layout, state_layout })
    }

    /// Names, shapes and places of the parameters.
    pub fn layout(&self) -> &Arc<ParamLayout> {
        &self.layout
    }

    /// Features a step.
    pub fn d_input(&self) -> usize {
        self.critic.d_input()
    }

    /// Components of an action.
    pub fn actions(&self) -> usize {
        self.policy.actions()
    }

    /// Parts of the recurrent state: the actor's, then the critics'.
    pub fn state_layout(&self) -> &[Part] {
        &self.state_layout
    }

    /// Place of log α.
    pub fn log_alpha(&self) -> Slot {
        self.log_alpha
    }

    /// Does the actor read the critics' trunk?
    pub fn is_shared(&self) -> bool {
        self.actor.is_none()
    }

    /// The parameters in runs of one owner and one group, in buffer order.
    pub(crate) fn runs(&self) -> Vec<(Owner, Group, Slot)> {
        let owner = |name: &str| match name {
            LOG_ALPHA => Owner::Temperature,
            n if n.starts_with("head.policy.") => Owner::Actor,
            n if n.starts_with("head.critic.") || n.starts_with(CRITIC) || self.is_shared() => Owner::Critic,
            _ => Owner::Actor,
        };
        let mut runs: Vec<(Owner, Group, Slot)> = Vec::new();
        for e in self.layout.entries() {
            let (owner, group) = (owner(&e.spec.name), e.spec.group);
            match runs.last_mut() {
                Some((o, g, slot)) if (*o, *g) == (owner, group) => slot.len += e.slot.len,
                _ => runs.push((owner, group, e.slot)),
            }
        }
        runs
    }

    /// Zero states for `batch` rows.
    pub(crate) fn states(&self, dev: &D, batch: usize) -> Result<AcState<D>> {
        let zeros = |t: &Trunk<D>| Parts::zeros(dev, t.state_layout(), batch);
        Ok(AcState { actor: self.actor.as_ref().map(zeros).transpose()?, critic: zeros(&self.critic)? })
    }

    /// Row i of both states from a stored one `[state_len]`.
    pub(crate) fn write_state(&self, dev: &D, to: &mut AcState<D>, i: usize, from: &[f32]) -> Result<()> {
        let mut rest = from;
        if let (Some(trunk), Some(state)) = (&self.actor, &mut to.actor) {
            let (own, critic) = rest.split_at(crate::backbone::state_len(trunk.state_layout()));
            state.write_row(dev, trunk.state_layout(), i, own)?;
            rest = critic;
        }
        to.critic.write_row(dev, self.critic.state_layout(), i, rest)
    }

    /// Row i of both states, `[state_len]`.
    pub(crate) fn read_state(&self, dev: &D, from: &AcState<D>, i: usize, out: &mut [f32]) -> Result<()> {
        let mut rest = out;
        if let (Some(trunk), Some(state)) = (&self.actor, &from.actor) {
            let (own, critic) = rest.split_at_mut(crate::backbone::state_len(trunk.state_layout()));
            state.read_row(dev, trunk.state_layout(), i, own)?;
            rest = critic;
        }
        from.critic.read_row(dev, self.critic.state_layout(), i, rest)
    }

    /// Buffers of the online networks for sequences up to `shape`.
    pub(crate) fn online(&self, dev: &D, shape: SeqShape) -> Result<Online<D>> {
        let rows = shape.rows();
        let actions = || dev.zeros((rows * self.actions()).max(1), Kind::Full);
        let critic = |i: usize| self.critics[i].memory(dev, rows, true);
        Ok(Online {
            actor: self.actor.as_ref().map(|t| t.memory(dev, shape, true)).transpose()?,
            critic: self.critic.memory(dev, shape, true)?,
            policy: self.policy.memory(dev, rows, true)?,
            stored: [critic(0)?, critic(1)?],
            drawn: [critic(0)?, critic(1)?],
            stored_action: actions()?,
            drawn_action: actions()?,
            g_drawn: actions()?,
        })
    }

    /// Buffers of the target critics for sequences up to `shape`.
    pub(crate) fn target(&self, dev: &D, shape: SeqShape) -> Result<Target<D>> {
        let critic = |i: usize| self.critics[i].memory(dev, shape.rows(), false);
        Ok(Target { critic: self.critic.memory(dev, shape, false)?, drawn: [critic(0)?, critic(1)?] })
    }

    /// Elements of a learner's (tapes, all other buffers) for sequences up to `shape`, for reports.
    pub fn workspace_len(&self, shape: SeqShape) -> (usize, usize) {
        let rows = shape.rows();
        let (tape, mut other) = self.critic.memory_len(shape, true);
        let actor = self.actor.as_ref().map_or((0, 0), |t| t.memory_len(shape, true));
        other += actor.1 + self.critic.memory_len(shape, false).1 + self.policy.memory_len(rows, true);
        let critic = &self.critics[0];
        other += 4 * critic.memory_len(rows, true) + 2 * critic.memory_len(rows, false) + 3 * rows * self.actions();
        (tape + actor.0, other)
    }

    /// Advances both states over the sequence, no heads, no tape: burn-in.
    pub(crate) fn burn_in(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut AcState<D>,
        memory: &mut Online<D>,
    ) -> Result<()> {
        self.trunks(dev, params, seq, state, memory, false)
    }

    /// Features of both trunks with tape, and the policy's outputs into `memory.policy.out`.
    pub(crate) fn unroll(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut AcState<D>,
        memory: &mut Online<D>,
    ) -> Result<()> {
        self.trunks(dev, params, seq, state, memory, true)?;
        let rows = seq.shape.rows();
        let trunk = memory.actor.as_ref().unwrap_or(&memory.critic);
        let features = View::new(&trunk.features, 0, rows * self.policy_trunk().d_output());
        self.policy.forward(dev, params, rows, features, &mut memory.policy)
    }

    fn trunks(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut AcState<D>,
        memory: &mut Online<D>,
        train: bool,
    ) -> Result<()> {
        if let (Some(trunk), Some(state), Some(memory)) = (&self.actor, &mut state.actor, &mut memory.actor) {
            trunk.forward(dev, params, seq, state, memory, train)?;
        }
        self.critic.forward(dev, params, seq, &mut state.critic, &mut memory.critic, train)
    }

    fn policy_trunk(&self) -> &Trunk<D> {
        self.actor.as_ref().unwrap_or(&self.critic)
    }

    /// Both critics at the stored and at the drawn actions, which `memory` holds, on the features of the last unroll.
    pub(crate) fn values(&self, dev: &D, params: &Params<D>, rows: usize, memory: &mut Online<D>) -> Result<()> {
        let Online { critic, stored, drawn, stored_action, drawn_action, .. } = memory;
        let features = View::new(&critic.features, 0, rows * self.critic.d_output());
        for (action, out) in [(&*stored_action, stored), (&*drawn_action, drawn)] {
            let x = CriticIn { features, action: View::new(action, 0, rows * self.actions()) };
            for (head, memory) in self.critics.iter().zip(out) {
                head.forward(dev, params, rows, x, memory)?;
            }
        }
        Ok(())
    }

    /// Advances the critics' state over the sequence by the target's weights, no tape.
    pub(crate) fn target_trunk(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        state: &mut State<D>,
        memory: &mut Target<D>,
    ) -> Result<()> {
        self.critic.forward(dev, params, seq, state, &mut memory.critic, false)
    }

    /// A zero state of the critics' trunk alone.
    pub(crate) fn critic_states(&self, dev: &D, batch: usize) -> Result<State<D>> {
        Parts::zeros(dev, self.critic.state_layout(), batch)
    }

    /// Row i of the critics' state from a stored row `[state_len]` of both.
    pub(crate) fn write_critic_state(&self, dev: &D, to: &mut State<D>, i: usize, from: &[f32]) -> Result<()> {
        let own = crate::backbone::state_len(self.critic.state_layout());
        to.write_row(dev, self.critic.state_layout(), i, &from[from.len() - own..])
    }

    /// Target critics at `action` [rows, actions], on the features of the last [`ActorCritic::target_trunk`].
    pub(crate) fn target_values(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        action: &D::Tensor,
        memory: &mut Target<D>,
    ) -> Result<()> {
        let features = View::new(&memory.critic.features, 0, rows * self.critic.d_output());
        let x = CriticIn { features, action: View::new(action, 0, rows * self.actions()) };
        let mut heads = self.critics.iter().zip(&mut memory.drawn);
        heads.try_for_each(|(head, memory)| head.forward(dev, params, rows, x, memory))
    }

    /// `memory.g_drawn` from the gradients `g_q` of the critics at the drawn actions. No parameter gets a gradient.
    pub(crate) fn action_gradient(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        memory: &mut Online<D>,
    ) -> Result<()> {
        for (i, (head, drawn)) in self.critics.iter().zip(&mut memory.drawn).enumerate() {
            let to = ViewMut::new(&mut memory.g_drawn, 0, rows * self.actions());
            head.backward_action(dev, params, rows, drawn, to, i > 0)?;
        }
        Ok(())
    }

    /// Adds to `g_params`: gradients of the critics from their `g_q` at the stored actions, through the critics' trunk; of
    /// the policy from `memory.policy.g_out`, through the actor's own trunk where it has one.
    pub(crate) fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        seq: Sequence<'_, D>,
        memory: &mut Online<D>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let rows = seq.shape.rows();
        let n = rows * self.critic.d_output();
        let Online { actor, critic, policy, stored, stored_action, .. } = memory;
        let TrunkMemory { features, g_features, .. } = &mut *critic;
        let x = CriticIn {
            features: View::new(&*features, 0, n),
            action: View::new(&*stored_action, 0, rows * self.actions()),
        };
        for (i, (head, memory)) in self.critics.iter().zip(stored).enumerate() {
            let to = ViewMut::new(&mut *g_features, 0, n);
            head.backward(dev, params, rows, x, memory, to, i > 0, g_params)?;
        }
        let (Some(trunk), Some(memory)) = (&self.actor, actor) else {
            // the shared trunk is the critics': the policy's gradient stops at its features
            self.policy.backward(dev, params, rows, x.features, policy, None, g_params)?;
            return self.critic.backward(dev, params, seq, critic, g_params);
        };
        self.critic.backward(dev, params, seq, critic, g_params)?;
        let n = rows * trunk.d_output();
        let TrunkMemory { features, g_features, .. } = &mut *memory;
        let (features, to) = (View::new(&*features, 0, n), ViewMut::new(g_features, 0, n));
        self.policy.backward(dev, params, rows, features, policy, Some(to), g_params)?;
        trunk.backward(dev, params, seq, memory, g_params)
    }
}

/// What acts gives mean and log σ, [rows, 2, actions].
impl<D: Backend> Policy<D> for ActorCritic<D> {
    fn layout(&self) -> &Arc<ParamLayout> {
        &self.layout
    }

    fn d_input(&self) -> usize {
        self.critic.d_input()
    }

    fn d_output(&self) -> usize {
        2 * self.actions()
    }

    fn state_layout(&self) -> &[Part] {
        &self.state_layout
    }

    fn step_memory(&self, dev: &D, rows: usize, storing: bool) -> Result<StepMemory<D>> {
        let shape = SeqShape { time: 1, batch: rows };
        let beside = (storing && !self.is_shared()).then(|| self.critic.memory(dev, shape, false)).transpose()?;
        Ok(StepMemory {
            trunk: self.policy_trunk().memory(dev, shape, false)?,
            beside,
            state: Parts { bufs: Vec::with_capacity(self.state_layout.len()) },
            head: vec![dev.zeros((rows * self.policy.hidden()).max(1), Kind::Full)?],
            out: dev.zeros((rows * 2 * self.actions()).max(1), Kind::Full)?,
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
        let (rows, trunk) = (seq.shape.rows(), self.policy_trunk());
        // each trunk takes a state of its own parts: the critics' stand aside meanwhile
        let own = trunk.state_layout().len();
        memory.state.bufs.extend(state.bufs.drain(own..));
        let mut done = trunk.forward(dev, params, seq, state, &mut memory.trunk, false);
        if let (Ok(()), Some(beside)) = (&done, &mut memory.beside) {
            done = self.critic.forward(dev, params, seq, &mut memory.state, beside, false);
        }
        state.bufs.append(&mut memory.state.bufs);
        done?;
        let features = View::new(&memory.trunk.features, 0, rows * trunk.d_output());
        self.policy.forward_into(dev, params, rows, features, &mut memory.head[0], &mut memory.out)
    }

    fn read(&self, raw: &[f32], out: &mut [f32]) {
        PolicyHead::read(raw, out);
    }
}
