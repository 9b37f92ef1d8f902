// Every memory access of a checked kernel comes here: bounds, alignment, reads of unwritten shared memory, data races.
//
// Two accesses of different threads, one of them a write, race unless a block barrier lies between, or both are in one
// warp and a __syncwarp lies between. Blocks of one launch are never ordered. Each cell keeps its last writer (earlier
// ones are ordered before it, or were reported) and two readers, chosen so that a write which races with any reader
// races with one of the two. Fences and flags between blocks are not modelled: they count as races.
#include "launch.h"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace sim {

char *dynamic_shared = nullptr;
static Shadow &static_shadow = *new Shadow,
              &dynamic_shadow = *new Shadow;  // of shared memory; epochs keep the modules apart

static const Record ATOMIC_FLAG = 1ull << 26;
static uint64_t epoch_of(Record r) { return r >> 27; }
static sim_u32 thread_of(Record r) { return r & 1023; }
static sim_u32 warp_of(Record r) { return thread_of(r) / 32; }
static sim_u32 warp_epoch_of(Record r) { return r >> 10 & 0xffff; }
static Record record_of(const Fiber &f) { return launch->epoch << 27 | (Record)f.warp_epoch << 10 | f.linear; }

static bool other_block(Record r) { return epoch_of(r) >= launch->launch_epoch && epoch_of(r) < launch->block_epoch; }
static bool races_with(Record r, const Fiber &f, bool global) {
  if (!r) return false;
  if (other_block(r)) return global;  // shared memory of another block is another one
  if (epoch_of(r) != launch->epoch || thread_of(r) == f.linear) return false;
  if (warp_of(r) != f.linear / 32) return true;
  sim_u32 then = warp_epoch_of(r);
  return then >= f.warp_epoch && then < 0xffff;  // a full counter orders nothing: be silent
}
static void remember_reader(Cell &c, Record me, bool global) {
  sim_u32 mine = thread_of(me);
  if (global && other_block(c.reader)) return;  // races with every later write already
  if (epoch_of(c.reader) != launch->epoch) {
    c.reader = me;
    c.other = 0;
    return;
  }
  if (thread_of(c.reader) == mine) {
    c.reader = me;
    return;
  }
  if (epoch_of(c.other) != launch->epoch || thread_of(c.other) == mine) {
    c.other = me;
    return;
  }
  if (warp_of(c.reader) != warp_of(c.other)) return;  // whoever writes, one of them is in another warp
  if (mine / 32 != warp_of(c.reader)) {
    c.other = me;
    return;
  }
  Record &older = warp_epoch_of(c.reader) < warp_epoch_of(c.other) ? c.reader : c.other;
  if (warp_epoch_of(older) <= warp_epoch_of(me)) older = me;  // one warp: the two latest
}
static void report_race(const char *order, Record other, bool global, size_t offset, void *pc) {
  std::string who = other_block(other) ? "a thread of another block" : text("thread %u of the block", thread_of(other));
  fail(LAUNCH_FAILED, text("data race (%s) in %s memory at byte offset %zu with %s, at %s", order,
                           global ? "global" : "shared", offset, who.c_str(), source_line(pc).c_str()));
}
static void check_races(Shadow &shadow, size_t offset, size_t n, size_t total, int kind, bool global, void *pc) {
  if (!settings.races) return;
  shadow.cover(total);
  size_t bits = offset | n | 4;
  shadow.refine((unsigned)(bits & -bits));
  const Fiber &f = *launch->running;
  Record me = record_of(f);
  for (size_t i = offset / shadow.grain; i <= (offset + n - 1) / shadow.grain; ++i) {
    Cell &c = shadow.cells[i];
    bool written = c.writer && epoch_of(c.writer) >= launch->block_epoch;
    if (!global && kind != SIM_WRITE && !written)
      fail(LAUNCH_FAILED, text("read of shared memory that was never written, byte offset %zu, at %s", i * shadow.grain,
                               source_line(pc).c_str()));
    bool both_atomic = kind == SIM_ATOMIC && (c.writer & ATOMIC_FLAG);
    if (!both_atomic && races_with(c.writer, f, global))
      report_race(kind == SIM_READ ? "read after write" : "write after write", c.writer, global, i * shadow.grain, pc);
    if (kind == SIM_READ) {
      remember_reader(c, me, global);
      continue;
    }
    for (Record r : {c.reader, c.other})
      if (races_with(r, f, global)) report_race("write after read", r, global, i * shadow.grain, pc);
    c.writer = kind == SIM_ATOMIC ? me | ATOMIC_FLAG : me;
    c.reader = c.other = 0;
  }
}

