// What the runtime (libcuda.so) and a compiled kernel module know of each other.
// Both include it, and a kernel has no standard header, so neither has this file.
#pragma once

#define SIM_ABI 1
// Dynamic shared memory has one address in every process: `extern __shared__` becomes a constant, valid at any scope.
#define SIM_DYNAMIC_SHARED 0x1000000000ul
// Stack of one CUDA thread, a power of two and aligned to itself: "is this my own stack?" is one comparison.
#define SIM_STACK_BYTES (128ul * 1024)

typedef unsigned int sim_u32;
typedef unsigned long long sim_u64;
struct sim_dim {
  sim_u32 x, y, z;
};

enum { SIM_SYNC, SIM_SYNC_COUNT, SIM_SYNC_AND, SIM_SYNC_OR };
enum {
  SIM_WARP_SYNC,
  SIM_SHUFFLE_INDEX,
  SIM_SHUFFLE_UP,
  SIM_SHUFFLE_DOWN,
  SIM_SHUFFLE_XOR,
  SIM_BALLOT,
  SIM_ANY,
  SIM_ALL,
  SIM_ADD,
  SIM_MIN_U32,
  SIM_MAX_U32,
  SIM_MIN_S32,
  SIM_MAX_S32,
  SIM_AND,
  SIM_OR,
  SIM_XOR
};
enum { SIM_READ, SIM_WRITE, SIM_ATOMIC };

// What a kernel calls.
struct sim_runtime {
  int (*block_sync)(int mode, int predicate, int line);
  sim_u64 (*warp_op)(int kind, sim_u32 mask, sim_u64 value, int arg, int width, int line);
  void (*access)(const volatile void *p, sim_u64 bytes, int kind, void *pc);
  void (*trap)(const char *what, const char *file, int line);
  sim_u32 (*active_lanes)(void);
  int (*print)(const char *format, __builtin_va_list args);
};

// What the runtime finds in a module, under the name `sim_module`.
struct sim_module_info {
  sim_u32 abi, checked;
  struct sim_runtime *runtime;  // filled in before the first launch
  struct sim_dim *thread_idx, *block_idx, *block_dim, *grid_dim;
  char *shared_lo, *shared_hi;  // every static __shared__ array of the module: its .bss
  char *image_lo, *image_hi;    // the whole image: constants may be read from here
};

// ... and for each kernel `k` under the name `sim_kernel_k`.
struct sim_kernel {
  const char *name;
  sim_u32 n_params;
  const sim_u32 *sizes;             // bytes of each parameter
  const unsigned char *is_pointer;  // 1: the parameter is an object pointer
  sim_u32 max_threads;              // of __launch_bounds__, 0 where absent
  void (*call)(void **params);
};
