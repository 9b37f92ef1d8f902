//! A CUDA test device that runs on the CPU: unmodified `cudarc` code and unmodified `.cu` kernels, with checks of bounds,
//! races and barriers. [`install`] makes it the CUDA of this process. `README.md` beside this crate says what it checks,
//! what it cannot tell, and which settings it has.
//!
//! ```no_run
//! if cuda_sim::install() {
//!     // from here on CudaContext::new(0) is the test device
//! }
//! ```
//!
//! On anything but Linux this crate is empty: [`install`] answers `false`.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;

#[cfg(not(target_os = "linux"))]
mod imp {
    //! Nothing to install.
    pub fn install() -> bool {
        false
    }
    pub fn set(_: &str, _: &str) {}
    pub fn last_report() -> String {
        String::new()
    }
    pub fn counts() -> crate::Counts {
        crate::Counts::default()
    }
    pub fn used_bytes(_: usize) -> usize {
        0
    }
}

use std::path::{Path, PathBuf};

/// What the device has done since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// Kernel launches that ran, those of graphs too.
    pub launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Blocks of all launches.
    pub blocks: u64,
    /// Threads of all launches.
    pub threads: u64,
    /// Memory accesses that were checked.
    pub accesses: u64,
    /// cuBLAS products that ran.
    pub gemms: u64,
    /// Copies between host and device, and on the device.
    pub copies: u64,
    /// Allocations, of device and pinned memory.
    pub allocations: u64,
}

/// Makes the test device the CUDA of this process, for every later call through `cudarc`. Call it before the first one.
/// `false`, and nothing done, where `CUDA_SIM=0` asks for the real hardware, and on anything but Linux.
///
/// # Panics
/// If the libraries that the build script made cannot be loaded.
pub fn install() -> bool {
    imp::install()
}

/// Is the test device what a test of this process will run on?
pub fn available() -> bool {
    cfg!(target_os = "linux") && std::env::var("CUDA_SIM").as_deref() != Ok("0")
}

/// The folder with the stand-in `libcuda.so`, `libnvrtc.so`, `libcublas.so` and `libnccl.so`: as `LD_LIBRARY_PATH` of a
/// child process it gives that process the test device.
pub fn library_dir() -> PathBuf {
    Path::new(env!("CUDA_SIM_LIBRARIES")).to_owned()
}

/// Sets `CUDA_SIM_<name>` for this process, over the environment. Settings of the driver are read at the first CUDA call.
/// Does nothing on hardware, like all below: touching the stand-ins there would make them the CUDA of this process.
pub fn set(name: &str, value: &str) {
    if available() {
        imp::set(name, value);
    }
}

/// The last line that the device wrote to standard error: kernel, place and reason of the last failure. Empty before.
pub fn last_report() -> String {
    if available() { imp::last_report() } else { String::new() }
}

/// What the device has done so far.
pub fn counts() -> Counts {
    if available() { imp::counts() } else { Counts::default() }
}

/// Bytes allocated on a device now.
pub fn used_bytes(device: usize) -> usize {
    if available() { imp::used_bytes(device) } else { 0 }
}
