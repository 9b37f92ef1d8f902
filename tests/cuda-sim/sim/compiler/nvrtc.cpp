// The NVRTC calls.
#include "compile.h"
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { OK = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

struct Program {
  Source source;
  std::string log, module;
};
static Program *of(void *handle) { return (Program *)handle; }

EXPORT int nvrtcVersion(int *major, int *minor) {
  *major = 12;
  *minor = 8;
  return OK;
}
EXPORT const char *nvrtcGetErrorString(int code) {
  switch (code) {
    case OK: return "NVRTC_SUCCESS";
    case 1: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case 2: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    default: return "NVRTC_ERROR unknown";
  }
}
EXPORT int nvrtcGetNumSupportedArchs(int *n) {
  *n = (int)architectures().size();
  return OK;
}
EXPORT int nvrtcGetSupportedArchs(int *out) {
  for (int a : architectures()) *out++ = a;
  return OK;
}
EXPORT int nvrtcCreateProgram(void **out, const char *text, const char *name, int n_headers, const char *const *headers,
                              const char *const *names) {
  if (!out || !text || n_headers < 0 || (n_headers && (!headers || !names))) return INVALID_INPUT;
  auto *p = new Program;
  p->source.text = text;
  p->source.name = name && *name ? name : "default_program";
  for (int i = 0; i < n_headers; ++i) {
    if (strchr(names[i], '/')) {
      delete p;
      return INVALID_INPUT;
    }
    p->source.headers.push_back({names[i], headers[i]});
  }
  *out = p;
  return OK;
}
EXPORT int nvrtcDestroyProgram(void **handle) {
  if (!handle || !*handle) return INVALID_PROGRAM;
  delete of(*handle);
  *handle = nullptr;
  return OK;
}
EXPORT int nvrtcCompileProgram(void *handle, int n, const char *const *options) {
  if (!handle) return INVALID_PROGRAM;
  Program &p = *of(handle);
  p.log.clear();
  p.module.clear();
  Options read;
  if (!read_options(n, options, read, p.log)) return INVALID_OPTION;
  return compile(p.source, read, p.module, p.log) ? OK : COMPILATION;
}
static int copy_out(const std::string &s, char *out) {
  memcpy(out, s.c_str(), s.size() + 1);
  return OK;
}
EXPORT int nvrtcGetPTXSize(void *handle, size_t *n) {
  if (!handle || of(handle)->module.empty()) return INVALID_PROGRAM;
  *n = of(handle)->module.size() + 1;
  return OK;
}
EXPORT int nvrtcGetPTX(void *handle, char *out) {
  return handle && !of(handle)->module.empty() ? copy_out(of(handle)->module, out) : INVALID_PROGRAM;
}
EXPORT int nvrtcGetProgramLogSize(void *handle, size_t *n) {
  if (!handle) return INVALID_PROGRAM;
  *n = of(handle)->log.size() + 1;
  return OK;
}
EXPORT int nvrtcGetProgramLog(void *handle, char *out) {
  return handle ? copy_out(of(handle)->log, out) : INVALID_PROGRAM;
}
