// Barriers of a block and collectives of a warp. One host thread runs the block, so the last to arrive can compute
// everybody's result; nothing needs a second phase.
#include "launch.h"
#include <algorithm>

namespace sim {

// Complete when every thread that has not returned waits here, all at one line.
void release_barrier_if_complete() {
  Launch &l = *launch;
  sim_u32 alive = l.n_threads - l.n_done;
  if (!alive || l.n_waiting != alive) return;
  int count = 0, all = 1, any = 0;
  const Fiber *first = nullptr;
  for (auto &f : l.fibers) {
    if (f.state != AT_BARRIER) continue;
    if (!first) first = &f;
    if (f.barrier.line != first->barrier.line || f.barrier.mode != first->barrier.mode) {
      l.error = LAUNCH_FAILED;
      l.report = text("divergent __syncthreads: threads %u and %u of block (%u,%u,%u) wait at lines %d and %d",
                      first->linear, f.linear, l.at.x, l.at.y, l.at.z, first->barrier.line, f.barrier.line);
      return;
    }
    count += f.barrier.predicate;
    all &= f.barrier.predicate;
    any |= f.barrier.predicate;
  }
  if (l.n_done && settings.strict_exit) {
    l.error = LAUNCH_FAILED;
    l.report = text("__syncthreads at line %d reached after %u threads of block (%u,%u,%u) returned",
                    first->barrier.line, l.n_done, l.at.x, l.at.y, l.at.z);
    return;
  }
  int mode = first->barrier.mode;
  int result = mode == SIM_SYNC_COUNT ? count : mode == SIM_SYNC_AND ? all : mode == SIM_SYNC_OR ? any : 0;
  for (auto &f : l.fibers) {
    if (f.state != AT_BARRIER) continue;
    f.state = READY;
    f.barrier.predicate = result;
    f.warp_epoch = 0;
  }
  l.n_waiting = 0;
  l.epoch = next_epoch++;
}
int block_sync(int mode, int predicate, int line) {
  stop_if_overdue();
  Fiber &f = *launch->running;
  f.state = AT_BARRIER;
  f.barrier = {line, mode, predicate};
  ++launch->n_waiting;
  release_barrier_if_complete();
  if (f.state != READY || launch->error) wait_for_others();
  return f.barrier.predicate;
}

static int shuffle_source(int kind, int lane, int arg, int width) {
  int base = lane & ~(width - 1), source = lane;
  switch (kind) {
    case SIM_SHUFFLE_INDEX: return base + (arg & (width - 1));
    case SIM_SHUFFLE_UP: source = lane - arg; return source < base ? lane : source;
    case SIM_SHUFFLE_DOWN: source = lane + arg; return source >= base + width ? lane : source;
    default: source = lane ^ arg; return source >= base + width ? lane : source;
  }
}
static sim_u32 reduced(int kind, sim_u32 a, sim_u32 b) {
  switch (kind) {
    case SIM_ADD: return a + b;
    case SIM_MIN_U32: return b < a ? b : a;
    case SIM_MAX_U32: return b > a ? b : a;
    case SIM_MIN_S32: return (int)b < (int)a ? b : a;
    case SIM_MAX_S32: return (int)b > (int)a ? b : a;
    case SIM_AND: return a & b;
    case SIM_OR: return a | b;
    default: return a ^ b;
  }
}
static void complete_warp_op(int kind, sim_u32 mask, int line, Fiber *lanes) {
  sim_u32 ballot = 0, sum = 0, latest = 0;
  bool first = true;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    sim_u32 value = (sim_u32)lanes[i].warp.value;
    if (lanes[i].warp.value) ballot |= 1u << i;
    latest = std::max(latest, lanes[i].warp_epoch);
    sum = first ? value : reduced(kind, sum, value);
    first = false;
  }
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    Fiber &f = lanes[i];
    if (kind >= SIM_SHUFFLE_INDEX && kind <= SIM_SHUFFLE_XOR) {
      int source = shuffle_source(kind, i, f.warp.arg, f.warp.width);
      if (!(mask >> source & 1))
        fail(LAUNCH_FAILED,
             text("shuffle at line %d: lane %d reads lane %d, which is not in the mask 0x%08x", line, i, source, mask));
      f.warp.result = lanes[source].warp.value;
    } else {
      f.warp.result = kind == SIM_BALLOT ? ballot
                      : kind == SIM_ANY  ? ballot != 0
                      : kind == SIM_ALL  ? ballot == mask
                                         : sum;
    }
    // one count for all that met here: lanes of earlier, narrower masks may be ahead
    if (kind == SIM_WARP_SYNC) f.warp_epoch = std::min(latest + 1, 0xffffu);
    f.state = READY;
  }
}
static bool same_collective(const Fiber &a, const Fiber &b) {
  return a.warp.kind == b.warp.kind && a.warp.mask == b.warp.mask && a.warp.line == b.warp.line &&
         a.warp.width == b.warp.width;
}
// Several collectives of one warp are under way, which is right as long as no two lanes wait for each other at
// different ones: groups of lanes may be at different places.
static bool all_arrived(const Fiber &f, const Fiber *lanes, sim_u32 waiting) {
  bool all = true;
  sim_u32 lane = f.linear % 32;
  for (sim_u32 i = 0; i < 32; ++i) {
    if (!(f.warp.mask >> i & 1)) continue;
    const Fiber &o = lanes[i];
    if (!(waiting >> i & 1)) {
      all = false;
    } else if (!same_collective(f, o)) {
      all = false;
      if (o.warp.mask >> lane & 1)
        fail(LAUNCH_FAILED,
             text("lanes of one warp disagree on the collective: lane %u waits at line %d (mask 0x%08x), "
                  "lane %u at line %d (mask 0x%08x)",
                  i, o.warp.line, o.warp.mask, lane, f.warp.line, f.warp.mask));
    }
  }
  return all;
}
sim_u64 warp_op(int kind, sim_u32 mask, sim_u64 value, int arg, int width, int line) {
  stop_if_overdue();
  Launch &l = *launch;
  Fiber &f = *l.running;
  sim_u32 lane = f.linear % 32, first = f.linear - lane;
  Warp &w = l.warps[f.linear / 32];
  if (!(mask >> lane & 1))
    fail(LAUNCH_FAILED,
         text("warp collective at line %d: the calling lane %u is not in its mask 0x%08x", line, lane, mask));
  if (width < 1 || width > 32 || (width & (width - 1)))
    fail(LAUNCH_FAILED, text("shuffle at line %d: width %d is no power of two up to 32", line, width));
  if (sim_u32 gone = mask & w.gone) {
    sim_u32 i = (sim_u32)__builtin_ctz(gone);
    fail(LAUNCH_FAILED, text("warp collective at line %d: mask 0x%08x names lane %u, which %s", line, mask, i,
                             first + i >= l.n_threads ? "does not exist in this block" : "has returned"));
  }
  f.state = AT_WARP;
  f.warp = {kind, arg, width, line, mask, value, 0};
  if (!w.waiting) {
    w.mixed = false;
    w.first = lane;
  }
  w.waiting |= 1u << lane;
  w.mixed |= !same_collective(f, l.fibers[first + w.first]);
  bool complete = w.mixed ? all_arrived(f, &l.fibers[first], w.waiting) : (w.waiting & mask) == mask;
  if (!complete) {
    wait_for_others();
    return f.warp.result;
  }
  w.waiting &= ~mask;
  complete_warp_op(kind, mask, line, &l.fibers[first]);
  return f.warp.result;
}
sim_u32 active_lanes() { return ~launch->warps[launch->running->linear / 32].gone; }

