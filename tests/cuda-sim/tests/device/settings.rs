//! What the settings change: devices, versions, planted failures. Each in a process of its own.

use crate::rig::simulated;
use crate::{child, rig};
use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUresult;

fn run(case: &str, environment: &[(&str, &str)]) -> child::Child {
    child::run("settings::one_setting", case, environment)
}

#[test]
fn settings_do_what_they_say() {
    if !simulated() {
        return println!("settings are the test device's");
    }
    run("none", &[("CUDA_SIM_DEVICES", "0")]);
    run("three", &[("CUDA_SIM_DEVICES", "3"), ("CUDA_SIM_COMPUTE", "86")]);
    run("old_driver", &[("CUDA_SIM_DRIVER", "12020")]);
    run("old_device", &[("CUDA_SIM_COMPUTE", "75")]);
    run("planted", &[("CUDA_SIM_FAIL", "cuMemAllocAsync:2:2")]);
    run("hardware", &[("CUDA_SIM", "0")]);
    let stats = run("stats", &[("CUDA_SIM_STATS", "1")]);
    assert!(stats.stderr.contains("cuda-sim: 1 launches"), "{}", stats.stderr);
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn one_setting() {
    let ctx = || {
        rig::simulated();
        CudaContext::new(0)
    };
    let load = || {
        let ctx = ctx().unwrap();
        let ptx = cudarc::nvrtc::compile_ptx_with_opts(
            "extern \"C\" __global__ void k(int* y) { y[0] = 1; }",
            cudarc::nvrtc::CompileOptions { arch: Some("compute_80"), ..Default::default() },
        );
        ctx.load_module(ptx.unwrap()).map(|m| (ctx, m))
    };
    match child::case().as_str() {
        "none" => assert_eq!(ctx().unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE),
        "three" => {
            assert_eq!(ctx().unwrap().compute_capability().unwrap(), (8, 6));
            assert_eq!(CudaContext::device_count().unwrap(), 3);
            assert!(CudaContext::new(2).is_ok());
            assert_eq!(CudaContext::new(3).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        "old_driver" => {
            let expected = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
            assert_eq!(load().map(|_| ()).unwrap_err().0, expected);
        }
        "old_device" => {
            assert_eq!(load().map(|_| ()).unwrap_err().0, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        }
        "planted" => {
            let s = ctx().unwrap().new_stream().unwrap();
            assert!(s.alloc_zeros::<f32>(1).is_ok());
            assert_eq!(s.alloc_zeros::<f32>(1).unwrap_err().0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            assert!(s.alloc_zeros::<f32>(1).is_ok());
        }
        "hardware" => assert!(!cuda_sim::available() && !cuda_sim::install()),
        "stats" => {
            use crate::rig::{config, launch};
            let before = cuda_sim::counts();
            let (ctx, m) = load().unwrap();
            let s = ctx.new_stream().unwrap();
            let mut y = s.alloc_zeros::<i32>(1).unwrap();
            launch!(s, m.load_function("k").unwrap(), config(1, 1, 0), &mut y).unwrap();
            assert_eq!(s.clone_dtoh(&y).unwrap(), [1]);
            let after = cuda_sim::counts();
            assert_eq!((after.launches - before.launches, after.threads - before.threads), (1, 1));
            assert!(after.accesses > before.accesses, "checked mode counts accesses");
        }
        other => panic!("no case {other}"),
    }
}
