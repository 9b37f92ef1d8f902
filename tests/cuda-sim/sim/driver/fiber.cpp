// Hand-written switch: ucontext would make a system call per switch. x86-64 and AArch64 (Linux).
#include "fiber.h"
#include "common.h"
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#if defined(__x86_64__)
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch,@function
sim_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size sim_switch,.-sim_switch
)");
static void *frame(char *top, void (*entry)()) {
  void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
  *--sp = nullptr;  // a return address that is none: on entry rsp % 16 must be 8
  *--sp = (void *)entry;
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch,%function
sim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size sim_switch,.-sim_switch
)");
static void *frame(char *top, void (*entry)()) {
  void **sp = (void **)(((uintptr_t)top & ~(uintptr_t)15) - 160);
  memset(sp, 0, 160);
  sp[11] = (void *)entry;  // x30
  return sp;
}
#else
#error "the CUDA test device knows x86-64 and AArch64"
#endif

namespace sim {

// One reservation: guard, stack, guard, stack ... Both are SIM_STACK_BYTES long, so every stack is aligned to its size.
static char *stacks = nullptr;
static std::vector<int> &free_stacks = *new std::vector<int>;
static int made = 0;
static const size_t SLOT = 2 * SIM_STACK_BYTES;

char *stack_low(int stack) { return stacks + (size_t)stack * SLOT + SIM_STACK_BYTES; }
int take_stack() {
  if (!stacks) {
    size_t n = (MAX_THREADS + 1) * SLOT;
    void *p = mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      say("no address space for %zu bytes of stacks", n);
      abort();
    }
    stacks = (char *)(((uintptr_t)p + SLOT - 1) / SLOT * SLOT);
  }
  if (free_stacks.empty()) {
    if (mprotect(stack_low(made), SIM_STACK_BYTES, PROT_READ | PROT_WRITE)) {
      say("no memory for stack %d", made);
      abort();
    }
    free_stacks.push_back(made++);
  }
  int s = free_stacks.back();
  free_stacks.pop_back();
  return s;
}
void give_stack(int stack) { free_stacks.push_back(stack); }
void *fresh_frame(int stack, void (*entry)()) {
  // coloured: tops at one and the same offset of a page would share one set of the cache
  return frame(stack_low(stack) + SIM_STACK_BYTES - (size_t)(stack * 192u & 4095u), entry);
}
bool in_stack_guard(uintptr_t p) {
  uintptr_t lo = (uintptr_t)stacks;
  return stacks && p >= lo && p < lo + (uintptr_t)made * SLOT && (p - lo) % SLOT < SIM_STACK_BYTES;
}

}  // namespace sim
