// Collectives between the test devices of one process: ranks are threads (or one thread with several communicators).
//
// Each collective is an operation on its rank's stream. It arrives, and answers BLOCKED until all ranks have arrived;
// the last one computes everybody's result, in rank order, so all ranks get the same bits.
#include "../driver/common.h"
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

// Values of ncclResult_t, ncclDataType_t, ncclRedOp_t.
enum {
  SUCCESS = 0,
  UNHANDLED_CUDA_ERROR = 1,
  SYSTEM_ERROR = 2,
  INTERNAL_ERROR = 3,
  INVALID_ARGUMENT = 4,
  INVALID_USAGE = 5
};
enum { INT32 = 2, UINT32 = 3, INT64 = 4, UINT64 = 5, FLOAT32 = 7, FLOAT64 = 8 };
enum { SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4 };
enum Kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER };

struct Id {
  char bytes[128];
};
struct Call {
  Kind kind;
  size_t count;
  int type, op, root;
};
struct Arrival {
  const void *send;
  void *receive;
  Call call;
  bool present = false;
};
struct Round {
  std::vector<Arrival> ranks;
  int arrived = 0, left = 0;
  bool done = false, bad = false;
};
// One communicator's ranks.
struct World {
  int n = 0, joined = 0;
  std::map<uint64_t, Round> rounds;
};
struct Comm {
  std::shared_ptr<World> world;
  int rank = 0, device = 0;
  uint64_t next = 0;
};
using Ref = std::shared_ptr<Comm>;  // a handle points to one; queued operations keep their own
struct Job {
  Ref comm;
  const void *send;
  void *receive;
  Call call;
  uint64_t round = 0;
  bool arrived = false;
};

std::map<std::string, std::shared_ptr<World>> worlds;  // by id, while ranks join
thread_local int group_depth = 0;

size_t size_of(int type) {
  switch (type) {
    case INT32:
    case UINT32:
    case FLOAT32: return 4;
    case INT64:
    case UINT64:
    case FLOAT64: return 8;
    default: return 0;
  }
}
template <class T>
T combined(int op, T a, T b) {
  switch (op) {
    case PROD: return a * b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    default: return a + b;
  }
}
template <class T>
std::vector<T> reduced(const Round &round, size_t n, int op) {
  std::vector<T> out((const T *)round.ranks[0].send, (const T *)round.ranks[0].send + n);
  for (size_t r = 1; r < round.ranks.size(); ++r)
    for (size_t i = 0; i < n; ++i) out[i] = combined(op, out[i], ((const T *)round.ranks[r].send)[i]);
  if (op == AVG)
    for (auto &x : out) x /= (T)round.ranks.size();
  return out;
}
template <class T>
void compute(Round &round) {
  const Call &c = round.ranks[0].call;
  size_t n = round.ranks.size();
  if (c.kind == BROADCAST || c.kind == ALL_GATHER) {
    std::vector<T> all;
    for (size_t r = 0; r < n; ++r) {
      if (c.kind == BROADCAST && (int)r != c.root) continue;
      const T *from = (const T *)round.ranks[r].send;
      all.insert(all.end(), from, from + c.count);
    }
    for (auto &r : round.ranks) memcpy(r.receive, all.data(), all.size() * sizeof(T));
    return;
  }
  size_t whole = c.kind == REDUCE_SCATTER ? c.count * n : c.count;
  std::vector<T> sum = reduced<T>(round, whole, c.op);
  for (size_t r = 0; r < n; ++r) {
    if (c.kind == REDUCE && (int)r != c.root) continue;
    memcpy(round.ranks[r].receive, sum.data() + (c.kind == REDUCE_SCATTER ? r * c.count : 0), c.count * sizeof(T));
  }
}
bool same(const Call &a, const Call &b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root;
}
void complete(Round &round) {
  for (auto &r : round.ranks) {
    if (same(r.call, round.ranks[0].call)) continue;
    round.bad = true;
    sim::say("ranks disagree on a collective: kind %d of %zu elements (type %d) beside kind %d of %zu (type %d)",
             round.ranks[0].call.kind, round.ranks[0].call.count, round.ranks[0].call.type, r.call.kind, r.call.count,
             r.call.type);
  }
  if (!round.bad) {
    switch (round.ranks[0].call.type) {
      case INT32: compute<int32_t>(round); break;
      case UINT32: compute<uint32_t>(round); break;
      case INT64: compute<int64_t>(round); break;
      case UINT64: compute<uint64_t>(round); break;
      case FLOAT32: compute<float>(round); break;
      default: compute<double>(round);
    }
  }
  round.done = true;
  sim::changed.notify_all();
}
// Runs under the driver's lock.
int step(void *arg) {
  Job &j = *(Job *)arg;
  World &w = *j.comm->world;
  if (!j.arrived) {
    j.round = j.comm->next++;
    j.arrived = true;
    Round &round = w.rounds[j.round];
    round.ranks.resize((size_t)w.n);
    round.ranks[(size_t)j.comm->rank] = Arrival{j.send, j.receive, j.call, true};
    if (++round.arrived == w.n) complete(round);
  }
  Round &round = w.rounds[j.round];
  if (!round.done) return sim::BLOCKED;
  bool bad = round.bad;
  if (++round.left == w.n) w.rounds.erase(j.round);
  j.arrived = false;  // a graph may launch it again
  return bad ? sim::LAUNCH_FAILED : sim::OK;
}
}  // namespace

