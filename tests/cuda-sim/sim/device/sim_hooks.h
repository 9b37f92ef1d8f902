// Checked mode: what the compiler's instrumentation calls. Its own libraries are not linked.
#pragma once
#if CUDA_SIM_CHECKED

#define SIM_HOOK SIM_PLAIN __attribute__((noinline))
// A thread's own stack is not worth a call: local arrays are most of the accesses.
SIM_INLINE bool sim_on_stack(void *p) {
  return !(((unsigned long)p ^ (unsigned long)__builtin_frame_address(0)) / SIM_STACK_BYTES);
}
#define SIM_ACCESS(p, n, kind)                                                    \
  do {                                                                            \
    if (!sim_on_stack(p)) sim_rt.access(p, n, kind, __builtin_return_address(0)); \
  } while (0)

extern "C" {
#define SIM_TSAN(N)                                                     \
  SIM_HOOK void __tsan_read##N(void *p) { SIM_ACCESS(p, N, SIM_READ); } \
  SIM_HOOK void __tsan_write##N(void *p) { SIM_ACCESS(p, N, SIM_WRITE); }
#define SIM_TSAN_UNALIGNED(N)                                                     \
  SIM_HOOK void __tsan_unaligned_read##N(void *p) { SIM_ACCESS(p, N, SIM_READ); } \
  SIM_HOOK void __tsan_unaligned_write##N(void *p) { SIM_ACCESS(p, N, SIM_WRITE); }
SIM_TSAN(1)
SIM_TSAN(2)
SIM_TSAN(4)
SIM_TSAN(8)
SIM_TSAN(16)
SIM_TSAN_UNALIGNED(2)
SIM_TSAN_UNALIGNED(4)
SIM_TSAN_UNALIGNED(8)
SIM_TSAN_UNALIGNED(16)
SIM_HOOK void __tsan_read_range(void *p, unsigned long n) { SIM_ACCESS(p, n, SIM_READ); }
SIM_HOOK void __tsan_write_range(void *p, unsigned long n) { SIM_ACCESS(p, n, SIM_WRITE); }
SIM_HOOK void __tsan_vptr_update(void **, void *) {}
SIM_HOOK void __tsan_vptr_read(void **) {}
SIM_HOOK void __tsan_func_entry(void *) {}
SIM_HOOK void __tsan_func_exit() {}
SIM_HOOK void __tsan_init() {}

// Each record of the undefined-behaviour checks begins with the place.
struct sim_place {
  const char *file;
  unsigned line, column;
};
#define SIM_UB(NAME, WHAT, ...) \
  SIM_HOOK void __ubsan_handle_##NAME(sim_place *at, ##__VA_ARGS__) { sim_rt.trap(WHAT, at->file, (int)at->line); }
SIM_UB(type_mismatch_v1, "misaligned or null pointer used", unsigned long)
SIM_UB(out_of_bounds, "array index out of bounds", unsigned long)
SIM_UB(shift_out_of_bounds, "shift out of range", unsigned long, unsigned long)
SIM_UB(divrem_overflow, "integer division by zero or overflow", unsigned long, unsigned long)
SIM_UB(add_overflow, "signed integer overflow in addition", unsigned long, unsigned long)
SIM_UB(sub_overflow, "signed integer overflow in subtraction", unsigned long, unsigned long)
SIM_UB(mul_overflow, "signed integer overflow in multiplication", unsigned long, unsigned long)
SIM_UB(negate_overflow, "signed integer overflow in negation", unsigned long)
}
#endif
