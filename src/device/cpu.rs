//! Placeholder: the CPU device.

/// Placeholder.
pub trait Real {}
/// Placeholder.
#[derive(Clone)]
pub struct Cpu;
