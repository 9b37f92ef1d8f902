// Signals that end a launch: a fault inside a kernel, and the watchdog's for a kernel that does not end.
#include "launch.h"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace sim {

static std::atomic<int> owner{0};         // the thread that runs the launch, 0 without one
static std::atomic<int64_t> deadline{0};  // nanoseconds
static std::atomic<int64_t> passed{0};    // the deadline that the watchdog saw pass
static struct sigaction old_segv, old_bus, old_fpe, old_watch;
static int watch_signal() { return SIGRTMAX - 3; }
static int self() { return (int)syscall(SYS_gettid); }
static int64_t nanoseconds() { return (int64_t)(now() * 1e9); }

static char *interrupted_at(void *context) {
#if defined(__x86_64__)
  return (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
  return (char *)((ucontext_t *)context)->uc_mcontext.pc;
#endif
}
static void leave(int code, std::string report, int sig, char *pc) {
  launch->error = code;
  launch->report = report + "; " + place(*launch->running);
  launch->fault_pc = pc + 1;  // source_line expects a return address
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, sig);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  void *dead;  // the handler's frame stays behind on the signal stack
  sim_switch(&dead, launch->scheduler);
}
static void pass_on(int sig, siginfo_t *info, void *context) {
  struct sigaction &old = sig == SIGSEGV ? old_segv : sig == SIGBUS ? old_bus : old_fpe;
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(sig, info, context);
    return;
  }
  sigaction(sig, &old, nullptr);  // returning repeats the fault under the old action
}
static void on_fault(int sig, siginfo_t *info, void *context) {
  if (owner != self() || !launch || !launch->running) return pass_on(sig, info, context);
  uintptr_t at = (uintptr_t)info->si_addr;
  if (sig == SIGFPE) leave(LAUNCH_FAILED, "integer division by zero or overflow", sig, interrupted_at(context));
  if (in_stack_guard(at))
    leave(ILLEGAL_ADDRESS, text("stack overflow: a thread has %lu bytes", SIM_STACK_BYTES), sig,
          interrupted_at(context));
  std::string near;
  if (Allocation *a = below(at))
    near = text(", nearest allocation below: #%u of %zu bytes, offset %zu", a->id, a->size, (size_t)(at - a->base));
  leave(ILLEGAL_ADDRESS,
        text("memory fault at address 0x%lx (guard page or wild pointer)%s", (unsigned long)at, near.c_str()), sig,
        interrupted_at(context));
}
static bool overdue() {
  int64_t p = passed.load(std::memory_order_relaxed);
  return p && p == deadline.load(std::memory_order_relaxed);  // not an earlier launch's
}
static std::string too_long() { return text("still running after %g s: endless?", settings.timeout); }
// Asynchronous: acts only where the kernel's own code was interrupted. Elsewhere the flag waits for the next check.
static void on_watch(int sig, siginfo_t *, void *context) {
  if (owner != self() || !launch || !launch->running || !overdue()) return;
  char *pc = interrupted_at(context);
  if (pc >= launch->module->image_lo && pc < launch->module->image_hi) leave(LAUNCH_TIMEOUT, too_long(), sig, pc);
}
void stop_if_overdue() {
  if (overdue()) fail(LAUNCH_TIMEOUT, too_long());
}

static void *watchdog(void *) {
  for (;;) {
    usleep(20000);
    int64_t d = deadline;
    if (!d || nanoseconds() < d) continue;
    int thread = owner;
    passed = d;
    if (thread) syscall(SYS_tgkill, getpid(), thread, watch_signal());
  }
}
void watch_launch() {
  static bool started = false;
  if (!started) {
    started = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the watchdog takes nobody's signals
    pthread_t thread;
    if (pthread_create(&thread, nullptr, watchdog, nullptr) == 0)
      pthread_detach(thread);
    else
      say("no watchdog: endless kernels will not be ended");
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  owner = self();
  deadline = settings.timeout > 0 ? nanoseconds() + (int64_t)(settings.timeout * 1e9) : 0;
}
void unwatch_launch() {
  deadline = 0;
  owner = 0;
}

void install_handlers() {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  action.sa_sigaction = on_fault;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  sigaction(SIGFPE, &action, &old_fpe);
  action.sa_sigaction = on_watch;
  sigaction(watch_signal(), &action, &old_watch);
}
// Rust's threads have a small one of 8 KiB; a report needs more.
struct SignalStack {
  char *memory = nullptr;
  ~SignalStack() {
    if (!memory) return;
    stack_t off;
    memset(&off, 0, sizeof off);
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
    free(memory);
  }
};
void need_signal_stack() {
  static thread_local SignalStack own;
  if (own.memory) return;
  stack_t s;
  memset(&s, 0, sizeof s);
  s.ss_size = 64 * 1024;
  s.ss_sp = own.memory = (char *)malloc(s.ss_size);
  sigaltstack(&s, nullptr);
}

}  // namespace sim
