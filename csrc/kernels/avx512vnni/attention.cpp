// Attention of one kv head for all queries of a request; portable/attention.cpp states the order of every operation.
//
// A query here is one head of one row. Blocks are the outer loop: a block of keys and values is read once for up to
// kQueriesAtOnce queries, and inside it tiles of up to kTile queries share each load and conversion of a key or value.
// A lane is a position in the scores and a channel in the values, so neither the size of a tile nor who else is in it
// changes an operation of a query.

#include "attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "kernels/avx512vnni/functions.h"
#include "kernels/avx512vnni/lanes.h"
#include "numerics.h"

namespace outpace::avx512vnni {

namespace {

constexpr int kTile = 6;     // queries; times kVectors sums each: 24 of the 32 registers
constexpr int kVectors = 4;  // of 16 lanes: the positions of a block, or a stretch of channels
constexpr int kStretch = 16 * kVectors;
static_assert(kStretch == kPagePositions);

struct Query {
  F32x16 lanes;         // partial sums of exp(score - largest)
  const float* scaled;  // [head_dim], times the task's scale
  float* out;           // [head_dim], the weighted sum of the values so far
  float largest;        // score so far
  int row;
  int visible;  // positions
};

// Queries that read the same block.
struct Tile {
  int count;
  Query* queries[kTile];
  int positions[kTile];                              // of the block that each of them sees
  alignas(64) float weights[kTile][kPagePositions];  // scores, then exp(score - largest)
  alignas(64) float corrections[16];                 // bring sums over earlier blocks to the new largest score
};

// Rows of f16 that are read now, and those that are read next, which are fetched meanwhile: a block's keys, its
// values, the next block's keys, and so on. Without that one row reads memory at a third of its rate.
struct Stream {
  const uint16_t *now, *next;
  Stream from(ptrdiff_t offset) const { return {now + offset, next + offset}; }
};

inline void fetch(const uint16_t* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0); }

// sums[t][v] += factors[t][k] * row k, for k in order.
template <int T, int V>
inline void multiply_rows(const float* const (&factors)[T], Stream rows, ptrdiff_t stride, int count,
                          F32x16 (&sums)[T][V]) {
  for (int k = 0; k < count; ++k, rows = rows.from(stride)) {
    F32x16 row[V];
    for (int v = 0; v < V; ++v) {
      row[v] = load(rows.now + 16 * v);
      if (v % 2 == 0) fetch(rows.next + 16 * v);
    }
    for (int t = 0; t < T; ++t) {
      const F32x16 factor(factors[t][k]);
      for (int v = 0; v < V; ++v) sums[t][v] = fused(factor, row[v], sums[t][v]);
    }
  }
}

// Scores of the first 16 V positions of a block, for T queries.
template <int T, int V>
void score(Tile& tile, Stream keys, int head_dim) {
  const float* factors[T];
  F32x16 sums[T][V];
  for (int t = 0; t < T; ++t) {
    factors[t] = tile.queries[t]->scaled;
    for (int v = 0; v < V; ++v) sums[t][v] = F32x16(0.0f);
  }
  multiply_rows<T, V>(factors, keys, kPagePositions, head_dim, sums);
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v) store(tile.weights[t] + 16 * v, sums[t][v]);
  }
}

// Where a call of accumulate() works: T queries from `first`, positions [begin, end), channels from `channel`.
struct Area {
  int first, begin, end, channel;
};

// out += weight * value over the area's positions, 16 V channels; position 0 first corrects what is there.
template <int T, int V>
void accumulate(const Tile& tile, Stream values, int head_dim, Area area) {
  const float* factors[T];
  F32x16 sums[T][V];
  for (int t = 0; t < T; ++t) {
    const float* out = tile.queries[area.first + t]->out + area.channel;
    const F32x16 correction(area.begin == 0 ? tile.corrections[area.first + t] : 1.0f);
    factors[t] = tile.weights[area.first + t] + area.begin;
    for (int v = 0; v < V; ++v) sums[t][v] = load(out + 16 * v) * correction;
  }
  const Stream rows = values.from(static_cast<ptrdiff_t>(area.begin) * head_dim + area.channel);
  multiply_rows<T, V>(factors, rows, head_dim, area.end - area.begin, sums);
  for (int t = 0; t < T; ++t) {
    float* out = tile.queries[area.first + t]->out + area.channel;
    for (int v = 0; v < V; ++v) store(out + 16 * v, sums[t][v]);
  }
}

using Score = void (*)(Tile&, Stream, int);
using Accumulate = void (*)(const Tile&, Stream, int, Area);

template <size_t... I>
constexpr auto score_variants(std::index_sequence<I...>) {
  return std::array<Score, sizeof...(I)>{score<I / kVectors + 1, I % kVectors + 1>...};
}
template <size_t... I>
constexpr auto accumulate_variants(std::index_sequence<I...>) {
  return std::array<Accumulate, sizeof...(I)>{accumulate<I / kVectors + 1, I % kVectors + 1>...};
}
constexpr auto kScore = score_variants(std::make_index_sequence<kTile * kVectors>());
constexpr auto kAccumulate = accumulate_variants(std::make_index_sequence<kTile * kVectors>());
constexpr int variant(int queries, int vectors) { return (queries - 1) * kVectors + vectors - 1; }

void score_tile(Tile& tile, Stream keys, int head_dim) {
  const int most = *std::max_element(tile.positions, tile.positions + tile.count);
  kScore[variant(tile.count, (most + 15) / 16)](tile, keys, head_dim);
}

