//! Memory of the device and page-locked memory of the host. Buffers are zeroed when they are made and freed in the order
//! of the stream. Numbers travel through one page-locked area, so that no copy waits for another until the area is full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, result, sys};

use super::library::said;
use crate::error::{Error, Result};

/// Smallest page-locked area, in bytes.
const STAGING: usize = 1 << 20;

/// Context and stream, with what they have done.
pub(super) struct Core {
    pub name: String,
    pub ctx: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub counts: Counts,
    /// The thread that records a graph; 0: none.
    pub recorder: AtomicUsize,
}

/// Counters of a device.
#[derive(Default)]
pub(super) struct Counts {
    pub kernels: AtomicUsize,
    pub products: AtomicUsize,
    pub moves: AtomicUsize,
    pub graphs: AtomicUsize,
    pub bytes: AtomicUsize,
}

/// A number for the calling thread, never 0: the address of one of its own variables.
fn this_thread() -> usize {
    thread_local!(static MINE: u8 = const { 0 });
    MINE.with(|mine| std::ptr::from_ref(mine) as usize)
}

/// A lock whose holder cannot leave half-done work behind.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// An error of the driver while `doing`.
    pub fn failed(&self, doing: impl Into<String>) -> impl FnOnce(result::DriverError) -> Error {
        let (device, doing) = (self.name.clone(), doing.into());
        move |e| Error::Driver { device, doing, problem: said(e) }
    }

    /// Makes the context the calling thread's. Only the recording thread may work while a graph is recorded: the driver
    /// would put everybody's work into it.
    pub fn enter(&self) -> Result<()> {
        let recorder = self.recorder.load(Ordering::Acquire);
        if recorder != 0 && recorder != this_thread() {
            let problem = "another thread used the device while a graph was recorded; open one handle for each thread";
            return Err(Error::Driver { device: self.name.clone(), doing: "working".into(), problem: problem.into() });
        }
        self.ctx.bind_to_thread().map_err(self.failed("entering the context"))
    }

    /// As [`Core::enter`], for what a graph cannot hold.
    pub fn enter_outside_graph(&self, doing: &str) -> Result<()> {
        self.enter()?;
        if self.recording() {
            let problem = "cannot be recorded into a graph".to_owned();
            return Err(Error::Driver { device: self.name.clone(), doing: doing.into(), problem });
        }
        Ok(())
    }

    pub fn recording(&self) -> bool {
        self.recorder.load(Ordering::Acquire) != 0
    }

    pub fn set_recording(&self, on: bool) {
        self.recorder.store(if on { this_thread() } else { 0 }, Ordering::Release);
    }

    pub fn raw_stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// Counts one piece of work, unless it is recorded instead of done.
    pub fn count(&self, of: impl Fn(&Counts) -> &AtomicUsize) {
        if !self.recording() {
            of(&self.counts).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.enter_outside_graph("waiting for the device")?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.raw_stream()) }.map_err(self.failed("waiting for the device"))
    }

    /// `bytes` zeroed bytes; at least a few, so that none is empty.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        self.enter_outside_graph("allocating")?;
        let bytes = bytes.max(16);
        // SAFETY: the stream lives as long as the buffer, which holds `self`.
        let made = unsafe {
            match self.ctx.has_async_alloc() {
                true => result::malloc_async(self.raw_stream(), bytes),
                false => result::malloc_sync(bytes),
            }
        };
        let ptr = made.map_err(|e| self.no_room(bytes, e))?;
        let buffer = Buffer { core: self.clone(), ptr, bytes };
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        buffer.zero(0, bytes)?;
        Ok(buffer)
    }

    fn no_room(&self, requested: usize, e: result::DriverError) -> Error {
        if e.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return self.failed(format!("allocating {requested} bytes"))(e);
        }
        let (free, total) = result::mem_get_info().unwrap_or((0, 0));
        Error::OutOfMemory { device: self.name.clone(), requested, free, total }
    }
}

/// Bytes on the device.
pub(super) struct Buffer {
    core: Arc<Core>,
    pub ptr: sys::CUdeviceptr,
    pub bytes: usize,
}

