//! Kernels from source to function. A module is one file of `kernels/` compiled by NVRTC for one storage type; it is made
//! at the first launch of one of its kernels and kept. What NVRTC made is kept on disk too, under a name that depends on the
//! source, the options, NVRTC and the driver.

use std::collections::HashMap;
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::{result, sys};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use super::library::{said, version};
use super::memory::{Core, lock};
use super::tensor::Store;
use crate::error::{Error, Result};

/// What stands before every file: the storage types.
const COMMON: &str = include_str!("../../../kernels/common.cuh");
/// First line of a file of the cache.
const MAGIC: &str = "mamba-rl compiled kernel, format 1";

/// One file of `kernels/`.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its name without `.cu`.
    pub file: &'static str,
    /// Its text.
    pub text: &'static str,
}

impl Source {
    /// One of its kernels.
    pub const fn kernel(self, name: &'static str) -> Kernel {
        Kernel { source: self, name }
    }
}

/// A kernel: an `extern "C" __global__` function of a file.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Where it is.
    pub source: Source,
    /// Its name.
    pub name: &'static str,
}

/// A compiled file on the device.
struct Module {
    core: Arc<Core>,
    raw: sys::CUmodule,
    functions: HashMap<&'static str, sys::CUfunction>,
}

// SAFETY: handles of the driver may be used from any thread; the map is behind a lock.
unsafe impl Send for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        if self.core.ctx.bind_to_thread().is_ok() {
            // SAFETY: loaded once, unloaded once; nothing is launched after the device is dropped.
            let _ = unsafe { result::module::unload(self.raw) };
        }
    }
}

/// All modules of a device.
pub(super) struct Modules {
    /// `compute_90` and the like.
    arch: String,
    /// Driver's version as it numbers itself.
    driver: i32,
    /// (major, minor).
    nvrtc: (i32, i32),
    cache: Option<PathBuf>,
    loaded: Mutex<HashMap<(&'static str, Store), Module>>,
    compiled: AtomicUsize,
}

impl Modules {
    pub fn new(capability: (i32, i32), driver: i32, nvrtc: (i32, i32), cache: Option<PathBuf>) -> Self {
        let arch = format!("compute_{}{}", capability.0, capability.1);
        Modules { arch, driver, nvrtc, cache, loaded: Mutex::default(), compiled: AtomicUsize::new(0) }
    }

    /// Files that NVRTC compiled, rather than found on disk.
    pub fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    /// The function of a kernel.
    pub fn function(&self, core: &Arc<Core>, kernel: Kernel, store: Store) -> Result<sys::CUfunction> {
        let mut loaded = lock(&self.loaded);
        let key = (kernel.source.file, store);
        let module = match loaded.get_mut(&key) {
            Some(module) => module,
            None => {
                if core.recording() {
                    let problem = "must be loaded before a graph is recorded".to_owned();
                    return Err(Error::Kernel { kernel: kernel.name.into(), problem });
                }
                let module = self.load(core, kernel.source, store)?;
                loaded.entry(key).or_insert(module)
            }
        };
        if let Some(&function) = module.functions.get(kernel.name) {
            return Ok(function);
        }
        let failed = |problem| Error::Kernel { kernel: kernel.name.into(), problem };
        let name = CString::new(kernel.name).map_err(|e| failed(e.to_string()))?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(module.raw, name) }
            .map_err(|e| failed(format!("is not in kernels/{}.cu: {}", kernel.source.file, said(e))))?;
        module.functions.insert(kernel.name, function);
        Ok(function)
    }

    fn load(&self, core: &Arc<Core>, source: Source, store: Store) -> Result<Module> {
        let options = options(&self.arch, store);
        let text = text(source);
        let file = self.cache.as_ref().map(|folder| folder.join(self.cache_name(source, &options, &text)));
        let module = |raw| Module { core: core.clone(), raw, functions: HashMap::new() };
        if let Some(raw) = file.as_deref().and_then(read).and_then(|ptx| load_ptx(&ptx).ok()) {
            return Ok(module(raw));
        }
        let ptx = compile(source, text, options)?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let raw = load_ptx(&ptx).map_err(|e| self.refused(core, source, e))?;
        if let Some(Err(e)) = file.as_deref().map(|file| write(file, &ptx)) {
            say_once(&e);
        }
        Ok(module(raw))
    }

    /// File of the cache: everything that the compiled form depends on.
    fn cache_name(&self, source: Source, options: &[String], text: &str) -> String {
        let half = |salt: u8| {
            let mut h = DefaultHasher::new();
            (salt, text, options, self.driver, self.nvrtc).hash(&mut h);
            h.finish()
        };
        format!("{}-{:016x}{:016x}.ptx", source.file, half(1), half(2))
    }

    fn refused(&self, core: &Core, source: Source, e: result::DriverError) -> Error {
        use sys::CUresult::{CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION};
        let (driver, nvrtc) = (version(self.driver, 10), self.nvrtc);
        match e.0 {
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION => Error::Device {
                device: core.name.clone(),
                problem: format!(
                    "kernels/{}.cu: NVRTC {}.{} writes a PTX that the driver (CUDA {}.{}) does not know: update the driver or use an \
                     older NVRTC",
                    source.file, nvrtc.0, nvrtc.1, driver.0, driver.1
                ),
            },
            CUDA_ERROR_INVALID_PTX => {
                kernel_error(source, format!("the driver cannot read what NVRTC {}.{} wrote", nvrtc.0, nvrtc.1))
            }
            _ => kernel_error(source, format!("loading: {}", said(e))),
        }
    }
}

