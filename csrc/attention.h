// One attention call: all query rows of one request that share a kv head, over keys and values in blocks of
// kPagePositions slots, which are absolute positions but in trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace outpace {

// A block holds f16 keys [head_dim][kPagePositions] (a lane is a slot) and f16 values [kPagePositions][head_dim] (a lane
// is a channel). Row r attends to positions first_seen(r) .. visible[r] - 1. Its result depends on those positions'
// contents only: positions are reduced in order, block by block, those before the window are left out, and what lies
// beyond `visible` is never read into a sum. In the block where a window begins the positions before it have the weight 0.
// head_dim is a multiple of 16.
struct AttentionTask {
  int head_dim;
  int group;    // query heads that share the kv head; a task may as well hold some of them only
  int rows;
  float scale;  // 1 / sqrt(head_dim)
  const float* queries;  // row r, head h of the group: queries + r * query_stride + h * head_dim
  ptrdiff_t query_stride;
  float* out;            // laid out like queries
  ptrdiff_t out_stride;
  const int* visible;    // [rows], each >= 1
  int window;            // positions that a row attends to at most; 0: all that are visible
  const uint16_t* const* keys;    // [blocks]
  const uint16_t* const* values;  // [blocks]
  // A position's slot is the position itself, but in a tree from `own_from` on, where each row reads along its own path:
  // there it is paths[row * path_stride + position - own_from], at least the position, rising along the path and below
  // `slots`. A chain or a prefill slice has no paths.
  const int* paths;
  ptrdiff_t path_stride;
  int own_from, slots;
  float* scratch;  // attention_scratch(head_dim, group, rows) floats, 64-byte aligned, for this call alone

  int first_seen(int row) const { return window > 0 && visible[row] > window ? visible[row] - window : 0; }
  bool on_path(int position) const { return paths != nullptr && position >= own_from; }
  int slot(int row, int position) const {
    return on_path(position) ? paths[row * path_stride + position - own_from] : position;
  }
};

// Queries (heads of rows) that one pass over the blocks serves: their scaled copies and sums stay in a core's
// second-level cache. group <= kQueriesAtOnce.
constexpr int kQueriesAtOnce = 96;

constexpr size_t attention_scratch(int head_dim, int group, int rows) {
  const int queries = group * rows < kQueriesAtOnce ? group * rows : kQueriesAtOnce;
  return static_cast<size_t>(head_dim) * static_cast<size_t>(queries);
}

// Rotary embedding: the angle of channel pair i at position t is t theta^(-2i / head_dim) (Su et al. 2021,
// arXiv 2104.09864, section 3.4.2), in double precision with functions of our own: the same table on every machine,
// each entry the f32 nearest to the exact value within 1e-11 times the position's size.
class RotaryTable {
 public:
  // `divisors` [head_dim / 2], where given, divide the frequencies (models trained for longer contexts carry them).
  // Throws std::invalid_argument unless theta > 1, head_dim is even and positive, and every divisor is positive.
  RotaryTable(double theta, int head_dim, const float* divisors = nullptr);
  // cos, sin: [head_dim / 2]. 0 <= position < 2^30.
  void fill(int position, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;
};

}  // namespace outpace
