// Allocation, copies and fills. Copies of pageable memory are staged at the call, as the driver does; pinned memory is
// read and written when the queue gets there.
#include "memory.h"
#include "stream.h"
#include <cstring>

using namespace sim;

static int refuse(const char *what, const void *p, size_t n) {
  std::string near;
  if (Allocation *a = below((uintptr_t)p))
    near = text(", nearest allocation below: #%u of %zu bytes, offset %zu", a->id, a->size,
                (size_t)((uintptr_t)p - a->base));
  say("%s of %zu bytes at %p is outside every live allocation of the device%s", what, n, p, near.c_str());
  return INVALID_VALUE;
}
// At the call, and again when the queue gets there: the memory may have been freed meanwhile.
static int check(int device, const char *what, const void *p, size_t n) {
  return in_range(device, p, n) ? (int)OK : refuse(what, p, n);
}

// ---- allocation

static int allocate_for(int device, uint64_t *out, size_t n) {
  if (!n) {
    say("allocation of 0 bytes");
    return INVALID_VALUE;
  }
  void *p;
  if (int r = allocate(device, n, &p)) return r;
  *out = (uint64_t)p;
  return OK;
}
EXPORT int cuMemAlloc_v2(uint64_t *out, size_t n) {
  ENTER(CONTEXT);
  if (int r = refuse_while_capturing(entry.device)) return r;
  return allocate_for(entry.device, out, n);
}
EXPORT int cuMemFree_v2(uint64_t p) {
  ENTER(CONTEXT);
  if (int r = refuse_while_capturing(entry.device)) return r;
  wait_device(entry.guard, entry.device);
  if (!p || release((void *)p)) return OK;
  say("free of 0x%llx, which is not the start of a live allocation", (unsigned long long)p);
  return INVALID_VALUE;
}
// CUDA makes allocations inside a capture part of the graph. We do not know that form and refuse it.
static int refuse_in_capture(Stream &s, const char *what) {
  if (!s.capture) return OK;
  say("%s inside a capture", what);
  s.capture->broken = true;
  return CAPTURE_UNSUPPORTED;
}
EXPORT int cuMemAllocAsync(uint64_t *out, size_t n, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  if (int r = refuse_in_capture(*s, "allocation")) return r;
  return allocate_for(entry.device, out, n);
}
EXPORT int cuMemFreeAsync(uint64_t p, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  if (int r = refuse_in_capture(*s, "free")) return r;
  return submit(s, [p] {
    return release((void *)p)
               ? OK
               : (say("free of 0x%llx, which is not the start of a live allocation", (unsigned long long)p),
                  INVALID_VALUE);
  });
}
EXPORT int cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER(CONTEXT);
  *total = settings.memory;
  *free = settings.memory - used(entry.device);
  return OK;
}
EXPORT int cuMemHostAlloc(void **out, size_t n, unsigned) {
  ENTER(CONTEXT);
  if (!n) return INVALID_VALUE;
  return allocate(HOST, n, out);
}
EXPORT int cuMemAllocHost_v2(void **out, size_t n) {
  ENTER(CONTEXT);
  if (!n) return INVALID_VALUE;
  return allocate(HOST, n, out);
}
EXPORT int cuMemFreeHost(void *p) {
  ENTER(CONTEXT);
  wait_device(entry.guard, entry.device);
  return is_pinned(p) && release(p) ? OK : INVALID_VALUE;
}

