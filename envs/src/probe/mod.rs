//! Small tasks that ask for one thing alone: remembering over a set distance.

use crate::registry::Entry;

/// All probes.
pub fn entries() -> Vec<Entry> {
    Vec::new()
}
