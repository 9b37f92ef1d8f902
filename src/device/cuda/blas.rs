//! Matrix products by cuBLAS. Ours are row-major; a row-major matrix is the transpose of the column-major one with the same
//! memory, so out = a b is asked for as outᵀ = bᵀ aᵀ. f32 is exact (no TF32) unless asked otherwise; 16-bit operands are
//! summed in f32.

use std::sync::Arc;

use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys;

use super::Cuda;
use super::memory::{Buffer, Core};
use super::tensor::{Pointer, Store};
use crate::error::{Error, Result};

/// Working memory of cuBLAS in bytes: given by us, so that a recorded product allocates nothing. The size that its
/// documentation advises for Hopper.
const WORKSPACE: usize = 32 << 20;

/// The library's handle with its working memory.
pub(super) struct Blas {
    core: Arc<Core>,
    handle: sys::cublasHandle_t,
    tf32: bool,
    _workspace: Buffer,
}

// SAFETY: every call goes to one stream in the order of the calls; cuBLAS allows a handle to change threads.
unsafe impl Send for Blas {}
// SAFETY: as above; calls do not change the handle.
unsafe impl Sync for Blas {}

fn failed(core: &Core, doing: &str, e: CublasError) -> Error {
    Error::Driver { device: core.name.clone(), doing: format!("cuBLAS: {doing}"), problem: format!("{:?}", e.0) }
}

impl Blas {
    pub fn new(core: &Arc<Core>, tf32: bool) -> Result<Self> {
        core.enter()?;
        let workspace = core.alloc(WORKSPACE)?;
        let handle = result::create_handle().map_err(|e| failed(core, "starting", e))?;
        let blas = Blas { core: core.clone(), handle, tf32, _workspace: workspace };
        // a sum of 16-bit products must not be rounded to 16 bits half way
        let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: handle, stream and working memory live as long as `blas`.
        unsafe {
            result::set_stream(handle, core.raw_stream().cast()).map_err(|e| failed(core, "choosing the stream", e))?;
            let memory = blas._workspace.ptr as *mut std::ffi::c_void;
            sys::cublasSetWorkspace_v2(handle, memory, WORKSPACE)
                .result()
                .map_err(|e| failed(core, "giving working memory", e))?;
            sys::cublasSetMathMode(handle, mode).result().map_err(|e| failed(core, "choosing the mode", e))?;
        }
        Ok(blas)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.core.ctx.bind_to_thread().is_ok() {
            // SAFETY: made by `new`, destroyed once.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

/// A row-major matrix in device memory, or its transpose.
#[derive(Debug, Clone, Copy)]
pub struct Mat {
    at: Pointer,
    rows: usize,
    cols: usize,
    stride: usize,
    transposed: bool,
}

impl Mat {
    /// `rows` rows of `cols` numbers, one after the other.
    pub fn new(at: Pointer, rows: usize, cols: usize) -> Self {
        Mat { at, rows, cols, stride: cols, transposed: false }
    }

    /// The same with rows `stride` apart.
    pub fn stride(self, stride: usize) -> Self {
        Mat { stride, ..self }
    }

    /// Its transpose: the same memory.
    pub fn t(self) -> Self {
        Mat { transposed: !self.transposed, ..self }
    }

    /// (rows, columns) as a factor.
    fn size(self) -> (usize, usize) {
        if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    /// How cuBLAS sees it as a factor of the transposed product.
    fn operation(self) -> sys::cublasOperation_t {
        match self.transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        }
    }
}

fn data_type(store: Store) -> sys::cudaDataType {
    match store {
        Store::F32 => sys::cudaDataType::CUDA_R_32F,
        Store::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        Store::F16 => sys::cudaDataType::CUDA_R_16F,
    }
}

impl Cuda {
    /// out = a b, or out += a b where `add`; out [m, n], a [m, k], b [k, n]. a and b are stored alike, out as they are or
    /// in full.
    ///
    /// # Errors
    /// `Shape` when the sizes do not fit; `Driver` when cuBLAS refuses.
    ///
    /// # Safety
    /// The matrices lie inside their buffers, and out overlaps neither factor.
    pub(crate) unsafe fn gemm(&self, out: Mat, a: Mat, b: Mat, add: bool) -> Result<()> {
        let core = &self.inner.core;
        core.enter()?;
        let ((m, k), n) = (a.size(), b.size().1);
        for (arg, want, got) in [("b", k, b.size().0), ("out", m, out.size().0), ("out", n, out.size().1)] {
            if want != got {
                return Err(Error::Shape { op: "gemm", arg, shape: format!("[m {m}, k {k}, n {n}]"), want, got });
            }
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        let refuse =
            |problem: String| Error::Driver { device: core.name.clone(), doing: "cuBLAS: a product".into(), problem };
        let size = |x: usize| i32::try_from(x).map_err(|_| refuse(format!("a size of {x} is over {}", i32::MAX)));
        let (one, old) = (1.0f32, if add { 1.0f32 } else { 0.0 });
        let compute = match self.inner.blas.tf32 && a.at.store == Store::F32 {
            true => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        core.count(|c| &c.products);
        // SAFETY: the caller's promise for the matrices; the factors' numbers are read before the call returns.
        unsafe {
            result::gemm_ex(
                self.inner.blas.handle,
                b.operation(),
                a.operation(),
                size(n)?,
                size(m)?,
                size(k)?,
                std::ptr::from_ref(&one).cast(),
                b.at.address as *const std::ffi::c_void,
                data_type(b.at.store),
                size(b.stride)?,
                a.at.address as *const std::ffi::c_void,
                data_type(a.at.store),
                size(a.stride)?,
                std::ptr::from_ref(&old).cast(),
                out.at.address as *mut std::ffi::c_void,
                data_type(out.at.store),
                size(out.stride)?,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(|e| refuse(format!("[{m}, {k}] by [{k}, {n}]: {:?}", e.0)))
    }
}
