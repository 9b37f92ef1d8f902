//! The cuBLAS stand-in against plain Rust: every layout and storage type, scalars on the host and on the device, batches,
//! vectors, and the products that must be refused.

use crate::rig::{close, context, numbers, simulated};
use cudarc::cublas::sys::{cublasComputeType_t, cublasMath_t, cublasOperation_t, cudaDataType_t};
use cudarc::cublas::{
    Asum, AsumConfig, CudaBlas, Gemm, GemmConfig, Gemv, GemvConfig, StridedBatchedConfig, result, sys,
};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use half::{bf16, f16};
use std::ffi::c_void;
use std::sync::Arc;

const N: cublasOperation_t = cublasOperation_t::CUBLAS_OP_N;
const T: cublasOperation_t = cublasOperation_t::CUBLAS_OP_T;
const SIZE: (usize, usize, usize) = (5, 7, 11); // m, n, k: column-major C is m x n

/// alpha op(A) op(B) + beta C, all column-major with tight leading dimensions, in f64.
fn reference(ta: bool, tb: bool, a: &[f32], b: &[f32], c: &[f32], alpha: f32, beta: f32) -> Vec<f32> {
    let (m, n, k) = SIZE;
    let mut out = vec![0.0; m * n];
    for (j, i) in (0..n).flat_map(|j| (0..m).map(move |i| (j, i))) {
        let at = |p: usize| f64::from(if ta { a[i * k + p] } else { a[p * m + i] });
        let bt = |p: usize| f64::from(if tb { b[p * n + j] } else { b[j * k + p] });
        let sum: f64 = (0..k).map(|p| at(p) * bt(p)).sum();
        let before = if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(c[j * m + i]) };
        out[j * m + i] = (f64::from(alpha) * sum + before) as f32;
    }
    out
}

fn config<S>(ta: bool, tb: bool, alpha: S, beta: S) -> GemmConfig<S> {
    let (m, n, k) = SIZE;
    GemmConfig {
        transa: if ta { T } else { N },
        transb: if tb { T } else { N },
        m: m as i32,
        n: n as i32,
        k: k as i32,
        alpha,
        lda: if ta { k } else { m } as i32,
        ldb: if tb { n } else { k } as i32,
        beta,
        ldc: m as i32,
    }
}

fn operands() -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let (m, n, k) = SIZE;
    (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3))
}

fn blas() -> (Arc<CudaStream>, CudaBlas) {
    let stream = context().new_stream().unwrap();
    (stream.clone(), CudaBlas::new(stream).unwrap())
}

const LAYOUTS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn every_layout_in_f32() {
    let (s, blas) = blas();
    let (a, b, c) = operands();
    let (da, db) = (s.clone_htod(&a).unwrap(), s.clone_htod(&b).unwrap());
    for (ta, tb) in LAYOUTS {
        for (alpha, beta) in [(1.0, 0.0), (0.5, 1.0), (1.0, -2.0)] {
            let mut dc = s.clone_htod(&c).unwrap();
            // SAFETY: the operands have the sizes of the configuration.
            unsafe { blas.gemm(config(ta, tb, alpha, beta), &da, &db, &mut dc) }.unwrap();
            close(&s.clone_dtoh(&dc).unwrap(), &reference(ta, tb, &a, &b, &c, alpha, beta), 1e-6);
        }
    }
}

#[test]
fn beta_of_zero_does_not_read() {
    let (s, blas) = blas();
    let (a, b, c) = operands();
    let (da, db) = (s.clone_htod(&a).unwrap(), s.clone_htod(&b).unwrap());
    let mut dc = s.clone_htod(&vec![f32::NAN; c.len()]).unwrap();
    // SAFETY: the operands have the sizes of the configuration.
    unsafe { blas.gemm(config(false, false, 1.0, 0.0), &da, &db, &mut dc) }.unwrap();
    close(&s.clone_dtoh(&dc).unwrap(), &reference(false, false, &a, &b, &c, 1.0, 0.0), 1e-6);
}

