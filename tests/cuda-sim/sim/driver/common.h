// Shared by the driver's files: result codes, the one lock, settings, reports.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define SHARED __attribute__((visibility("default")))  // used by the stand-in NCCL too

namespace sim {

// Values of CUresult.
enum Result : int {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX_VERSION = 222,
  FILE_NOT_FOUND = 301,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  LAUNCH_TIMEOUT = 702,
  ASSERT = 710,
  MISALIGNED_ADDRESS = 716,
  LAUNCH_FAILED = 719,
  NOT_PERMITTED = 800,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  CAPTURE_ISOLATION = 905,
  CAPTURE_IMPLICIT = 906,
  CAPTURED_EVENT = 907,
};
// What an operation of a stream answers when it has to wait for another host thread (a collective of several ranks).
const int BLOCKED = -1;

const char *error_name(int code);  // null for a number that is none
const char *error_text(int code);

// One lock over the whole device: calls are serialised, as nothing here is measured by the clock.
SHARED extern std::mutex lock;
SHARED extern std::condition_variable changed;  // a blocked operation may go on

// A line on standard error, kept as the last report too.
SHARED void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Settings: CUDA_SIM_<name> of the environment, or what cuda_sim_set gave. Read when the driver is initialised.
struct Settings {
  int devices, schedule, compute, driver;
  bool lazy, races, strict_exit, pools;
  size_t memory;   // bytes of one device
  double timeout;  // seconds a kernel, or a wait for another rank, may take
};
SHARED extern Settings settings;
void read_settings();
// Nth call of a function fails, as CUDA_SIM_FAIL=name[:n[:code]] asks; OK otherwise.
int planted_failure(const char *function);

struct Counts {
  uint64_t launches, graph_launches, blocks, threads, accesses, gemms, copies, allocations;
};
extern Counts counts;

SHARED double now();  // seconds of a monotonic clock
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace sim

// Exported for tests and for the other stand-in libraries.
EXPORT const char *cuda_sim_get(const char *name);
EXPORT int cuda_sim_run(void *stream, int (*run)(void *), void *arg);
