// Modules: what the stand-in NVRTC made, loaded into the process.
#pragma once
#include "../abi.h"

namespace sim {
void forget_modules(int device);
}

// The text that stands for PTX: this line, `key value` lines, a line `image`, then the shared object in base64. It is
// text without NUL, as callers keep it in C strings and pass it without its length.
#define SIM_MODULE_MAGIC "// CUDA test device, module 1"
