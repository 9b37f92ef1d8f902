// From CUDA C++ to the text that stands for PTX.
#pragma once
#include "options.h"
#include <string>
#include <utility>
#include <vector>

struct Source {
  std::string text, name;
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
};
// Compiles, or takes the result of an earlier run from the cache. False: `log` says why.
bool compile(const Source &source, const Options &options, std::string &module, std::string &log);
