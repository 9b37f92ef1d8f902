// Initialisation, devices and primary contexts.
#include "launch.h"
#include "module.h"
#include "stream.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sim {

const int MAX_DEVICES = 16;
static char contexts[MAX_DEVICES];  // the address of element i is the handle of device i's primary context
static thread_local void *current_context = nullptr;
static int device_of(void *context) {
  char *c = (char *)context;
  return c >= contexts && c < contexts + MAX_DEVICES ? (int)(c - contexts) : -1;
}
int current_device() {
  int d = device_of(current_context);
  return d >= 0 && device(d).retained ? d : -1;
}
static bool exists(int d) { return d >= 0 && d < settings.devices; }

static void print_counts() {
  if (!*cuda_sim_get("STATS")) return;
  fprintf(stderr,
          "cuda-sim: %llu launches, %llu graph launches, %llu blocks, %llu threads, %llu checked accesses, %llu "
          "products, %llu copies\n",
          (unsigned long long)counts.launches, (unsigned long long)counts.graph_launches,
          (unsigned long long)counts.blocks, (unsigned long long)counts.threads, (unsigned long long)counts.accesses,
          (unsigned long long)counts.gemms, (unsigned long long)counts.copies);
}

static int attribute(int which) {
  switch (which) {
    case 1: return MAX_THREADS;  // threads of a block
    case 2:
    case 3: return 1024;        // block x, y
    case 4: return 64;          // block z
    case 5: return 0x7fffffff;  // grid x
    case 6:
    case 7: return 65535;      // grid y, z
    case 8: return 48 * 1024;  // shared memory of a block
    case 9: return 64 * 1024;  // constant memory
    case 10: return 32;        // warp
    case 12:
    case 82: return 65536;    // registers of a block, of a multiprocessor
    case 13: return 1000000;  // clock, kHz
    case 16: return 4;        // multiprocessors
    case 31: return 1;        // concurrent kernels
    case 39: return 2048;     // threads of a multiprocessor
    case 41: return 1;        // unified addressing
    case 75: return settings.compute / 10;
    case 76: return settings.compute % 10;
    case 81: return 228 * 1024;       // shared memory of a multiprocessor
    case 97: return (int)SHARED_MAX;  // shared memory of a block, opt-in
    case 106: return 32;              // blocks of a multiprocessor
    case 115: return settings.pools;  // memory pools: cudarc then allocates with cuMemAllocAsync
    default: return 0;
  }
}

}  // namespace sim
using namespace sim;

EXPORT int cuInit(unsigned) {
  ENTER(NOTHING);
  if (initialised) return settings.devices > 0 ? OK : NO_DEVICE;
  read_settings();
  if (int r = planted_failure(__func__)) return r;
  if (settings.devices > MAX_DEVICES) settings.devices = MAX_DEVICES;
  if (!map_dynamic_shared()) {
    say("the window of dynamic shared memory at 0x%lx is taken", SIM_DYNAMIC_SHARED);
    return OUT_OF_MEMORY;
  }
  install_handlers();
  atexit(print_counts);
  initialised = true;
  return settings.devices > 0 ? OK : NO_DEVICE;
}
EXPORT int cuDriverGetVersion(int *version) {
  ENTER(NOTHING);
  if (!initialised) read_settings();
  *version = settings.driver;
  return OK;
}
EXPORT int cuGetErrorName(int code, const char **out) { return (*out = error_name(code)) ? OK : INVALID_VALUE; }
EXPORT int cuGetErrorString(int code, const char **out) { return (*out = error_text(code)) ? OK : INVALID_VALUE; }

EXPORT int cuDeviceGetCount(int *n) {
  ENTER(INIT);
  *n = settings.devices;
  return OK;
}
EXPORT int cuDeviceGet(int *out, int ordinal) {
  ENTER(INIT);
  if (!exists(ordinal)) return INVALID_DEVICE;
  *out = ordinal;
  return OK;
}
EXPORT int cuDeviceGetName(char *out, int n, int d) {
  ENTER(INIT);
  if (!exists(d)) return INVALID_DEVICE;
  snprintf(out, (size_t)n, "CUDA test device on the CPU");
  return OK;
}
static int uuid(void *out, int d) {
  if (!exists(d)) return INVALID_DEVICE;
  memset(out, 0xc5, 16);
  ((unsigned char *)out)[15] = (unsigned char)d;
  return OK;
}
EXPORT int cuDeviceGetUuid(void *out, int d) {
  ENTER(INIT);
  return uuid(out, d);
}
EXPORT int cuDeviceGetUuid_v2(void *out, int d) {
  ENTER(INIT);
  return uuid(out, d);
}
EXPORT int cuDeviceTotalMem_v2(size_t *out, int d) {
  ENTER(INIT);
  if (!exists(d)) return INVALID_DEVICE;
  *out = settings.memory;
  return OK;
}
EXPORT int cuDeviceGetAttribute(int *out, int which, int d) {
  ENTER(INIT);
  if (!exists(d)) return INVALID_DEVICE;
  *out = attribute(which);
  return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void **out, int d) {
  ENTER(INIT);
  if (!exists(d)) return INVALID_DEVICE;
  ++device(d).retained;
  *out = contexts + d;
  return OK;
}
// The last release resets the device: its memory, its queues, its sticky error.
EXPORT int cuDevicePrimaryCtxRelease_v2(int d) {
  ENTER(INIT);
  if (!exists(d)) return INVALID_DEVICE;
  Device &of = device(d);
  if (!of.retained) return INVALID_CONTEXT;
  if (--of.retained) return OK;
  forget_streams(d);
  forget_modules(d);
  release_device(d);
  of.sticky = OK;
  return OK;
}
EXPORT int cuCtxGetCurrent(void **out) {
  ENTER(INIT);
  *out = current_context;
  return OK;
}
EXPORT int cuCtxSetCurrent(void *context) {
  ENTER(INIT);
  if (context && device_of(context) < 0) return INVALID_CONTEXT;
  current_context = context;
  return OK;
}
EXPORT int cuCtxGetDevice(int *out) {
  ENTER(CONTEXT);
  *out = entry.device;
  return OK;
}
EXPORT int cuCtxSynchronize() {
  ENTER(CONTEXT);
  if (int r = refuse_while_capturing(entry.device)) return r;
  return wait_device(entry.guard, entry.device);
}
EXPORT int cuCtxSetFlags(unsigned) {
  ENTER(CONTEXT);
  return OK;
}
EXPORT int cuCtxGetLimit(size_t *out, int which) {
  ENTER(CONTEXT);
  *out = which == 0 ? SIM_STACK_BYTES : 0;  // 0: the stack of a thread
  return OK;
}
EXPORT int cuCtxSetLimit(int, size_t) {
  ENTER(CONTEXT);
  return OK;
}
EXPORT int cuCtxGetCacheConfig(int *out) {
  ENTER(CONTEXT);
  *out = 0;
  return OK;
}
EXPORT int cuCtxSetCacheConfig(int) {
  ENTER(CONTEXT);
  return OK;
}

// For tests: the counters of `Counts`, and the bytes in use on a device.
EXPORT void cuda_sim_counts(uint64_t *out) {
  std::lock_guard<std::mutex> guard(lock);
  memcpy(out, &counts, sizeof counts);
}
EXPORT size_t cuda_sim_used(int d) {
  std::lock_guard<std::mutex> guard(lock);
  return used(d);
}
EXPORT void cuda_sim_count_gemm() { ++counts.gemms; }  // called while the lock is held
