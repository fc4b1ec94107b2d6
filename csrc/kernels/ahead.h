// Fetching weights ahead of their use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outpace {
namespace {

constexpr int kAhead = 8192;  // bytes that prefetching runs ahead

// Where prefetching goes on behind the last of a product's weights: what is read next is seldom what lies next in memory.
struct Onward {
  const char* end;
  ptrdiff_t jump;  // from there
  bool once;       // Products::once

  // next: null where it is not known
  Onward(const uint8_t* product_end, const uint8_t* next, bool read_once)
      : end(reinterpret_cast<const char*>(product_end)),
        jump(next == nullptr ? 0 : reinterpret_cast<intptr_t>(next) - reinterpret_cast<intptr_t>(product_end)),
        once(read_once) {}

  [[gnu::always_inline]] const char* behind(const void* weights, ptrdiff_t offset = 0) const {
    const char* const ahead = static_cast<const char*>(weights) + kAhead + offset;
    return ahead < end ? ahead : ahead + jump;
  }
};

// Asks for a line of memory. What is read once goes to the first-level cache alone: in the others it would take the place
// of keys, values and activations, and of all that the loop between two passes needs.
[[gnu::always_inline]] inline void fetch_weights(const char* line, bool once) {
  if (once) __builtin_prefetch(line, 0, 0);
  else __builtin_prefetch(line, 0, 3);
}

// Asks for the memory that lies kAhead bytes behind a piece of weights, a few lines with every row of activations: all
// at once they would fill the queue of misses and hold up the loads behind them. (Inlined by force: gcc drops calls to
// functions that do nothing but prefetch.)
class Ahead {
 public:
  // Of part `part` of `parts` of a block, asked for in `times` times.
  template <class Block>
  [[gnu::always_inline]] Ahead(const Block& block, const Onward& onward, int part, int parts, int times) {
    const int lines = (static_cast<int>(sizeof(Block)) / kLine + parts - 1) / parts;
    next_ = onward.behind(&block, part * lines * kLine);
    end_ = next_ + lines * kLine;
    lines_at_a_time_ = (lines + times - 1) / times;
    once_ = onward.once;
  }
  [[gnu::always_inline]] void ask_some() {
    for (int i = 0; i < lines_at_a_time_ && next_ < end_; ++i, next_ += kLine) fetch_weights(next_, once_);
  }

 private:
  static constexpr int kLine = 64;
  const char *next_, *end_;
  int lines_at_a_time_;
  bool once_;
};

}  // namespace
}  // namespace outpace
