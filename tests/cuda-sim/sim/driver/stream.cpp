// The queues: submitting, draining, waiting, capturing.
#include "stream.h"
#include <algorithm>
#include <map>
#include <pthread.h>

namespace sim {

Handles<Stream> &streams = *new Handles<Stream>;
Handles<Event> &events = *new Handles<Event>;
Handles<Graph> &graphs = *new Handles<Graph>, &execs = *new Handles<Graph>;
bool initialised = false;
static thread_local bool in_host_function = false;

Device &device(int ordinal) {
  static auto &devices = *new std::map<int, Device>;
  Device &d = devices[ordinal];
  if (!d.null_stream) {
    d.null_stream = std::make_shared<Stream>();
    d.null_stream->device = ordinal;
  }
  return d;
}
std::shared_ptr<Stream> stream_of(void *handle, int ordinal) {
  if ((uintptr_t)handle <= 2) return device(ordinal).null_stream;  // null, legacy and per-thread default stream
  auto s = streams.get(handle);
  return s && s->device == ordinal ? s : nullptr;
}

bool drain(Stream &s, uint64_t upto) {
  if (s.draining) return s.done >= upto;  // an operation only waits for earlier work
  s.draining = true;
  Device &d = device(s.device);
  bool free = true;
  while (s.done < upto && !s.queue.empty()) {
    int r = d.sticky ? OK : s.queue.front()();
    if (r == BLOCKED) {
      free = false;
      break;
    }
    if (r && !d.sticky) d.sticky = r;
    s.queue.pop_front();
    ++s.done;
  }
  s.draining = false;
  return free;
}
static Op wait_for(std::shared_ptr<Stream> s, uint64_t upto) {
  return [s, upto] { return drain(*s, upto) && s->done >= upto ? (int)OK : BLOCKED; };
}
static void push(Stream &s, Op op) {
  s.queue.push_back(std::move(op));
  ++s.submitted;
}
int submit(const std::shared_ptr<Stream> &s, Op op) {
  Device &d = device(s->device);
  if (d.sticky) return d.sticky;
  if (s->capture) {
    if (s->capture->broken) return CAPTURE_INVALIDATED;
    s->capture->graph->ops.push_back(std::move(op));
    ++s->captured;
    return OK;
  }
  // the null stream and blocking streams wait for each other
  if (s == d.null_stream) {
    for (auto &it : streams.live) {
      Stream &o = *it.second;
      if (!o.blocking || o.device != s->device) continue;
      if (o.capture) {
        o.capture->broken = true;
        return CAPTURE_IMPLICIT;
      }
      if (o.done < o.submitted) push(*s, wait_for(it.second, o.submitted));
    }
  } else if (s->blocking && d.null_stream->done < d.null_stream->submitted) {
    push(*s, wait_for(d.null_stream, d.null_stream->submitted));
  }
  push(*s, std::move(op));
  if (!settings.lazy) drain(*s, s->submitted);
  return OK;
}
int wait(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Stream> &s, uint64_t upto) {
  double until = now() + settings.timeout;
  while (!drain(*s, upto)) {
    changed.wait_for(guard, std::chrono::milliseconds(20));
    if (settings.timeout > 0 && now() > until && !device(s->device).sticky) {
      say("waited %g s for other ranks of a collective that did not come", settings.timeout);
      device(s->device).sticky = LAUNCH_TIMEOUT;
    }
  }
  return device(s->device).sticky;
}
int wait_device(std::unique_lock<std::mutex> &guard, int ordinal) {
  std::vector<std::shared_ptr<Stream>> all{device(ordinal).null_stream};
  for (auto &it : streams.live)
    if (it.second->device == ordinal) all.push_back(it.second);
  for (auto &s : all) wait(guard, s, s->submitted);
  return device(ordinal).sticky;
}
bool complete(const Event &e) {
  if (!e.stream) return true;
  if (!settings.lazy) drain(*e.stream, e.sequence);
  return e.stream->done >= e.sequence;
}

static unsigned long this_thread() { return (unsigned long)pthread_self(); }
int refuse_while_capturing(int ordinal) {
  for (auto &it : streams.live) {
    Stream &s = *it.second;
    if (s.device != ordinal || !s.capture || !(s.capture->global || s.capture->thread == this_thread())) continue;
    s.capture->broken = true;
    return CAPTURE_UNSUPPORTED;
  }
  return OK;
}
void forget_streams(int ordinal) {
  for (auto &it : streams.live) {
    if (it.second->device != ordinal) continue;
    it.second->queue.clear();
    it.second->done = it.second->submitted;
  }
  Stream &null = *device(ordinal).null_stream;
  null.queue.clear();
  null.done = null.submitted;
}

Entry::Entry(const char *function, Needs needs) : guard(lock, std::defer_lock) {
  if (in_host_function) {
    status = NOT_PERMITTED;
    return;
  }  // the lock is this thread's already
  guard.lock();
  if (needs == NOTHING) return;
  if (!initialised) {
    status = NOT_INITIALIZED;
    return;
  }
  if ((status = planted_failure(function))) return;
  if (needs == INIT) return;
  device = current_device();
  if (device < 0) {
    status = INVALID_CONTEXT;
    return;
  }
  status = sim::device(device).sticky;
}

}  // namespace sim
using namespace sim;

