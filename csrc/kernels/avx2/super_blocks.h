// Products with the formats that have super-blocks of 256, whose sub-blocks have integer scales.
#pragma once

#include "kernels/avx2/tile.h"

namespace outpace {
namespace {

struct alignas(32) Sums {
  __m256i dot[kRowTile][kVectors];  // of the super-block so far
};

// Integer scales of a panel's rows, as add_scaled() takes them.
struct Integers {
  __m256i of[kVectors];
};

// Eight rows' pairs of integers, as 16 bits.
inline __m256i widen(const uint8_t (&pairs)[kPanelRows][2], int v) {
  return _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(pairs[8 * v])));
}
inline __m256i widen(const int8_t (&pairs)[kPanelRows][2], int v) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(pairs[8 * v])));
}

inline __m128i load_eight(const void* bytes) { return _mm_loadl_epi64(static_cast<const __m128i*>(bytes)); }

// dot += sums times scales, in R rows of activations and from register v of a panel's rows on.
template <int R, int N>
[[gnu::always_inline]] inline void add_scaled(const Grid<R, N>& sums, const Integers& scales, __m256i (*dot)[kVectors],
                                              int v) {
  for (int i = 0; i < R; ++i) {
    for (int n = 0; n < N; ++n) dot[i][v + n] = add_scaled(dot[i][v + n], sums.of[i][n], scales.of[v + n]);
  }
}

// A sub-block's rows of activations.
struct SubBlock {
  const int8_t* q;         // [rows][32]
  const int32_t* offsets;  // [rows][2]
  int rows;
};

// -- sums that fit 16 bits over 32 inputs -----------------------------------------------------------------------------

template <bool unpacked, int known_rows>
[[gnu::always_inline]] inline void add_sub_block(const PanelQ4_K& block, int j, SubBlock x, Lines<known_rows>& lines,
                                                 Sums& out) {
  Integers scales;
  for (int v = 0; v < kVectors; ++v) scales.of[v] = integers(widen(block.scales[j / 2], v), j % 2);
  const auto work = [&](const auto& codes) __attribute__((always_inline)) {
    in_tiles(x.rows, lines, [&]<int R, int N>(int m, int v) __attribute__((always_inline)) {
      Grid<R, N> sums;
      sums.clear();
      add_steps<0, kSteps>(codes, v, x.q + m * kBlock, lines, sums);
      add_scaled(sums, scales, out.dot + m, v);
    });
  };
  with_codes<unpacked>(work, block, j);
}

// -- over 16 inputs ---------------------------------------------------------------------------------------------------

// The scales of half h of a sub-block, of eight rows.
template <class Block>
inline __m256i half_scales(const Block& block, int j, int h, int v) {
  return integers(widen(block.scales[j], v), h);
}

inline __m256i half_scales(const PanelQ2_K& block, int j, int h, int v) {
  return integers(bits_of(widen(block.scales_minima[j], v), 0, 4), h);
}

inline __m256i half_scales(const PanelQ5_K& block, int j, int, int v) {
  return integers(_mm256_cvtepu8_epi32(load_eight(block.scales[j] + 8 * v)), 0);
}

// The codes stand for 32 >> offset_shift less than they are; kNoOffset: for themselves.
constexpr int kNoOffset = 15;
template <class Block>
constexpr int kOffsetShift = kNoOffset;
template <>
constexpr int kOffsetShift<PanelQ6_K> = 0;
template <>
constexpr int kOffsetShift<PanelQ3_K> = 3;

// What the sums over 16 inputs start with; offsets [R], two apart.
template <class Block, int R, int N>
[[gnu::always_inline]] inline void start_sums(const int32_t* offsets, Grid<R, N>& sums) {
  if constexpr (kOffsetShift<Block> == kNoOffset) return sums.clear();
  for (int i = 0; i < R; ++i) {
    __m256i halves = broadcast(offsets + 2 * i);
    if constexpr (kOffsetShift<Block> > 0) halves = _mm256_srai_epi16(halves, kOffsetShift<Block>);
    sums.fill(i, start(halves, 1));
  }
}

