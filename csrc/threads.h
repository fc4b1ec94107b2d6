// A pool of threads that stays awake while there is work: one run() for each forward pass, barriers between its phases.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace outpace {

// The half-open range of `count` items that falls to `thread`: contiguous, sizes differ by one at most.
struct Range {
  int begin, end;
};
inline Range static_share(int count, int thread, int threads) {
  const auto border = [&](int t) { return static_cast<int>(static_cast<long long>(count) * t / threads); };
  return {border(thread), border(thread + 1)};
}

// Hands out the items 0 .. count - 1 to whichever thread asks next. Which thread computes an item never changes the
// item's bits. reset() is for one thread, with a barrier between it and every take() before and after.
class alignas(64) SharedRange {
 public:
  void reset(int count) {
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
  }
  // The next `chunk` items, or what is left of them; begin == end when nothing is.
  Range take(int chunk) {
    const int begin = next_.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= count_) return {count_, count_};
    return {begin, chunk < count_ - begin ? begin + chunk : count_};
  }

 private:
  std::atomic<int> next_{0};
  int count_ = 0;
};

// Memory that is read soon. A hint: nothing happens where it has been given back meanwhile.
struct Stretch {
  const void* begin;
  size_t bytes;
};
using Stretches = std::shared_ptr<const std::vector<Stretch>>;

class ThreadPool {
 public:
  // The caller of run() counts as one of `threads`. Throws std::invalid_argument unless 1 <= threads <= 1024,
  // std::system_error when the system refuses a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls job(thread, threads) on every thread at once, the caller being thread 0, and returns when all have returned.
  // The first exception of a job is thrown here, after the others have left the job, at a barrier if need be. Calls
  // from several threads wait for one another; a call from inside a job throws std::logic_error. Allocates nothing.
  // soon: what the others bring into the caches once all have returned, until the next run begins, while the caller does
  // something else.
  template <class Job>
  void run(Job&& job, Stretches soon = nullptr) {
    using Body = std::remove_reference_t<Job>;
    run_erased([](void* body, int thread, int threads) { (*static_cast<Body*>(body))(thread, threads); },
               const_cast<void*>(static_cast<const void*>(std::addressof(job))), std::move(soon));
  }

  // For use inside a job, by all its threads, each with its own number: returns when every one of them has arrived or
  // left the job, and what they wrote before is visible after. Throws (an exception that run() swallows) when another
  // thread's job has failed.
  void barrier(int thread) {
    arrive(thread);
    wait(thread);
  }
  // The halves of a barrier, where a thread has something to do that needs nothing of the others.
  void arrive(int thread);
  void wait(int thread);

 private:
  struct Crew;
  using Call = void (*)(void* job, int thread, int threads);
  void run_erased(Call call, void* job, Stretches soon);
  Crew* crew_of_this_process();

  const int threads_;
  std::atomic<Crew*> crew_;
};

// The pool of that many threads that all models of this process share, so that the idle workers of one never compete
// with the busy ones of another. It lives as long as someone holds it.
std::shared_ptr<ThreadPool> shared_thread_pool(int threads);

}  // namespace outpace
