//! Classic control, dynamics of Gymnasium 1.4, restated. Fully observable: controls for the tasks that hide something.

pub mod cart_pole;
pub mod pendulum;

pub use cart_pole::CartPole;
pub use pendulum::Pendulum;

use crate::env::{Env, erase};
use crate::registry::Entry;

fn task<E: Env + 'static>(new: fn() -> E) -> Entry {
    Entry::new(new().spec().clone(), Vec::new(), move |_| Ok(erase(new())))
}

/// All classic control tasks.
pub fn entries() -> Vec<Entry> {
    vec![task(CartPole::new), task(Pendulum::new)]
}