// No thread is ready and not all have returned: says who waits for whom.
void report_deadlock() {
  Launch &l = *launch;
  l.error = LAUNCH_TIMEOUT;
  sim_u32 at_barrier = 0, at_warp = 0;
  int barrier_line = 0, warp_line = 0;
  for (auto &f : l.fibers) {
    if (f.state == AT_BARRIER) {
      ++at_barrier;
      barrier_line = f.barrier.line;
    }
    if (f.state != AT_WARP) continue;
    ++at_warp;
    warp_line = f.warp.line;
    for (sim_u32 i = 0; i < 32; ++i) {
      if (!(f.warp.mask >> i & 1)) continue;
      const Fiber &other = l.fibers[f.linear / 32 * 32 + i];
      if (other.state == AT_WARP) continue;
      l.report = text("warp collective at line %d: mask 0x%08x names lane %u, which %s; %s waits for it", f.warp.line,
                      f.warp.mask, i, other.state == DONE ? "has returned" : "waits elsewhere", place(f).c_str());
      return;
    }
  }
  l.report = text(
      "deadlock in block (%u,%u,%u): %u threads wait at __syncthreads (line %d), %u at a warp collective (line %d), %u "
      "returned",
      l.at.x, l.at.y, l.at.z, at_barrier, barrier_line, at_warp, warp_line, l.n_done);
}

}  // namespace sim
