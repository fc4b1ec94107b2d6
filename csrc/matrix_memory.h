// Memory for weights: large pages, because a pass reads all of it in order and address translation would show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace outpace {

// 64-byte aligned, cut from a shared region that is freed with the last of its pieces. Thread-safe.
// Throws std::bad_alloc.
std::shared_ptr<uint8_t> allocate_weights(size_t bytes);

}  // namespace outpace