extern "C" int cuda_sim_submit_on(int device, void *stream, int (*run)(void *), void *arg, void (*drop)(void *));
extern "C" int cuda_sim_in_range_of(int device, const void *p, size_t bytes);
extern "C" int cuda_sim_current_device();

static int collective(void *handle, const void *send, void *receive, Call call, void *stream) {
  if (!handle) return INVALID_ARGUMENT;
  Ref comm = *(Ref *)handle;
  size_t unit = size_of(call.type), n = (size_t)comm->world->n;
  if (!unit || call.op < SUM || call.op > AVG || call.root < 0 || call.root >= (int)n) {
    sim::say(
        "nccl: type %d, operation %d, root %d: the test device has 4- and 8-byte numbers and sum, prod, max, min, avg",
        call.type, call.op, call.root);
    return INVALID_ARGUMENT;
  }
  bool root = comm->rank == call.root;
  size_t out = call.count * unit * (call.kind == REDUCE_SCATTER ? n : 1),
         in = call.count * unit * (call.kind == ALL_GATHER ? n : 1);
  if ((call.kind != BROADCAST || root) && !cuda_sim_in_range_of(comm->device, send, out)) return INVALID_ARGUMENT;
  if ((call.kind != REDUCE || root) && !cuda_sim_in_range_of(comm->device, receive, in)) return INVALID_ARGUMENT;
  auto *job = new Job{comm, send, receive, call};
  return cuda_sim_submit_on(comm->device, stream, step, job, [](void *p) { delete (Job *)p; }) ? UNHANDLED_CUDA_ERROR
                                                                                               : SUCCESS;
}

