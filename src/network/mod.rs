//! Networks: input features, encoder, recurrent backbone, heads; and two ways to drive one: [`Stepper`] for a batch of
//! rows with carried state, [`Session`] for one.

mod actions;
mod description;
mod encoder;
mod head;
mod input;
mod q_network;
mod session;
mod stepper;

pub use actions::{join_action, split_action};
pub use description::Description;
pub use encoder::{Encoder, MlpEncoder};
pub use head::DuelingHead;
pub use input::{InputLayout, Previous};
pub use q_network::{QNetwork, Workspace};
pub use session::Session;
pub use stepper::Stepper;
pub(crate) use stepper::cut;
