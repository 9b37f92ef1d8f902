// Loading modules, finding kernels, launching them. Each load is a shared object of its own (in an anonymous file), so
// two loads of one text have separate `__device__` variables, and nothing depends on a file that may vanish.
#include "module.h"
#include "launch.h"
#include "stream.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {

struct Module {
  void *library = nullptr;
  int file = -1, device = 0;
  sim_module_info *info = nullptr;
  std::map<std::string, void *> functions;  // handles given out
  ~Module() {
    if (library) dlclose(library);
    if (file >= 0) close(file);  // open until now: its number is the object's name, and names must differ
  }
};
struct Function {
  std::shared_ptr<Module> module;
  const sim_kernel *kernel = nullptr;
  int max_dynamic = 48 * 1024;
};
static Handles<Module> &modules = *new Handles<Module>;
static Handles<Function> &functions = *new Handles<Function>;

static void remove_functions(Module &m) {
  for (auto &f : m.functions) functions.remove(f.second);
  m.functions.clear();
}
void forget_modules(int device) {
  for (auto it = modules.live.begin(); it != modules.live.end();) {
    if (it->second->device != device) {
      ++it;
      continue;
    }
    remove_functions(*it->second);
    it = modules.live.erase(it);
  }
}

// addr2line comes with the linker that g++ needs anyway. Only called for reports.
std::string source_line(void *pc) {
  Dl_info where;
  if (!pc || !dladdr(pc, &where) || !where.dli_fname) return "an unknown place";
  std::string file = where.dli_fname;
  const std::string own = "/proc/self/";
  if (!file.compare(0, own.size(), own)) file = text("/proc/%d/", getpid()) + file.substr(own.size());
  std::string command = text("addr2line -e '%s' 0x%lx 2>/dev/null", file.c_str(),
                             (unsigned long)((char *)pc - (char *)where.dli_fbase - 1));
  char line[512] = "";
  if (FILE *p = popen(command.c_str(), "r")) {
    if (!fgets(line, sizeof line, p)) line[0] = 0;
    pclose(p);
  }
  std::string out = line;
  out = out.substr(0, out.find_first_of(" \n"));  // " (discriminator 2)"
  size_t slash = out.rfind('/');
  if (slash != std::string::npos) out = out.substr(slash + 1);
  return out.empty() ? "an unknown place" : out;
}

static bool decode(const char *text, std::string &out) {
  static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  signed char value[256];
  memset(value, -1, sizeof value);
  for (int i = 0; i < 64; ++i) value[(unsigned char)ALPHABET[i]] = (signed char)i;
  unsigned bits = 0, n = 0;
  for (; *text; ++text) {
    if (*text == '\n' || *text == '\r' || *text == '=') continue;
    int v = value[(unsigned char)*text];
    if (v < 0) return false;
    bits = bits << 6 | (unsigned)v;
    if ((n += 6) >= 8) out.push_back((char)(bits >> (n -= 8) & 255));
  }
  return true;
}
static std::string field(const std::string &header, const char *key) {
  size_t at = header.find(std::string("\n// ") + key + " ");
  if (at == std::string::npos) return "";
  at += strlen(key) + 5;
  return header.substr(at, header.find('\n', at) - at);
}
static int refused(int code, const std::string &why) {
  say("module: %s", why.c_str());
  return code;
}
static int load(const char *image, int device, std::shared_ptr<Module> &out) {
  const size_t n = strlen(SIM_MODULE_MAGIC);
  if (strncmp(image, SIM_MODULE_MAGIC, n)) return strncmp(image, "\177ELF", 4) ? INVALID_PTX : INVALID_IMAGE;
  const char *body = strstr(image, "\n// image\n");
  if (!body) return refused(INVALID_PTX, "cut off");
  std::string header(image, body + 1), object;
  if (atoi(field(header, "toolkit").c_str()) > settings.driver)
    return refused(UNSUPPORTED_PTX_VERSION,
                   text("made for CUDA %s, the driver has %d", field(header, "toolkit").c_str(), settings.driver));
  if (atoi(field(header, "target").c_str()) > settings.compute)
    return refused(NO_BINARY_FOR_GPU,
                   text("made for sm_%s, the device is sm_%d", field(header, "target").c_str(), settings.compute));
  if (!decode(body + strlen("\n// image\n"), object) || object.size() != (size_t)atol(field(header, "bytes").c_str()))
    return refused(INVALID_PTX, "damaged");
  sim_u64 hash = 1469598103934665603ull;
  for (unsigned char c : object) hash = (hash ^ c) * 1099511628211ull;
  if (text("%016llx", hash) != field(header, "hash")) return refused(INVALID_PTX, "damaged");
  auto m = std::make_shared<Module>();
  m->device = device;
  m->file = memfd_create("cuda-sim-module", MFD_CLOEXEC);
  if (m->file < 0 || write(m->file, object.data(), object.size()) != (ssize_t)object.size())
    return refused(OUT_OF_MEMORY, "no anonymous file");
  m->library = dlopen(text("/proc/self/fd/%d", m->file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!m->library) return refused(INVALID_PTX, dlerror());
  m->info = (sim_module_info *)dlsym(m->library, "sim_module");
  if (!m->info || m->info->abi != SIM_ABI) return refused(INVALID_IMAGE, "made by another version of the test device");
  out = m;
  return OK;
}

}  // namespace sim
using namespace sim;