impl Buffer {
    /// Zeroes `bytes` bytes from `at`, which lie inside.
    pub fn zero(&self, at: usize, bytes: usize) -> Result<()> {
        self.core.enter()?;
        debug_assert!(at + bytes <= self.bytes);
        self.core.count(|c| &c.moves);
        // SAFETY: the range lies inside this buffer.
        unsafe { result::memset_d8_async(self.ptr + at as u64, 0, bytes, self.core.raw_stream()) }
            .map_err(self.core.failed("zeroing"))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A failure has nobody to go to: the driver reports it again at the next call.
        if self.core.ctx.bind_to_thread().is_ok() {
            // SAFETY: the pointer came from the allocation of the same kind and is freed once.
            let _ = unsafe {
                match self.core.ctx.has_async_alloc() {
                    true => result::free_async(self.ptr, self.core.raw_stream()),
                    false => result::free_sync(self.ptr),
                }
            };
        }
        self.core.counts.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Page-locked bytes that copies pass through. Those before `used` may still be on their way.
pub(super) struct Staging {
    core: Arc<Core>,
    ptr: *mut u8,
    bytes: usize,
    used: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Staging {}

impl Staging {
    pub fn new(core: &Arc<Core>) -> Self {
        Staging { core: core.clone(), ptr: std::ptr::null_mut(), bytes: 0, used: 0 }
    }

    /// `bytes` free bytes; waits for the device only where the area is full.
    fn take(&mut self, bytes: usize) -> Result<&mut [u8]> {
        if self.used + bytes > self.bytes {
            self.core.synchronize()?;
            self.used = 0;
            if bytes > self.bytes {
                self.grow(bytes.next_power_of_two().max(STAGING))?;
            }
        }
        let at = self.used;
        self.used = (at + bytes).next_multiple_of(256);
        // SAFETY: the range lies inside the area, and no copy uses it: `used` was passed on and the device waited for.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.ptr.add(at), bytes) })
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.free();
        // SAFETY: a plain allocation; the context is current after `synchronize`.
        let ptr = unsafe { result::malloc_host(bytes, 0) }
            .map_err(self.core.failed(format!("allocating {bytes} page-locked bytes")))?;
        (self.ptr, self.bytes) = (ptr.cast(), bytes);
        Ok(())
    }

    fn free(&mut self) {
        if !self.ptr.is_null() {
            // SAFETY: allocated by `grow`, freed once; the device was waited for.
            let _ = unsafe { result::free_host(self.ptr.cast()) };
            (self.ptr, self.bytes, self.used) = (std::ptr::null_mut(), 0, 0);
        }
    }

    /// `bytes` bytes to the device at `to`, written by `write`.
    pub fn upload(&mut self, to: sys::CUdeviceptr, bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<()> {
        self.core.enter_outside_graph("uploading")?;
        if bytes == 0 {
            return Ok(());
        }
        let core = self.core.clone();
        let area = self.take(bytes)?;
        write(area);
        core.count(|c| &c.moves);
        // SAFETY: the caller checked the range on the device; `area` is not reused before the device was waited for.
        unsafe { result::memcpy_htod_async(to, area, core.raw_stream()) }.map_err(core.failed("uploading"))
    }

    /// `bytes` bytes from the device at `from`, read by `read` when they are here.
    pub fn download(&mut self, from: sys::CUdeviceptr, bytes: usize, read: impl FnOnce(&[u8])) -> Result<()> {
        self.core.enter_outside_graph("downloading")?;
        if bytes == 0 {
            return Ok(());
        }
        let core = self.core.clone();
        let area = self.take(bytes)?;
        core.count(|c| &c.moves);
        // SAFETY: the caller checked the range on the device; `area` is read after the device was waited for.
        unsafe { result::memcpy_dtoh_async(area, from, core.raw_stream()) }.map_err(core.failed("downloading"))?;
        core.synchronize()?;
        read(area);
        self.used = 0;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.core.synchronize().is_ok() {
            self.free();
        }
    }
}
