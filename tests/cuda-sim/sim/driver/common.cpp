// Result codes by name, settings, reports and the counters that tests read.
#include "common.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>

namespace sim {

std::mutex lock;
std::condition_variable changed;
Settings settings;
Counts counts;

static const struct {
  int code;
  const char *name, *text;
} ERRORS[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};
const char *error_name(int code) {
  for (auto &e : ERRORS)
    if (e.code == code) return e.name;
  return nullptr;
}
const char *error_text(int code) {
  for (auto &e : ERRORS)
    if (e.code == code) return e.text;
  return nullptr;
}

static std::string vtext(const char *format, va_list args) {
  char out[2048];
  vsnprintf(out, sizeof out, format, args);
  return out;
}
std::string text(const char *format, ...) {
  va_list args;
  va_start(args, format);
  std::string out = vtext(format, args);
  va_end(args);
  return out;
}

// Reports and settings have a lock of their own: they are used by threads that hold the device's lock and by others.
static std::mutex small;
static std::string &last_report = *new std::string;
void say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  std::string line = vtext(format, args);
  va_end(args);
  fprintf(stderr, "cuda-sim: %s\n", line.c_str());
  std::lock_guard<std::mutex> guard(small);
  last_report = line;
}

static std::map<std::string, std::string> &given() {
  static auto &map = *new std::map<std::string, std::string>;
  return map;
}
static std::string get(const char *name) {
  std::lock_guard<std::mutex> guard(small);
  auto it = given().find(name);
  if (it != given().end()) return it->second;
  const char *env = getenv((std::string("CUDA_SIM_") + name).c_str());
  return env ? env : "";
}
static int number(const char *name, int otherwise) {
  std::string s = get(name);
  return s.empty() ? otherwise : atoi(s.c_str());
}
static size_t bytes(const char *name, size_t otherwise) {
  std::string s = get(name);
  if (s.empty()) return otherwise;
  char *end;
  double value = strtod(s.c_str(), &end);
  switch (*end) {
    case 'K': value *= 1 << 10; break;
    case 'M': value *= 1 << 20; break;
    case 'G': value *= 1 << 30; break;
  }
  return (size_t)value;
}

static std::string &fail_function = *new std::string;
static int fail_nth, fail_code, fail_seen;
void read_settings() {
  settings.devices = number("DEVICES", 1);
  settings.schedule = number("SCHEDULE", 0);
  settings.compute = number("COMPUTE", 90);
  settings.driver = number("DRIVER", 12080);
  settings.lazy = number("LAZY", 0);
  settings.races = number("RACES", 1);
  settings.strict_exit = number("STRICT_EXIT", 1);
  settings.pools = number("POOLS", 1);
  settings.memory = bytes("MEMORY", (size_t)4 << 30);
  std::string timeout = get("TIMEOUT");
  settings.timeout = timeout.empty() ? 60.0 : atof(timeout.c_str());
  std::string fail = get("FAIL");
  size_t colon = fail.find(':'), second = colon == std::string::npos ? colon : fail.find(':', colon + 1);
  fail_function = fail.substr(0, colon);
  fail_nth = colon == std::string::npos ? 1 : atoi(fail.c_str() + colon + 1);
  fail_code = second == std::string::npos ? 999 : atoi(fail.c_str() + second + 1);
  fail_seen = 0;
}
int planted_failure(const char *function) {
  if (fail_function.empty() || fail_function != function || ++fail_seen != fail_nth) return OK;
  say("%s: planted failure %d", function, fail_code);
  return fail_code;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

}  // namespace sim

// For the other stand-in libraries and for tests.
EXPORT void cuda_sim_set(const char *name, const char *value) {
  std::lock_guard<std::mutex> guard(sim::small);
  sim::given()[name] = value;
}
EXPORT const char *cuda_sim_get(const char *name) {  // empty where not set; valid until this thread's next call
  static thread_local std::string kept;
  kept = sim::get(name);
  return kept.c_str();
}
EXPORT size_t cuda_sim_report(char *out, size_t capacity) {  // bytes of the last report, copied as far as they fit
  std::lock_guard<std::mutex> guard(sim::small);
  size_t n = sim::last_report.size();
  if (capacity) {
    size_t kept = n < capacity - 1 ? n : capacity - 1;
    memcpy(out, sim::last_report.data(), kept);
    out[kept] = 0;
  }
  return n;
}