EXPORT int cuModuleLoadData(void **out, const void *image) {
  ENTER(CONTEXT);
  if (!image) return INVALID_VALUE;
  if (int r = refuse_while_capturing(entry.device)) return r;
  std::shared_ptr<Module> m;
  if (int r = load((const char *)image, entry.device, m)) return r;
  *out = modules.add(m);
  return OK;
}
EXPORT int cuModuleLoad(void **out, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return FILE_NOT_FOUND;
  std::string all;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, f));) all.append(part, n);
  fclose(f);
  return cuModuleLoadData(out, all.c_str());
}
EXPORT int cuModuleUnload(void *handle) {
  ENTER(INIT);
  auto m = modules.get(handle);
  if (!m) return INVALID_HANDLE;
  wait_device(entry.guard, m->device);
  remove_functions(*m);
  modules.remove(handle);
  return OK;
}
EXPORT int cuModuleGetFunction(void **out, void *handle, const char *name) {
  ENTER(CONTEXT);
  auto m = modules.get(handle);
  if (!m) return INVALID_HANDLE;
  auto known = m->functions.find(name);
  if (known != m->functions.end()) {
    *out = known->second;
    return OK;
  }
  auto *k = (const sim_kernel *)dlsym(m->library, (std::string("sim_kernel_") + name).c_str());
  if (!k) return NOT_FOUND;
  auto f = std::make_shared<Function>();
  f->module = m;
  f->kernel = k;
  *out = m->functions[name] = functions.add(f);
  return OK;
}
// Variables of a module are hidden: production code passes buffers instead.
EXPORT int cuModuleGetGlobal_v2(uint64_t *, size_t *, void *, const char *name) {
  ENTER(CONTEXT);
  say("cuModuleGetGlobal(%s): the test device gives no access to variables of a module", name);
  return NOT_FOUND;
}

