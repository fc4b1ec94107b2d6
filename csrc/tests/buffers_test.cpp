// What a pool of buffers holds: no more than its users needed, whatever sizes they ask for.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>

#include "buffers.h"
#include "check.h"

namespace outpace::test {

TEST(buffers_idle_never_exceed_the_most_that_was_lent_at_a_time) {
  const auto pool = std::make_shared<BufferPool>();
  std::mt19937 random(7);
  std::deque<Floats> lent;
  for (int i = 0; i < 20000; ++i) {
    const size_t rows = 1 + random() % 64;
    lent.push_back(pool->take(rows * 577));
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(lent.back().get()) % 64, 0u);
    std::fill_n(lent.back().get(), rows * 577, float(i));
    while (lent.size() > random() % 5) lent.pop_front();
    const BufferPool::Held held = pool->held();
    CHECK(held.idle <= held.most_lent);
    CHECK(held.most_lent <= 5 * 64 * 577 * 9 / 8 * 4);  // five at a time, each at most four times its need
  }
  lent.clear();
  CHECK_EQUAL(pool->held().lent, 0u);
}

TEST(buffers_of_recurring_sizes_are_used_again) {
  const auto pool = std::make_shared<BufferPool>();
  float* const first = pool->take(1000).get();
  CHECK_EQUAL(pool->take(1000).get(), first);
  CHECK_EQUAL(pool->take(1020).get(), first);  // rounded up to the same size
  CHECK(pool->take(100).get() != first);       // much too large
}

TEST(buffers_that_have_gone_out_of_use_are_freed) {
  const auto pool = std::make_shared<BufferPool>();
  for (int i = 0; i < 8; ++i) {
    const Floats a = pool->take(16), b = pool->take(100), c = pool->take(1000), d = pool->take(10000);
  }
  // Many small ones at a time do not push out the large one that is still asked for.
  float* large = pool->take(10000).get();
  for (int i = 0; i < 20; ++i) {
    {
      const Floats a = pool->take(20), b = pool->take(24), c = pool->take(32);
    }
    CHECK_EQUAL(pool->take(10000).get(), large);
  }
}

TEST(buffers_of_no_floats_can_be_taken) {
  const auto pool = std::make_shared<BufferPool>();
  CHECK(pool->take(0) != nullptr);
  CHECK_EQUAL(pool->held().idle, 16u);
}

}  // namespace outpace::test
