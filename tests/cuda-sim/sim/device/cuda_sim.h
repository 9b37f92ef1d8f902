// What NVRTC gives a kernel without any header, for the host's compiler. No standard header is included: NVRTC has none
// either, so a kernel that leans on <stdint.h>, INFINITY or std:: fails here as it fails there.
#pragma once
#include "abi.h"

// Helpers of this header: not instrumented. Those that call the runtime stay functions, as inlining would instrument
// them.
#define SIM_PLAIN __attribute__((no_sanitize("thread", "undefined")))
#define SIM_INLINE static inline __attribute__((always_inline, unused)) SIM_PLAIN
#define SIM_CALL static __attribute__((noinline, unused)) SIM_PLAIN

// Qualifiers. The markers are resolved after the preprocessor, by what stands around them.
#define __global__ __sim_global__
#define __device__ __sim_device__
#define __constant__ __sim_device__
#define __shared__ __sim_shared__
#define __launch_bounds__(...) __sim_launch_bounds__(__VA_ARGS__)
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

typedef decltype(sizeof(0)) size_t;
typedef decltype((char *)0 - (char *)0) ptrdiff_t;

// In .data, never in .bss: the module's .bss is its static shared memory and is refilled for every block.
static sim_dim threadIdx = {1, 1, 1}, blockIdx = {1, 1, 1}, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
static sim_runtime sim_rt = {(decltype(sim_runtime::block_sync))1, 0, 0, 0, 0, 0};
static constexpr int warpSize = 32;
extern "C" {
extern __attribute__((visibility("hidden"))) char __bss_start[], _end[], __ehdr_start[];
__attribute__((visibility("default"), used)) sim_module_info sim_module = {
    SIM_ABI,  CUDA_SIM_CHECKED, &sim_rt, &threadIdx,   &blockIdx, &blockDim,
    &gridDim, __bss_start,      _end,    __ehdr_start, _end};
}

#include "sim_types.h"
#include "sim_collectives.h"
#include "sim_math.h"
#include "sim_hooks.h"
#include "sim_traits.h"
