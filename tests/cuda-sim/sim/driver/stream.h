// Streams, events and graphs. A stream is a queue of operations. By default an operation runs when it is submitted;
// with CUDA_SIM_LAZY=1 only when somebody synchronises. Handles stay valid as long as anything queued names them.
#pragma once
#include "common.h"
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace sim {

// An operation answers a Result, or BLOCKED: it stays at the head and is asked again.
using Op = std::function<int()>;

// Live handles of one kind. What is destroyed is refused from then on, while queued operations keep the object.
template <class T>
struct Handles {
  std::unordered_map<void *, std::shared_ptr<T>> live;
  void *add(std::shared_ptr<T> t) {
    void *h = t.get();
    live[h] = std::move(t);
    return h;
  }
  std::shared_ptr<T> get(void *h) const {
    auto it = live.find(h);
    return it == live.end() ? nullptr : it->second;
  }
  bool remove(void *h) { return live.erase(h) != 0; }
};

struct Graph {
  std::vector<Op> ops;
};
struct Stream;
// A capture in progress; work of other streams joins it through events.
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Stream *origin = nullptr;
  bool global = false;  // of its mode: forbids unsafe calls on every thread
  unsigned long thread = 0;
  bool broken = false;
  std::vector<std::shared_ptr<Stream>> joined;
};
struct Stream {
  int device = 0;
  bool blocking = true;  // synchronises with the null stream
  std::deque<Op> queue;
  uint64_t submitted = 0, done = 0;
  bool draining = false;
  std::shared_ptr<Capture> capture;
  size_t captured = 0, rejoined = 0;  // own captured operations; those the origin waits for
};
struct Event {
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<Stream> stream;  // null before the first record
  uint64_t sequence = 0;           // complete when the stream has done that many
  double time = 0;
  bool in_capture = false;         // of the last record: such an event is never complete, not even afterwards
  std::weak_ptr<Capture> capture;  // that one, while it lasts
  size_t captured = 0;
};
// Never destroyed: threads may still be at work when the process ends.
extern Handles<Stream> &streams;
extern Handles<Event> &events;
extern Handles<Graph> &graphs, &execs;

struct Device {
  int retained = 0, sticky = OK;
  std::shared_ptr<Stream> null_stream;
};
Device &device(int ordinal);

// The stream of a handle in the device's context; null where the handle is none.
std::shared_ptr<Stream> stream_of(void *handle, int device);
// Appends, or captures. A sticky error comes back at once.
int submit(const std::shared_ptr<Stream> &s, Op op);
// Runs the queue up to that operation; false: the head is BLOCKED.
bool drain(Stream &s, uint64_t upto);
// The same, waiting for other host threads where the head is blocked; the device's error state.
int wait(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Stream> &s, uint64_t upto);
int wait_device(std::unique_lock<std::mutex> &guard, int device);
bool complete(const Event &e);
// Calls that no capture in their reach survives: CAPTURE_UNSUPPORTED, and the capture is broken.
int refuse_while_capturing(int device);
void forget_streams(int device);

// Entry of an API call: takes the lock, answers planted failures, missing initialisation, a missing context, sticky
// errors.
struct Entry {
  std::unique_lock<std::mutex> guard;
  int device = -1;
  int status = OK;
  enum Needs { NOTHING, INIT, CONTEXT };
  Entry(const char *function, Needs needs);
};
extern bool initialised;
int current_device();  // of this thread's context, -1 without one

}  // namespace sim

#define ENTER(needs)                             \
  sim::Entry entry(__func__, sim::Entry::needs); \
  if (entry.status) return entry.status
