// Products of few rows of activations with the commonest formats: step by step, sums in registers.
//
// The weights of a step are unpacked when its turn comes and meet all rows, each of which has sums of its own. That takes
// fewer instructions than whole blocks of weights in registers, which meet one row after the other, and prefetches lie evenly
// between the products: with few rows a block's memory takes nearly as long as its arithmetic, and what is spent on one
// is missing for the other.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ahead.h"
#include "kernels/avx512vnni/matrix_panels.h"
#include "kernels/avx512vnni/matrix_super.h"
#include "kernels/avx512vnni/matrix_tile.h"

namespace outpace::avx512vnni {
namespace {

// A row has two registers of sums; with more rows sums would go to memory in between. Eight rows of Q6_K are faster block
// by block, since sums that are stored and loaded again for every 16 inputs then fill the load ports.
template <class Block>
constexpr int kFewRows = 0;
template <>
constexpr int kFewRows<PanelQ4_0> = 8;
template <>
constexpr int kFewRows<PanelQ4_1> = 8;
template <>
constexpr int kFewRows<PanelQ5_0> = 8;
template <>
constexpr int kFewRows<PanelQ8_0> = 8;
template <>
constexpr int kFewRows<PanelQ4_K> = 8;
template <>
constexpr int kFewRows<PanelQ6_K> = 7;

// For compilers, which otherwise gather a block's prefetches at its beginning, where they fill the queue of misses, and
// begin the next sums before the last are stored, for which registers do not suffice.
[[gnu::always_inline]] inline void keep_order() { asm volatile("" : : : "memory"); }

// One of the steps that unpack() makes all of.
template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const uint8_t (&nibbles)[4][kStepBytes]) {
  const Pair both = load_pair(nibbles[s % 4]);
  return (s < 4 ? both : shift_right(both, 4)) & _mm512_set1_epi8(15);
}

template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const PanelQ4_0& block, int) { return unpack_step<s>(block.nibbles); }

template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const PanelQ4_1& block, int) { return unpack_step<s>(block.nibbles); }

template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const PanelQ5_0& block, int) {
  Pair step = unpack_step<s>(block.nibbles);
  add_bits(block.fifth_bits[s], 16, step);
  return step;
}

template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const PanelQ8_0& block, int) { return load_pair(block.codes[s]); }

template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const PanelQ4_K& block, int j) { return unpack_step<s>(block.nibbles[j]); }

template <int s>
[[gnu::always_inline]] inline Pair unpack_step(const PanelQ6_K& block, int j) {
  const auto& bytes = block.codes[j][s / 4];
  const __m512i six = _mm512_set1_epi8(63);
  if constexpr (s % 4 < 3) {
    return load_pair(bytes[s % 4]) & six;
  } else {
    const Pair first = shift_right(load_pair(bytes[0]), 6), second = shift_right(load_pair(bytes[1]), 4);
    const Pair lower = select(_mm512_set1_epi8(3), first, second);
    return select(_mm512_set1_epi8(15), lower, shift_right(load_pair(bytes[2]), 2)) & six;
  }
}

// The lines that lie kAhead bytes behind a block, or an eighth of a super-block's, asked for step by step.
template <class Block>
class Lines {
 public:
  [[gnu::always_inline]] Lines(const Block& block, const Onward& onward, int part = 0)
      : next_(onward.behind(&block, part * kOfBlock / kParts * kLine)) {}
  template <int step>
  [[gnu::always_inline]] void ask() const {
    for (int i = kOfPart * step / kSteps; i < kOfPart * (step + 1) / kSteps; ++i) fetch_weights(next_ + i * kLine, true);
    keep_order();
  }

 private:
  static constexpr int kLine = 64, kOfBlock = sizeof(Block) / kLine;
  static constexpr int kParts = kIsSuper<Block> ? kBlocksOfSuper : 1;
  static constexpr int kOfPart = (kOfBlock + kParts - 1) / kParts;
  const char* next_;
};

// Sums with the steps [from, to) of sub-block j.
template <int rows, int from, int to, class Block>
[[gnu::always_inline]] inline void dot_steps(const Block& block, int j, const int8_t* q, const Lines<Block>& lines,
                                             Pair (&dot)[rows]) {
  if constexpr (from < to) {
    lines.template ask<from>();
    const Pair weights = unpack_step<from>(block, j);
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) add_dot(dot[m], weights, q + m * kBlock + 4 * from);
    dot_steps<rows, from + 1, to>(block, j, q, lines, dot);
  }
}