/// cublasGemmEx with 16-bit operands into `kind` of output.
fn gemm_ex(s: &Arc<CudaStream>, blas: &CudaBlas, types: [cudaDataType_t; 2], a: u64, b: u64, c: u64) -> bool {
    let (m, n, k) = SIZE;
    let (one, zero) = (1.0f32, 0.0f32);
    let pointer = |p: u64| p as *const c_void;
    s.context().bind_to_thread().unwrap();
    // SAFETY: the three buffers have the sizes of the shapes.
    let done = unsafe {
        result::gemm_ex(
            *blas.handle(),
            N,
            T,
            m as i32,
            n as i32,
            k as i32,
            (&raw const one).cast(),
            pointer(a),
            types[0],
            m as i32,
            pointer(b),
            types[0],
            n as i32,
            (&raw const zero).cast(),
            c as *mut c_void,
            types[1],
            m as i32,
            cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    };
    done.is_ok()
}

#[test]
fn small_types_accumulate_in_f32() {
    let (s, blas) = blas();
    let (a, b, c) = operands();
    let (out, f32_out) = (cudaDataType_t::CUDA_R_32F, c.len());
    let mut dc = s.alloc_zeros::<f32>(f32_out).unwrap();
    // operands rounded to the type first: what is left is f32 rounding alone
    macro_rules! check {
        ($t:ty, $kind:expr, $unit:expr) => {{
            let (ra, rb): (Vec<$t>, Vec<$t>) =
                (a.iter().map(|v| <$t>::from_f32(*v)).collect(), b.iter().map(|v| <$t>::from_f32(*v)).collect());
            let wide = |v: &[$t]| v.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
            let expected = reference(false, true, &wide(&ra), &wide(&rb), &c, 1.0, 0.0);
            let (da, db) = (s.clone_htod(&ra).unwrap(), s.clone_htod(&rb).unwrap());
            let (pa, pb) = (da.device_ptr(&s).0, db.device_ptr(&s).0);
            assert!(gemm_ex(&s, &blas, [$kind, out], pa, pb, dc.device_ptr_mut(&s).0));
            close(&s.clone_dtoh(&dc).unwrap(), &expected, 1e-6);
            let mut small: CudaSlice<$t> = s.clone_htod(&vec![<$t>::ZERO; c.len()]).unwrap();
            assert!(gemm_ex(&s, &blas, [$kind, $kind], pa, pb, small.device_ptr_mut(&s).0));
            close(&wide(&s.clone_dtoh(&small).unwrap()), &expected, $unit);
        }};
    }
    check!(f16, cudaDataType_t::CUDA_R_16F, 1e-3);
    check!(bf16, cudaDataType_t::CUDA_R_16BF, 8e-3);
}

/// The default is exact f32; tensor-core mode loses digits and must be asked for.
#[test]
fn tf32_only_where_asked() {
    let (s, blas) = blas();
    let (a, b, c) = operands();
    let (da, db, mut dc) =
        (s.clone_htod(&a).unwrap(), s.clone_htod(&b).unwrap(), s.alloc_zeros::<f32>(c.len()).unwrap());
    let expected = reference(false, false, &a, &b, &c, 1.0, 0.0);
    let mut worst = |mode| {
        // SAFETY: a live handle; the operands have the sizes of the configuration.
        unsafe {
            sys::cublasSetMathMode(*blas.handle(), mode).result().unwrap();
            blas.gemm(config(false, false, 1.0, 0.0), &da, &db, &mut dc).unwrap();
        }
        let got = s.clone_dtoh(&dc).unwrap();
        got.iter().zip(&expected).map(|(g, e)| (g - e).abs()).fold(0.0f32, f32::max)
    };
    assert!(worst(cublasMath_t::CUBLAS_DEFAULT_MATH) < 1e-6);
    let rounded = worst(cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH);
    assert!((1e-5..1e-2).contains(&rounded), "{rounded}");
    assert!(worst(cublasMath_t::CUBLAS_PEDANTIC_MATH) < 1e-6);
}

#[test]
fn batches_and_vectors() {
    let (s, blas) = blas();
    let (m, n, k) = SIZE;
    let (a, b) = (numbers(3 * m * k, 4), numbers(3 * k * n, 5));
    let (da, db, mut dc) =
        (s.clone_htod(&a).unwrap(), s.clone_htod(&b).unwrap(), s.alloc_zeros::<f32>(3 * m * n).unwrap());
    let batch = StridedBatchedConfig {
        gemm: config(true, false, 1.0, 0.0),
        batch_size: 3,
        stride_a: (m * k) as i64,
        stride_b: (k * n) as i64,
        stride_c: (m * n) as i64,
    };
    // SAFETY: the operands have three times the sizes of the configuration.
    unsafe { blas.gemm_strided_batched(batch, &da, &db, &mut dc) }.unwrap();
    let got = s.clone_dtoh(&dc).unwrap();
    for i in 0..3 {
        let (a, b) = (&a[i * m * k..][..m * k], &b[i * k * n..][..k * n]);
        close(&got[i * m * n..][..m * n], &reference(true, false, a, b, &[], 1.0, 0.0), 1e-6);
    }
    // y = A x with A of 5 x 11 column-major, and with its transpose
    for (trans, rows, cols) in [(N, m, k), (T, k, m)] {
        let x = numbers(cols, 6);
        let (dx, mut dy) = (s.clone_htod(&x).unwrap(), s.clone_htod(&vec![1.0f32; rows]).unwrap());
        let (one, two) = (1.0, 2.0);
        let cfg =
            GemvConfig { trans, m: m as i32, n: k as i32, alpha: two, lda: m as i32, incx: 1, beta: one, incy: 1 };
        // SAFETY: the operands have the sizes of the configuration.
        unsafe { blas.gemv(cfg, &da, &dx, &mut dy) }.unwrap();
        let entry = |r: usize, c: usize| if trans == N { a[c * m + r] } else { a[r * m + c] };
        let expected: Vec<f32> =
            (0..rows).map(|r| 1.0 + 2.0 * (0..cols).map(|c| entry(r, c) * x[c]).sum::<f32>()).collect();
        close(&s.clone_dtoh(&dy).unwrap(), &expected, 1e-5);
    }
    let mut sum = 0.0f32;
    // SAFETY: `n` elements are there.
    unsafe { blas.asum(AsumConfig { n: (m * k) as i32, incx: 1 }, &da, &mut sum) }.unwrap();
    close(&[sum], &[a[..m * k].iter().map(|v| v.abs()).sum()], 1e-5);
}

#[test]
fn wrong_products_are_refused() {
    if !simulated() {
        return println!("cuBLAS does not check operands");
    }
    let (s, blas) = blas();
    let (a, b, c) = operands();
    let (da, db, mut dc) =
        (s.clone_htod(&a).unwrap(), s.clone_htod(&b).unwrap(), s.alloc_zeros::<f32>(c.len()).unwrap());
    let good = config(false, false, 1.0f32, 0.0);
    let mut refused = |cfg: GemmConfig<f32>, reason: &str| {
        // SAFETY: the device checks every operand before it reads.
        assert!(unsafe { blas.gemm(cfg, &da, &db, &mut dc) }.is_err());
        let report = cuda_sim::last_report();
        assert!(report.contains(reason), "{report}");
    };
    refused(GemmConfig { k: 22, ldb: 22, ..good }, "operand A needs");
    refused(GemmConfig { n: 8, ..good }, "operand B needs");
    refused(GemmConfig { ldc: 6, ..good }, "operand C needs");
    refused(GemmConfig { lda: 4, ..good }, "bad shape");
    let types = [cudaDataType_t::CUDA_R_16F, cudaDataType_t::CUDA_R_16BF];
    assert!(!gemm_ex(&s, &blas, types, da.device_ptr(&s).0, db.device_ptr(&s).0, dc.device_ptr_mut(&s).0));
    assert!(cuda_sim::last_report().contains("not a combination"));
}
