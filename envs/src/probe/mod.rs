//! Small tasks that ask for one thing alone: remembering over a set distance.

mod t_maze;

pub(crate) use t_maze::DEFAULT_LENGTH;
pub use t_maze::TMaze;

use crate::env::{Env, erase};
use crate::registry::{ArgDoc, Entry};

/// All probes.
pub(crate) fn entries() -> Vec<Entry> {
    let spec = TMaze::new(DEFAULT_LENGTH).spec().clone();
    let id = spec.id.clone();
    let arg = ArgDoc { name: "length", doc: "steps from the start to the junction, 1 to 100,000, default 10" };
    vec![Entry::new(spec, vec![arg], move |args| {
        Ok(erase(TMaze::new(args.integer(&id, "length", DEFAULT_LENGTH, 1..=100_000)?)))
    })]
}
