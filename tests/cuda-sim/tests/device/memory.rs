//! Allocation, copies, recovery after a fault.

use crate::rig::{config, context, launch, module, simulated};
use crate::{child, rig};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, result};

#[test]
fn fresh_memory_is_not_zero() {
    if !simulated() {
        return println!("hardware leaves what was there");
    }
    let s = context().new_stream().unwrap();
    // SAFETY: the test device fills fresh memory, that is what is tested.
    let fresh = unsafe { s.alloc::<f32>(100) }.unwrap();
    assert!(s.clone_dtoh(&fresh).unwrap().iter().all(|v| v.is_nan()));
}

#[test]
fn copies_and_fills() {
    let s = context().new_stream().unwrap();
    let host: Vec<u32> = (0..1000).collect();
    let mut a = s.clone_htod(&host).unwrap();
    let b = s.clone_dtod(&a).unwrap();
    s.memset_zeros(&mut a.slice_mut(10..20)).unwrap();
    let got = s.clone_dtoh(&a).unwrap();
    assert!(got.iter().enumerate().all(|(i, v)| *v == if (10..20).contains(&i) { 0 } else { i as u32 }));
    assert_eq!(s.clone_dtoh(&b.slice(990..)).unwrap(), host[990..]);
}

#[test]
fn ranges_of_copies_are_checked() {
    if !simulated() {
        return println!("hardware checks less");
    }
    use cudarc::driver::DevicePtr as _;
    let s = context().new_stream().unwrap();
    let a = s.alloc_zeros::<f32>(100).unwrap();
    let (at, mut host) = (a.device_ptr(&s).0, [0.0f32; 8]);
    // SAFETY: the device refuses what lies outside.
    let copied = |from: u64, host: &mut [f32]| unsafe { result::memcpy_dtoh_async(host, from, s.cu_stream()) };
    assert!(copied(at + 92 * 4, &mut host).is_ok());
    assert_eq!(copied(at + 93 * 4, &mut host).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert!(copied(0x100, &mut host).is_err());
    assert!(result_of_zero_bytes(&s).is_err());
}

fn result_of_zero_bytes(s: &std::sync::Arc<cudarc::driver::CudaStream>) -> Result<(), cudarc::driver::DriverError> {
    // SAFETY: nothing is read.
    unsafe { s.alloc::<f32>(0) }.map(|_| ())
}

/// Memory that a test does not drop shows: bytes in use come back to where they were.
#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn accounting() {
    assert_eq!(child::case(), "accounting");
    let ctx = rig::context();
    let s = ctx.new_stream().unwrap();
    let before = cuda_sim::used_bytes(0);
    let a = s.alloc_zeros::<f32>(1000).unwrap();
    assert_eq!(cuda_sim::used_bytes(0), before + 4000);
    let (free, total) = ctx.mem_get_info().unwrap();
    assert_eq!((total, free), (1 << 20, (1 << 20) - before - 4000));
    // SAFETY: never read.
    let refused = unsafe { s.alloc::<u8>(free + 1) };
    assert_eq!(refused.unwrap_err().0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    // SAFETY: never read.
    let all = unsafe { s.alloc::<u8>(free) }.unwrap();
    drop((a, all));
    s.synchronize().unwrap();
    assert_eq!(cuda_sim::used_bytes(0), before);
}

#[test]
fn memory_runs_out_where_the_setting_says() {
    if !simulated() {
        return println!("the size of the device is a setting of the test device");
    }
    child::run("memory::accounting", "accounting", &[("CUDA_SIM_MEMORY", "1M")]);
    child::run("memory::accounting", "accounting", &[("CUDA_SIM_MEMORY", "1M"), ("CUDA_SIM_POOLS", "0")]);
}

/// A fault is sticky for the context, as on hardware, until the last owner of the context lets go.
#[test]
fn a_fault_is_sticky_until_the_context_goes() {
    if !simulated() {
        return println!("a fault on hardware needs a new process");
    }
    child::run("memory::recovery", "recovery", &[]);
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn recovery() {
    assert_eq!(child::case(), "recovery");
    let n = 64i32;
    for _ in 0..2 {
        let ctx = rig::context();
        let s = ctx.new_stream().unwrap();
        let f = module(&ctx, "wrong.cu", include_str!("wrong.cu")).load_function("write_past_the_end").unwrap();
        let mut y = s.alloc_zeros::<f32>(64).unwrap();
        launch!(s, f, config(1, 64, 0), &mut y, &n).unwrap();
        assert!(s.synchronize().is_ok(), "64 threads write 64 elements");
        let _ = launch!(s, f, config(1, 128, 0), &mut y, &n);
        let sticky = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
        assert_eq!(s.synchronize().unwrap_err().0, sticky);
        assert_eq!(s.alloc_zeros::<f32>(1).unwrap_err().0, sticky);
        assert!(cuda_sim::last_report().contains("write_past_the_end"));
        let other = CudaContext::new(1).unwrap();
        assert!(other.default_stream().alloc_zeros::<f32>(4).is_ok(), "the other device is well");
    }
}
