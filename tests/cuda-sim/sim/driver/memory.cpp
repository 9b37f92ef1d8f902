// Allocations between guard pages, found by address.
#include "memory.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {

static const size_t PAGE = 4096;
static auto &live = *new std::map<uintptr_t, std::unique_ptr<Allocation>>;  // never destroyed, see stream.h
static auto &bytes_of = *new std::map<int, size_t>;
static unsigned next_id = 1;

// Kernels walk through several buffers at once: a small table by page spares the search. Pages belong to one
// allocation.
static struct {
  uintptr_t page;
  Allocation *of;
} recent[1024];
static void forget_recent() { memset(recent, 0, sizeof recent); }

Shadow::~Shadow() { free(cells); }
static Cell *new_cells(size_t n) {  // calloc: pages that nobody touches cost nothing
  Cell *out = (Cell *)calloc(n, sizeof(Cell));
  if (!out) {
    say("no memory for the race detector (%zu cells); CUDA_SIM_RACES=0 does without", n);
    abort();
  }
  return out;
}
void Shadow::cover(size_t n) {
  if (cells && n <= bytes) return;
  free(cells);
  bytes = n;
  cells = new_cells(n / grain + 1);
}
void Shadow::refine(unsigned to) {
  if (to >= grain) return;
  size_t fold = grain / to, n = bytes / grain + 1;
  Cell *fine = new_cells(n * fold);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < fold; ++k) fine[i * fold + k] = cells[i];
  free(cells);
  cells = fine;
  grain = to;
}

int allocate(int device, size_t bytes, void **out) {
  if (device != HOST && (bytes > settings.memory || bytes_of[device] > settings.memory - bytes)) return OUT_OF_MEMORY;
  size_t body = (std::max<size_t>(bytes, 1) + 255) / 256 * 256, pages = (body + PAGE - 1) / PAGE * PAGE;
  size_t whole = pages + 2 * PAGE;
  char *map = (char *)mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return OUT_OF_MEMORY;
  if (mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE)) {
    munmap(map, whole);
    return OUT_OF_MEMORY;
  }
  uintptr_t base = (uintptr_t)(map + PAGE + pages - body);  // the end meets the guard page, the start is 256-aligned
  memset((void *)base, 0xff, body);                         // floats that nobody wrote read as NaN
  auto a = std::make_unique<Allocation>();
  a->base = base;
  a->size = bytes;
  a->map = map;
  a->map_size = whole;
  a->id = next_id++;
  a->device = device;
  live[base] = std::move(a);
  bytes_of[device] += bytes;
  ++counts.allocations;
  *out = (void *)base;
  return OK;
}
bool release(void *p) {
  auto it = live.find((uintptr_t)p);
  if (it == live.end()) return false;
  bytes_of[it->second->device] -= it->second->size;
  munmap(it->second->map, it->second->map_size);
  live.erase(it);
  forget_recent();
  return true;
}
void release_device(int device) {
  for (auto it = live.begin(); it != live.end();) {
    if (it->second->device != device) {
      ++it;
      continue;
    }
    munmap(it->second->map, it->second->map_size);
    it = live.erase(it);
  }
  bytes_of[device] = 0;
  forget_recent();
}

Allocation *below(uintptr_t p) {
  auto it = live.upper_bound(p);
  return it == live.begin() ? nullptr : (--it)->second.get();
}
Allocation *find(uintptr_t p) {
  auto &slot = recent[p / PAGE % 1024];
  if (slot.page != p / PAGE || !slot.of) {
    Allocation *a = below(p);
    if (!a || p - a->base >= a->size) return nullptr;
    slot = {p / PAGE, a};
  }
  return p - slot.of->base < slot.of->size ? slot.of : nullptr;
}
bool in_range(int device, const void *p, size_t bytes) {
  if (!bytes) return true;
  Allocation *a = find((uintptr_t)p);
  return a && (a->device == device || a->device == HOST) && bytes <= a->size - ((uintptr_t)p - a->base);
}
bool is_pinned(const void *p) {
  Allocation *a = find((uintptr_t)p);
  return a && a->device == HOST;
}
size_t used(int device) { return bytes_of[device]; }
size_t live_allocations() { return live.size(); }

}  // namespace sim