template <bool unpacked, class Block, int known_rows>
[[gnu::always_inline]] inline void add_sub_block(const Block& block, int j, SubBlock x, Lines<known_rows>& lines,
                                                 Sums& out) {
  Integers scales[2];
  for (int h = 0; h < 2; ++h) {
    for (int v = 0; v < kVectors; ++v) scales[h].of[v] = half_scales(block, j, h, v);
  }
  const auto work = [&](const auto& codes) __attribute__((always_inline)) {
    in_tiles(x.rows, lines, [&]<int R, int N>(int m, int v) __attribute__((always_inline)) {
      const int8_t* q = x.q + m * kBlock;
      Grid<R, N> sums;
      start_sums<Block>(x.offsets + 2 * m, sums);
      add_steps<0, kSteps / 2>(codes, v, q, lines, sums);
      add_scaled(sums, scales[0], out.dot + m, v);
      start_sums<Block>(x.offsets + 2 * m + 1, sums);
      add_steps<kSteps / 2, kSteps>(codes, v, q, lines, sums);
      add_scaled(sums, scales[1], out.dot + m, v);
    });
  };
  with_codes<unpacked>(work, block, j);
}

// -- codes of 8 bits --------------------------------------------------------------------------------------------------

template <int R, int N, int known_rows>
[[gnu::always_inline]] inline void find_dots(const Steps& steps, int v, const int8_t* q, const int32_t* offsets,
                                             const Lines<known_rows>& lines, Grid<R, N>& sums) {
  for (int i = 0; i < R; ++i, offsets += 2) {
    const __m256i negated_sums =
        _mm256_add_epi16(_mm256_srai_epi16(broadcast(offsets), 5), _mm256_srai_epi16(broadcast(offsets + 1), 5));
    sums.fill(i, start(negated_sums, 128));
  }
  add_steps<0, kSteps>(steps, v, q, lines, sums);
}

template <int R, int N, int known_rows>
[[gnu::always_inline]] inline void find_dots(const SignedSteps& steps, int v, const int8_t* q, const int32_t*,
                                             const Lines<known_rows>& lines, Grid<R, N>& sums) {
  sums.clear();
  add_signed_steps(steps, v, q, lines, sums);
}

template <bool unpacked, int known_rows>
[[gnu::always_inline]] inline void add_sub_block(const PanelIQ4_XS& block, int j, SubBlock x, Lines<known_rows>& lines,
                                                 Sums& out) {
  Integers scales;
  for (int v = 0; v < kVectors; ++v) scales.of[v] = _mm256_cvtepi8_epi32(load_eight(block.scales[j] + 8 * v));
  const auto work = [&](const auto& codes) __attribute__((always_inline)) {
    in_tiles(x.rows, lines, [&]<int R, int N>(int m, int v) __attribute__((always_inline)) {
      Grid<R, N> sums;
      find_dots(codes, v, x.q + m * kBlock, x.offsets + 2 * m, lines, sums);
      for (int i = 0; i < R; ++i) {
        for (int n = 0; n < N; ++n) {
          __m256i& dot = out.dot[m + i][v + n];
          dot = _mm256_add_epi32(dot, _mm256_mullo_epi32(sums.of[i][n], scales.of[v + n]));
        }
      }
    });
  };
  with_codes<unpacked>(work, block, j);
}

// -- minima -----------------------------------------------------------------------------------------------------------

// A super-block's integer minima of eight rows, two neighbouring sub-blocks' side by side, and a row's sums of
// activations over each.
template <class Block>
struct Minima {
  static constexpr int kPairs = 0;
};

template <class Block>
  requires requires(Block block) { block.minima; }
struct Minima<Block> {
  static constexpr int kPairs = kBlocksOfSuper / 2;
  static __m256i pair(const Block& block, int j, int v) { return widen(block.minima[j], v); }
  static void sums(const SuperBlockScale& x, const int32_t*, ptrdiff_t, int16_t* out) {
    std::memcpy(out, x.sums, sizeof x.sums);
  }
};

