//! NVIDIA GPUs. One [`Cuda`] is one GPU with one stream: everything runs in the order in which it is asked for. Kernels are
//! those of `kernels/`, compiled when first used; matrix products are cuBLAS's; nothing of CUDA is needed to build.
//!
//! `Kind::Full` is f32, `Kind::Small` follows [`Precision`]. Ops are launched from `ops/<op>/cuda.rs`.
//! A handle may be cloned and sent to other threads; while one thread records a graph the others must not use it.

mod blas;
mod graph;
#[cfg(feature = "nccl")]
mod group;
mod kernels;
mod launch;
mod library;
mod memory;
mod tensor;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::{CudaContext, result, sys};

pub use blas::Mat;
pub use graph::Recordings;
pub use kernels::{Kernel, Source, default_cache};
pub use launch::{Argument, ArgumentTuple, Arguments, Grid, Int, THREADS, int};
pub use library::{Found, Gpu, probe, required};
pub use tensor::{Mask, Pointer, Range, Store, Tensor, full, mask, slot, small};

use super::{Device, Key, Kind, Precision, View, ViewMut};
use crate::error::{Error, Result};
use blas::Blas;
use kernels::Modules;
use memory::{Buffer, Core, Counts, Staging, lock};

/// How to open a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaConfig {
    /// The N of `cuda:N`. Default 0.
    pub ordinal: usize,
    /// How operands of products and saved activations are stored. Default f32.
    pub precision: Precision,
    /// May products of f32 round their operands to TF32 (11 bits of fraction)? Default false: exact.
    pub tf32: bool,
    /// Record the steps of the learner as graphs? Same bits either way. Default true.
    pub graphs: bool,
    /// Folder for compiled kernels; None: they are compiled at each start. Default [`default_cache`].
    pub cache: Option<PathBuf>,
}

impl Default for CudaConfig {
    fn default() -> Self {
        CudaConfig { ordinal: 0, precision: Precision::F32, tf32: false, graphs: true, cache: default_cache() }
    }
}

/// What a device has been asked for so far. Work inside graphs counts as one launch of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Launches {
    /// Kernels.
    pub kernels: usize,
    /// Matrix products.
    pub products: usize,
    /// Copies and fills.
    pub moves: usize,
    /// Graphs.
    pub graphs: usize,
}

impl Launches {
    /// What was asked for since `before`.
    pub fn since(self, before: Launches) -> Launches {
        Launches {
            kernels: self.kernels - before.kernels,
            products: self.products - before.products,
            moves: self.moves - before.moves,
            graphs: self.graphs - before.graphs,
        }
    }

    /// Kernels and products.
    pub fn work(self) -> usize {
        self.kernels + self.products
    }
}

/// An open GPU.
#[derive(Clone)]
pub struct Cuda {
    inner: Arc<Inner>,
}

// Fields are dropped in this order: what uses the stream before the stream.
struct Inner {
    #[cfg(feature = "nccl")]
    place: std::sync::OnceLock<group::Place>,
    modules: Modules,
    blas: Blas,
    staging: Mutex<Staging>,
    work: Mutex<WorkArea>,
    core: Arc<Core>,
    gpu: Gpu,
    precision: Precision,
    graphs: bool,
    multiprocessors: usize,
    shared_memory: usize,
}

/// Working memory of ops. Areas that became too small are kept, because graphs may hold their addresses; each is at least
/// twice the one before, so that all of them are less than twice the last.
#[derive(Default)]
struct WorkArea {
    areas: Vec<Buffer>,
}

/// Working memory of one op: floats whose contents mean nothing. Held until the op's last launch.
pub struct Work<'a> {
    address: u64,
    len: usize,
    _area: MutexGuard<'a, WorkArea>,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, {})", self.inner.core.name, self.inner.gpu.name, self.inner.precision)
    }
}

