// Float buffers that return to a pool when their last holder lets go, so that a pass allocates nothing once it has run.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace outpace {

using Floats = std::shared_ptr<float[]>;

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // A buffer of at least `size` floats, 64-byte aligned, with the contents of its last use. Throws std::bad_alloc.
  Floats take(size_t size);

  struct Held {
    size_t lent, idle, most_lent;  // floats; the last is the most at any time
  };
  Held held() const;

 private:
  // Idle buffers. More are freed, the longest idle first, as are those beyond the most that was lent at a time: sizes
  // that have gone out of use leave, and the pool never holds more than twice what its users needed at once.
  static constexpr size_t kKept = 8;
  struct Buffer {
    std::unique_ptr<float[], void (*)(void*)> memory;
    size_t size;
  };
  void give_back(Buffer buffer) noexcept;
  void lend(size_t size);
  void free_oldest() noexcept;

  mutable std::mutex mutex_;
  std::vector<Buffer> free_;  // longest idle first
  Held held_{};
};

}  // namespace outpace
