//! Several GPUs of one machine that learn one network together: each has a share of every batch, and one all-reduce of the
//! flat gradient makes them take the same step. By NCCL, looked for at run time.

use std::sync::Arc;

use cudarc::nccl::result::{self, NcclError};
use cudarc::nccl::sys;

use super::memory::Core;
use super::tensor::Pointer;
use super::{Cuda, CudaConfig};
use crate::error::{Error, Result};

/// One GPU's place in a group.
pub(super) struct Place {
    core: Arc<Core>,
    comm: sys::ncclComm_t,
    pub rank: usize,
    pub ranks: usize,
}

// SAFETY: NCCL allows a communicator to be used by one thread at a time, and one handle's work is asked for in order.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Drop for Place {
    fn drop(&mut self) {
        if self.core.ctx.bind_to_thread().is_ok() {
            // SAFETY: made by `open_group`, destroyed once.
            let _ = unsafe { result::comm_destroy(self.comm) };
        }
    }
}

fn failed(core: &Core, doing: &str, e: NcclError) -> Error {
    Error::Driver { device: core.name.clone(), doing: format!("NCCL: {doing}"), problem: format!("{:?}", e.0) }
}

impl Place {
    /// Sums `len` floats at `at` over the group, in place; every GPU of the group must ask for it, each from a thread of
    /// its own.
    ///
    /// # Safety
    /// The range lies inside its buffer.
    pub unsafe fn all_reduce(&self, at: Pointer, len: usize) -> Result<()> {
        self.core.enter()?;
        self.core.count(|c| &c.products);
        let (from, to) = (at.address as *const std::ffi::c_void, at.address as *mut std::ffi::c_void);
        let (kind, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        // SAFETY: the caller's promise.
        unsafe { result::all_reduce(from, to, len, kind, sum, self.comm, self.core.raw_stream().cast()) }
            .map(|_| ())
            .map_err(|e| failed(&self.core, "summing gradients", e))
    }
}

impl Cuda {
    /// Opens GPUs that learn one network together, one handle each, in the order given.
    ///
    /// # Errors
    /// As [`Cuda::open`]; `Device` where NCCL is missing; `Usage` where a GPU is named twice or none is.
    pub fn open_group(configs: Vec<CudaConfig>) -> Result<Vec<Cuda>> {
        let ordinals: Vec<usize> = configs.iter().map(|c| c.ordinal).collect();
        let twice = ordinals.iter().enumerate().any(|(i, n)| ordinals[..i].contains(n));
        if twice || ordinals.is_empty() {
            return Err(Error::Usage(format!("GPUs {ordinals:?}: a group needs at least one, each once")));
        }
        let opened = configs.into_iter().map(Cuda::open).collect::<Result<Vec<_>>>()?;
        // SAFETY: this only opens and closes a library by its name.
        if !unsafe { sys::is_culib_present() } {
            let problem =
                "NCCL (libnccl) was not found: install it or put its folder on the library path, or use one GPU";
            return Err(Error::Device { device: "cuda".into(), problem: problem.into() });
        }
        let devices: Vec<i32> = ordinals.iter().map(|&n| i32::try_from(n).unwrap_or(i32::MAX)).collect();
        let mut comms: Vec<sys::ncclComm_t> = vec![std::ptr::null_mut(); opened.len()];
        let n = i32::try_from(opened.len()).unwrap_or(i32::MAX);
        // SAFETY: both lists have `n` entries.
        unsafe { result::comm_init_all(comms.as_mut_ptr(), n, devices.as_ptr()) }
            .map_err(|e| failed(&opened[0].inner.core, "joining the GPUs", e))?;
        for (rank, (dev, comm)) in opened.iter().zip(comms).enumerate() {
            let place = Place { core: dev.inner.core.clone(), comm, rank, ranks: opened.len() };
            // just opened: nobody has put it in a group yet
            let _ = dev.inner.place.set(place);
        }
        Ok(opened)
    }
}