// ---- streams

static int create(void **out, unsigned flags, int ordinal) {
  if (flags > 1) return INVALID_VALUE;
  auto s = std::make_shared<Stream>();
  s->device = ordinal;
  s->blocking = !(flags & 1);
  *out = streams.add(s);
  return OK;
}
EXPORT int cuStreamCreate(void **out, unsigned flags) {
  ENTER(CONTEXT);
  return create(out, flags, entry.device);
}
EXPORT int cuStreamCreateWithPriority(void **out, unsigned flags, int) {
  ENTER(CONTEXT);
  return create(out, flags, entry.device);
}
EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(CONTEXT);
  *least = *greatest = 0;
  return OK;
}
EXPORT int cuStreamDestroy_v2(void *handle) {
  ENTER(INIT);
  auto s = streams.get(handle);
  if (!s) return INVALID_HANDLE;
  wait(entry.guard, s, s->submitted);
  streams.remove(handle);
  return OK;
}
EXPORT int cuStreamSynchronize(void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  if (s->capture) {
    s->capture->broken = true;
    return CAPTURE_UNSUPPORTED;
  }
  return wait(entry.guard, s, s->submitted);
}
EXPORT int cuStreamQuery(void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  if (s->capture) {
    s->capture->broken = true;
    return CAPTURE_UNSUPPORTED;
  }
  if (!settings.lazy) drain(*s, s->submitted);
  return device(s->device).sticky ? device(s->device).sticky : s->done == s->submitted ? OK : NOT_READY;
}
EXPORT int cuStreamWaitEvent(void *handle, void *event, unsigned) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  auto e = events.get(event);
  if (!s || !e) return INVALID_HANDLE;
  auto recorded_in = e->capture.lock();
  if (recorded_in) {  // the event is of a capture that still lasts
    if (!s->capture) {
      if (s == device(s->device).null_stream) return CAPTURE_IMPLICIT;
      s->capture = recorded_in;
      s->captured = s->rejoined = 0;
      recorded_in->joined.push_back(s);
    } else if (s->capture != recorded_in) {
      s->capture->broken = true;
      return CAPTURE_ISOLATION;
    }
    if (e->stream != s) e->stream->rejoined = std::max(e->stream->rejoined, e->captured);
    return OK;
  }
  if (!e->stream) return OK;
  if (e->in_capture) return CAPTURED_EVENT;
  if (s->capture) {
    say("a captured stream waits for an event that was recorded outside the capture");
    s->capture->broken = true;
    return CAPTURE_ISOLATION;
  }
  return submit(s, wait_for(e->stream, e->sequence));
}
EXPORT int cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  return submit(s, [function, data] {
    in_host_function = true;
    function(data);
    in_host_function = false;
    return OK;
  });
}

// ---- events

EXPORT int cuEventCreate(void **out, unsigned flags) {
  ENTER(CONTEXT);
  auto e = std::make_shared<Event>();
  e->flags = flags;
  e->device = entry.device;
  *out = events.add(e);
  return OK;
}
EXPORT int cuEventDestroy_v2(void *event) {
  ENTER(INIT);
  return events.remove(event) ? OK : INVALID_HANDLE;
}
EXPORT int cuEventRecord(void *event, void *handle) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  auto e = events.get(event);
  if (!s || !e || e->device != s->device) return INVALID_HANDLE;
  e->stream = s;
  e->capture = s->capture;
  e->in_capture = (bool)s->capture;
  e->captured = s->captured;
  e->sequence = 0;
  if (s->capture) return OK;
  std::weak_ptr<Event> weak = e;
  int r = submit(s, [weak] {
    if (auto event = weak.lock()) event->time = now();
    return OK;
  });
  e->sequence = s->submitted;
  return r;
}
static int refuse_captured(Event &e) {
  if (auto c = e.capture.lock()) c->broken = true;
  return CAPTURED_EVENT;
}
EXPORT int cuEventSynchronize(void *event) {
  ENTER(CONTEXT);
  auto e = events.get(event);
  if (!e) return INVALID_HANDLE;
  if (e->in_capture) return refuse_captured(*e);
  return e->stream ? wait(entry.guard, e->stream, e->sequence) : (int)OK;
}
EXPORT int cuEventQuery(void *event) {
  ENTER(CONTEXT);
  auto e = events.get(event);
  if (!e) return INVALID_HANDLE;
  if (e->in_capture) return refuse_captured(*e);
  return complete(*e) ? OK : NOT_READY;
}
static int elapsed(float *ms, void *from, void *to) {
  auto a = events.get(from), b = events.get(to);
  const unsigned NO_TIMING = 2;
  if (!a || !b || !a->stream || !b->stream || (a->flags | b->flags) & NO_TIMING) return INVALID_HANDLE;
  if (a->in_capture || b->in_capture) return CAPTURED_EVENT;
  if (!complete(*a) || !complete(*b)) return NOT_READY;
  *ms = (float)((b->time - a->time) * 1e3);
  return OK;
}
EXPORT int cuEventElapsedTime(float *ms, void *from, void *to) {
  ENTER(CONTEXT);
  return elapsed(ms, from, to);
}
EXPORT int cuEventElapsedTime_v2(float *ms, void *from, void *to) {
  ENTER(CONTEXT);
  return elapsed(ms, from, to);
}

