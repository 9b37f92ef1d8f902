//! A CUDA device for tests: the test device, or the hardware with `CUDA_SIM=0`.

use std::path::PathBuf;

use mamba_rl::device::Precision;
use mamba_rl::device::cuda::{Cuda, CudaConfig};

/// Compiled kernels of the tests: beside the test programs, so that a rebuilt test device never sees a home folder's.
pub fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels")
}

/// Settings of the tests.
pub fn config(precision: Precision) -> CudaConfig {
    cuda_sim::install();
    CudaConfig { precision, cache: Some(cache()), ..CudaConfig::default() }
}

/// A device of this precision.
#[allow(dead_code)] // each test file uses its own part
pub fn cuda(precision: Precision) -> Cuda {
    Cuda::open(config(precision)).unwrap()
}
