// Attention of one kv head for all queries of a request; portable/attention.cpp states the order of every operation.
//
// A query here is one head of one row. Blocks are the outer loop: a block of keys and values is read once for up to
// kQueriesAtOnce queries, and inside it tiles of up to `tile` queries share each load and conversion of a key or value.
// A lane is a position in the scores and a channel in the values, so neither the size of a tile nor who else is in it
// changes an operation of a query.
//
// The text is that of every instruction set: its lanes.h brings the type V of sixteen lanes, and its attention.cpp says
// how many of them the registers hold. Internal linkage: each compiles its own copy.
#pragma once

#include <array>
#include <limits>
#include <type_traits>
#include <utility>

#include "attention.h"
#include "numerics.h"

namespace outpace::lanes {
namespace {

inline int smaller(int a, int b) { return a < b ? a : b; }

[[gnu::always_inline]] inline void fetch(const uint16_t* line) { __builtin_prefetch(line, 0, 3); }

// f(0) .. f(count - 1), the index a constant: an array that is only ever indexed so lies in registers, whereas loops,
// which compilers unroll later, leave it in memory around them.
template <int count, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, count>());
}

// Rows of f16 that are read now, and those that are read next, which are fetched meanwhile: a block's keys, its
// values, the next block's keys, and so on. Without that one row reads memory at a third of its rate.
struct Stream {
  const uint16_t *now, *next;
  Stream from(ptrdiff_t offset) const { return {now + offset, next + offset}; }
};

// Where a call of accumulate() works: T queries from `first`, positions [begin, end), whose values lie from `slot` of a
// block on, channels from `channel`. corrects: what is there is corrected first.
struct Area {
  int first, begin, end, slot, channel;
  bool corrects;
};

// tile: queries; vectors: of 16 lanes, from the positions of a block or the channels of a value. tile * vectors sums
// are in registers at a time.
template <class V, int tile, int vectors>
struct Attention {
  static constexpr int kStretch = 16 * vectors;
  static constexpr int kVectors = kPagePositions / 16;
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  static_assert(kPagePositions % kStretch == 0 && tile <= 16);

  struct Query {
    V lanes;              // partial sums of exp(score - largest)
    const float* scaled;  // [head_dim], times the task's scale
    float* out;           // [head_dim], the weighted sum of the values so far
    float largest;        // score so far
    int row;
    int first, visible;  // positions: the first that is seen, and how many there are
  };

  // Queries that meet a block together.
  struct Tile {
    int count;
    Query* queries[tile];
    int positions[tile];                              // of the block that each of them sees
    int hidden[tile];                                 // of these, before its window
    alignas(64) float weights[tile][kPagePositions];  // scores, then exp(score - largest)
    alignas(64) float corrections[16];                // bring sums over earlier blocks to the new largest score

    int fewest() const {
      int n = positions[0];
      for (int t = 1; t < count; ++t) n = positions[t] < n ? positions[t] : n;
      return n;
    }
    int most() const {
      int n = positions[0];
      for (int t = 1; t < count; ++t) n = positions[t] > n ? positions[t] : n;
      return n;
    }
    int vectors_seen() const { return (most() + 15) / 16; }  // those behind them have weights of 0
  };

  // sums[t][v] += factors[t][k] * row k, for k in order.
  template <int T, int N>
  [[gnu::always_inline]] static void multiply_rows(const float* const (&factors)[T], Stream rows, ptrdiff_t stride,
                                                   int count, V (&sums)[T][N]) {
    for (int k = 0; k < count; ++k, rows = rows.from(stride)) {
      V row[N];
      unrolled<N>([&](auto v) __attribute__((always_inline)) {
        row[v] = V::load(rows.now + 16 * v);
        if (v % 2 == 0) fetch(rows.next + 16 * v);
      });
      unrolled<T>([&](auto t) __attribute__((always_inline)) {
        const V factor(factors[t][k]);
        unrolled<N>([&](auto v) __attribute__((always_inline)) { sums[t][v] = fused(factor, row[v], sums[t][v]); });
      });
    }
  }

