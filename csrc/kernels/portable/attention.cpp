// Attention of one kv head, one query at a time: the order of every operation that the other kernels reproduce.

#include "attention.h"

#include <algorithm>
#include <limits>

#include "kernels/portable/functions.h"
#include "kernels/portable/lanes.h"
#include "numerics.h"

namespace outpace::portable {

using numerics::f16_to_f32;
using numerics::fused;

namespace {

// The online softmax of one query (Milakov and Gimelshein 2018, arXiv 1805.02867), a step for each block.
struct Softmax {
  float largest = -std::numeric_limits<float>::infinity();
  float lanes[kLanes] = {};  // partial sums of exp(score - largest): lane i has positions i, i + 16, ..
};

}  // namespace

// scores[j] = sum over channels, in order, of query[c] * key[c][j], for slots that follow one another
static void score(const float* query, const uint16_t* keys, int head_dim, int positions, float* scores) {
  std::fill_n(scores, positions, 0.0f);
  for (int c = 0; c < head_dim; ++c) {
    const uint16_t* key = keys + static_cast<ptrdiff_t>(c) * kPagePositions;
    for (int j = 0; j < positions; ++j) scores[j] = fused(query[c], f16_to_f32(key[j]), scores[j]);
  }
}

// Turns scores into weights exp(score - largest so far), 0 past `positions`; returns the factor that brings what was
// summed over earlier blocks to the new largest score.
static float weigh(Softmax& softmax, float (&scores)[kPagePositions], int positions) {
  const float before = softmax.largest;
  for (int j = 0; j < positions; ++j) softmax.largest = numerics::larger(scores[j], softmax.largest);
  for (int j = 0; j < positions; ++j) scores[j] = numerics::exp(scores[j] - softmax.largest);
  std::fill(scores + positions, scores + kPagePositions, 0.0f);
  const float correction = numerics::exp(before - softmax.largest);
  for (int i = 0; i < kLanes; ++i) {
    const float sum = (scores[i] + scores[i + 16]) + (scores[i + 32] + scores[i + 48]);
    softmax.lanes[i] = fused(softmax.lanes[i], correction, sum);
  }
  return correction;
}

static void attend_one(const AttentionTask& task, int row, const float* query, float* scaled_query, float* out) {
  for (int c = 0; c < task.head_dim; ++c) scaled_query[c] = query[c] * task.scale;
  Softmax softmax;
  std::fill_n(out, task.head_dim, 0.0f);
  const int first = task.first_seen(row);
  for (int block = first / kPagePositions; block * kPagePositions < task.visible[row]; ++block) {
    const int positions = std::min(kPagePositions, task.visible[row] - block * kPagePositions);
    const int start = block * kPagePositions;
    float weights[kPagePositions];
    int common = 0;
    while (common < positions && !task.on_path(start + common)) ++common;
    score(scaled_query, task.keys[block], task.head_dim, common, weights);
    for (int j = common; j < positions; ++j) {
      const int slot = task.slot(row, start + j);
      score(scaled_query, task.keys[slot / kPagePositions] + slot % kPagePositions, task.head_dim, 1, weights + j);
    }
    std::fill_n(weights, std::max(0, first - start), -std::numeric_limits<float>::infinity());
    const float correction = weigh(softmax, weights, positions);
    for (int c = 0; c < task.head_dim; ++c) out[c] *= correction;
    for (int j = 0; j < positions; ++j) {
      const int slot = task.slot(row, start + j);
      const uint16_t* value = task.values[slot / kPagePositions] + ptrdiff_t(slot % kPagePositions) * task.head_dim;
      for (int c = 0; c < task.head_dim; ++c) out[c] = fused(weights[j], f16_to_f32(value[c]), out[c]);
    }
  }
  const float inverse = 1.0f / sum_of_lanes(softmax.lanes);
  for (int c = 0; c < task.head_dim; ++c) out[c] *= inverse;
}

void attend(const AttentionTask& task) {
  for (int row = 0; row < task.rows; ++row) {
    for (int head = 0; head < task.group; ++head) {
      const ptrdiff_t at = static_cast<ptrdiff_t>(head) * task.head_dim;
      attend_one(task, row, task.queries + row * task.query_stride + at, task.scratch,
                 task.out + row * task.out_stride + at);
    }
  }
}

}  // namespace outpace::portable