impl Cuda {
    /// Opens a GPU.
    ///
    /// # Errors
    /// `Device` saying what is missing and how to mend it: the driver, NVRTC, cuBLAS, a newer driver, a GPU of this number.
    pub fn open(config: CudaConfig) -> Result<Self> {
        let name = format!("cuda:{}", config.ordinal);
        library::require(&name)?;
        let refuse = |doing: &'static str| {
            let name = name.clone();
            move |e| library::refused(&name, doing, e)
        };
        let found = library::probe()?.gpus;
        let Some(gpu) = found.get(config.ordinal).cloned() else {
            let problem = match found.len() {
                0 => "the driver finds no GPU; use --device cpu".to_owned(),
                1 => "is not there: this machine has cuda:0 only".to_owned(),
                n => format!("is not there: this machine has cuda:0 to cuda:{}", n - 1),
            };
            return Err(Error::Device { device: name, problem });
        };
        let ctx = CudaContext::new(config.ordinal).map_err(refuse("opening the GPU"))?;
        // SAFETY: all work goes to one stream; buffers made by cudarc, which would need the events, are not used.
        unsafe { ctx.disable_event_tracking() };
        let stream = ctx.new_stream().map_err(refuse("making a stream"))?;
        let attribute = |which| ctx.attribute(which).map_err(refuse("describing the GPU"));
        let multiprocessors = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let driver = library::driver_version(&name)?;
        let core = Arc::new(Core { name, ctx, stream, counts: Counts::default(), recorder: 0.into() });
        let blas = Blas::new(&core, config.tf32)?;
        Ok(Cuda {
            inner: Arc::new(Inner {
                #[cfg(feature = "nccl")]
                place: std::sync::OnceLock::new(),
                modules: Modules::new(gpu.capability, driver, library::nvrtc_version(), config.cache),
                blas,
                staging: Mutex::new(Staging::new(&core)),
                work: Mutex::default(),
                core,
                gpu,
                precision: config.precision,
                graphs: config.graphs,
                multiprocessors: usize::try_from(multiprocessors).unwrap_or(1).max(1),
                shared_memory: usize::try_from(shared).unwrap_or(0),
            }),
        })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }

    /// Its multiprocessors: with fewer blocks than these, part of it idles.
    pub fn multiprocessors(&self) -> usize {
        self.inner.multiprocessors
    }

    /// Most dynamic shared memory of a block, in bytes.
    pub fn shared_memory(&self) -> usize {
        self.inner.shared_memory
    }

    /// What has been asked for so far.
    pub fn launches(&self) -> Launches {
        let c = &self.inner.core.counts;
        let of = |n: &std::sync::atomic::AtomicUsize| n.load(Ordering::Relaxed);
        Launches { kernels: of(&c.kernels), products: of(&c.products), moves: of(&c.moves), graphs: of(&c.graphs) }
    }

    /// Bytes that its buffers hold now, working memory included.
    pub fn bytes(&self) -> usize {
        self.inner.core.counts.bytes.load(Ordering::Relaxed)
    }

    /// Files of kernels that were compiled, not found in the cache.
    pub fn compiled(&self) -> usize {
        self.inner.modules.compiled()
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// `Driver`: what went wrong in the work.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.core.synchronize()
    }

    /// Milliseconds that the GPU takes from the first to the last work that `work` asks for.
    ///
    /// # Errors
    /// Those of `work`; `Driver`.
    pub fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<f32> {
        let core = &self.inner.core;
        core.enter_outside_graph("measuring time")?;
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let mark = || core.stream.record_event(flags).map_err(core.failed("measuring time"));
        let begun = mark()?;
        work()?;
        let ended = mark()?;
        // waits for `ended`
        begun.elapsed_ms(&ended).map_err(core.failed("measuring time"))
    }

    /// `len` floats of working memory for one op. An op asks once.
    pub(crate) fn work(&self, len: usize) -> Result<Work<'_>> {
        let mut area = lock(&self.inner.work);
        let bytes = 4 * len.max(1);
        let have = area.areas.last().map_or(0, |b| b.bytes);
        if have < bytes {
            let made = self.inner.core.alloc(bytes.max(2 * have).next_multiple_of(256))?;
            area.areas.push(made);
        }
        let address = area.areas.last().map_or(0, |b| b.ptr);
        Ok(Work { address, len, _area: area })
    }

    /// Reads one f64 at a place of working memory; waits for the device.
    pub(crate) fn read_f64(&self, at: Pointer) -> Result<f64> {
        let mut out = 0.0;
        lock(&self.inner.staging).download(at.address, 8, |bytes| {
            out = bytes.first_chunk().map_or(f64::NAN, |b| f64::from_ne_bytes(*b));
        })?;
        Ok(out)
    }

    fn check(&self, op: &'static str, arg: &'static str, at: usize, len: usize, have: usize) -> Result<()> {
        if at.checked_add(len).is_some_and(|end| end <= have) {
            return Ok(());
        }
        Err(Error::Shape { op, arg, shape: format!("[{len}] from {at}"), want: at.saturating_add(len), got: have })
    }
}

