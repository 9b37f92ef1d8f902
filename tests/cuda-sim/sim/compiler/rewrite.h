// CUDA C++ that was preprocessed -> C++ for the host's compiler.
#pragma once
#include <string>

// Spells out shared memory, device variables and launch bounds, drops the rest of CUDA's qualifiers, and appends a
// descriptor for each `extern "C" __global__` kernel. Works after the preprocessor, so kernels made by macros count
// too.
std::string rewrite(const std::string &preprocessed);
