// Options by name. Values follow `=`, as callers write them for NVRTC.
#include "options.h"
#include <algorithm>
#include <cstdlib>

const std::vector<int> &architectures() {
  static const std::vector<int> all{50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120};
  return all;
}
static bool takes(const std::string &option, std::initializer_list<const char *> names, std::string &value) {
  for (std::string name : names) {
    if (option.compare(0, name.size(), name)) continue;
    value = option.substr(name.size());
    return true;
  }
  return false;
}
static bool read_arch(const std::string &value, int &out) {
  for (const char *kind : {"compute_", "sm_"}) {
    std::string prefix = kind;
    if (value.compare(0, prefix.size(), prefix)) continue;
    out = atoi(value.c_str() + prefix.size());
    return std::find(architectures().begin(), architectures().end(), out) != architectures().end();
  }
  return false;
}
bool read_options(int n, const char *const *texts, Options &out, std::string &log) {
  // Known, and without meaning here: they change rounding, register use or debug information of a GPU.
  const std::initializer_list<const char *> ignored = {"--ftz=",
                                                       "-ftz=",
                                                       "--prec-sqrt=",
                                                       "-prec-sqrt=",
                                                       "--prec-div=",
                                                       "-prec-div=",
                                                       "--maxrregcount=",
                                                       "-maxrregcount=",
                                                       "--use_fast_math",
                                                       "-use_fast_math",
                                                       "--extra-device-vectorization",
                                                       "--default-device",
                                                       "-default-device",
                                                       "--device-as-default-execution-space",
                                                       "--generate-line-info",
                                                       "-lineinfo",
                                                       "--device-debug",
                                                       "-G",
                                                       "--restrict",
                                                       "-restrict",
                                                       "--disable-warnings",
                                                       "-w",
                                                       "--display-error-number",
                                                       "-err-no",
                                                       "--diag-suppress=",
                                                       "-diag-suppress="};
  for (int i = 0; i < n; ++i) {
    std::string option = texts[i], v;
    bool good = true;
    if (takes(option, {"--gpu-architecture=", "-arch="}, v))
      good = read_arch(v, out.arch);
    else if (takes(option, {"--include-path=", "-I"}, v))
      out.forwarded.push_back("-I" + v);
    else if (takes(option, {"--define-macro=", "-D"}, v))
      out.forwarded.push_back("-D" + v);
    else if (takes(option, {"--undefine-macro=", "-U"}, v))
      out.forwarded.push_back("-U" + v);
    else if (takes(option, {"--std=", "-std="}, v)) {
      good = v == "c++11" || v == "c++14" || v == "c++17" || v == "c++20";
      out.standard = v == "c++20" ? "c++20" : "c++17";
    } else if (takes(option, {"--fmad=", "-fmad="}, v)) {
      good = v == "true" || v == "false";
      out.contract = v == "true";
    } else
      good = takes(option, ignored, v);
    if (good) continue;
    log = "nvrtc: error: invalid value for option or unrecognized option: " + option + "\n";
    return false;
  }
  return true;
}
