// The scheduler of a launch: fills shared memory, starts the threads in the schedule's order, resumes those that are
// ready until all have returned. A kernel that depends on the order is wrong, so tests run several.
#include "launch.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace sim {

Launch *launch = nullptr;
uint64_t next_epoch = 1;  // 37 bits: a hundred thousand million barriers

static int print(const char *format, __builtin_va_list args) { return vprintf(format, args); }
static sim_runtime runtime = {block_sync, warp_op, access, trap, active_lanes, print};

std::string place(const Fiber &f) {
  const sim_dim &b = launch->at;
  return text("block (%u,%u,%u), thread (%u,%u,%u)", b.x, b.y, b.z, f.x, f.y, f.z);
}
void fail(int code, const std::string &report) {
  launch->error = code;
  launch->report = report + "; " + place(*launch->running);
  void *dead;
  sim_switch(&dead, launch->scheduler);
  abort();  // nobody resumes it
}
void wait_for_others() { sim_switch(&launch->running->sp, launch->scheduler); }

static void fiber_main() {
  launch->kernel->call(launch->params);
  launch->running->state = DONE;
  void *dead;
  sim_switch(&dead, launch->scheduler);
  abort();
}
static void resume(Fiber &f) {
  launch->running = &f;
  *launch->module->thread_idx = sim_dim{f.x, f.y, f.z};
  sim_switch(&launch->scheduler, f.sp);
  launch->running = nullptr;
  if (f.state != DONE) return;
  give_stack(f.stack);  // at once: threads that never wait share one hot stack
  f.stack = -1;
  ++launch->n_done;
  launch->warps[f.linear / 32].gone |= 1u << (f.linear % 32);
  if (launch->n_waiting) release_barrier_if_complete();
}

static void begin_block() {
  Launch &l = *launch;
  sim_u32 i = 0;
  for (sim_u32 z = 0; z < l.block.z; ++z)
    for (sim_u32 y = 0; y < l.block.y; ++y)
      for (sim_u32 x = 0; x < l.block.x; ++x, ++i) {
        Fiber &f = l.fibers[i];
        f.state = NEW;
        f.stack = -1;
        f.warp_epoch = 0;
        f.x = x;
        f.y = y;
        f.z = z;
        f.linear = i;
      }
  l.n_done = l.n_waiting = 0;
  for (sim_u32 w = 0; w < MAX_THREADS / 32; ++w) {
    sim_u32 first = w * 32;
    l.warps[w].waiting = 0;
    l.warps[w].gone = first >= l.n_threads ? ~0u : l.n_threads - first >= 32 ? 0 : ~0u << (l.n_threads - first);
  }
  l.block_epoch = l.epoch = next_epoch++;
}
static void run_block() {
  Launch &l = *launch;
  begin_block();
  while (l.n_done < l.n_threads) {
    bool progress = false;
    for (int i : l.order) {
      Fiber &f = l.fibers[i];
      if (f.state == NEW) {
        f.stack = take_stack();
        f.sp = fresh_frame(f.stack, fiber_main);
        f.state = READY;
      }
      if (f.state != READY) continue;
      progress = true;
      resume(f);
      if (l.error) return;
    }
    if (!progress) {
      report_deadlock();
      return;
    }
  }
}

// 0 forward, 1 reverse, n > 1 shuffled by that seed.
static void schedule(std::vector<int> &order, sim_u32 n, uint64_t salt) {
  order.resize(n);
  for (sim_u32 i = 0; i < n; ++i) order[i] = (int)(settings.schedule == 1 ? n - 1 - i : i);
  if (settings.schedule > 1) {
    std::mt19937_64 random((uint64_t)settings.schedule * 0x9e3779b97f4a7c15ull + salt);
    std::shuffle(order.begin(), order.end(), random);
  }
}
static sim_u64 nth_block(sim_u64 i, sim_u64 n, uint64_t salt) {
  if (settings.schedule == 0) return i;
  if (settings.schedule == 1) return n - 1 - i;
  return (i + (sim_u64)settings.schedule * salt % n) % n;  // a rotation: shuffling may need a list of millions
}

int run(Launch &job) {
  need_signal_stack();
  static auto &fibers = *new std::vector<Fiber>;  // kept between launches
  static auto &order = *new std::vector<int>;
  job.fibers.swap(fibers);
  job.order.swap(order);
  job.n_threads = job.block.x * job.block.y * job.block.z;
  job.fibers.resize(job.n_threads);
  job.launch_epoch = next_epoch;
  schedule(job.order, job.n_threads, job.launch_epoch);
  *job.module->runtime = runtime;
  *job.module->grid_dim = job.grid;
  *job.module->block_dim = job.block;
  launch = &job;
  watch_launch();
  const sim_dim &g = job.grid;
  sim_u64 n = (sim_u64)g.x * g.y * g.z;
  for (sim_u64 k = 0; k < n && !job.error; ++k) {
    sim_u64 i = nth_block(k, n, job.launch_epoch);
    job.at = sim_dim{(sim_u32)(i % g.x), (sim_u32)(i / g.x % g.y), (sim_u32)(i / g.x / g.y)};
    *job.module->block_idx = job.at;
    fill_shared(k == 0);
    run_block();
  }
  unwatch_launch();
  for (auto &f : job.fibers)
    if (f.stack >= 0) {
      give_stack(f.stack);
      f.stack = -1;
    }
  ++counts.launches;
  counts.blocks += n;
  counts.threads += n * job.n_threads;
  if (job.fault_pc) job.report += " at " + source_line(job.fault_pc);
  if (job.error) say("%s in kernel %s: %s", error_name(job.error), job.kernel->name, job.report.c_str());
  launch = nullptr;
  job.fibers.swap(fibers);
  job.order.swap(order);
  return job.error;
}

}  // namespace sim