static void out_of_place(const char *what, int code, uintptr_t p, size_t n, int kind, void *pc) {
  std::string near;
  if (Allocation *a = below(p))
    near = text(", nearest allocation below: #%u of %zu bytes, offset %zu", a->id, a->size, (size_t)(p - a->base));
  fail(code, text("%s %s of %zu bytes at %s%s", what, kind == SIM_READ ? "read" : "write", n, source_line(pc).c_str(),
                  near.c_str()));
}
void access(const volatile void *pointer, sim_u64 n, int kind, void *pc) {
  stop_if_overdue();
  ++counts.accesses;
  Launch &l = *launch;
  char *p = (char *)pointer;
  uintptr_t u = (uintptr_t)p;
  const char *what = u < 4096 ? "through a null pointer:" : "out of bounds";
  bool misaligned = n <= 16 && !(n & (n - 1)) && (u & (n - 1));
  if (Allocation *a = find(u)) {
    if (a->device != l.device && a->device != HOST)
      what = "another device's memory:";
    else if (n > a->size - (u - a->base))
      what = "straddling the end of an allocation:";
    else if (misaligned)
      out_of_place("misaligned", MISALIGNED_ADDRESS, u, n, kind, pc);
    else
      return check_races(a->shadow, u - a->base, n, a->size, kind, true, pc);
  } else if (p >= dynamic_shared && p < dynamic_shared + SHARED_MAX) {
    size_t offset = (size_t)(p - dynamic_shared);
    if (offset + n > l.dynamic)
      what = "beyond the launch's dynamic shared memory:";
    else if (misaligned)
      out_of_place("misaligned", MISALIGNED_ADDRESS, u, n, kind, pc);
    else
      return check_races(dynamic_shadow, offset, n, SHARED_MAX, kind, false, pc);
  } else if (p >= l.module->shared_lo && p < l.module->shared_hi) {
    char *lo = (char *)((uintptr_t)l.module->shared_lo & ~(uintptr_t)15);
    if (misaligned) out_of_place("misaligned", MISALIGNED_ADDRESS, u, n, kind, pc);
    if (kind != SIM_READ) {
      l.dirty_lo = std::min(l.dirty_lo, p);
      l.dirty_hi = std::max(l.dirty_hi, p + n);
    }
    return check_races(static_shadow, (size_t)(p - lo), n, (size_t)(l.module->shared_hi - lo), kind, false, pc);
  } else if (p >= l.module->image_lo && p < l.module->image_hi) {
    return;  // constants, threadIdx, __device__ variables
  } else if (!((u ^ (uintptr_t)__builtin_frame_address(0)) / SIM_STACK_BYTES)) {
    return;  // its own stack (modules filter these out)
  }
  out_of_place(what, ILLEGAL_ADDRESS, u, n, kind, pc);
}
void trap(const char *what, const char *file, int line) {
  const char *slash = strrchr(file, '/');
  fail(ASSERT, text("%s at %s:%d", what, slash ? slash + 1 : file, line));
}

bool map_dynamic_shared() {
  if (dynamic_shared) return true;
  void *p = mmap((void *)SIM_DYNAMIC_SHARED, SHARED_MAX, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (p != (void *)SIM_DYNAMIC_SHARED) return false;
  dynamic_shared = (char *)p;
  return true;
}
// Unwritten shared memory reads as NaN. After the first block, what a checked kernel wrote is known and undone; an
// unchecked one then finds what the block before left, as on hardware.
void fill_shared(bool all) {
  Launch &l = *launch;
  sim_module_info &m = *l.module;
  if (all)
    memset(m.shared_lo, 0xff, (size_t)(m.shared_hi - m.shared_lo));
  else if (l.dirty_lo < l.dirty_hi)
    memset(l.dirty_lo, 0xff, (size_t)(l.dirty_hi - l.dirty_lo));
  l.dirty_lo = m.shared_hi;
  l.dirty_hi = m.shared_lo;
  if (l.dynamic && (all || m.checked)) memset(dynamic_shared, 0xff, l.dynamic);
}

}  // namespace sim