EXPORT int cuFuncGetAttribute(int *out, int which, void *handle) {
  ENTER(CONTEXT);
  auto f = functions.get(handle);
  if (!f) return INVALID_HANDLE;
  const sim_module_info &m = *f->module->info;
  switch (which) {
    case 0: *out = f->kernel->max_threads ? (int)f->kernel->max_threads : MAX_THREADS; break;
    case 1: *out = (int)(m.shared_hi - m.shared_lo); break;  // of the whole module: an upper bound
    case 4: *out = 32; break;                                // registers: ptxas knows, we do not
    case 5:
    case 6: *out = settings.compute; break;
    case 8: *out = f->max_dynamic; break;
    default: *out = 0;
  }
  return OK;
}
EXPORT int cuFuncSetAttribute(void *handle, int which, int value) {
  ENTER(CONTEXT);
  auto f = functions.get(handle);
  if (!f) return INVALID_HANDLE;
  if (which != 8) return OK;  // carve-outs and the like: performance only
  if (value < 0 || (size_t)value > SHARED_MAX) return INVALID_VALUE;
  f->max_dynamic = value;
  return OK;
}
EXPORT int cuFuncSetCacheConfig(void *handle, int) {
  ENTER(CONTEXT);
  return functions.get(handle) ? OK : INVALID_HANDLE;
}
static int active_blocks(int *out, void *handle, int threads, size_t dynamic) {
  auto f = functions.get(handle);
  if (!f || threads < 1) return f ? INVALID_VALUE : INVALID_HANDLE;
  size_t by_threads = 2048 / (size_t)threads, by_shared = dynamic ? 228 * 1024 / dynamic : by_threads;
  *out = (int)std::min(by_threads, by_shared);
  return OK;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *f, int threads, size_t dynamic) {
  ENTER(CONTEXT);
  return active_blocks(out, f, threads, dynamic);
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, void *f, int threads, size_t dynamic,
                                                                unsigned) {
  ENTER(CONTEXT);
  return active_blocks(out, f, threads, dynamic);
}
EXPORT int cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, void *handle, void *, size_t, int limit,
                                                     unsigned) {
  ENTER(CONTEXT);
  auto f = functions.get(handle);
  if (!f) return INVALID_HANDLE;
  int most = f->kernel->max_threads ? (int)f->kernel->max_threads : MAX_THREADS;
  *block = limit ? std::min(limit, most) : most;
  *grid = 4 * 2048 / *block;
  return OK;
}

// Arguments are copied at the launch, as the driver does. The API says nothing of how many there are.
struct Arguments {
  std::vector<std::vector<sim_u64>> values;
  std::vector<void *> pointers;
};
static int copy_arguments(const sim_kernel &k, void **params, int device, Arguments &out) {
  out.values.resize(k.n_params);
  out.pointers.resize(k.n_params + 1);
  for (sim_u32 i = 0; i < k.n_params; ++i) {
    auto &v = out.values[i];
    v.resize((k.sizes[i] + 7) / 8);
    memcpy(v.data(), params[i], k.sizes[i]);
    out.pointers[i] = v.data();
    if (!k.is_pointer[i] || !v[0]) continue;
    Allocation *a = find(v[0]);
    if (!a) a = find(v[0] - 1);  // one past the end may be passed
    if (a && (a->device == device || a->device == HOST)) continue;
    say("%s: argument %u (0x%llx) is %s", k.name, i, v[0], a ? "memory of another device" : "not a device pointer");
    return ILLEGAL_ADDRESS;
  }
  return OK;
}
EXPORT int cuLaunchKernel(void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned dynamic, void *stream, void **params, void **extra) {
  ENTER(CONTEXT);
  auto f = functions.get(handle);
  auto s = stream_of(stream, entry.device);
  if (!f || !s || f->module->device != entry.device) return INVALID_HANDLE;
  const sim_kernel &k = *f->kernel;
  uint64_t threads = (uint64_t)bx * by * bz;
  if (extra || (k.n_params && !params)) return INVALID_VALUE;
  if (!gx || !gy || !gz || !threads || gx > 0x7fffffffu || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 ||
      bz > 64 || threads > MAX_THREADS) {
    say("%s: grid (%u,%u,%u), block (%u,%u,%u) is outside the device's limits", k.name, gx, gy, gz, bx, by, bz);
    return INVALID_VALUE;
  }
  if (k.max_threads && threads > k.max_threads) {
    say("%s: %llu threads exceed __launch_bounds__(%u)", k.name, (unsigned long long)threads, k.max_threads);
    return LAUNCH_OUT_OF_RESOURCES;
  }
  if ((int)dynamic < 0 || (int)dynamic > f->max_dynamic) {
    say("%s: %u bytes of dynamic shared memory, %d are allowed: cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES) "
        "allows more",
        k.name, dynamic, f->max_dynamic);
    return INVALID_VALUE;
  }
  auto arguments = std::make_shared<Arguments>();
  if (int r = copy_arguments(k, params, entry.device, *arguments)) {
    device(entry.device).sticky = r;
    return r;
  }
  int d = entry.device;
  return submit(s, [=] {
    Launch l{};
    l.device = d;
    l.kernel = f->kernel;
    l.module = f->module->info;
    l.params = arguments->pointers.data();
    l.grid = sim_dim{gx, gy, gz};
    l.block = sim_dim{bx, by, bz};
    l.dynamic = dynamic;
    return run(l);
  });
}
