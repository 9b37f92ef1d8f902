#!/bin/sh
# What a machine with a GPU must show, in at most 8 minutes: the CUDA tests on the hardware, then one table of times beside
# PyTorch's LSTM and GRU of the same sizes. Needs CUDA's libraries on the library path; PyTorch is used where it is there.
#
#   tools/gpu_check.sh [OUT]               writes OUT/tests.txt, OUT/bench.json, OUT/table.md (default OUT: gpu-check)
#   tools/gpu_check.sh --rehearse [OUT]    the same steps on the CUDA test device, sizes cut: no figure means anything
set -eu
cd "$(dirname "$0")/.."

rehearse=
if [ "${1:-}" = --rehearse ]; then
    rehearse=--rehearse
    shift
fi
out=${1:-gpu-check}
mkdir -p "$out"
begun=$(date +%s)
say() { echo "[$(($(date +%s) - begun)) s] $*"; }

say "building the command and the CUDA tests"
tests="--test cuda_ops --test cuda_golden --test cuda_training --test cuda_cases --test cuda_cli"
# shellcheck disable=SC2086 # a list of flags
cargo test --release --no-run $tests 2>"$out/build.txt" || { tail -30 "$out/build.txt"; exit 1; }
# the tests of the command build the command; built alone it would compile every dependency anew
command=${CARGO_TARGET_DIR:-target}/release/mamba-rl

if [ -n "$rehearse" ]; then
    # the test device's libraries, the newest build of them
    found=$(ls -t "${CARGO_TARGET_DIR:-target}"/release/build/cuda-sim-*/out/libcuda.so | head -1)
    LD_LIBRARY_PATH=$(dirname "$found")
    CUDA_SIM_CHECK=0
    export LD_LIBRARY_PATH CUDA_SIM_CHECK
else
    CUDA_SIM=0
    export CUDA_SIM
fi

"$command" devices
say "tests"
failed=
limit=240
[ -z "$rehearse" ] || limit=1800 # the test device is slow
# shellcheck disable=SC2086
timeout "$limit" cargo test --release $tests >"$out/tests.txt" 2>&1 || failed=$?
grep -E '^test result|FAILED|panicked' "$out/tests.txt" || true

say "times"
# shellcheck disable=SC2086 # empty or one flag
timeout 120 "$command" bench --device cuda --json $rehearse >"$out/bench.json"
python=$(command -v python3 || true)
if [ -n "$python" ]; then
    timeout 90 "$python" tools/gpu_check.py "$out/bench.json" >"$out/table.md"
    cat "$out/table.md"
else
    say "no python3: the figures are in $out/bench.json"
fi
if [ "$failed" = 124 ]; then
    say "tests NOT DONE after $limit s, see $out/tests.txt"
    exit 1
elif [ -n "$failed" ]; then
    say "tests FAILED, see $out/tests.txt"
    exit 1
fi
say "done"