/// Options of NVRTC. No fast mathematics: exponents are exact to the last digits.
fn options(arch: &str, store: Store) -> Vec<String> {
    vec![format!("--gpu-architecture={arch}"), "--std=c++17".into(), format!("-DSTORE={}", store.name())]
}

/// The whole text that is compiled; errors name lines of the file itself.
fn text(source: Source) -> String {
    format!("#line 1 \"common.cuh\"\n{COMMON}\n#line 1 \"{}.cu\"\n{}", source.file, source.text)
}

fn kernel_error(source: Source, problem: String) -> Error {
    Error::Kernel { kernel: format!("kernels/{}.cu", source.file), problem }
}

fn compile(source: Source, text: String, options: Vec<String>) -> Result<String> {
    let asked = CompileOptions { options, name: Some(format!("{}.cu", source.file)), ..CompileOptions::default() };
    let ptx = compile_ptx_with_opts(text, asked).map_err(|e| match e {
        CompileError::CompileError { log, options, .. } => {
            let log = log.to_string_lossy();
            kernel_error(source, format!("NVRTC ({}): {}", options.join(" "), log.trim()))
        }
        e => kernel_error(source, format!("NVRTC: {e}")),
    })?;
    // the compiled form is text with one NUL at its end
    let bytes = ptx.as_bytes().unwrap_or_default();
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn load_ptx(ptx: &str) -> std::result::Result<sys::CUmodule, result::DriverError> {
    let invalid = result::DriverError(sys::CUresult::CUDA_ERROR_INVALID_PTX);
    let text = CString::new(ptx).map_err(|_| invalid)?;
    // SAFETY: `text` ends with NUL and is read before the call returns.
    unsafe { result::module::load_data(text.as_ptr().cast()) }
}

/// The folder for compiled kernels where the user names none: beside other programs' caches, none where there is no home.
pub fn default_cache() -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|h| !h.as_os_str().is_empty())?;
    Some(home.join(".cache").join("mamba-rl").join("kernels"))
}

/// A file of the cache, if it is whole.
fn read(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let (magic, rest) = text.split_once('\n')?;
    let (sum, ptx) = rest.split_once('\n')?;
    (magic == MAGIC && sum == checksum(ptx)).then(|| ptx.to_owned())
}

fn checksum(ptx: &str) -> String {
    format!("{:08x} {}", crc32fast::hash(ptx.as_bytes()), ptx.len())
}

/// Writes aside and renames, so that no reader sees half a file.
fn write(file: &Path, ptx: &str) -> Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| Error::io("creating", folder, e))?;
    let aside = file.with_extension(format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let done = std::fs::write(&aside, format!("{MAGIC}\n{}\n{ptx}", checksum(ptx)))
        .and_then(|()| std::fs::rename(&aside, file));
    done.map_err(|e| {
        let _ = std::fs::remove_file(&aside);
        Error::io("writing", file, e)
    })
}

/// A cache that cannot be written costs a second at each start: said once.
fn say_once(e: &Error) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| eprintln!("warning: compiled kernels are not kept: {e}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_cache_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep").join("k.ptx");
        assert_eq!(read(&file), None);
        write(&file, ".version 8.0\nbody\n").unwrap();
        assert_eq!(read(&file).as_deref(), Some(".version 8.0\nbody\n"));
        let whole = std::fs::read_to_string(&file).unwrap();
        for damaged in
            [whole.replace("body", "b0dy"), whole[..whole.len() - 2].to_owned(), whole.replace("format 1", "format 0")]
        {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file), None);
        }
    }

    #[test]
    fn an_unwritable_cache_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        let e = write(&blocked.join("k.ptx"), "x").unwrap_err();
        assert!(e.to_string().contains("file"), "{e}");
    }

    #[test]
    fn the_name_depends_on_everything_that_the_compiled_form_depends_on() {
        let source = Source { file: "a", text: "x" };
        let name = |m: &Modules, store, text: &str| m.cache_name(source, &options(&m.arch, store), text);
        let modules = |capability, driver, nvrtc| Modules::new(capability, driver, nvrtc, None);
        let (a, b) = (modules((8, 0), 12_080, (12, 8)), modules((9, 0), 12_080, (12, 8)));
        let (c, d) = (modules((8, 0), 12_090, (12, 8)), modules((8, 0), 12_080, (12, 9)));
        let names = [
            name(&a, Store::F32, "x"),
            name(&a, Store::Bf16, "x"),
            name(&a, Store::F32, "y"),
            name(&b, Store::F32, "x"),
            name(&c, Store::F32, "x"),
            name(&d, Store::F32, "x"),
        ];
        for (i, n) in names.iter().enumerate() {
            assert!(!names[..i].contains(n), "{names:?}");
        }
        assert_eq!(name(&a, Store::F32, "x"), names[0]);
    }
}
