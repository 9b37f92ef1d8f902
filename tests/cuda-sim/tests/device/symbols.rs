//! A missing symbol panics at its first call, and aborts when that call is in a `drop`. So: every symbol that cudarc's
//! wrappers can call, and every one that this project calls by name, is in the stand-ins, or it is on a list with the
//! words that production code must then not use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Symbols that are not provided, and the names in `cudarc` that would need them.
const ABSENT: &[(&str, &[&str])] = &[
    // other contexts than a device's primary one
    (
        "cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2",
        &["new_non_primary", "new_cig", "from_raw_context", "ctx::create"],
    ),
    // managed memory
    (
        "cuMemAllocManaged cuMemPrefetchAsync cuMemPrefetchAsync_v2 cuMemAdvise cuMemAdvise_v2 cuStreamAttachMemAsync",
        &["alloc_unified", "UnifiedSlice", "malloc_managed", "mem_prefetch", "mem_advise"],
    ),
    (
        "cuImportExternalMemory cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer",
        &["external_memory", "ExternalMemory"],
    ),
    // pools of one's own
    (
        "cuMemPoolCreate cuMemPoolDestroy cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemPoolTrimTo cuMemAllocFromPoolAsync \
         cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool",
        &["mem_pool", "MemPool"],
    ),
    ("cuLaunchCooperativeKernel", &["launch_cooperative"]),
    (
        "cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize cuOccupancyAvailableDynamicSMemPerBlock \
         cuOccupancyMaxPotentialBlockSize",
        &["occupancy_max_active_clusters", "occupancy_max_potential_cluster", "occupancy_available_dynamic"],
    ),
    ("cuProfilerStart cuProfilerStop", &["profiler_start", "profiler_stop", "Profiler"]),
    ("cublasDasum_v2 cublasGemmGroupedBatchedEx", &["dasum", "gemm_grouped", "GroupedGemm"]),
    (
        "ncclSend ncclRecv ncclCommSplit ncclRedOpCreatePreMulSum ncclRedOpDestroy",
        &["nccl::result::send", "nccl::result::recv", "comm_split", "reduce_op_create"],
    ),
];

const LIBRARIES: [(&str, &str); 4] = [("cublas", "cublas"), ("nvrtc", "nvrtc"), ("nccl", "nccl"), ("cuda", "cu")];

/// `cuInit` and its like: a library's prefix, then a capital.
fn library_of(symbol: &str) -> Option<&'static str> {
    let capital = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase()) || rest.starts_with("Version");
    LIBRARIES.iter().find(|(_, prefix)| symbol.strip_prefix(prefix).is_some_and(capital)).map(|(library, _)| *library)
}

/// Names that are called in this text, comments left out, and look like symbols of CUDA.
fn called(text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text.lines().map(|l| l.split("//").next().unwrap_or_default()).collect();
    let (text, mut out) = (code.join("\n"), BTreeSet::new());
    for (at, _) in text.match_indices('(') {
        let name = text[..at].rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default();
        if library_of(name).is_some() {
            out.insert(name.to_owned());
        }
    }
    out
}

fn provided(symbol: &str) -> bool {
    let library = library_of(symbol).unwrap();
    let path = cuda_sim::library_dir().join(format!("lib{library}.so"));
    // SAFETY: the stand-ins' initialisers only set up their own statics; the symbol is looked up, not called.
    unsafe { libloading::Library::new(path).unwrap().get::<unsafe extern "C" fn()>(symbol.as_bytes()).is_ok() }
}

fn absent() -> BTreeSet<String> {
    ABSENT.iter().flat_map(|(symbols, _)| symbols.split_whitespace()).map(String::from).collect()
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn texts(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    rust_files(dir, &mut files);
    files.into_iter().map(|f| (f.clone(), std::fs::read_to_string(f).unwrap())).collect()
}

/// The folder of cudarc's sources, from cargo.
fn cudarc() -> PathBuf {
    // of this platform alone: crates for others may never have been fetched
    let host = Command::new("rustc").arg("-vV").output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|l| l.strip_prefix("host: ")).unwrap();
    let args = ["metadata", "--format-version", "1", "--offline", "--filter-platform", host];
    let metadata = Command::new(env!("CARGO")).args(args).output().unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let text = String::from_utf8(metadata.stdout).unwrap();
    let manifests = text.split("\"manifest_path\":\"").skip(1).filter_map(|t| t.split('"').next());
    let manifest = manifests.map(Path::new).find(|m| {
        let folder = m.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        folder.is_some_and(|n| n.starts_with("cudarc-"))
    });
    manifest.unwrap_or_else(|| panic!("cudarc is not in cargo's metadata")).parent().unwrap().join("src")
}

#[test]
fn what_cudarc_calls_is_there() {
    let root = cudarc();
    let absent = absent();
    let mut used = BTreeSet::new();
    for part in ["driver/result.rs", "nvrtc/result.rs", "cublas/result.rs", "nccl/result.rs"] {
        used.extend(called(&std::fs::read_to_string(root.join(part)).unwrap()));
    }
    for part in ["driver/safe", "cublas/safe"] {
        texts(&root.join(part)).iter().for_each(|(_, t)| used.extend(called(t)));
    }
    assert!(used.len() > 80 && used.contains("cuLaunchKernel") && used.contains("ncclAllReduce"), "{used:?}");
    let missing: Vec<_> = used.iter().filter(|s| !provided(s) && !absent.contains(*s)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let needless: Vec<_> = absent.iter().filter(|s| provided(s)).collect();
    assert!(needless.is_empty(), "provided, and listed as absent: {needless:?}");
}

#[test]
fn what_this_project_calls_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, text) in texts(&root.join("src")) {
        if !text.contains("cudarc") && !path.ends_with("cuda.rs") && !path.to_string_lossy().contains("/cuda/") {
            continue;
        }
        let missing: Vec<_> = called(&text).into_iter().filter(|s| !provided(s)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", path.display());
        for word in ABSENT.iter().flat_map(|(_, words)| *words) {
            assert!(!text.contains(word), "{}: `{word}` needs a symbol that is not provided", path.display());
        }
    }
}

#[test]
fn the_search_finds_what_is_missing() {
    let found = called(
        "sys::cuInit(0); // cuDeviceGet()\ncublasSgemm_v2(h); custom(1); curl(2); ncclCommCount (3); nvrtcVersion(a)",
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["cuInit", "cublasSgemm_v2", "nvrtcVersion"]);
    assert!(provided("cuInit") && provided("ncclAllReduce"));
    assert!(!provided("cuNoSuchThing") && !provided("cublasNoSuchThing"));
}
