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

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::shared_ptr<uint8_t> allocate(size_t bytes, size_t alignment) {
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(alignment, bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, std::free};
}

#ifdef OUTPACE_SANITIZE_ADDRESS  // each piece for itself, so that reading past one shows

std::shared_ptr<uint8_t> piece_of_region(size_t bytes) { return allocate(bytes, kCacheLine); }

#else

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{64} << 20;  // address space; a page becomes memory when it is first written

std::shared_ptr<uint8_t> region(size_t bytes) {
  bytes = round_up(bytes, kHugePage);
  std::shared_ptr<uint8_t> memory = allocate(bytes, kHugePage);
#ifdef __linux__
  madvise(memory.get(), bytes, MADV_HUGEPAGE);  // a hint: without huge pages everything works, slower
#endif
  return memory;
}

std::shared_ptr<uint8_t> piece_of_region(size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<uint8_t> current;  // the pieces own their region
  static size_t used = 0;

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

#endif

}  // namespace

std::shared_ptr<uint8_t> allocate_weights(size_t bytes) { return piece_of_region(round_up(bytes, kCacheLine)); }

}  // namespace outpace
