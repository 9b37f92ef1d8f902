// Options of a compilation, read as NVRTC reads them.
#pragma once
#include <string>
#include <vector>

struct Options {
  int arch = 52;                       // NVRTC's own default
  bool contract = true;                // a * b + c in one rounding, nvcc's default
  std::vector<std::string> forwarded;  // -I and -D, as arguments of g++
  std::string standard = "c++17";
};
// False, and a log in NVRTC's words, for an option that NVRTC does not know.
bool read_options(int n, const char *const *texts, Options &out, std::string &log);
// The architectures of NVRTC 12.8.
const std::vector<int> &architectures();
