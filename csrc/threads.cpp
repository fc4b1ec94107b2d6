#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef OUTPACE_X86_64
#include <immintrin.h>
#endif
#ifdef __linux__
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace outpace {

namespace {

inline void pause_briefly() {
#ifdef OUTPACE_X86_64
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a thread gives its core away, yield by yield, before it sleeps in the kernel. In the middle of a run the others
// are there within tens of microseconds, a few percent of a large model's longest phase, or have lost their core; a nap is
// longer than that, since timers and waking take as long again as was asked for. Between runs a drafter and a sampler do
// their work, and to be woken costs a pass a twentieth of its time.
constexpr std::chrono::microseconds kYieldsInRun{100}, kYieldsBetweenRuns{1000};

// Waits until done(word): spinning for a few microseconds (the others are nearly always there by then), then yielding,
// which is enough for another of this pool on the same core, then by calls of sleep(value).
template <class Done, class Sleep>
uint32_t wait_until(const std::atomic<uint32_t>& word, std::chrono::microseconds yields, Done done, Sleep sleep) {
  constexpr int kSpins = 200, kYieldsBetweenLooksAtTheClock = 4;
  uint32_t value = word.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && !done(value); ++i) {
    pause_briefly();
    value = word.load(std::memory_order_acquire);
  }
  if (done(value)) return value;
  const auto asleep_from = std::chrono::steady_clock::now() + yields;
  do {
    for (int i = 0; i < kYieldsBetweenLooksAtTheClock && !done(value); ++i) {
      std::this_thread::yield();
      value = word.load(std::memory_order_acquire);
    }
  } while (!done(value) && std::chrono::steady_clock::now() < asleep_from);
  while (!done(value)) {
    sleep(value);
    value = word.load(std::memory_order_acquire);
  }
  return value;
}

// In a run nobody is woken: to know of sleepers, those who arrive would have to wait until other cores can see all that
// they wrote, which takes longer than the barrier.
template <class Done>
uint32_t wait_in_run(const std::atomic<uint32_t>& word, Done done) {
  constexpr std::chrono::microseconds kNap{50};
  return wait_until(word, kYieldsInRun, done, [&](uint32_t) { std::this_thread::sleep_for(kNap); });
}

// Asks the scheduler for short turns (Linux 6.12 and later; a thread's share stays what it is): a thread that waits for
// its core then waits a tenth of a millisecond for others' turns to end, not three, and everyone else at the barrier
// with it. Only under the ordinary policy, with the niceness that the thread has.
void ask_for_short_turns() {
#if defined(__linux__) && defined(SYS_sched_setattr)
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;  // nanoseconds
  } attributes{};
  thread_local bool asked = false;
  if (asked || sched_getscheduler(0) != SCHED_OTHER) return;
  asked = true;
  attributes.size = sizeof attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // a hint: refused, it changes nothing
#endif
}

// Another thread's job has failed; leaves the job of this one.
struct Abandoned {};

thread_local bool inside_a_job = false;

// Rounding to nearest and gradual underflow while a job runs, whatever the host program has set: a thread inherits
// its creator's modes, and the bits of a result must not depend on them.
class StandardArithmetic {
 public:
  StandardArithmetic() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~StandardArithmetic() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
};

std::atomic<uint32_t> forks{0};
void count_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (registered != 0) throw std::runtime_error("the system refused to register a fork handler");
}

}  // namespace

// The workers and all state they share. After a fork the child has no workers, and the parent may have been in the
// middle of a run: the child abandons the copied crew, locks and all, and hires its own.
struct ThreadPool::Crew {
  explicit Crew(int threads);
  ~Crew();
  void run(Call call, void* job, Stretches soon);
  void arrive(int thread);
  void wait(int thread);

 private:
  void work(int thread);
  void call_job(int thread);
  void fetch(const std::vector<Stretch>& soon, int thread, uint32_t seen);
  void dismiss();

  // How often a thread has arrived at barriers of this run. Each has a cache line of its own to which nobody else
  // writes; a count that all add to would go from core to core twice as often.
  struct alignas(128) Arrivals {
    std::atomic<uint32_t> count{0};
  };
  static constexpr uint32_t kLeft = 0x40000000u;    // more than any count: the thread has left the job
  static constexpr uint32_t kFailed = 0x80000000u;  // set beside kLeft: by an exception

 public:
  const uint32_t forks_before = forks.load(std::memory_order_relaxed);

 private:
  const int threads_;
  std::mutex one_run_at_a_time_;
  Call call_ = nullptr;
  void* job_ = nullptr;
  Stretches soon_;
  bool leaving_ = false;
  std::mutex first_error_;
  std::exception_ptr error_;
  alignas(64) std::atomic<uint32_t> started_{0};  // runs so far
  std::vector<Arrivals> arrivals_;                // by thread
  std::vector<std::thread> workers_;
};