/// Between storage types, and constants.
const CAST: Source = Source { file: "cast", text: include_str!("../../../kernels/cast.cu") };
const NARROW: Kernel = CAST.kernel("narrow");
const WIDEN: Kernel = CAST.kernel("widen");
const FILL: Kernel = CAST.kernel("fill");
const SPLIT: Kernel = CAST.kernel("split");

impl Cuda {
    /// y = x with x in full and y stored as `store`; both of `len` numbers.
    ///
    /// # Safety
    /// Both ranges lie inside their buffers.
    pub(crate) unsafe fn narrow(&self, x: Pointer, y: Pointer, store: Store, len: usize) -> Result<()> {
        // SAFETY: the caller's promise; the order of arguments is that of kernels/cast.cu.
        unsafe { self.launch(NARROW, store, Grid::elements(len), (y, x, int(len))) }
    }

    /// y [rows, 3 width] from x [rows, width] in full: hi and lo parts stored as `store`, for a product along 3 width whose
    /// other factor was made with the opposite `other`.
    ///
    /// # Safety
    /// Both ranges lie inside their buffers.
    pub(crate) unsafe fn split(
        &self,
        x: Pointer,
        y: Pointer,
        store: Store,
        size: [usize; 2],
        other: bool,
    ) -> Result<()> {
        let ([rows, width], other) = (size, int(usize::from(other)));
        let args = (y, x, int(width), int(rows * width), other);
        // SAFETY: the caller's promise; the order of arguments is that of kernels/cast.cu.
        unsafe { self.launch(SPLIT, store, Grid::elements(rows * width), args) }
    }
}

impl Device for Cuda {
    type Tensor = Tensor;
    type Mask = Mask;
    type Recording = Recordings;

    fn name(&self) -> String {
        self.inner.core.name.clone()
    }

    fn precision(&self) -> Precision {
        self.inner.precision
    }

    /// One: the GPU itself is the pool.
    fn shards(&self, _: usize) -> usize {
        1
    }

    #[cfg(feature = "nccl")]
    fn place(&self) -> (usize, usize) {
        self.inner.place.get().map_or((0, 1), |p| (p.rank, p.ranks))
    }

    #[cfg(feature = "nccl")]
    fn leave_group(&self) {
        if let Some(place) = self.inner.place.get() {
            place.meeting.fail();
        }
    }

    #[cfg(feature = "nccl")]
    fn all_reduce(&self, of: ViewMut<'_, Tensor>) -> Result<()> {
        self.check("all_reduce", "of", of.at, of.len, of.buf.len)?;
        match self.inner.place.get() {
            // SAFETY: the range was checked above.
            Some(place) => unsafe { place.all_reduce(full(&of), of.len) },
            None => Ok(()),
        }
    }

    fn repeat(&self, recording: &mut Recordings, key: Key, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.repeat_work(recording, key, work)
    }

    fn zeros(&self, len: usize, kind: Kind) -> Result<Tensor> {
        let store = match kind {
            Kind::Full => Store::F32,
            Kind::Small => self.inner.precision.into(),
        };
        Ok(Tensor { buffer: self.inner.core.alloc(len * store.bytes())?, store, len })
    }

    fn zero_mask(&self, len: usize) -> Result<Mask> {
        Ok(Mask { buffer: self.inner.core.alloc(len)?, len })
    }

    fn len(&self, tensor: &Tensor) -> usize {
        tensor.len
    }

