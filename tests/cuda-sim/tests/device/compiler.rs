//! The NVRTC stand-in: options, logs, the cache, and the forms of shared memory, variables and kernels that it rewrites.

use crate::rig::{config, context, launch, simulated};
use crate::{child, rig};
use cudarc::driver::{CudaContext, DeviceRepr, DriverError, ValidAsZeroBits};
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx, compile_ptx_with_opts};
use std::sync::Arc;

/// Runs kernel `k` on one buffer.
fn run<T: Clone + DeviceRepr + ValidAsZeroBits>(source: &str, grid: u32, block: u32, shared: u32, y: &[T]) -> Vec<T> {
    let ctx = context();
    let s = ctx.new_stream().unwrap();
    let f = ctx.load_module(compile_ptx(source).unwrap_or_else(|e| panic!("{e}"))).unwrap().load_function("k").unwrap();
    let mut buffer = s.clone_htod(y).unwrap();
    launch!(s, f, config(grid, block, shared), &mut buffer).unwrap();
    s.clone_dtoh(&buffer).unwrap()
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

fn reversed(n: usize) -> Vec<f32> {
    (0..n).rev().map(|i| i as f32).collect()
}

/// Dynamic shared memory at namespace scope, in a function, with alignment and volatile, in a template, by a macro.
#[test]
fn forms_of_dynamic_shared_memory() {
    let body = "s[threadIdx.x] = y[threadIdx.x]; __syncthreads(); y[threadIdx.x] = s[63 - threadIdx.x];";
    for source in [
        format!("extern __shared__ float s[]; extern \"C\" __global__ void k(float* y) {{ {body} }}"),
        format!("extern \"C\" __global__ void k(float* y) {{ extern __shared__ float s[]; {body} }}"),
        format!("extern \"C\" __global__ void k(float* y) {{ extern __shared__ __align__(16) float s[]; {body} }}"),
        format!(
            "extern \"C\" __global__ void k(float* y) {{ extern __align__(16) __shared__ volatile float s[]; {body} }}"
        ),
        format!(
            "template <class T> __device__ void f(T* y) {{ extern __shared__ alignas(16) unsigned char raw[]; T* s = \
             reinterpret_cast<T*>(raw); {body} }} extern \"C\" __global__ void k(float* y) {{ f<float>(y); }}"
        ),
        format!(
            "#define KERNEL(T, NAME) extern \"C\" __global__ void NAME(T* y) {{ extern __shared__ T s[]; {body} }}\n\
             KERNEL(float, k)"
        ),
    ] {
        assert_eq!(run(&source, 1, 64, 256, &ramp(64)), reversed(64), "{source}");
    }
}

#[test]
fn forms_of_static_shared_memory() {
    // two instances of a template have two arrays, and two arrays in one declaration are two
    let source = "template <int N> __device__ float f(float x) { __shared__ float s[N], t[N]; s[threadIdx.x] = x; \
                  t[threadIdx.x] = -x; __syncthreads(); float r = s[N - 1 - threadIdx.x] + t[0]; __syncthreads(); \
                  return r; } extern \"C\" __global__ void k(float* y) { float a = f<32>(y[threadIdx.x]); \
                  y[threadIdx.x] = a + f<64>(0.0f) * 0.0f; }";
    let source = source.replace("f<64>(0.0f) * 0.0f", "(threadIdx.x < 32 ? 0.0f : 1.0f)");
    assert_eq!(run(&source, 1, 32, 0, &ramp(32)), reversed(32));
    let two_dimensions = "extern \"C\" __global__ void k(float* y) { __shared__ float t[8][9]; \
                          t[threadIdx.x / 8][threadIdx.x % 8] = y[threadIdx.x]; __syncthreads(); \
                          y[threadIdx.x] = t[threadIdx.x % 8][threadIdx.x / 8]; }";
    let transposed: Vec<f32> = (0..64).map(|i| (i % 8 * 8 + i / 8) as f32).collect();
    assert_eq!(run(two_dimensions, 1, 64, 0, &ramp(64)), transposed);
}

#[test]
fn variables_constants_and_vectors() {
    let counter = "__device__ int n; __device__ int from = 10; extern \"C\" __global__ void k(int* y) \
                   { y[blockIdx.x] = from + atomicAdd(&n, 1); }";
    assert_eq!(run(counter, 5, 1, 0, &[0i32; 5]), [10, 11, 12, 13, 14]);
    let table = "__constant__ float a[2] = {1, 2}; static __device__ const float b[2] = {3, 4}; \
                 __device__ constexpr int N = 2; extern \"C\" __global__ void k(float* y) \
                 { float4 v = reinterpret_cast<const float4*>(y)[threadIdx.x]; v.x += a[0]; v.w += b[1] * N; \
                 reinterpret_cast<float4*>(y)[threadIdx.x] = v; }";
    assert_eq!(run(table, 1, 2, 0, &[0f32; 8]), [1.0, 0.0, 0.0, 8.0, 1.0, 0.0, 0.0, 8.0]);
}

/// Kernels in an `extern "C"` block, with bounds before or after, made by macros, declared before they are defined.
#[test]
fn forms_of_kernels() {
    let ctx = context();
    let source = r#"
        #define THREADS 64
        extern "C" __global__ void declared(int* y);
        extern "C" {
        __global__ void __launch_bounds__(THREADS, 2) in_block(int* y) { if (!threadIdx.x) y[0] = 1; }
        __launch_bounds__(2 * THREADS) __global__ void bounds_first(int* y) { if (!threadIdx.x) y[0] = 2; }
        }
        extern "C" __global__ void declared(int* __restrict__ y) { y[0] = 3; }
        template <class T> __global__ void mangled(T* y) { y[0] = 4; }
        template __global__ void mangled<int>(int*);
        #define MAKE(N) extern "C" __global__ void made_##N(int* y, const int* const x, const float s) { y[0] = N; }
        MAKE(5) MAKE(6)
        static const char text[] = "extern \"C\" __global__ void quoted(int* y) {}"; // __global__ void comment() {}
        extern "C" __global__ void none() {}
    "#;
    let m = ctx.load_module(compile_ptx(source).unwrap_or_else(|e| panic!("{e}"))).unwrap();
    for name in ["declared", "in_block", "bounds_first", "made_5", "made_6", "none"] {
        assert!(m.load_function(name).is_ok(), "{name}");
    }
    for name in ["mangled", "quoted", "comment", "made_7"] {
        assert!(m.load_function(name).is_err(), "{name}");
    }
    let s = ctx.new_stream().unwrap();
    let mut y = s.alloc_zeros::<i32>(1).unwrap();
    for (name, threads, fits) in
        [("in_block", 64, true), ("in_block", 65, false), ("bounds_first", 128, true), ("bounds_first", 129, false)]
    {
        let f = m.load_function(name).unwrap();
        let launched = launch!(s, f, config(1, threads, 0), &mut y);
        assert_eq!(launched.is_ok(), fits, "{name} with {threads} threads");
    }
    assert_eq!(s.clone_dtoh(&y).unwrap(), [2]);
}

#[test]
fn errors_come_with_a_log() {
    context();
    let compile = |source: &str, options: CompileOptions| match compile_ptx_with_opts(source, options) {
        Err(CompileError::CompileError { log, .. }) => log.to_string_lossy().into_owned(),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("compiled: {source}"),
    };
    let named = || CompileOptions { name: Some("broken.cu".into()), ..Default::default() };
    let log = compile("extern \"C\" __global__ void k(float* y)\n{ y[0] = undefined_thing; }", named());
    assert!(log.contains("undefined_thing") && log.contains("broken.cu"), "{log}");
    if simulated() {
        assert!(log.contains("broken.cu:2"), "{log}");
    }
    // what NVRTC does not have without a header
    for missing in [
        "int32_t x;",
        "float x = INFINITY;",
        "uint x;",
        "#include <stdint.h>",
        "#include <cmath>",
        "__half x;",
        "auto f = std::min(1, 2);",
    ] {
        assert!(!compile(missing, named()).is_empty(), "{missing}");
    }
    for option in ["--nonsense", "--gpu-architecture=sm_12", "--std=c++98", "-O7"] {
        let log = compile("", CompileOptions { options: vec![option.into()], ..Default::default() });
        assert!(!log.is_empty(), "{option}");
    }
}

#[test]
fn options_that_nvrtc_knows() {
    let ctx = context();
    let options = CompileOptions {
        arch: Some("compute_80"),
        ftz: Some(false),
        prec_div: Some(true),
        maxrregcount: Some(64),
        options: ["--std=c++17", "-DVALUE=7", "--define-macro=TWO=2", "-lineinfo", "--use_fast_math"]
            .map(String::from)
            .into(),
        name: Some("options.cu".into()),
        ..Default::default()
    };
    let source = "static_assert(__CUDA_ARCH__ == 800 && __CUDACC_RTC__, \"\"); extern \"C\" __global__ void k(int* y) \
                  { y[0] = VALUE * TWO; }";
    let m = ctx.load_module(compile_ptx_with_opts(source, options).unwrap_or_else(|e| panic!("{e}"))).unwrap();
    let s = ctx.new_stream().unwrap();
    let mut y = s.alloc_zeros::<i32>(1).unwrap();
    launch!(s, m.load_function("k").unwrap(), config(1, 1, 0), &mut y).unwrap();
    assert_eq!(s.clone_dtoh(&y).unwrap(), [14]);
}

/// a * b + c in one rounding by default, in two with --fmad=false, as with nvcc.
#[test]
fn contraction_follows_the_option() {
    let ctx = context();
    let s = ctx.new_stream().unwrap();
    let source = "extern \"C\" __global__ void k(float* y) { y[3] = y[0] * y[1] + y[2]; }";
    let run = |fmad| {
        let options = CompileOptions { fmad: Some(fmad), ..Default::default() };
        let m = ctx.load_module(compile_ptx_with_opts(source, options).unwrap()).unwrap();
        let e = 2f32.powi(-13);
        let mut y = s.clone_htod(&[1.0 + e, 1.0 + e, -(1.0 + 2.0 * e), 0.0]).unwrap();
        launch!(s, m.load_function("k").unwrap(), config(1, 1, 0), &mut y).unwrap();
        s.clone_dtoh(&y).unwrap()[3]
    };
    assert_eq!(run(true), 2f32.powi(-26));
    assert_eq!(run(false), 0.0);
}

/// The text that stands for PTX needs nothing beside it; a damaged one is refused.
#[test]
fn a_module_is_text_and_guarded() {
    let ctx = context();
    let ptx = compile_ptx("extern \"C\" __global__ void k(int* y) { y[0] = 3; }").unwrap();
    let text = ptx.to_src();
    let load = |text: &str| ctx.load_module(Ptx::from_src(text)).map(|_| ()).map_err(|e: DriverError| e.0);
    assert_eq!(load(&text), Ok(()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    assert!(ctx.load_module(Ptx::from_file(file.path())).is_ok());
    let invalid = Err(cudarc::driver::sys::CUresult::CUDA_ERROR_INVALID_PTX);
    assert_eq!(load("garbage"), invalid);
    if simulated() {
        assert_eq!(load(&text[..text.len() / 2]), invalid);
        let body = text.find("// image").unwrap() + 200;
        let other = if &text[body..=body] == "A" { "B" } else { "A" };
        assert_eq!(load(&format!("{}{other}{}", &text[..body], &text[body + 1..])), invalid);
    }
}

/// A cold cache, then a warm one, then one that cannot be written to: the same kernel each time.
#[test]
fn the_cache_may_be_cold_warm_or_absent() {
    if !simulated() {
        return println!("the cache is the test device's");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let objects = || {
        let names = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.ends_with(".so")).count()
    };
    child::run("compiler::eight_threads", "cache", &[("CUDA_SIM_CACHE", path)]);
    assert_eq!(objects(), 1, "eight threads compiled one source");
    child::run("compiler::eight_threads", "cache", &[("CUDA_SIM_CACHE", path), ("CUDA_SIM_CXX", "g++")]);
    assert_eq!(objects(), 1, "the second process compiled nothing");
    child::run("compiler::no_compiler", "absent", &[("CUDA_SIM_CXX", "no-such-compiler")]);
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn eight_threads() {
    assert_eq!(child::case(), "cache");
    let source = "extern \"C\" __global__ void k(int* y) { y[threadIdx.x] += 1; }";
    rig::context();
    std::thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| assert_eq!(run(source, 1, 4, 0, &[1i32, 2, 3, 4]), [2, 3, 4, 5]))));
    });
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn no_compiler() {
    assert_eq!(child::case(), "absent");
    let _ctx: Arc<CudaContext> = context();
    let error = compile_ptx("extern \"C\" __global__ void k() {}").unwrap_err().to_string();
    assert!(error.contains("no-such-compiler"), "{error}");
}
