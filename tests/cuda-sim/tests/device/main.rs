//! The test device tested: right kernels give the right numbers, wrong ones are reported, and the driver, compiler,
//! cuBLAS and NCCL stand-ins behave as `cudarc` expects. With `CUDA_SIM=0` the parts that are not about the device itself
//! run on real hardware.
#![cfg(target_os = "linux")]

mod child;
mod compiler;
mod gemm;
mod graphs;
mod kernels;
mod memory;
mod nccl;
mod rig;
mod settings;
mod symbols;
mod wrong;
