// Prefetches that are spread over the products of a tile.
#pragma once

#include "kernels/ahead.h"

namespace outpace {
namespace {

// Has everything that follows read memory anew. Without it compilers take what is in the first-level cache for values,
// keep them across loops, and, having sixteen registers, write them somewhere else. Prefetches they would gather.
[[gnu::always_inline]] inline void reload() { asm volatile("" ::: "memory"); }

// The lines that lie kAhead bytes behind a piece of weights, a share of them for each tile of products. Where the rows are known
// every step of a tile asks for some of its share; else, as that would take more instructions than it is worth, the first
// step for all.
template <int known_rows>
class Lines {
 public:
  // Of part `part` of `parts` of a block, which `tiles` tiles meet.
  template <class Block>
  [[gnu::always_inline]] Lines(const Block& block, const Onward& onward, int part, int parts, int tiles)
      : next_(onward.behind(&block, part * lines_of(block) / parts * kLine)),
        of_tile_((lines_of(block) + parts * tiles - 1) / (parts * tiles)),
        once_(onward.once) {}
  [[gnu::always_inline]] void ask(int step, int steps) const {
    if constexpr (known_rows > 0 && known_rows <= 4) {
      ask_from_to(of_tile_ * step / steps, of_tile_ * (step + 1) / steps);
      reload();
    } else if (step == 0) {
      ask_from_to(0, of_tile_);
    }
  }
  [[gnu::always_inline]] void next_tile() { next_ += of_tile_ * kLine; }

 private:
  static constexpr int kLine = 64;
  template <class Block>
  static constexpr int lines_of(const Block&) {
    return sizeof(Block) / kLine;
  }
  [[gnu::always_inline]] void ask_from_to(int first, int last) const {
    for (int i = first; i < last; ++i) fetch_weights(next_ + i * kLine, known_rows > 0 || once_);
  }
  const char* next_;
  int of_tile_;
  bool once_;
};

}  // namespace
}  // namespace outpace