// ---- capture and graphs

EXPORT int cuStreamBeginCapture_v2(void *handle, int mode) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  if (s == device(s->device).null_stream) return CAPTURE_UNSUPPORTED;
  if (s->capture) return INVALID_VALUE;
  s->capture = std::make_shared<Capture>();
  s->capture->origin = s.get();
  s->capture->global = mode == 0;
  s->capture->thread = mode == 2 ? 0 : (unsigned long)pthread_self();  // relaxed: nothing is forbidden
  s->captured = s->rejoined = 0;
  return OK;
}
EXPORT int cuStreamIsCapturing(void *handle, int *status) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  *status = s->capture ? s->capture->broken ? 2 : 1 : 0;
  return OK;
}
EXPORT int cuStreamEndCapture(void *handle, void **graph) {
  ENTER(CONTEXT);
  *graph = nullptr;
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  auto c = s->capture;
  if (!c) return INVALID_VALUE;
  if (c->origin != s.get()) return CAPTURE_UNMATCHED;
  bool unjoined = false;
  for (auto &j : c->joined) {
    unjoined |= j->rejoined < j->captured;
    j->capture = nullptr;
  }
  s->capture = nullptr;
  if (c->broken) return CAPTURE_INVALIDATED;
  if (unjoined) return CAPTURE_UNJOINED;
  *graph = graphs.add(c->graph);
  return OK;
}
EXPORT int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
  ENTER(CONTEXT);
  auto g = graphs.get(graph);
  const unsigned AUTO_FREE = 1, DEVICE_LAUNCH = 4;
  if (!g || flags > 15 || (flags & AUTO_FREE && flags & DEVICE_LAUNCH)) return INVALID_VALUE;
  *exec = execs.add(std::make_shared<Graph>(*g));
  return OK;
}
EXPORT int cuGraphGetNodes(void *graph, void **nodes, size_t *n) {  // the count only
  ENTER(CONTEXT);
  auto g = graphs.get(graph);
  if (!g || nodes) return INVALID_VALUE;
  *n = g->ops.size();
  return OK;
}
EXPORT int cuGraphUpload(void *exec, void *) {
  ENTER(CONTEXT);
  return execs.get(exec) ? OK : INVALID_VALUE;
}
EXPORT int cuGraphLaunch(void *exec, void *handle) {
  ENTER(CONTEXT);
  auto g = execs.get(exec);
  auto s = stream_of(handle, entry.device);
  if (!g) return INVALID_VALUE;
  if (!s) return INVALID_HANDLE;
  ++counts.graph_launches;
  for (auto &op : g->ops)
    if (int r = submit(s, op)) return r;
  return OK;
}
EXPORT int cuGraphExecDestroy(void *exec) {
  ENTER(INIT);
  return execs.remove(exec) ? OK : INVALID_VALUE;
}
EXPORT int cuGraphDestroy(void *graph) {
  ENTER(INIT);
  return graphs.remove(graph) ? OK : INVALID_VALUE;
}

// ---- for the other stand-in libraries

// Queues `run(arg)` on a stream of the device; `drop(arg)` when nobody can run it any more.
EXPORT int cuda_sim_submit_on(int ordinal, void *handle, int (*run)(void *), void *arg, void (*drop)(void *)) {
  std::shared_ptr<void> owned(arg, drop);
  ENTER(INIT);
  auto s = stream_of(handle, ordinal);
  if (!s) return INVALID_HANDLE;
  return submit(s, [run, owned] { return run(owned.get()); });
}
EXPORT int cuda_sim_submit(void *handle, int (*run)(void *), void *arg, void (*drop)(void *)) {
  return cuda_sim_submit_on(current_device(), handle, run, arg, drop);
}
// The same, then waits for it.
EXPORT int cuda_sim_run(void *handle, int (*run)(void *), void *arg) {
  ENTER(CONTEXT);
  auto s = stream_of(handle, entry.device);
  if (!s) return INVALID_HANDLE;
  if (s->capture) {
    s->capture->broken = true;
    return CAPTURE_UNSUPPORTED;
  }
  if (int r = submit(s, [run, arg] { return run(arg); })) return r;
  return wait(entry.guard, s, s->submitted);
}
EXPORT int cuda_sim_current_device() { return current_device(); }
EXPORT void cuda_sim_say(const char *line) { say("%s", line); }
