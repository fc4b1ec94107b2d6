// One attention call: all query rows of one request that share a kv head, over keys and values in blocks of
// kPagePositions absolute positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace outpace {

// A block holds f16 keys [head_dim][kPagePositions] (a lane is a position) and f16 values [kPagePositions][head_dim]
// (a lane is a channel). Row r attends to positions 0 .. visible[r] - 1. Its result depends on those positions'
// contents only: blocks are reduced in order, and what lies beyond `visible` is never read into a sum.
struct AttentionTask {
  int head_dim;
  int group;    // query heads that share the kv head
  int rows;
  float scale;  // 1 / sqrt(head_dim)
  const float* queries;  // row r, head h of the group: queries + r * query_stride + h * head_dim
  ptrdiff_t query_stride;
  float* out;            // laid out like queries
  ptrdiff_t out_stride;
  const int* visible;    // [rows], each >= 1
  // Blocks that all rows read alike: the committed pages; for a chain or a prefill slice all of them.
  int shared_blocks;
  const uint16_t* const* keys;    // [shared_blocks]
  const uint16_t* const* values;  // [shared_blocks]
  // A tree: the blocks after those, one set for each row, gathered along the row's own path.
  int own_blocks;
  const uint16_t* const* own_keys;    // [rows * own_blocks]
  const uint16_t* const* own_values;  // [rows * own_blocks]
  float* scratch;  // attention_scratch(*this) floats, 64-byte aligned
};

size_t attention_scratch(int head_dim, int group, int rows);

}  // namespace outpace
