// g++ three times: preprocess, compile, link. In checked mode (the default) the compiler's own instrumentation for
// ThreadSanitizer and UndefinedBehaviorSanitizer is used without their libraries: the device header defines what it
// calls.
#include "compile.h"
#include "../driver/module.h"
#include "headers.inc"  // EMBEDDED: the device headers, written by the build script
#include "rewrite.h"
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <spawn.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern "C" const char *cuda_sim_get(const char *name);

static std::string setting(const char *name, const std::string &otherwise) {
  std::string s = cuda_sim_get(name);
  return s.empty() ? otherwise : s;
}
static std::string read_file(const std::string &path) {
  std::ifstream f(path, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}
static bool write_file(const std::string &path, const std::string &text) {
  std::ofstream f(path, std::ios::binary);
  f << text;
  f.close();
  return (bool)f;
}
static unsigned long long hash_of(const std::string &s) {
  unsigned long long h = 1469598103934665603ull;
  for (unsigned char c : s) h = (h ^ c) * 1099511628211ull;
  return h;
}
static std::string hex(unsigned long long x) {
  char out[32];
  snprintf(out, sizeof out, "%016llx", x);
  return out;
}
// Names that no other thread or process uses: two may compile one source at once.
static std::string unique() {
  static std::atomic<unsigned> n{0};
  return std::to_string(getpid()) + "-" + std::to_string(n++);
}

// Runs a program, its standard error added to the file; its exit status.
static int run(const std::vector<std::string> &words, const std::string &errors) {
  std::vector<char *> argv;
  for (auto &w : words) argv.push_back(const_cast<char *>(w.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 2, errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  pid_t child;
  int failed = posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ), status = 0;
  posix_spawn_file_actions_destroy(&files);
  if (failed) {
    std::ofstream(errors, std::ios::app) << "cannot run " << words[0] << ": " << strerror(failed) << "\n";
    return 127;
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// The folder of compiled objects: beside this library, in the build's own output, as what lies there gets loaded.
static std::string cache_folder() {
  Dl_info self;
  dladdr((void *)&cache_folder, &self);
  std::string here = self.dli_fname;
  std::string folder = setting("CACHE", here.substr(0, here.rfind('/')) + "/cache");
  mkdir(folder.c_str(), 0700);
  return folder;
}
// The device headers as files, once per version.
static std::string header_folder(const std::string &cache) {
  static std::mutex one;
  std::lock_guard<std::mutex> guard(one);
  std::string all;
  for (auto &h : EMBEDDED) all += std::string(h.name) + "\n" + h.text;
  std::string folder = cache + "/include-" + hex(hash_of(all));
  struct stat found;
  if (!stat(folder.c_str(), &found)) return folder;
  std::string fresh = folder + "." + unique();
  mkdir(fresh.c_str(), 0700);
  for (auto &h : EMBEDDED) write_file(fresh + "/" + h.name, h.text);
  if (rename(fresh.c_str(), folder.c_str())) {  // another process was first
    for (auto &h : EMBEDDED) unlink((fresh + "/" + h.name).c_str());
    rmdir(fresh.c_str());
  }
  return folder;
}

static std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string> &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
static std::vector<std::string> code_flags(bool checked, bool contract) {
  std::vector<std::string> out = {
      "-g1", "-w", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables",
      "-fno-strict-aliasing", "-fno-math-errno", "-fno-threadsafe-statics", "-fno-stack-protector",
      "-fstack-clash-protection" /* no frame jumps over the guard */, "-fno-gnu-unique", "-U_FORTIFY_SOURCE",
      // loops made into memset and memcpy would escape the checks
      "-fno-tree-loop-distribute-patterns", "-fno-tree-vectorize",
      contract ? "-ffp-contract=fast" : "-ffp-contract=off"};
  if (checked) {
    // -O1 alone never contracts a * b + c
    out = joined(out, {"-O1", "-fexpensive-optimizations",
                       "-fsanitize=thread,bounds,alignment,shift,integer-divide-by-zero,signed-integer-overflow"});
#if __GNUC__ >= 12
    out = joined(out, {"--param", "tsan-instrument-func-entry-exit=0"});
#endif
  } else {
    out.push_back("-O2");
  }
#if defined(__x86_64__)
  out.push_back("-fcf-protection=none");
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
    out = joined(out, {"-mfma", "-mavx2"});  // the GPU contracts too
#endif
  return out;
}
static std::string base64(const std::string &in) {
  static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < in.size(); i += 3) {
    unsigned v = (unsigned char)in[i] << 16;
    if (i + 1 < in.size()) v |= (unsigned)(unsigned char)in[i + 1] << 8;
    if (i + 2 < in.size()) v |= (unsigned char)in[i + 2];
    for (int k = 0; k < 4; ++k) out += i + (size_t)k <= in.size() ? ALPHABET[v >> (18 - 6 * k) & 63] : '=';
    if (i % 96 == 93) out += '\n';
  }
  return out + "\n";
}

// Compiles to `object`; the files in between carry the prefix `mine`.
static bool build(const Source &source, const Options &options, bool checked, const std::string &cxx,
                  const std::string &headers, const std::string &mine, const std::string &object, std::string &log) {
  std::string errors = mine + ".log", own_headers = mine + ".d", cu = mine + ".cu", pre = mine + ".pre",
              ii = mine + ".ii", o = mine + ".o";
  // the line directive makes every message and every report name the .cu file
  write_file(cu, "#include \"cuda_sim.h\"\n#line 1 \"" + source.name + "\"\n" + source.text + "\n");
  std::string arch = std::to_string(options.arch) + "0";
  std::vector<std::string> preprocess = {cxx,
                                         "-std=" + options.standard,
                                         "-nostdinc",
                                         "-nostdinc++",
                                         "-E",
                                         "-x",
                                         "c++",
                                         "-I" + headers,
                                         "-D__CUDACC__=1",
                                         "-D__CUDACC_RTC__=1",
                                         "-D__CUDACC_VER_MAJOR__=12",
                                         "-D__CUDACC_VER_MINOR__=8",
                                         "-D__CUDA_ARCH__=" + arch,
                                         "-DCUDA_SIM=1",
                                         checked ? "-DCUDA_SIM_CHECKED=1" : "-DCUDA_SIM_CHECKED=0"};
  if (!source.headers.empty()) {
    mkdir(own_headers.c_str(), 0700);
    for (auto &h : source.headers) write_file(own_headers + "/" + h.first, h.second);
    preprocess.push_back("-I" + own_headers);
  }
  preprocess = joined(joined(preprocess, options.forwarded), {cu, "-o", pre});
  bool good = !run(preprocess, errors);
  if (good) {
    write_file(ii, rewrite(read_file(pre)));
    good = !run(joined(joined({cxx, "-std=" + options.standard}, code_flags(checked, options.contract)),
                       {"-x", "c++-cpp-output", "-c", ii, "-o", o}),
                errors) &&
           // without start files: they would put a variable of their own beside the shared arrays
           !run({cxx, "-shared", "-nostartfiles", "-Wl,-z,now", o, "-o", object, "-lm"}, errors);
  }
  log += read_file(errors);
  if (setting("KEEP", "").empty()) {
    for (auto &h : source.headers) unlink((own_headers + "/" + h.first).c_str());
    rmdir(own_headers.c_str());
    for (auto &f : {errors, cu, pre, ii, o}) unlink(f.c_str());
  }
  return good;
}
bool compile(const Source &source, const Options &options, std::string &module, std::string &log) {
  bool checked = setting("CHECK", "1") != "0";
  std::string cxx = setting("CXX", "g++"), cache = cache_folder(), headers = header_folder(cache);
  std::string key = headers + "\1" + cxx + "\1" + std::to_string(options.arch) + options.standard + "\1" + __VERSION__;
  for (auto &f : joined(code_flags(checked, options.contract), options.forwarded)) key += "\1" + f;
  for (auto &h : source.headers) key += "\1" + h.first + "\1" + h.second;
  key += "\1" + source.name + "\1" + source.text;
  std::string base = cache + "/" + hex(hash_of(key)), object = base + ".so", image = read_file(object);
  if (image.empty()) {
    std::string mine = base + "." + unique(), fresh = mine + ".so";
    bool good = build(source, options, checked, cxx, headers, mine, fresh, log);
    if (good) image = read_file(fresh);
    if (!good || rename(fresh.c_str(), object.c_str())) unlink(fresh.c_str());
    if (!good) return false;
  }
  module = std::string(SIM_MODULE_MAGIC) + "\n// name " + source.name + "\n// toolkit 12080\n// target " +
           std::to_string(options.arch) + "\n// bytes " + std::to_string(image.size()) + "\n// hash " +
           hex(hash_of(image)) + "\n// image\n" + base64(image);
  return true;
}
