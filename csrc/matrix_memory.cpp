#include "matrix_memory.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace outpace {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{64} << 20;  // address space; a page becomes memory when it is first written

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::shared_ptr<uint8_t> region(size_t bytes) {
  bytes = round_up(bytes, kHugePage);
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, bytes));
  if (memory == nullptr) throw std::bad_alloc();
#ifdef __linux__
  madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: without huge pages everything works, slower
#endif
  return {memory, std::free};
}

}  // namespace

std::shared_ptr<uint8_t> allocate_weights(size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<uint8_t> current;  // the pieces own their region
  static size_t used = 0;

  bytes = round_up(bytes, kCacheLine);
  if (bytes > kRegion) return region(bytes);
  const std::lock_guard lock(mutex);
  std::shared_ptr<uint8_t> shared = current.lock();
  if (shared == nullptr || bytes > kRegion - used) {
    shared = region(kRegion);
    current = shared;
    used = 0;
  }
  uint8_t* piece = shared.get() + used;
  used += bytes;
  return {std::move(shared), piece};
}

}  // namespace outpace