  // Scores of 16 N positions of a block from `first` on, for T queries.
  template <int T, int N>
  static void score(Tile& queries, Stream keys, int head_dim, int first) {
    const float* factors[T];
    V sums[T][N];
    unrolled<T>([&](auto t) __attribute__((always_inline)) {
      factors[t] = queries.queries[t]->scaled;
      unrolled<N>([&](auto v) __attribute__((always_inline)) { sums[t][v] = V(0.0f); });
    });
    multiply_rows<T, N>(factors, keys.from(first), kPagePositions, head_dim, sums);
    unrolled<T>([&](auto t) __attribute__((always_inline)) {
      float* const scores = queries.weights[t] + first;
      unrolled<N>([&](auto v) __attribute__((always_inline)) { store(scores + 16 * v, sums[t][v]); });
    });
  }

  // out += weight * value over the area's positions, 16 N channels.
  template <int T, int N>
  static void accumulate(const Tile& queries, Stream values, int head_dim, Area area) {
    const float* factors[T];
    V sums[T][N];
    unrolled<T>([&](auto t) __attribute__((always_inline)) {
      const float* const out = queries.queries[area.first + t]->out + area.channel;
      const V correction(area.corrects ? queries.corrections[area.first + t] : 1.0f);
      factors[t] = queries.weights[area.first + t] + area.begin;
      unrolled<N>([&](auto v) __attribute__((always_inline)) { sums[t][v] = V::load(out + 16 * v) * correction; });
    });
    const Stream rows = values.from(static_cast<ptrdiff_t>(area.slot) * head_dim + area.channel);
    multiply_rows<T, N>(factors, rows, head_dim, area.end - area.begin, sums);
    unrolled<T>([&](auto t) __attribute__((always_inline)) {
      float* const out = queries.queries[area.first + t]->out + area.channel;
      unrolled<N>([&](auto v) __attribute__((always_inline)) { store(out + 16 * v, sums[t][v]); });
    });
  }

  using Score = void (*)(Tile&, Stream, int head_dim, int first);
  using Accumulate = void (*)(const Tile&, Stream, int head_dim, Area);

  template <size_t... I>
  static constexpr auto score_variants(std::index_sequence<I...>) {
    return std::array<Score, sizeof...(I)>{score<I / vectors + 1, I % vectors + 1>...};
  }
  template <size_t... I>
  static constexpr auto accumulate_variants(std::index_sequence<I...>) {
    return std::array<Accumulate, sizeof...(I)>{accumulate<I / vectors + 1, I % vectors + 1>...};
  }
  static constexpr int variant(int queries, int count) { return (queries - 1) * vectors + count - 1; }

  // Scores of a block's first slots.
  static void score_tile(Tile& queries, Stream keys, int head_dim, int slots) {
    static constexpr auto variants = score_variants(std::make_index_sequence<tile * vectors>());
    const int scored = (slots + 15) / 16;
    for (int v = 0; v < scored; v += vectors) {
      variants[variant(queries.count, smaller(vectors, scored - v))](queries, keys, head_dim, 16 * v);
    }
  }

  // The first of a block's positions that is on paths, in a tree.
  static int own_begin(const AttentionTask& task, int start) {
    return task.own_from > start ? task.own_from - start : 0;
  }

  // Brings the scores of a block's positions on paths to where these positions are, from where their keys are: slots of
  // the block, none before its position, or of later blocks.
  static void follow_paths(const AttentionTask& task, Tile& queries, int block) {
    const int start = block * kPagePositions, from = own_begin(task, start);
    const auto take = [&](int source, const float (&scores)[tile][kPagePositions]) {
      for (int t = 0; t < queries.count; ++t) {
        for (int i = from; i < queries.positions[t]; ++i) {
          const int slot = task.slot(queries.queries[t]->row, start + i) - source * kPagePositions;
          if (slot >= 0 && slot < kPagePositions) queries.weights[t][i] = scores[t][slot];
        }
      }
    };
    take(block, queries.weights);
    for (int later = block + 1; later * kPagePositions < task.slots; ++later) {
      Tile there;
      there.count = queries.count;
      for (int t = 0; t < queries.count; ++t) there.queries[t] = queries.queries[t];
      const uint16_t* const keys = task.keys[later];
      score_tile(there, {keys, keys}, task.head_dim, smaller(kPagePositions, task.slots - later * kPagePositions));
      take(later, there.weights);
    }
  }

