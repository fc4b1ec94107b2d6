// Products with the formats that have blocks of 32.
#pragma once

#include "kernels/avx2/tile.h"

namespace outpace {
namespace {

// Outputs 8 v and up of a panel, and the rows that meet them: q [R][32], x [R].
struct Place {
  int v;
  const int8_t* q;
  const BlockScale* x;
};

template <class Block, int R, int N, class Codes, int known_rows>
[[gnu::always_inline]] inline void find_dots(const Codes& codes, Place at, const Lines<known_rows>& lines,
                                             Grid<R, N>& sums) {
  constexpr int offset = kOffset<Block> + kLoan<Block>;
  for (int m = 0; m < R; ++m) {
    const __m256i from = offset == 0 ? _mm256_setzero_si256() : start(broadcast(&at.x[m].negated_sum), offset);
    sums.fill(m, from);
  }
  add_steps<0, kSteps>(codes, at.v, at.q, lines, sums);
  for (int m = 0; m < R; ++m) {
    for (int n = 0; n < N; ++n) sums.of[m][n] = finished(sums.of[m][n]);
    if constexpr (kLoan<Block> != 0) {
      const __m256i loan = _mm256_madd_epi16(broadcast(&at.x[m].negated_sum), _mm256_set1_epi16(kLoan<Block>));
      for (int n = 0; n < N; ++n) sums.of[m][n] = _mm256_sub_epi32(sums.of[m][n], loan);
    }
  }
}

template <class Block, int R, int N, class Codes, int known_rows>
  requires requires(Codes codes) { codes.values_at(0, 0); }
[[gnu::always_inline]] inline void find_dots(const Codes& codes, Place at, const Lines<known_rows>& lines,
                                             Grid<R, N>& sums) {
  sums.clear();
  add_signed_steps(codes, at.v, at.q, lines, sums);
}

// Adds a block's products with rows q [rows][32], x [rows].
template <bool unpacked, int known_rows, class Block>
[[gnu::always_inline]] inline void add_block(const Block& block, const int8_t* q, const BlockScale* x, int rows,
                                             const Onward& onward, Outputs& out) {
  Lines<known_rows> lines(block, onward, 0, 1, tiles(rows));
  const auto work = [&](const auto& codes) __attribute__((always_inline)) {
    in_tiles(rows, lines, [&]<int R, int N>(int m, int v) __attribute__((always_inline)) {
      Grid<R, N> sums;
      find_dots<Block>(codes, {v, q + m * kBlock, x + m}, lines, sums);
      for (int n = 0; n < N; ++n) {
        const __m256 scale = load_f16(block.scale + 8 * (v + n));
        __m256 minimum;
        if constexpr (requires { block.minimum; }) minimum = load_f16(block.minimum + 8 * (v + n));
        for (int i = 0; i < R; ++i) {
          __m256& acc = out.acc[m + i][v + n];
          const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(x[m + i].scale));
          __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums.of[i][n]), factor, acc);
          if constexpr (requires { block.minimum; }) {
            sum = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x[m + i].scaled_sum), sum);
          }
          acc = sum;
        }
      }
    });
  };
  with_codes<unpacked>(work, block);
}

// On its own, so that registers are given out for one kind of codes at a time. known_rows: those of the tile, or 0.
template <class Block, bool unpacked, int known_rows>
[[gnu::noinline]] void multiply_blocks(const uint8_t* panel, int count, const Rows& tile, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = tile.x.q32(0, tile.first);
  const BlockScale* x = tile.x.scale32(0, tile.first);
  const int rows = known_rows > 0 ? known_rows : tile.count;
  for (const Block* end = blocks + count; blocks != end; ++blocks, q += kBlock * rows, x += rows) {
    add_block<unpacked, known_rows>(*blocks, q, x, rows, tile.onward, out);
  }
}

}  // namespace
}  // namespace outpace