// Hides the scores of the positions that query t does not see and takes in the largest of the others.
void find_largest(Tile& tile, int t) {
  float* scores = tile.weights[t];
  const F32x16 hidden(-std::numeric_limits<float>::infinity());
  F32x16 largest = hidden;
  for (int v = 0; v < kVectors; ++v) {
    const __mmask16 seen = first_lanes(tile.positions[t] - 16 * v);
    const F32x16 visible = _mm512_mask_loadu_ps(hidden.v, seen, scores + 16 * v);
    store(scores + 16 * v, visible);
    largest = larger(visible, largest);
  }
  tile.queries[t]->largest = numerics::larger(largest_lane(largest), tile.queries[t]->largest);
}

void weigh_tile(Tile& tile) {
  alignas(64) float before[16] = {}, after[16] = {};
  for (int t = 0; t < tile.count; ++t) {
    before[t] = tile.queries[t]->largest;
    find_largest(tile, t);
    after[t] = tile.queries[t]->largest;
  }
  store(tile.corrections, numerics::exp(load(before) - load(after)));
  for (int t = 0; t < tile.count; ++t) {
    F32x16 weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = numerics::exp(load(tile.weights[t] + 16 * v) - F32x16(after[t]));
      store(tile.weights[t] + 16 * v, weights[v]);
    }
    const F32x16 sum = (weights[0] + weights[1]) + (weights[2] + weights[3]);
    tile.queries[t]->lanes = fused(tile.queries[t]->lanes, F32x16(tile.corrections[t]), sum);
  }
}

// What all queries of the tile see is added for all of them; the few positions that only some see, one by one.
void accumulate_tile(const Tile& tile, Stream values, int head_dim) {
  const int common = *std::min_element(tile.positions, tile.positions + tile.count);
  for (int channel = 0; channel < head_dim; channel += kStretch) {
    const int vectors = std::min(kVectors, (head_dim - channel) / 16);
    kAccumulate[variant(tile.count, vectors)](tile, values, head_dim, {0, 0, common, channel});
    for (int t = 0; t < tile.count; ++t) {
      if (tile.positions[t] == common) continue;
      kAccumulate[variant(1, vectors)](tile, values, head_dim, {t, common, tile.positions[t], channel});
    }
  }
}

// The block's part of the result of those queries that see some of it.
void attend_block(const AttentionTask& task, Query* queries, int count, int block) {
  const int start = block * kPagePositions;
  for (int i = 0; i < count;) {
    Tile tile;
    const uint16_t *keys = nullptr, *values = nullptr;
    for (tile.count = 0; i < count && tile.count < kTile; ++i) {
      Query& query = queries[i];
      if (query.visible <= start) continue;
      const uint16_t *own_keys = task.key_block(query.row, block), *own_values = task.value_block(query.row, block);
      if (tile.count > 0 && (own_keys != keys || own_values != values)) break;
      keys = own_keys;
      values = own_values;
      tile.positions[tile.count] = std::min(kPagePositions, query.visible - start);
      tile.queries[tile.count++] = &query;
    }
    if (tile.count == 0) return;
    const bool last = tile.queries[0]->visible <= start + kPagePositions;
    score_tile(tile, {keys, values}, task.head_dim);
    weigh_tile(tile);
    accumulate_tile(tile, {values, last ? keys : task.key_block(tile.queries[0]->row, block + 1)}, task.head_dim);
  }
}

int prepare(const AttentionTask& task, int row0, int row1, Query* queries) {
  int count = 0;
  float* scaled = task.scratch;
  for (int row = row0; row < row1; ++row) {
    for (int head = 0; head < task.group; ++head, scaled += task.head_dim) {
      const float* query = task.queries + row * task.query_stride + static_cast<ptrdiff_t>(head) * task.head_dim;
      float* out = task.out + row * task.out_stride + static_cast<ptrdiff_t>(head) * task.head_dim;
      for (int c = 0; c < task.head_dim; c += 16) {
        store(scaled + c, load(query + c) * F32x16(task.scale));
        store(out + c, F32x16(0.0f));
      }
      queries[count++] = {F32x16(0.0f), scaled, out, -std::numeric_limits<float>::infinity(), row, task.visible[row]};
    }
  }
  return count;
}

void finish(const AttentionTask& task, Query* queries, int count) {
  for (int i = 0; i < count; ++i) {
    const F32x16 inverse(1.0f / sum_of_lanes(queries[i].lanes));
    for (int c = 0; c < task.head_dim; c += 16) store(queries[i].out + c, load(queries[i].out + c) * inverse);
  }
}

}  // namespace

void attend(const AttentionTask& task) {
  constexpr int line = 32;  // f16
  for (int i = 0; i < task.head_dim * kPagePositions; i += line) fetch(task.key_block(0, 0) + i);
  Query queries[kQueriesAtOnce];
  const int rows_at_once = std::max(1, kQueriesAtOnce / task.group);
  for (int row = 0; row < task.rows; row += rows_at_once) {
    const int end = std::min(task.rows, row + rows_at_once);
    const int count = prepare(task, row, end, queries);
    const int visible = *std::max_element(task.visible + row, task.visible + end);
    for (int block = 0; block * kPagePositions < visible; ++block) attend_block(task, queries, count, block);
    finish(task, queries, count);
  }
}

}  // namespace outpace::avx512vnni
