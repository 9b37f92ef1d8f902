// Barriers, warp collectives, atomics, assert, printf. `line` is the caller's: reports name it.
#pragma once

#define SIM_LINE int line = __builtin_LINE()
SIM_CALL int sim_block(int mode, int predicate, int line) { return sim_rt.block_sync(mode, predicate, line); }
SIM_CALL sim_u64 sim_warp(int kind, unsigned mask, sim_u64 v, int arg, int width, int line) {
  return sim_rt.warp_op(kind, mask, v, arg, width, line);
}

SIM_INLINE void __syncthreads(SIM_LINE) { sim_block(SIM_SYNC, 0, line); }
SIM_INLINE int __syncthreads_count(int p, SIM_LINE) { return sim_block(SIM_SYNC_COUNT, !!p, line); }
SIM_INLINE int __syncthreads_and(int p, SIM_LINE) { return sim_block(SIM_SYNC_AND, !!p, line); }
SIM_INLINE int __syncthreads_or(int p, SIM_LINE) { return sim_block(SIM_SYNC_OR, !!p, line); }
SIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu, SIM_LINE) { sim_warp(SIM_WARP_SYNC, mask, 0, 0, 32, line); }
SIM_INLINE void __threadfence() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
SIM_INLINE void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#define SIM_SHUFFLE(NAME, KIND, ARG)                                                                    \
  template <class T>                                                                                    \
  SIM_INLINE T NAME(unsigned mask, T v, ARG arg, int width = 32, SIM_LINE) {                            \
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 2, 4 or 8 bytes"); \
    sim_u64 bits = 0;                                                                                   \
    __builtin_memcpy(&bits, &v, sizeof(T));                                                             \
    bits = sim_warp(KIND, mask, bits, (int)arg, width, line);                                           \
    __builtin_memcpy(&v, &bits, sizeof(T));                                                             \
    return v;                                                                                           \
  }
SIM_SHUFFLE(__shfl_sync, SIM_SHUFFLE_INDEX, int)
SIM_SHUFFLE(__shfl_up_sync, SIM_SHUFFLE_UP, unsigned)
SIM_SHUFFLE(__shfl_down_sync, SIM_SHUFFLE_DOWN, unsigned)
SIM_SHUFFLE(__shfl_xor_sync, SIM_SHUFFLE_XOR, int)
SIM_INLINE unsigned __ballot_sync(unsigned m, int p, SIM_LINE) {
  return (unsigned)sim_warp(SIM_BALLOT, m, !!p, 0, 32, line);
}
SIM_INLINE int __any_sync(unsigned m, int p, SIM_LINE) { return (int)sim_warp(SIM_ANY, m, !!p, 0, 32, line); }
SIM_INLINE int __all_sync(unsigned m, int p, SIM_LINE) { return (int)sim_warp(SIM_ALL, m, !!p, 0, 32, line); }
SIM_CALL unsigned __activemask() { return sim_rt.active_lanes(); }
#define SIM_REDUCE(NAME, T, KIND) \
  SIM_INLINE T NAME(unsigned m, T v, SIM_LINE) { return (T)sim_warp(KIND, m, (unsigned)v, 0, 32, line); }
SIM_REDUCE(__reduce_add_sync, unsigned, SIM_ADD)
SIM_REDUCE(__reduce_add_sync, int, SIM_ADD)
SIM_REDUCE(__reduce_min_sync, unsigned, SIM_MIN_U32)
SIM_REDUCE(__reduce_min_sync, int, SIM_MIN_S32)
SIM_REDUCE(__reduce_max_sync, unsigned, SIM_MAX_U32)
SIM_REDUCE(__reduce_max_sync, int, SIM_MAX_S32)
SIM_REDUCE(__reduce_and_sync, unsigned, SIM_AND)
SIM_REDUCE(__reduce_or_sync, unsigned, SIM_OR)
SIM_REDUCE(__reduce_xor_sync, unsigned, SIM_XOR)

// One host thread runs the grid, so plain code is atomic. Bounds are checked; atomics do not race with one another.
#if CUDA_SIM_CHECKED
#define SIM_ATOMIC_ACCESS(p) sim_rt.access(p, sizeof *(p), SIM_ATOMIC, __builtin_return_address(0))
#else
#define SIM_ATOMIC_ACCESS(p) ((void)0)
#endif
#define SIM_RMW(NAME, T, NEXT) \
  SIM_CALL T NAME(T *p, T v) { \
    SIM_ATOMIC_ACCESS(p);      \
    T old = *p;                \
    *p = (NEXT);               \
    return old;                \
  }
SIM_RMW(atomicAdd, float, old + v)
SIM_RMW(atomicAdd, double, old + v)
SIM_RMW(atomicAdd, int, old + v)
SIM_RMW(atomicAdd, unsigned, old + v)
SIM_RMW(atomicAdd, unsigned long long, old + v)
SIM_RMW(atomicSub, int, old - v)
SIM_RMW(atomicSub, unsigned, old - v)
SIM_RMW(atomicMax, int, old > v ? old : v)
SIM_RMW(atomicMax, unsigned, old > v ? old : v)
SIM_RMW(atomicMax, unsigned long long, old > v ? old : v)
SIM_RMW(atomicMin, int, old < v ? old : v)
SIM_RMW(atomicMin, unsigned, old < v ? old : v)
SIM_RMW(atomicMin, unsigned long long, old < v ? old : v)
SIM_RMW(atomicOr, int, old | v)
SIM_RMW(atomicOr, unsigned, old | v)
SIM_RMW(atomicAnd, int, old &v)
SIM_RMW(atomicAnd, unsigned, old &v)
SIM_RMW(atomicXor, int, old ^ v)
SIM_RMW(atomicXor, unsigned, old ^ v)
SIM_RMW(atomicExch, int, v)
SIM_RMW(atomicExch, unsigned, v)
SIM_RMW(atomicExch, float, v)
SIM_RMW(atomicExch, unsigned long long, v)
SIM_RMW(atomicInc, unsigned, old >= v ? 0 : old + 1)
SIM_RMW(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)
#define SIM_CAS(T)                              \
  SIM_CALL T atomicCAS(T *p, T expected, T v) { \
    SIM_ATOMIC_ACCESS(p);                       \
    T old = *p;                                 \
    if (old == expected) *p = v;                \
    return old;                                 \
  }
SIM_CAS(int)
SIM_CAS(unsigned)
SIM_CAS(unsigned long long)

SIM_CALL void sim_trap(const char *what, const char *file, int line) { sim_rt.trap(what, file, line); }
SIM_INLINE void __trap(const char *file = __builtin_FILE(), SIM_LINE) { sim_trap("__trap()", file, line); }
#define assert(e) ((e) ? (void)0 : sim_trap("assert(" #e ")", __FILE__, __LINE__))
SIM_CALL int printf(const char *format, ...) {
  __builtin_va_list args;
  __builtin_va_start(args, format);
  int n = sim_rt.print(format, args);
  __builtin_va_end(args);
  return n;
}
static long long sim_ticks = 1;
SIM_CALL long long clock64() { return ++sim_ticks; }
SIM_INLINE void __nanosleep(unsigned) {}
