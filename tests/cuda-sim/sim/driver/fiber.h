// Stacks for CUDA threads and the switch between them.
#pragma once
#include "../abi.h"
#include <cstdint>

// Saves the callee-saved registers and the stack pointer in *save, goes on at `to`.
extern "C" void sim_switch(void **save, void *to);

namespace sim {
const int MAX_THREADS = 1024;  // of one block
int take_stack();              // index of a free stack; its lower neighbour is a guard
void give_stack(int stack);
char *stack_low(int stack);                     // [low, low + SIM_STACK_BYTES)
void *fresh_frame(int stack, void (*entry)());  // what sim_switch takes to start `entry` on that stack
bool in_stack_guard(uintptr_t p);
}  // namespace sim
