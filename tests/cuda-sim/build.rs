//! Builds the stand-in libraries with g++. On anything but Linux there is nothing to build.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const DRIVER: [&str; 9] =
    ["common", "memory", "fiber", "launch", "collectives", "access", "faults", "stream", "transfer"];
const DRIVER_CALLS: [&str; 2] = ["device", "module"];
const COMPILER: [&str; 4] = ["nvrtc", "compile", "options", "rewrite"];
/// Device headers, put into the compiler's library as text.
const HEADERS: [&str; 9] = [
    "abi.h",
    "device/cuda_sim.h",
    "device/sim_types.h",
    "device/sim_collectives.h",
    "device/sim_math.h",
    "device/sim_hooks.h",
    "device/sim_traits.h",
    "device/cuda_fp16.h",
    "device/cuda_bf16.h",
];

fn main() {
    println!("cargo:rerun-if-changed=sim");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // not a link-search path: cargo would put it on the library path of every test and hide a real driver
    println!("cargo:rustc-env=CUDA_SIM_LIBRARIES={}", out.display());
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    if env::var_os("HOST") != env::var_os("TARGET") {
        println!("cargo:warning=the CUDA test device is not built for another machine");
        return;
    }
    let sim = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("sim");
    // what an earlier version compiled is nothing to this one
    let _ = std::fs::remove_dir_all(out.join("cache"));
    write_headers(&sim, &out);
    let sources = |dir: &str, names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|n| sim.join(dir).join(format!("{n}.cpp"))).collect()
    };
    let driver: Vec<_> = [sources("driver", &DRIVER), sources("driver", &DRIVER_CALLS)].concat();
    link("cuda", &driver, &["-O2", "-ldl", "-lpthread", "-lrt"], &out);
    link("nvrtc", &sources("compiler", &COMPILER), &["-O1", "-ldl", "-lcuda"], &out);
    link("cublas", &sources("blas", &["cublas"]), &["-O3", "-lcuda"], &out);
    link("nccl", &sources("nccl", &["nccl"]), &["-O2", "-lcuda"], &out);
}

/// `headers.inc`: an array of names and texts.
fn write_headers(sim: &Path, out: &Path) {
    let mut text = String::from("static const struct { const char *name, *text; } EMBEDDED[] = {\n");
    for header in HEADERS {
        let path = sim.join(header);
        let body = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = header.rsplit('/').next().unwrap_or(header);
        writeln!(text, "{{\"{name}\", R\"~~~({body})~~~\"}},").expect("writing to a string");
    }
    text.push_str("};\n");
    std::fs::write(out.join("headers.inc"), text).expect("OUT_DIR is writable");
}

/// The SONAME is the name that callers give to `dlopen`: an object that is loaded already answers to it.
fn link(name: &str, sources: &[PathBuf], flags: &[&str], out: &Path) {
    let library = out.join(format!("lib{name}.so"));
    let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into()));
    command.args(["-std=c++17", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]);
    command.arg(format!("-Wl,-soname,lib{name}.so,-z,nodelete,-z,now,-rpath,$ORIGIN"));
    command.arg("-I").arg(out).arg("-L").arg(out).args(sources).args(flags).arg("-o").arg(&library);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("the CUDA test device (lib{name}.so) does not build: {status}"),
        Err(e) => panic!(
            "the CUDA test device needs a C++ compiler: {:?} did not start ({e}). Install the package `g++`.",
            command.get_program()
        ),
    }
}
