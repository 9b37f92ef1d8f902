//! What every test needs: a context on the device, a module from source, a launch in one line, numbers to feed it.

use cudarc::driver::{CudaContext, CudaModule, LaunchConfig};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use std::sync::Arc;

/// Is this the test device, and not real hardware?
pub fn simulated() -> bool {
    static READY: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *READY.get_or_init(|| {
        // two devices for the collectives; a child process may ask for other settings
        cuda_sim::set("DEVICES", &std::env::var("CUDA_SIM_DEVICES").unwrap_or("2".into()));
        cuda_sim::install()
    })
}

/// Device 0.
pub fn context() -> Arc<CudaContext> {
    simulated();
    let ctx = CudaContext::new(0).unwrap();
    // SAFETY: no buffer of these tests is used on two streams without an explicit wait.
    unsafe { ctx.disable_event_tracking() };
    ctx
}

/// Compiles for sm_80, where both the test device and today's hardware can run it.
pub fn module(ctx: &Arc<CudaContext>, name: &str, source: &str) -> Arc<CudaModule> {
    let options = CompileOptions {
        arch: Some("compute_80"),
        name: Some(name.into()),
        options: vec!["--std=c++17".into()],
        ..Default::default()
    };
    ctx.load_module(compile_ptx_with_opts(source, options).unwrap_or_else(|e| panic!("{e}"))).unwrap()
}

pub fn config(grid: u32, block: u32, shared: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (grid, 1, 1), block_dim: (block, 1, 1), shared_mem_bytes: shared }
}

/// `launch!(stream, function, config, arguments...)`, a `Result`.
macro_rules! launch {
    ($stream:expr, $function:expr, $config:expr, $($arg:expr),* $(,)?) => {{
        use cudarc::driver::PushKernelArg as _;
        // one expression, so that arguments may be temporaries
        // SAFETY: each test gives the parameters that its kernel declares; where not, that is what it tests.
        unsafe { $stream.launch_builder(&$function)$(.arg($arg))*.launch($config) }
    }};
}
pub(crate) use launch;

/// Numbers in [-1, 1), the same for the same seed.
pub fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut s = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 17;
        s ^= s << 5;
        s as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Equal up to `tolerance * (1 + |expected|)`.
#[track_caller]
pub fn close(got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len());
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance * (1.0 + e.abs()), "element {i}: {g}, expected {e}");
    }
}
