// One kernel launch: blocks one after another, each thread of a block a fiber.
#pragma once
#include "fiber.h"
#include "memory.h"
#include <string>
#include <vector>

namespace sim {

enum FiberState : unsigned char { NEW, READY, AT_BARRIER, AT_WARP, DONE };
struct Fiber {
  void *sp;
  int stack;
  FiberState state;
  sim_u32 x, y, z, linear, warp_epoch;
  struct {
    int line, mode, predicate;
  } barrier;
  struct {
    int kind, arg, width, line;
    sim_u32 mask;
    sim_u64 value, result;
  } warp;
};
struct Warp {
  sim_u32 waiting, gone;  // lanes at a collective; lanes that returned or never were
  sim_u32 first;          // the lane that came first of those that wait
  bool mixed;             // they wait at different collectives
};
struct Launch {
  int device;
  const sim_kernel *kernel;
  sim_module_info *module;
  void **params;
  sim_dim grid, block, at;  // `at`: the block that runs
  size_t dynamic;           // bytes of dynamic shared memory
  sim_u32 n_threads, n_done, n_waiting;
  uint64_t launch_epoch, block_epoch, epoch;  // at the launch's and the block's beginning, and now
  std::vector<Fiber> fibers;
  std::vector<int> order;
  Warp warps[MAX_THREADS / 32];
  char *dirty_lo, *dirty_hi;  // static shared memory that the block wrote (checked mode)
  void *scheduler;            // its stack pointer while a fiber runs
  Fiber *running;             // null while the scheduler runs
  int error;
  void *fault_pc;  // where a signal ended it
  std::string report;
};
extern Launch *launch;       // the one in progress; the device lock is held
extern uint64_t next_epoch;  // see Record

// Runs to the end; a Result.
int run(Launch &job);
// On a fiber: ends the launch with this report; never returns.
[[noreturn]] void fail(int code, const std::string &report);
// On a fiber: until it is ready again.
void wait_for_others();
std::string place(const Fiber &f);  // "block (0,0,0), thread (3,0,0)"
std::string source_line(void *pc);  // "scan.cu:17", empty where unknown; see module.cpp

// collectives.cpp
int block_sync(int mode, int predicate, int line);
sim_u64 warp_op(int kind, sim_u32 mask, sim_u64 value, int arg, int width, int line);
sim_u32 active_lanes();
void release_barrier_if_complete();
void report_deadlock();
// access.cpp
void access(const volatile void *p, sim_u64 bytes, int kind, void *pc);
void trap(const char *what, const char *file, int line);
void fill_shared(bool all);
extern char *dynamic_shared;
const size_t SHARED_MAX = 227 * 1024;  // of one block, opt-in
bool map_dynamic_shared();
// faults.cpp
void install_handlers();
void need_signal_stack();  // once per host thread
void watch_launch();       // the watchdog follows `launch`
void unwatch_launch();
void stop_if_overdue();  // on a fiber

}  // namespace sim