// ---- copies

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  int d = entry.device;
  void *p = (void *)to;
  if (int r = check(d, "copy to the device", p, n)) return r;
  ++counts.copies;
  if (is_pinned(from))
    return submit(s, [=] {
      if (int r = check(d, "copy to the device", p, n) | check(d, "copy from pinned memory", from, n)) return r;
      memcpy(p, from, n);
      return (int)OK;
    });
  if (s->capture) {
    say("a captured copy of pageable host memory would read it at each launch: use pinned memory");
    s->capture->broken = true;
    return CAPTURE_UNSUPPORTED;
  }
  auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n);
  return submit(s, [=] {
    if (int r = check(d, "copy to the device", p, n)) return r;
    memcpy(p, staged->data(), n);
    return (int)OK;
  });
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  int d = entry.device;
  void *p = (void *)from;
  if (int r = check(d, "copy from the device", p, n)) return r;
  ++counts.copies;
  bool pinned = is_pinned(to);
  if (s->capture && !pinned) {
    say("a captured copy to pageable host memory would write it at each launch: use pinned memory");
    s->capture->broken = true;
    return CAPTURE_UNSUPPORTED;
  }
  int r = submit(s, [=] {
    if (int bad =
            check(d, "copy from the device", p, n) | (pinned ? check(d, "copy to pinned memory", to, n) : (int)OK))
      return bad;
    memcpy(to, p, n);
    return (int)OK;
  });
  return r || pinned ? r : wait(entry.guard, s, s->submitted);
}
static int device_to_device(const std::shared_ptr<Stream> &s, int to_device, uint64_t to, int from_device,
                            uint64_t from, size_t n) {
  void *a = (void *)to, *b = (void *)from;
  auto both = [=] {
    int r = check(to_device, "copy to the device", a, n);
    return r ? r : check(from_device, "copy from the device", b, n);
  };
  if (int r = both()) return r;
  ++counts.copies;
  return submit(s, [=] {
    if (int r = both()) return r;
    memmove(a, b, n);
    return (int)OK;
  });
}
// Unified addresses: the two ends may be on different devices.
static int owner(uint64_t p, int otherwise) {
  Allocation *a = find((uintptr_t)p);
  return a ? a->device : otherwise;
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  return device_to_device(s, owner(to, entry.device), to, owner(from, entry.device), from, n);
}
EXPORT int cuMemcpyPeerAsync(uint64_t to, void *, uint64_t from, void *, size_t n, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  return device_to_device(s, owner(to, entry.device), to, owner(from, entry.device), from, n);
}

// ---- fills

template <class T>
static int fill(const char *function, uint64_t to, T value, size_t n, void *handle) {
  Entry entry(function, Entry::CONTEXT);
  if (entry.status) return entry.status;
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  int d = entry.device;
  T *p = (T *)to;
  if (to % sizeof(T)) return INVALID_VALUE;
  if (int r = check(d, "fill", p, n * sizeof(T))) return r;
  return submit(s, [=] {
    if (int r = check(d, "fill", p, n * sizeof(T))) return r;
    for (size_t i = 0; i < n; ++i) p[i] = value;
    return (int)OK;
  });
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void *handle) {
  return fill(__func__, to, value, n, handle);
}
EXPORT int cuMemsetD16Async(uint64_t to, unsigned short value, size_t n, void *handle) {
  return fill(__func__, to, value, n, handle);
}
EXPORT int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *handle) {
  return fill(__func__, to, value, n, handle);
}

// ---- the synchronous forms: on the null stream, then waiting for it

static int finish(int r) {
  return r ? r : cuda_sim_run(nullptr, [](void *) { return (int)OK; }, nullptr);
}
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) {
  return finish(cuMemcpyHtoDAsync_v2(to, from, n, nullptr));
}
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) {
  return finish(cuMemcpyDtoHAsync_v2(to, from, n, nullptr));
}
EXPORT int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t n) {
  return finish(cuMemcpyDtoDAsync_v2(to, from, n, nullptr));
}
EXPORT int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t n) {
  return finish(fill(__func__, to, value, n, nullptr));
}
EXPORT int cuMemsetD32_v2(uint64_t to, unsigned value, size_t n) {
  return finish(fill(__func__, to, value, n, nullptr));
}

// For the other stand-in libraries.
EXPORT int cuda_sim_in_range_of(int device, const void *p, size_t n) {
  std::lock_guard<std::mutex> guard(lock);
  return in_range(device, p, n);
}
EXPORT int cuda_sim_in_range(const void *p, size_t n) { return cuda_sim_in_range_of(current_device(), p, n); }
