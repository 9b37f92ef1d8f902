//! Classic control, dynamics of Gymnasium 1.4, restated. Fully observable: controls for the tasks that hide something.

mod acrobot;
pub(crate) mod cart_pole;
mod mountain_car;
pub(crate) mod pendulum;

pub use acrobot::Acrobot;
pub use cart_pole::{CartPole, CartPoleState};
pub use mountain_car::{MountainCar, MountainCarContinuous};
pub use pendulum::{Pendulum, PendulumState};

use crate::env::{Env, erase};
use crate::registry::{ArgDoc, Entry, EnvArgs};
use crate::wrapper::DiscretizeAction;

fn task<E: Env + 'static>(new: fn() -> E) -> Entry {
    Entry::new(new().spec().clone(), Vec::new(), move |_| Ok(erase(new())))
}

/// A one-dimensional continuous task that takes `torques`.
pub(crate) fn torque_task<E: Env + 'static>(new: impl Fn(&EnvArgs) -> E + Send + Sync + 'static) -> Entry {
    let spec = new(&EnvArgs::default()).spec().clone();
    let id = spec.id.clone();
    let doc = "number of evenly spaced torques as discrete actions, 2 to 101; 0 (default) keeps the continuous action";
    Entry::new(spec, vec![ArgDoc { name: "torques", doc }], move |args| {
        let env = erase(new(args));
        if args.integer(&id, "torques", 0, 0..=101)? == 0 {
            return Ok(env);
        }
        let n = args.integer(&id, "torques", 0, 2..=101)?;
        Ok(DiscretizeAction::new(env, n)?.boxed())
    })
}

/// All classic control tasks.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        task(CartPole::new),
        task(Acrobot::new),
        task(MountainCar::new),
        task(MountainCarContinuous::new),
        torque_task(|_| Pendulum::new()),
    ]
}
