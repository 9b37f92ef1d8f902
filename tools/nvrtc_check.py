#!/usr/bin/env python3
"""Compiles every kernel with NVIDIA's own NVRTC and ptxas, no GPU needed, and compares what they use with
kernels/limits.toml: registers, static shared memory, and no spills at all.

    python3 tools/nvrtc_check.py             check; exit 1 where a limit is exceeded or a file does not compile
    python3 tools/nvrtc_check.py --table     print what each kernel uses
    python3 tools/nvrtc_check.py --write     write kernels/limits.toml anew from what they use now

NVRTC and ptxas come from PyPI into target/nvrtc (about 300 MB, once). They are NVIDIA's and are only fetched, never
shipped. Without a network: exit 3 and one line that says so.
"""

import argparse
import ctypes
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(ROOT, "target", "nvrtc")
LIMITS = os.path.join(ROOT, "kernels", "limits.toml")
# PyPI's packages of a toolkit: NVRTC, and the compiler that has ptxas.
TOOLKITS = {
    "12.9": ["nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-nvcc-cu12==12.9.86"],
    "13.0": ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-nvcc==13.0.88"],
}
ARCHS = ["80", "90", "100"]
STORES = ["f32", "bf16", "f16"]
# What a kernel may use that has no entry of its own.
DEFAULT = {"registers": 64, "shared": 16384}


def fetch(version):
    """Installs a toolkit once; its folder."""
    folder = os.path.join(CACHE, version)
    done = os.path.join(folder, "done")
    if os.path.exists(done):
        return folder
    for package in TOOLKITS[version]:
        # a folder for each: pip replaces the folder `nvidia` that they share
        into = os.path.join(folder, package.split("==")[0])
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check",
                   "--root-user-action=ignore", "--upgrade", "--target", into, package]
        if subprocess.run(command).returncode:
            print(f"nvrtc_check: {package} cannot be fetched from PyPI: is there a network? Nothing was checked.")
            sys.exit(3)
    open(done, "w").close()
    return folder


def find(folder, name):
    found = sorted(glob.glob(os.path.join(folder, "**", name), recursive=True))
    if not found:
        sys.exit(f"nvrtc_check: no {name} in {folder}")
    return found[0]


class Nvrtc:
    """NVRTC through its C interface."""

    def __init__(self, folder):
        # NVRTC asks for this one by its name, which a loaded library answers to
        ctypes.CDLL(find(folder, "libnvrtc-builtins.so.1?.?"))
        self.library = ctypes.CDLL(find(folder, "libnvrtc.so.1?"))

    def compile(self, text, name, options):
        """(PTX, log); PTX is None where it does not compile."""
        lib, program, size = self.library, ctypes.c_void_p(), ctypes.c_size_t()
        lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        argv = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        failed = lib.nvrtcCompileProgram(program, len(options), argv)

        def text_of(what):
            getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
            out = ctypes.create_string_buffer(size.value)
            getattr(lib, f"nvrtcGet{what}")(program, out)
            return out.value.decode()

        log = text_of("ProgramLog")
        ptx = None if failed else text_of("PTX")
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return ptx, log


def source(path):
    """The text that src/device/cuda gives to NVRTC: the common part, then the file, with their own line numbers."""
    common = os.path.join(ROOT, "kernels", "common.cuh")
    parts = [p for p in [common, path] if os.path.exists(p)]
    return "\n".join(f'#line 1 "{os.path.basename(p)}"\n{open(p).read()}' for p in parts)


def assemble(ptxas, ptx, arch):
    """What each kernel of the PTX uses, by name, and ptxas's own words where it fails."""
    command = [ptxas, "-v", f"-arch=sm_{arch}", "-o", os.devnull, "-"]
    done = subprocess.run(command, input=ptx, capture_output=True, text=True)
    if done.returncode:
        return {}, done.stderr
    used, kernel = {}, None
    for line in done.stderr.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = used.setdefault(m[1], {"registers": 0, "shared": 0, "spills": 0, "stack": 0})
        elif kernel is None:
            continue
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            kernel["stack"], kernel["spills"] = int(m[1]), int(m[2]) + int(m[3])
        elif m := re.search(r"Used (\d+) registers", line):
            kernel["registers"] = int(m[1])
            shared = re.search(r"(\d+) bytes smem", line)
            kernel["shared"] = int(shared[1]) if shared else 0
    return used, ""


