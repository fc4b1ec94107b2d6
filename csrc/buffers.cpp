#include "buffers.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace outpace {

Floats BufferPool::take(size_t size) {
  Buffer buffer{{nullptr, std::free}, 0};
  {
    const std::lock_guard lock(mutex_);
    free_.reserve(kKept + 1);  // so that give_back never allocates
    const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Buffer& b) { return b.size >= size; });
    // One much larger than needed stays for those that need it.
    if (fits != free_.end() && fits->size / 4 <= size) {
      buffer = std::move(*fits);
      free_.erase(fits);
    }
  }
  if (!buffer.memory) {
    buffer.size = std::max<size_t>((size + 15) / 16 * 16, 16);
    buffer.memory.reset(static_cast<float*>(std::aligned_alloc(64, buffer.size * sizeof(float))));
    if (!buffer.memory) throw std::bad_alloc();
  }
  const size_t held = buffer.size;
  return Floats(buffer.memory.release(), [self = shared_from_this(), held](float* memory) {
    self->give_back(Buffer{{memory, std::free}, held});
  });
}

void BufferPool::give_back(Buffer buffer) noexcept {
  const std::lock_guard lock(mutex_);
  const auto place = std::find_if(free_.begin(), free_.end(), [&](const Buffer& b) { return b.size >= buffer.size; });
  free_.insert(place, std::move(buffer));
  if (free_.size() > kKept) free_.pop_back();
}

}  // namespace outpace