  // Hides the scores of the positions that query t does not see and takes in the largest of the others.
  static void find_largest(Tile& queries, int t, int vectors_seen) {
    float* scores = queries.weights[t];
    const V hidden(kHidden);
    V largest = hidden;
    if (queries.positions[t] == kPagePositions && queries.hidden[t] == 0) {
      unrolled<kVectors>([&](auto i) __attribute__((always_inline)) {
        largest = larger(V::load(scores + 16 * i), largest);
      });
    } else {
      for (int i = 0; i < queries.hidden[t]; ++i) scores[i] = kHidden;
      for (int i = 0; i < 16 * vectors_seen; i += 16) {
        V visible = V::load(scores + i);
        if (queries.positions[t] - i < 16) {
          visible = V::load_first_or(scores + i, queries.positions[t] - i, hidden);
          store(scores + i, visible);
        }
        largest = larger(visible, largest);
      }
    }
    queries.queries[t]->largest = numerics::larger(largest_lane(largest), queries.queries[t]->largest);
  }

  static V sum(const V (&weights)[kVectors]) { return (weights[0] + weights[1]) + (weights[2] + weights[3]); }

  // Turns a query's scores into exp(score - largest); returns their sums, lane by lane.
  static V weigh(float* scores, V largest, int vectors_seen) {
    V weights[kVectors];
    if (vectors_seen == kVectors) {
      unrolled<kVectors>([&](auto i) __attribute__((always_inline)) {
        weights[i] = V::load(scores + 16 * i) - largest;
      });
      if (all_at_least(weights, numerics::kLeastNormalExp)) {
        unrolled<kVectors>([&](auto i) __attribute__((always_inline)) {
          weights[i] = numerics::normal_exp(weights[i]);
          store(scores + 16 * i, weights[i]);
        });
        return sum(weights);
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      weights[i] = V(0.0f);
      if (i >= vectors_seen) continue;
      weights[i] = numerics::exp(V::load(scores + 16 * i) - largest);
      store(scores + 16 * i, weights[i]);
    }
    return sum(weights);
  }

  static void weigh_tile(Tile& queries) {
    const int seen = queries.vectors_seen();
    alignas(64) float before[16] = {}, after[16] = {};
    for (int t = 0; t < queries.count; ++t) {
      before[t] = queries.queries[t]->largest;
      find_largest(queries, t, seen);
      after[t] = queries.queries[t]->largest;
    }
    V sums[tile];
    for (int t = 0; t < queries.count; ++t) sums[t] = weigh(queries.weights[t], V(after[t]), seen);
    // Not before: a vector cannot be read from lanes that are on their way to memory one by one.
    store(queries.corrections, numerics::exp(V::load(before) - V::load(after)));
    for (int t = 0; t < queries.count; ++t) {
      queries.queries[t]->lanes = fused(queries.queries[t]->lanes, V(queries.corrections[t]), sums[t]);
    }
  }

  // What all queries of the tile see in the same slots is added for all of them; the few positions that only some see, for
  // the heads of a row at a time. next: what is read after the block's values.
  static void accumulate_tile(const AttentionTask& task, const Tile& queries, int block, const uint16_t* next) {
    static constexpr auto variants = accumulate_variants(std::make_index_sequence<tile * vectors>());
    const int head_dim = task.head_dim, start = block * kPagePositions;
    const bool own = task.on_path(start + kPagePositions - 1);
    const int common = own ? smaller(queries.fewest(), own_begin(task, start)) : queries.fewest();
    for (int channel = 0; channel < head_dim; channel += kStretch) {
      const int count = smaller(vectors, (head_dim - channel) / 16);
      variants[variant(queries.count, count)](queries, {task.values[block], next}, head_dim,
                                              {0, 0, common, 0, channel, true});
      for (int t = 0, alike; t < queries.count; t += alike) {
        const int seen = queries.positions[t], row = queries.queries[t]->row;
        const auto joins = [&](int other) {
          return queries.positions[other] == seen && (!own || queries.queries[other]->row == row);
        };
        for (alike = 1; t + alike < queries.count && joins(t + alike);) ++alike;
        for (int begin = common, end; begin < seen; begin = end) {
          const int slot = task.slot(row, start + begin), lane = slot % kPagePositions;
          end = own ? begin + 1 : seen;
          while (end < seen && task.slot(row, start + end) == slot + end - begin && lane + end - begin < kPagePositions)
            ++end;
          variants[variant(alike, count)](queries, {task.values[slot / kPagePositions], next}, head_dim,
                                          {t, begin, end, lane, channel, false});
        }
      }
    }
  }

  // The block's part of the result of some queries.
  static void attend_together(const AttentionTask& task, Query* const* queries, int count, int block) {
    const int start = block * kPagePositions;
    Tile together;
    together.count = count;
    for (int t = 0; t < count; ++t) {
      const Query& query = *queries[t];
      together.queries[t] = queries[t];
      together.positions[t] = smaller(kPagePositions, query.visible - start);
      together.hidden[t] = query.first > start ? query.first - start : 0;
    }
    const uint16_t *const keys = task.keys[block], *const values = task.values[block];
    const bool own = task.on_path(start + kPagePositions - 1);
    const int slots = own ? smaller(kPagePositions, task.slots - start) : together.most();
    score_tile(together, {keys, values}, task.head_dim, slots);
    if (own) follow_paths(task, together, block);
    weigh_tile(together);
    const bool last = task.slots <= start + kPagePositions;
    accumulate_tile(task, together, block, last ? keys : task.keys[block + 1]);
  }

  // The block's part of the result of those queries that see some of it.
  static void attend_block(const AttentionTask& task, Query* queries, int count, int block) {
    const int start = block * kPagePositions;
    Query* seeing[kQueriesAtOnce];
    int all = 0;
    for (int i = 0; i < count; ++i) {
      if (queries[i].visible > start && queries[i].first < start + kPagePositions) seeing[all++] = &queries[i];
    }
    // Tiles as even as can be: in small ones a load, and a conversion, serves fewer queries.
    const int tiles = (all + tile - 1) / tile;
    for (int t = 0; t < tiles; ++t) {
      const int begin = all * t / tiles, end = all * (t + 1) / tiles;
      attend_together(task, seeing + begin, end - begin, block);
    }
  }

  static int prepare(const AttentionTask& task, int row0, int row1, Query* queries) {
    int count = 0;
    float* scaled = task.scratch;
    for (int row = row0; row < row1; ++row) {
      for (int head = 0; head < task.group; ++head, scaled += task.head_dim) {
        const float* query = task.queries + row * task.query_stride + static_cast<ptrdiff_t>(head) * task.head_dim;
        float* out = task.out + row * task.out_stride + static_cast<ptrdiff_t>(head) * task.head_dim;
        for (int c = 0; c < task.head_dim; c += 16) {
          store(scaled + c, V::load(query + c) * V(task.scale));
          store(out + c, V(0.0f));
        }
        queries[count++] = {V(0.0f), scaled, out, -std::numeric_limits<float>::infinity(), row, task.first_seen(row),
                            task.visible[row]};
      }
    }
    return count;
  }

  static void finish(const AttentionTask& task, Query* queries, int count) {
    for (int i = 0; i < count; ++i) {
      const V inverse(1.0f / sum_of_lanes(queries[i].lanes));
      for (int c = 0; c < task.head_dim; c += 16) store(queries[i].out + c, V::load(queries[i].out + c) * inverse);
    }
  }

  static void attend(const AttentionTask& task) {
    constexpr int line = 32;  // f16
    const int earliest = task.first_seen(0) / kPagePositions;
    for (int i = 0; i < task.head_dim * kPagePositions; i += line) fetch(task.keys[earliest] + i);
    Query queries[kQueriesAtOnce];
    const int rows_at_once = task.group < kQueriesAtOnce ? kQueriesAtOnce / task.group : 1;
    for (int row = 0; row < task.rows; row += rows_at_once) {
      const int end = smaller(task.rows, row + rows_at_once);
      const int count = prepare(task, row, end, queries);
      int first = task.first_seen(row), visible = 0;
      for (int r = row; r < end; ++r) {
        first = smaller(first, task.first_seen(r));
        visible = task.visible[r] > visible ? task.visible[r] : visible;
      }
      for (int block = first / kPagePositions; block * kPagePositions < visible; ++block) {
        attend_block(task, queries, count, block);
      }
      finish(task, queries, count);
    }
  }
};

}  // namespace
}  // namespace outpace::lanes
