//! Every kernel against the same op on the CPU in f64, at awkward sizes, in f32, bf16 and f16. Runs on the CUDA test device
//! (bounds, races and barriers are checked there), or on hardware with `CUDA_SIM=0`.
#![cfg(feature = "cuda")]

#[path = "support/net.rs"]
mod net;
#[allow(dead_code)] // each test binary uses its own part
#[path = "support/oracle.rs"]
mod oracle;

#[path = "cuda_ops/blocks.rs"]
mod blocks;
#[path = "cuda_ops/conv.rs"]
mod conv;
#[path = "cuda_ops/linear.rs"]
mod linear;
#[path = "cuda_ops/places.rs"]
mod places;
#[path = "cuda_ops/pointwise.rs"]
mod pointwise;
#[path = "cuda_ops/recurrent.rs"]
mod recurrent;
#[path = "cuda_ops/rows.rs"]
mod rows;
#[path = "cuda_ops/scan.rs"]
mod scan;
#[path = "cuda_ops/update.rs"]
mod update;
