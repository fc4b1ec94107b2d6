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

 private:
  static constexpr size_t kKept = 8;  // idle buffers; more are freed, the largest first
  struct Buffer {
    std::unique_ptr<float[], void (*)(void*)> memory;
    size_t size;
  };
  void give_back(Buffer buffer) noexcept;

  std::mutex mutex_;
  std::vector<Buffer> free_;  // smallest first
};

}  // namespace outpace
