//! The operations of the model. Each op is a trait over [`Device`]: one contract (formula, shapes, checks) in its `mod.rs`,
//! a CPU body beside it, a CUDA body with the kernel of the same name. [`Backend`] is the sum of all of them.
//! Model code is written once over `D: Backend`.

pub mod adamw;
pub mod causal_conv1d;
pub mod dueling;
pub mod elementwise;
pub mod gate;
pub mod linear;
pub mod norm;
pub mod recurrent;
pub mod reduce;
pub mod selective_scan;

use crate::device::Device;

/// Everything a network needs from a device.
pub trait Backend:
    Device
    + linear::Linear
    + norm::Norm
    + causal_conv1d::CausalConv1d
    + selective_scan::SelectiveScan
    + gate::Gate
    + elementwise::Elementwise
    + recurrent::Recurrent
    + dueling::Dueling
    + adamw::AdamW
    + reduce::Reduce
{
}

impl<D> Backend for D where
    D: Device
        + linear::Linear
        + norm::Norm
        + causal_conv1d::CausalConv1d
        + selective_scan::SelectiveScan
        + gate::Gate
        + elementwise::Elementwise
        + recurrent::Recurrent
        + dueling::Dueling
        + adamw::AdamW
        + reduce::Reduce
{
}
