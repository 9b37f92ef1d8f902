//! Finding CUDA. The driver, NVRTC and cuBLAS are looked for at run time; a library that is missing, a driver that is too
//! old and a GPU that is not there are errors that say how to mend them. Nothing of `cudarc` may be called before
//! [`require`]: it panics where a library is absent.

use cudarc::driver::{result, sys};

use crate::error::{Error, Result};

/// Oldest driver that is used: its number is 1000 × major + 10 × minor of the CUDA version that it supports.
const OLDEST_DRIVER: i32 = 12_000;

/// A GPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The number N of `cuda:N`.
    pub ordinal: usize,
    /// The maker's name.
    pub name: String,
    /// Compute capability, (major, minor).
    pub capability: (i32, i32),
    /// Memory in bytes.
    pub memory: usize,
}

/// What this machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// CUDA version that the driver supports, (major, minor).
    pub driver: (i32, i32),
    /// Version of NVRTC.
    pub nvrtc: (i32, i32),
    /// All GPUs, by ordinal.
    pub gpus: Vec<Gpu>,
}

/// The GPUs that can be used.
///
/// # Errors
/// `Device` saying why there is none.
pub fn probe() -> Result<Found> {
    require("cuda")?;
    let driver = driver_version("cuda")?;
    let count = result::device::get_count().map_err(|e| refused("cuda", "counting GPUs", e))?;
    let gpus = (0..usize::try_from(count).unwrap_or(0)).map(describe).collect::<Result<_>>()?;
    Ok(Found { driver: version(driver, 10), nvrtc: nvrtc_version(), gpus })
}

/// The oldest driver in words.
pub fn required() -> String {
    let (major, minor) = version(OLDEST_DRIVER, 10);
    format!("a driver for CUDA {major}.{minor} or newer")
}

/// The driver works, is new enough and has a GPU; NVRTC and cuBLAS are there.
pub(super) fn require(device: &str) -> Result<()> {
    // SAFETY: these three only open and close a library by its name.
    let present = unsafe {
        [
            ("the NVIDIA driver (libcuda)", sys::is_culib_present()),
            ("NVRTC (libnvrtc)", cudarc::nvrtc::sys::is_culib_present()),
            ("cuBLAS (libcublas)", cudarc::cublas::sys::is_culib_present()),
        ]
    };
    if let Some((name, _)) = present.iter().find(|p| !p.1) {
        let mend = "install it or put its folder on the library path, or use --device cpu";
        let problem = format!("{name} was not found, {} is needed: {mend}", required());
        return Err(Error::Device { device: device.into(), problem });
    }
    result::init().map_err(|e| refused(device, "starting the driver", e))?;
    let found = driver_version(device)?;
    if found < OLDEST_DRIVER {
        let (major, minor) = version(found, 10);
        let problem = format!("the driver supports CUDA {major}.{minor}, {} is needed: update the driver", required());
        return Err(Error::Device { device: device.into(), problem });
    }
    Ok(())
}

/// The driver's number, see [`OLDEST_DRIVER`].
pub(super) fn driver_version(device: &str) -> Result<i32> {
    let mut found = 0;
    // SAFETY: the pointer is to a number of this frame.
    unsafe { sys::cuDriverGetVersion(&mut found).result() }
        .map_err(|e| refused(device, "asking for the driver's version", e))?;
    Ok(found)
}

/// (major, minor) of NVRTC; (0, 0) where it does not say.
pub(super) fn nvrtc_version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to numbers of this frame.
    match unsafe { cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor) } {
        cudarc::nvrtc::sys::nvrtcResult::NVRTC_SUCCESS => (major, minor),
        _ => (0, 0),
    }
}

/// (major, minor) of a number 1000 × major + `unit` × minor.
pub(super) fn version(number: i32, unit: i32) -> (i32, i32) {
    (number / 1000, number % 1000 / unit)
}

fn describe(ordinal: usize) -> Result<Gpu> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let device = format!("cuda:{ordinal}");
    let failed = |e| refused(&device, "describing the GPU", e);
    let handle = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX)).map_err(failed)?;
    // SAFETY: `handle` was just given by the driver.
    unsafe {
        Ok(Gpu {
            ordinal,
            name: result::device::get_name(handle).map_err(failed)?,
            capability: (
                result::device::get_attribute(handle, MAJOR).map_err(failed)?,
                result::device::get_attribute(handle, MINOR).map_err(failed)?,
            ),
            memory: result::device::total_mem(handle).map_err(failed)?,
        })
    }
}

/// A device that cannot be used at all.
pub(super) fn refused(device: &str, doing: &str, e: result::DriverError) -> Error {
    use sys::CUresult::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH};
    let problem = match e.0 {
        CUDA_ERROR_NO_DEVICE => "the driver finds no GPU; use --device cpu".to_owned(),
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the kernel's driver have different versions; restart the machine after a driver update"
                .to_owned()
        }
        _ => format!("{doing}: {}", said(e)),
    };
    Error::Device { device: device.into(), problem }
}

/// What the driver says of an error.
pub(super) fn said(e: result::DriverError) -> String {
    let words = e.error_string().ok().map(|s| s.to_string_lossy().into_owned());
    match words {
        Some(words) => format!("{:?}: {words}", e.0),
        None => format!("{:?}", e.0),
    }
}
