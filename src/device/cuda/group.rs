//! Several GPUs of one machine that learn one network together: each has a share of every batch, and one all-reduce of the
//! flat gradient makes them take the same step. By NCCL, looked for at run time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cudarc::nccl::result::{self, NcclError};
use cudarc::nccl::sys;

use super::memory::Core;
use super::tensor::Pointer;
use super::{Cuda, CudaConfig};
use crate::device::ABSENT;
use crate::error::{Error, Result};

/// Where the GPUs of a group meet before each sum: NCCL waits for ever for one that does not come, so all of them come here
/// first, and hear of one that failed on its way.
#[derive(Default)]
pub(super) struct Meeting {
    state: Mutex<Gathering>,
    changed: Condvar,
}

#[derive(Default)]
struct Gathering {
    here: usize,
    /// Meetings that all came to.
    held: u64,
    failed: bool,
}

impl Meeting {
    /// Waits for all `of`.
    ///
    /// # Errors
    /// `Device` where one of them has failed, now or before: the group is at different weights then.
    pub(super) fn arrive(&self, of: usize) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let held = state.held;
        state.here += 1;
        if state.here == of && !state.failed {
            (state.here, state.held) = (0, held + 1);
            self.changed.notify_all();
        }
        while state.held == held && !state.failed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.held > held {
            return Ok(());
        }
        let problem = format!("{ABSENT}, and its gradients are missing: go on from a checkpoint");
        Err(Error::Device { device: "cuda".into(), problem })
    }

    /// One of them will not come.
    pub(super) fn fail(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.changed.notify_all();
    }
}

/// One GPU's place in a group.
pub(super) struct Place {
    pub meeting: Arc<Meeting>,
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
        self.meeting.arrive(self.ranks)?;
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
        let meeting = Arc::<Meeting>::default();
        for (rank, (dev, comm)) in opened.iter().zip(comms).enumerate() {
            let place =
                Place { meeting: meeting.clone(), core: dev.inner.core.clone(), comm, rank, ranks: opened.len() };
            // just opened: nobody has put it in a group yet
            let _ = dev.inner.place.set(place);
        }
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_go_on_together() {
        let meeting = Meeting::default();
        let rounds = |_| (0..200).filter(|_| meeting.arrive(3).is_ok()).count();
        thread::scope(|s| {
            let done: Vec<_> = (0..3).map(|i| s.spawn(move || rounds(i))).collect();
            done.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), 200));
        });
    }

    /// The other two hear of it, whether they wait already or come later, and the group stays closed.
    #[test]
    fn one_that_fails_keeps_nobody_waiting() {
        let meeting = Meeting::default();
        thread::scope(|s| {
            let waiting = s.spawn(|| meeting.arrive(3));
            thread::sleep(std::time::Duration::from_millis(20));
            meeting.fail();
            let e = waiting.join().unwrap().unwrap_err().to_string();
            assert!(e.contains(ABSENT), "{e}");
        });
        assert!(meeting.arrive(3).is_err() && meeting.arrive(1).is_err());
    }
}