ThreadPool::Crew::Crew(int threads) : threads_(threads), arrivals_(size_t(threads)) {
  try {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
  } catch (...) {
    dismiss();
    throw;
  }
}

ThreadPool::Crew::~Crew() { dismiss(); }

void ThreadPool::Crew::dismiss() {
  leaving_ = true;
  started_.fetch_add(1);
  started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Crew::work(int thread) {
  inside_a_job = true;
  for (uint32_t seen = 0;;) {
    seen = wait_until(
        started_, kYieldsBetweenRuns, [seen](uint32_t runs) { return runs != seen; },
        [this](uint32_t runs) { started_.wait(runs, std::memory_order_acquire); });
    if (leaving_) return;
    const Stretches soon = soon_;  // before this thread has left the job: then it may be another run's
    call_job(thread);
    if (soon) fetch(*soon, thread, seen);
  }
}

// This thread's share, until the next run begins.
void ThreadPool::Crew::fetch(const std::vector<Stretch>& soon, int thread, uint32_t seen) {
  constexpr size_t kPiece = 4096, kLine = 64;
  const int others = threads_ - 1;
  int piece = 0;
  for (const Stretch& stretch : soon) {
    for (size_t at = 0; at < stretch.bytes; at += kPiece) {
      if (piece++ % others != thread - 1) continue;
      if (started_.load(std::memory_order_relaxed) != seen) return;
      const char* const from = static_cast<const char*>(stretch.begin) + at;
      for (size_t line = 0; line < std::min(kPiece, stretch.bytes - at); line += kLine) {
        __builtin_prefetch(from + line, 0, 2);
      }
    }
  }
}

void ThreadPool::Crew::call_job(int thread) {
  const StandardArithmetic arithmetic;
  ask_for_short_turns();
  uint32_t end = kLeft;
  try {
    call_(job_, thread, threads_);
  } catch (const Abandoned&) {
    end |= kFailed;
  } catch (...) {
    end |= kFailed;
    const std::lock_guard lock(first_error_);
    if (!error_) error_ = std::current_exception();
  }
  arrivals_[thread].count.store(end, std::memory_order_release);
}

void ThreadPool::Crew::run(Call call, void* job, Stretches soon) {
  const std::lock_guard lock(one_run_at_a_time_);
  call_ = call;
  job_ = job;
  soon_ = std::move(soon);
  for (Arrivals& arrivals : arrivals_) arrivals.count.store(0, std::memory_order_relaxed);
  started_.fetch_add(1);
  started_.notify_all();
  inside_a_job = true;
  call_job(0);
  inside_a_job = false;
  for (const Arrivals& arrivals : arrivals_) wait_in_run(arrivals.count, [](uint32_t count) { return count >= kLeft; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::Crew::arrive(int thread) {
  std::atomic<uint32_t>& count = arrivals_[thread].count;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void ThreadPool::Crew::wait(int thread) {
  const uint32_t here = arrivals_[thread].count.load(std::memory_order_relaxed);
  for (const Arrivals& arrivals : arrivals_) {
    const uint32_t there = wait_in_run(arrivals.count, [here](uint32_t count) { return count >= here; });
    if ((there & kFailed) != 0) throw Abandoned{};
  }
}

ThreadPool::ThreadPool(int threads) : threads_(threads), crew_(nullptr) {
  if (threads < 1 || threads > 1024) {
    throw std::invalid_argument("threads must be in [1, 1024], got " + std::to_string(threads));
  }
  count_forks();
  crew_.store(new Crew(threads));
}

ThreadPool::~ThreadPool() {
  Crew* crew = crew_.load();
  if (crew->forks_before == forks.load(std::memory_order_relaxed)) delete crew;
}

ThreadPool::Crew* ThreadPool::crew_of_this_process() {
  Crew* crew = crew_.load(std::memory_order_acquire);
  if (crew->forks_before == forks.load(std::memory_order_relaxed)) return crew;
  Crew* own = new Crew(threads_);  // the parent's stays allocated: its threads do not exist here, and cannot be joined
  if (crew_.compare_exchange_strong(crew, own)) return own;
  delete own;
  return crew;
}

void ThreadPool::run_erased(Call call, void* job, Stretches soon) {
  if (inside_a_job) throw std::logic_error("ThreadPool::run must not be called from inside a job");
  crew_of_this_process()->run(call, job, std::move(soon));
}

void ThreadPool::arrive(int thread) { crew_.load(std::memory_order_relaxed)->arrive(thread); }
void ThreadPool::wait(int thread) { crew_.load(std::memory_order_relaxed)->wait(thread); }

std::shared_ptr<ThreadPool> shared_thread_pool(int threads) {
  static std::mutex lock;
  static std::map<int, std::weak_ptr<ThreadPool>> pools;
  const std::lock_guard guard(lock);
  std::weak_ptr<ThreadPool>& known = pools[threads];
  std::shared_ptr<ThreadPool> pool = known.lock();
  if (!pool) known = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

}  // namespace outpace
