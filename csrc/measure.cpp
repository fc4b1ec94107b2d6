#include "measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "threads.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace outpace {

template <class Run>
static double best_seconds(int times, Run&& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

double measure_bandwidth(int threads, size_t bytes, const Kernels& kernels) {
  constexpr size_t kStep = 64 * sizeof(uint64_t), kHuge = size_t(2) << 20;
  if (bytes < size_t(1) << 20)
    throw std::invalid_argument("bytes must be at least 1048576, got " + std::to_string(bytes));
  const std::shared_ptr<ThreadPool> pool = shared_thread_pool(threads);
  const size_t held = (bytes + kHuge - 1) / kHuge * kHuge;
  const std::unique_ptr<uint64_t[], void (*)(void*)> data(static_cast<uint64_t*>(std::aligned_alloc(kHuge, held)),
                                                          std::free);
  if (!data) throw std::bad_alloc();
#ifdef __linux__
  madvise(data.get(), held, MADV_HUGEPAGE);  // the weights are packed in such pages, too, where there are any
#endif
  std::memset(data.get(), 1, held);
  const Probes& probes = kernels.probes();
  std::atomic<uint64_t> sink{0};
  const size_t steps = bytes / kStep;
  const double seconds = best_seconds(7, [&] {
    pool->run([&](int thread, int count) {
      const size_t begin = steps * thread / count, end = steps * (thread + 1) / count;
      sink += probes.sum(data.get() + begin * 64, (end - begin) * 64);
    });
  });
  return double(steps * kStep) / seconds;
}

double measure_integer_rate(int threads, const Kernels& kernels, bool wide) {
  constexpr int kRounds = 200000;
  const std::shared_ptr<ThreadPool> pool = shared_thread_pool(threads);
  const Probes& probes = kernels.probes();
  const auto multiply_add = wide && probes.multiply_add_wide ? probes.multiply_add_wide : probes.multiply_add;
  std::atomic<uint32_t> sink{0};
  const double seconds = best_seconds(7, [&] { pool->run([&](int, int) { sink += multiply_add(kRounds); }); });
  return double(kRounds) * kMultiplyAdds * threads / seconds;
}

}  // namespace outpace