EXPORT int ncclGetVersion(int *out) {
  *out = 22602;
  return SUCCESS;
}
EXPORT const char *ncclGetErrorString(int code) {
  switch (code) {
    case SUCCESS: return "no error";
    case UNHANDLED_CUDA_ERROR: return "unhandled cuda error";
    case SYSTEM_ERROR: return "unhandled system error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    default: return "internal error";
  }
}
EXPORT int ncclGetUniqueId(Id *out) {
  static unsigned n = 0;
  std::lock_guard<std::mutex> guard(sim::lock);
  memset(out, 0, sizeof *out);
  snprintf(out->bytes, sizeof out->bytes, "cuda-sim world %u", n++);
  return SUCCESS;
}
static void *member(std::shared_ptr<World> world, int rank, int device) {
  auto comm = std::make_shared<Comm>();
  comm->world = std::move(world);
  comm->rank = rank;
  comm->device = device;
  return new Ref(comm);
}
// Waits for the other ranks, as NCCL does, unless inside a group.
EXPORT int ncclCommInitRank(void **out, int n, Id id, int rank) {
  int device = cuda_sim_current_device();
  if (n < 1 || rank < 0 || rank >= n || device < 0) return INVALID_ARGUMENT;
  std::unique_lock<std::mutex> guard(sim::lock);
  auto &world = worlds[std::string(id.bytes, strnlen(id.bytes, sizeof id.bytes))];
  if (!world) {
    world = std::make_shared<World>();
    world->n = n;
  }
  auto own = world;
  if (own->n != n) return INVALID_USAGE;
  ++own->joined;
  sim::changed.notify_all();
  double until = sim::now() + sim::settings.timeout;
  while (!group_depth && own->joined < n) {
    sim::changed.wait_for(guard, std::chrono::milliseconds(20));
    if (sim::now() < until) continue;
    sim::say("nccl: %d of %d ranks joined in %g s", own->joined, n, sim::settings.timeout);
    return SYSTEM_ERROR;
  }
  *out = member(own, rank, device);
  return SUCCESS;
}
EXPORT int ncclCommInitRankConfig(void **out, int n, Id id, int rank, void *) {
  return ncclCommInitRank(out, n, id, rank);
}
EXPORT int ncclCommInitAll(void **out, int n, const int *devices) {
  if (n < 1) return INVALID_ARGUMENT;
  auto world = std::make_shared<World>();
  world->n = world->joined = n;
  for (int i = 0; i < n; ++i) out[i] = member(world, i, devices ? devices[i] : i);
  return SUCCESS;
}
static int leave(void *comm) {
  if (!comm) return INVALID_ARGUMENT;
  delete (Ref *)comm;
  return SUCCESS;
}
EXPORT int ncclCommDestroy(void *comm) { return leave(comm); }
EXPORT int ncclCommAbort(void *comm) { return leave(comm); }
EXPORT int ncclCommFinalize(void *comm) { return comm ? SUCCESS : INVALID_ARGUMENT; }
EXPORT int ncclCommCount(void *comm, int *out) {
  if (!comm) return INVALID_ARGUMENT;
  *out = (*(Ref *)comm)->world->n;
  return SUCCESS;
}
EXPORT int ncclCommCuDevice(void *comm, int *out) {
  if (!comm) return INVALID_ARGUMENT;
  *out = (*(Ref *)comm)->device;
  return SUCCESS;
}
EXPORT int ncclCommUserRank(void *comm, int *out) {
  if (!comm) return INVALID_ARGUMENT;
  *out = (*(Ref *)comm)->rank;
  return SUCCESS;
}
// Operations only queue here and never wait, so a group has nothing to hold back.
EXPORT int ncclGroupStart() {
  ++group_depth;
  return SUCCESS;
}
EXPORT int ncclGroupEnd() { return group_depth-- > 0 ? SUCCESS : (group_depth = 0, INVALID_USAGE); }

EXPORT int ncclAllReduce(const void *send, void *receive, size_t n, int type, int op, void *comm, void *stream) {
  return collective(comm, send, receive, Call{ALL_REDUCE, n, type, op, 0}, stream);
}
EXPORT int ncclBroadcast(const void *send, void *receive, size_t n, int type, int root, void *comm, void *stream) {
  return collective(comm, send, receive, Call{BROADCAST, n, type, SUM, root}, stream);
}
EXPORT int ncclReduce(const void *send, void *receive, size_t n, int type, int op, int root, void *comm, void *stream) {
  return collective(comm, send, receive, Call{REDUCE, n, type, op, root}, stream);
}
EXPORT int ncclAllGather(const void *send, void *receive, size_t n, int type, void *comm, void *stream) {
  return collective(comm, send, receive, Call{ALL_GATHER, n, type, SUM, 0}, stream);
}
EXPORT int ncclReduceScatter(const void *send, void *receive, size_t n, int type, int op, void *comm, void *stream) {
  return collective(comm, send, receive, Call{REDUCE_SCATTER, n, type, op, 0}, stream);
}