template <>
struct Minima<PanelQ2_K> {
  static constexpr int kPairs = kBlocksOfSuper;
  static __m256i pair(const PanelQ2_K& block, int j, int v) {
    return _mm256_srli_epi16(widen(block.scales_minima[j], v), 4);
  }
  // offsets[j * stride]: -32 times the sums over 16 inputs, in two halves each.
  static void sums(const SuperBlockScale&, const int32_t* offsets, ptrdiff_t stride, int16_t* out) {
    for (int j = 0; j < kBlocksOfSuper; ++j, offsets += stride) {
      for (int h = 0; h < 2; ++h) {
        const int total = static_cast<int16_t>(offsets[h] & 0xffff) + (offsets[h] >> 16);
        *out++ = static_cast<int16_t>(total / -32);
      }
    }
  }
};

template <class Block>
[[gnu::always_inline]] inline void add_super_block(const Block& block, const Sums& sums, int rows,
                                                   const SuperBlockScale* x, const int32_t* offsets, Outputs& out) {
  constexpr int kPairs = Minima<Block>::kPairs;
  alignas(32) int16_t of_row[kRowTile][kPairs == 0 ? 1 : 2 * kPairs];
  if constexpr (kPairs > 0) {
    for (int m = 0; m < rows; ++m) Minima<Block>::sums(x[m], offsets + 2 * m, 2 * rows, of_row[m]);
  }
  for (int v = 0; v < kVectors; ++v) {
    const __m256 scale = load_f16(block.scale + 8 * v);
    __m256 minimum;
    __m256i minima[kPairs == 0 ? 1 : kPairs];
    if constexpr (kPairs > 0) {
      minimum = _mm256_mul_ps(load_f16(block.minimum + 8 * v), _mm256_set1_ps(-1.0f));
      for (int j = 0; j < kPairs; ++j) minima[j] = Minima<Block>::pair(block, j, v);
    }
    for (int m = 0; m < rows; ++m) {
      __m256 part = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sums.dot[m][v]));
      if constexpr (kPairs > 0) {
        __m256i dot = _mm256_setzero_si256();
        for (int j = 0; j < kPairs; ++j) {
          dot = _mm256_add_epi32(dot, _mm256_madd_epi16(minima[j], broadcast(of_row[m] + 2 * j)));
        }
        part = _mm256_fmadd_ps(minimum, _mm256_cvtepi32_ps(dot), part);
      }
      out.acc[m][v] = _mm256_fmadd_ps(part, _mm256_set1_ps(x[m].scale), out.acc[m][v]);
    }
  }
}

template <class Block, bool unpacked, int known_rows>
[[gnu::noinline]] void multiply_super_blocks(const uint8_t* panel, int count, const Rows& tile, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = tile.x.q256(0, tile.first);
  const int32_t* offsets = tile.x.offsets256(0, tile.first);
  const SuperBlockScale* x = tile.x.scale256(0, tile.first);
  const int rows = known_rows > 0 ? known_rows : tile.count;
  const ptrdiff_t stride = 2 * rows;  // of the offsets, between blocks of 32
  Sums sums;
  for (const Block* end = blocks + count; blocks != end; ++blocks, x += rows) {
    for (int m = 0; m < rows; ++m) {
      for (__m256i& dot : sums.dot[m]) dot = _mm256_setzero_si256();
    }
    for (int j = 0; j < kBlocksOfSuper; ++j, q += kBlock * rows) {
      Lines<known_rows> lines(*blocks, tile.onward, j, kBlocksOfSuper, tiles(rows));
      add_sub_block<unpacked>(*blocks, j, {q, offsets + j * stride, rows}, lines, sums);
    }
    add_super_block(*blocks, sums, rows, x, offsets, out);
    offsets += kBlocksOfSuper * stride;
  }
}

}  // namespace
}  // namespace outpace
