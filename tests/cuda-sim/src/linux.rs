//! glibc answers `dlopen("libcuda.so")` with an object that is loaded already and has that SONAME, without searching. So
//! it is enough to open the stand-ins by their paths first, and never to close them.

use crate::{Counts, available, library_dir};
use libloading::Library;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// The driver's library, which the others use.
fn driver() -> &'static Library {
    static DRIVER: OnceLock<Library> = OnceLock::new();
    DRIVER.get_or_init(|| open("cuda"))
}

fn open(name: &str) -> Library {
    let path = library_dir().join(format!("lib{name}.so"));
    // SAFETY: the stand-ins' initialisers only set up their own statics.
    unsafe { Library::new(&path) }.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A function of the driver's library, called with `with`.
fn call<F: Copy, R>(name: &str, with: impl FnOnce(F) -> R) -> R {
    // SAFETY: every caller below gives the type that sim/driver declares for that name.
    let function = unsafe { driver().get::<F>(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"));
    with(*function)
}

pub fn install() -> bool {
    static REST: OnceLock<Vec<Library>> = OnceLock::new();
    if !available() {
        return false;
    }
    driver();
    REST.get_or_init(|| ["nvrtc", "cublas", "nccl"].map(open).into());
    true
}

pub fn set(name: &str, value: &str) {
    let (name, value) = (CString::new(name).expect("no NUL"), CString::new(value).expect("no NUL"));
    call("cuda_sim_set", |f: unsafe extern "C" fn(*const c_char, *const c_char)| {
        // SAFETY: two C strings, copied by the callee.
        unsafe { f(name.as_ptr(), value.as_ptr()) }
    });
}

pub fn last_report() -> String {
    let mut out = vec![0u8; 4096];
    let n = call("cuda_sim_report", |f: unsafe extern "C" fn(*mut u8, usize) -> usize| {
        // SAFETY: the callee writes at most the capacity.
        unsafe { f(out.as_mut_ptr(), out.len()) }
    });
    String::from_utf8_lossy(&out[..n.min(out.len() - 1)]).into_owned()
}

pub fn counts() -> Counts {
    let mut out = Counts::default();
    call("cuda_sim_counts", |f: unsafe extern "C" fn(*mut Counts)| {
        // SAFETY: `Counts` has the fields of the callee's struct in its order.
        unsafe { f(&mut out) }
    });
    out
}

pub fn used_bytes(device: usize) -> usize {
    let device = i32::try_from(device).expect("a device ordinal");
    call("cuda_sim_used", |f: unsafe extern "C" fn(i32) -> usize| {
        // SAFETY: a plain number in, a plain number out.
        unsafe { f(device) }
    })
}