template <int rows>
[[gnu::always_inline]] inline void keep_part(const Pair (&dot)[rows], Sums& sums) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) sums.part[m] = dot[m];
  keep_order();
}

template <int rows>
[[gnu::always_inline]] inline void add_parts(const Pair (&odd)[rows], Pair scales, Sums& sums) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) sums.dot[m] = add_scaled(sums.dot[m], sums.part[m], odd[m], scales);
}

template <int rows>
[[gnu::always_inline]] inline void add_two(const PanelQ4_K& block, int j, const int8_t* q, const int32_t*,
                                           const Onward& onward, Sums& sums) {
  Pair even[rows], odd[rows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) even[m] = broadcast(0);
  dot_steps<rows, 0, kSteps>(block, j, q, Lines(block, onward, j), even);
  keep_part(even, sums);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) odd[m] = broadcast(0);
  dot_steps<rows, 0, kSteps>(block, j + 1, q + rows * kBlock, Lines(block, onward, j + 1), odd);
  add_parts(odd, widen(block.scales[j / 2]), sums);
}

template <int rows>
[[gnu::always_inline]] inline void add_one(const PanelQ6_K& block, int j, const int8_t* q, const int32_t* offsets,
                                           const Onward& onward, Sums& sums) {
  const Lines lines(block, onward, j);
  Pair even[rows], odd[rows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) even[m] = broadcast(offsets[2 * m]);
  dot_steps<rows, 0, kSteps / 2>(block, j, q, lines, even);
  keep_part(even, sums);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) odd[m] = broadcast(offsets[2 * m + 1]);
  dot_steps<rows, kSteps / 2, kSteps>(block, j, q, lines, odd);
  add_parts(odd, widen(block.scales[j]), sums);
}

template <int rows>
[[gnu::always_inline]] inline void add_two(const PanelQ6_K& block, int j, const int8_t* q, const int32_t* offsets,
                                           const Onward& onward, Sums& sums) {
  add_one<rows>(block, j, q, offsets, onward, sums);
  add_one<rows>(block, j + 1, q + rows * kBlock, offsets + 2 * rows, onward, sums);
}

// acc += the dots of a block of 32 inputs times its scales, and its minima.
template <int rows, class Block>
[[gnu::always_inline]] inline void add_dots(const Block& block, const BlockScale* x, const Pair (&dot)[rows],
                                            PairPs (&acc)[rows]) {
  const PairPs scale = load_f16(block.scale);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) acc[m] = fused(to_f32(dot[m]), scale * _mm512_set1_ps(x[m].scale), acc[m]);
  if constexpr (requires { block.minimum; }) {
    const PairPs minimum = load_f16(block.minimum);
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) acc[m] = fused(minimum, _mm512_set1_ps(x[m].scaled_sum), acc[m]);
  }
}

// With blocks of 32 inputs.
template <int rows, class Block>
  requires(!kIsSuper<Block>)
void multiply_few_rows(const uint8_t* panel, int count, const Rows& tile, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = tile.x.q32(0, tile.first);
  const BlockScale* x = tile.x.scale32(0, tile.first);
  PairPs acc[rows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) acc[m] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (const Block* end = blocks + count; blocks != end; ++blocks, q += rows * kBlock, x += rows) {
    const Block& block = *blocks;
    Pair dot[rows];
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) dot[m] = dot_start<Block>(x[m]);
    dot_steps<rows, 0, kSteps>(block, 0, q, Lines(block, tile.onward), dot);
    add_dots(block, x, dot, acc);
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) out.acc[m] = acc[m];
}

template <int rows, class Block>
  requires kIsSuper<Block>
void multiply_few_rows(const uint8_t* panel, int count, const Rows& tile, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = tile.x.q256(0, tile.first);
  const int32_t* offsets = tile.x.offsets256(0, tile.first);
  const SuperBlockScale* x = tile.x.scale256(0, tile.first);
  Sums sums;
  for (const Block* end = blocks + count; blocks != end; ++blocks, x += rows) {
    const Block& block = *blocks;
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) sums.dot[m] = broadcast(0);
    const int32_t* const first_offsets = offsets;
    for (int j = 0; j < kBlocksOfSuper; j += 2, q += 2 * kBlock * rows, offsets += 4 * rows)
      add_two<rows>(block, j, q, offsets, tile.onward, sums);
    add_sums(block, rows, x, first_offsets, 2 * rows, sums, out);
  }
}

}  // namespace
}  // namespace outpace::avx512vnni
