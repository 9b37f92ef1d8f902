// Device and pinned memory: each allocation lies between guard pages, its exact size is known, and it carries a shadow
// for the race detector.
#pragma once
#include "common.h"

namespace sim {

// One access, packed: epoch (37 bits) | atomic (1) | count of __syncwarp since the block barrier (16) | thread (10).
// Epochs grow at every block barrier, block and launch and never repeat, so one comparison with the epoch at which the
// block (the launch) began tells whether an old record is of this block (this launch).
typedef uint64_t Record;

struct Cell {
  Record writer, reader, other;
};  // `other`: a second reader, see access.cpp

// Cells of `grain` bytes, split to 2 and 1 when an access of that size comes.
struct Shadow {
  Cell *cells = nullptr;
  size_t bytes = 0;
  unsigned grain = 4;
  Shadow() = default;
  Shadow(const Shadow &) = delete;
  Shadow &operator=(const Shadow &) = delete;
  ~Shadow();
  void cover(size_t n);  // at least n bytes; forgets what it knew when it grows
  void refine(unsigned grain);
};

const int HOST = -1;
struct Allocation {
  uintptr_t base;
  size_t size;
  char *map;
  size_t map_size;
  unsigned id;
  int device;  // HOST for pinned memory
  Shadow shadow;
};

int allocate(int device, size_t bytes, void **out);
bool release(void *p);  // false: not the start of an allocation
void release_device(int device);
Allocation *find(uintptr_t p);   // the allocation that holds this byte
Allocation *below(uintptr_t p);  // the nearest one that starts at or below, for reports
// Are these bytes in one allocation that `device` may use?
bool in_range(int device, const void *p, size_t bytes);
bool is_pinned(const void *p);
size_t used(int device);
size_t live_allocations();

}  // namespace sim
