#include "buffers.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace outpace {

// Batches have many sizes, which change from pass to pass; rounded up to eighths of a power of two they recur, at a
// cost of at most an eighth.
static size_t rounded(size_t size) {
  const size_t step = std::max<size_t>(std::bit_floor(size) / 8, 16);
  return std::max((size + step - 1) / step * step, step);
}

Floats BufferPool::take(size_t size) {
  Buffer buffer{{nullptr, std::free}, 0};
  {
    const std::lock_guard lock(mutex_);
    free_.reserve(kKept + 1);  // so that give_back never allocates
    // One much larger than needed stays for those that need it.
    auto best = free_.end();
    for (auto b = free_.begin(); b != free_.end(); ++b) {
      if (b->size >= size && b->size / 4 <= size && (best == free_.end() || b->size < best->size)) best = b;
    }
    if (best != free_.end()) {
      buffer = std::move(*best);
      free_.erase(best);
      held_.idle -= buffer.size;
      lend(buffer.size);
    }
  }
  if (!buffer.memory) {
    buffer.size = rounded(size);
    buffer.memory.reset(static_cast<float*>(std::aligned_alloc(64, buffer.size * sizeof(float))));
    if (!buffer.memory) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    lend(buffer.size);
  }
  const size_t held = buffer.size;
  return Floats(buffer.memory.release(), [self = shared_from_this(), held](float* memory) {
    self->give_back(Buffer{{memory, std::free}, held});
  });
}

BufferPool::Held BufferPool::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

void BufferPool::lend(size_t size) {
  held_.lent += size;
  held_.most_lent = std::max(held_.most_lent, held_.lent);
}

void BufferPool::give_back(Buffer buffer) noexcept {
  const std::lock_guard lock(mutex_);
  held_.lent -= buffer.size;
  held_.idle += buffer.size;
  free_.push_back(std::move(buffer));
  while (free_.size() > kKept || held_.idle > held_.most_lent) free_oldest();
}

void BufferPool::free_oldest() noexcept {
  held_.idle -= free_.front().size;
  free_.erase(free_.begin());
}

}  // namespace outpace
