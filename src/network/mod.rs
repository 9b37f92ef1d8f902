//! Networks: input features, encoder, recurrent backbone, heads; and two ways to drive one: [`Stepper`] for a batch of
//! rows with carried state, [`Session`] for one.

mod actions;
mod actor_critic;
mod blocks;
mod critic;
mod critic_head;
mod description;
mod encoder;
mod head;
mod input;
mod layer;
mod policy;
mod policy_head;
mod q_network;
mod session;
mod stepper;
mod trunk;

pub use actions::{ActionBounds, Actions};
pub(crate) use actions::{join_action, no_legal};
pub(crate) use actor_critic::{AcState, Online, Owner, Target};
pub use actor_critic::{ActorCritic, ActorCriticParts, TrunkParts};
pub use blocks::Blocks;
pub use critic::Critic;
pub use description::{CriticDescription, Description};
pub use encoder::{Encoder, MlpEncoder};
pub use head::DuelingHead;
pub use input::{InputLayout, Previous};
pub use policy::{Policy, StepMemory};
pub(crate) use policy_head::LOG_STD;
pub use q_network::{QNetwork, Workspace};
pub use session::Session;
pub use stepper::Stepper;
pub(crate) use stepper::cut;