def compile_one(nvrtc, ptxas, version, path, store, arch):
    """(use by kernel, what failed) of one file; kept in the cache, as it depends on nothing but its inputs."""
    text, name = source(path), os.path.basename(path)
    options = [f"--gpu-architecture=compute_{arch}", "--std=c++17", f"-DSTORE={store}"]
    key = hashlib.sha256(repr((TOOLKITS[version], name, options, text)).encode()).hexdigest()
    kept = os.path.join(CACHE, "results", f"{key}.json")
    if os.path.exists(kept):
        with open(kept) as f:
            return json.load(f), ""
    ptx, log = nvrtc.compile(text, name, options)
    used, words = assemble(ptxas, ptx, arch) if ptx is not None else ({}, f"does not compile\n{log}")
    if not used:
        return {}, f"{name}, {store}, sm_{arch}, CUDA {version}: {words or 'no kernel in it'}"
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    with open(f"{kept}.{os.getpid()}", "w") as f:
        json.dump(used, f)
    os.replace(f"{kept}.{os.getpid()}", kept)
    return used, ""


def measure(versions, files):
    """Largest use of each `file.kernel` over everything, the table's rows, and what failed."""
    worst, rows, problems, jobs = {}, [], [], []
    for version in versions:
        folder = fetch(version)
        ptxas = find(folder, "ptxas")
        os.chmod(ptxas, 0o755)
        nvrtc = Nvrtc(folder)
        jobs += [(nvrtc, ptxas, version, f, store, arch) for f in files for arch in ARCHS for store in STORES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: compile_one(*job), jobs))
    for (_, _, version, path, store, arch), (used, problem) in zip(jobs, results):
        if problem:
            problems.append(problem)
        for kernel, use in used.items():
            name = f"{os.path.splitext(os.path.basename(path))[0]}.{kernel}"
            rows.append((name, store, arch, version, use))
            largest = worst.setdefault(name, dict.fromkeys(use, 0))
            for what, value in use.items():
                largest[what] = max(largest[what], value)
    return worst, rows, problems


def read_limits():
    if not os.path.exists(LIMITS):
        sys.exit("nvrtc_check: no kernels/limits.toml; --write makes one")
    with open(LIMITS, "rb") as f:
        return tomllib.load(f)


def over_limits(rows, limits, whole):
    """What exceeds its limit, and entries of kernels that are gone."""
    out, default = [], {**DEFAULT, **limits.get("default", {})}
    for name, store, arch, version, use in rows:
        file, kernel = name.split(".")
        allowed = {**default, **limits.get(file, {}).get(kernel, {})}
        where = f"{name} ({store}, sm_{arch}, CUDA {version})"
        if use["spills"]:
            out.append(f"{where}: {use['spills']} bytes of spills, none are allowed")
        for key in ["registers", "shared"]:
            if use[key] > allowed[key]:
                out.append(f"{where}: {use[key]} {key}, at most {allowed[key]} are allowed")
    known = {row[0] for row in rows}
    for file, kernels in limits.items():
        if file != "default" and whole:
            out.extend(f"{file}.{k}: in limits.toml, but there is no such kernel" for k in kernels if f"{file}.{k}" not in known)
    return out


def write_limits(worst):
    """Exceptions to the default alone, registers rounded up to 8, the step in which they are given out."""
    text = ["# What a kernel may use, over all storage types and architectures; checked by tools/nvrtc_check.py.",
            "# Registers of a thread, bytes of static shared memory of a block. Spills are never allowed.",
            "[default]", *[f"{k} = {v}" for k, v in DEFAULT.items()]]
    for name in sorted(worst):
        use = worst[name]
        more = {}
        if use["registers"] > DEFAULT["registers"]:
            more["registers"] = min(255, -(-use["registers"] // 8) * 8)
        if use["shared"] > DEFAULT["shared"]:
            more["shared"] = use["shared"]
        if more:
            text += ["", f"[{name}]", *[f"{k} = {v}" for k, v in more.items()]]
    with open(LIMITS, "w") as f:
        f.write("\n".join(text) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", action="append", choices=TOOLKITS, help="only this toolkit")
    parser.add_argument("--kernels", metavar="FILE", nargs="*", help="only these files")
    parser.add_argument("--table", action="store_true", help="print what each kernel uses")
    parser.add_argument("--write", action="store_true", help="write kernels/limits.toml")
    args = parser.parse_args()
    files = sorted(args.kernels or glob.glob(os.path.join(ROOT, "kernels", "*.cu")))
    if not files:
        sys.exit("nvrtc_check: no kernels/*.cu")
    worst, rows, problems = measure(args.cuda or list(TOOLKITS), files)
    if args.table:
        for name, store, arch, version, use in rows:
            print(f"{name:40} {store:5} sm_{arch:4} CUDA {version}  {use['registers']:3} registers  {use['shared']:6} shared"
                  f"  {use['stack']:5} stack  {use['spills']:5} spills")
    if args.write:
        write_limits(worst)
    problems += over_limits(rows, read_limits(), whole=not args.kernels)
    print("\n".join(problems) if problems else f"{len(files)} files, {len(worst)} kernels, {len(rows)} compilations: within the limits")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