    fn upload(&self, from: &[f32], to: ViewMut<'_, Tensor>) -> Result<()> {
        self.check("upload", "to", to.at, to.len, to.buf.len)?;
        self.check("upload", "from", 0, to.len, from.len())?;
        self.check("upload", "to", 0, from.len(), to.len)?;
        let store = to.buf.store;
        lock(&self.inner.staging).upload(to.buf.address(to.at), from.len() * store.bytes(), |bytes| match store {
            Store::F32 => write(bytes, from, f32::to_ne_bytes),
            Store::Bf16 => write(bytes, from, |x| half::bf16::from_f32(x).to_ne_bytes()),
            Store::F16 => write(bytes, from, |x| half::f16::from_f32(x).to_ne_bytes()),
        })
    }

    fn download(&self, from: View<'_, Tensor>, to: &mut [f32]) -> Result<()> {
        self.check("download", "from", from.at, from.len, from.buf.len)?;
        self.check("download", "to", 0, from.len, to.len())?;
        self.check("download", "from", 0, to.len(), from.len)?;
        let store = from.buf.store;
        lock(&self.inner.staging).download(from.buf.address(from.at), to.len() * store.bytes(), |bytes| match store {
            Store::F32 => read(bytes, to, f32::from_ne_bytes),
            Store::Bf16 => read(bytes, to, |b| half::bf16::from_ne_bytes(b).to_f32()),
            Store::F16 => read(bytes, to, |b| half::f16::from_ne_bytes(b).to_f32()),
        })
    }

    fn upload_mask(&self, from: &[u8], to: &mut Mask) -> Result<()> {
        self.check("upload_mask", "to", 0, from.len(), to.len)?;
        lock(&self.inner.staging).upload(to.buffer.ptr, from.len(), |bytes| bytes.copy_from_slice(from))
    }

    fn copy(&self, from: View<'_, Tensor>, to: ViewMut<'_, Tensor>) -> Result<()> {
        self.check("copy", "from", from.at, from.len, from.buf.len)?;
        self.check("copy", "to", to.at, to.len, to.buf.len)?;
        if from.len != to.len {
            let shape = format!("[{}]", from.len);
            return Err(Error::Shape { op: "copy", arg: "to", shape, want: from.len, got: to.len });
        }
        let (a, b, grid) = (from.buf.store, to.buf.store, Grid::elements(from.len));
        // SAFETY: both ranges were checked above; the order of arguments is that of kernels/cast.cu.
        unsafe {
            match (a, b) {
                _ if a == b => self.copy_bytes(from.buf.address(from.at), to.buf.address(to.at), from.len * a.bytes()),
                (Store::F32, _) => self.narrow(full(&from), small(&to), b, from.len),
                _ => self.launch(WIDEN, a, grid, (full(&to), small(&from), int(from.len))),
            }
        }
    }

    fn fill(&self, to: ViewMut<'_, Tensor>, value: f32) -> Result<()> {
        self.check("fill", "to", to.at, to.len, to.buf.len)?;
        if to.len == 0 {
            return Ok(());
        }
        let store = to.buf.store;
        if value.to_bits() == 0 {
            return to.buf.buffer.zero(to.at * store.bytes(), to.len * store.bytes());
        }
        // SAFETY: the range was checked above; the order of arguments is that of kernels/cast.cu.
        unsafe { self.launch(FILL, store, Grid::elements(to.len), (small(&to), value, int(to.len))) }
    }
}

impl Cuda {
    /// # Safety
    /// Both ranges lie inside their buffers.
    unsafe fn copy_bytes(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        let core = &self.inner.core;
        core.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        core.count(|c| &c.moves);
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtod_async(to, from, bytes, core.raw_stream()) }.map_err(core.failed("copying"))
    }
}

/// Numbers as bytes in the device's order, which is the host's.
fn write<const N: usize>(bytes: &mut [u8], from: &[f32], to_bytes: impl Fn(f32) -> [u8; N]) {
    for (out, &x) in bytes.chunks_exact_mut(N).zip(from) {
        out.copy_from_slice(&to_bytes(x));
    }
}

/// As [`write`], back.
fn read<const N: usize>(bytes: &[u8], to: &mut [f32], from_bytes: impl Fn([u8; N]) -> f32) {
    for (x, &b) in to.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *x = from_bytes(b);
    }
}
