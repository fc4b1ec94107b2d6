// Prefetches that are spread over the products of a tile.
#pragma once

#include "kernels/ahead.h"

namespace outpace {
namespace {

// Has everything that follows read memory anew. Without it compilers take what is in the first-level cache for values,
// keep them across loops, and, having sixteen registers, write them somewhere else. Prefetches they would gather.
[[gnu::always_inline]] inline void reload() { asm volatile("" ::: "memory"); }

// The lines that lie kAhead bytes behind a piece of weights, a share of them for each tile of products. Up to four rows,
// whose memory takes about as long as their arithmetic, every step of a tile asks for some of its share, where compilers
// know how many; else all of it is asked for before the tile. Shares are the same in all parts of a block: what varies
// is mispredicted.
template <int known_rows>
class Lines {
 public:
  // Of part `part` of `parts` of a block, which is multiplied in `tiles` tiles.
  template <class Block>
  [[gnu::always_inline]] Lines(const Block& block, const Onward& onward, int part, int parts, int tiles) {
    const int lines = (static_cast<int>(sizeof(Block)) / kLine + parts - 1) / parts;
    next_ = onward.behind(&block, part * lines * kLine);
    end_ = next_ + lines * kLine;
    of_tile_ = (lines + tiles - 1) / tiles;
    once_ = known_rows > 0 || onward.once;
  }
  [[gnu::always_inline]] void begin_tile() {
    if constexpr (!kByStep) {
      for (const char* line = next_; line < next_ + of_tile_ * kLine && line < end_; line += kLine) {
        fetch_weights(line, once_);
      }
    }
    reload();
  }
  [[gnu::always_inline]] void begin_step(int step, int steps) const {
    if constexpr (kByStep) {
      for (int i = of_tile_ * step / steps; i < of_tile_ * (step + 1) / steps; ++i) {
        fetch_weights(next_ + i * kLine, once_);
      }
      reload();
    }
  }
  [[gnu::always_inline]] void end_tile() { next_ += of_tile_ * kLine; }

 private:
  static constexpr int kLine = 64;
  static constexpr bool kByStep = known_rows > 0 && known_rows <= 4;
  const char *next_, *end_;
  int of_tile_;
  bool once_;
};

}  // namespace
}  // namespace outpace
