// Super-blocks of the K formats: dot products, scales and minima.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/avx512vnni/matrix_panels.h"
#include "kernels/avx512vnni/matrix_tile.h"
#include "matrix.h"

namespace outpace::avx512vnni {
namespace {

inline Pair broadcast(int32_t value) {
  const __m512i lanes = _mm512_set1_epi32(value);
  return {lanes, lanes};
}

// The four bytes at `from` in every lane.
inline __m512i broadcast_bytes(const void* from) {
  int bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return _mm512_set1_epi32(bytes);
}

inline void add_dot(Pair& dot, const Pair& weights, const int8_t* q) {
  const __m512i four = broadcast_bytes(q);
  dot.low = _mm512_dpbusd_epi32(dot.low, weights.low, four);
  dot.high = _mm512_dpbusd_epi32(dot.high, weights.high, four);
}

inline PairPs to_f32(Pair x) { return {_mm512_cvtepi32_ps(x.low), _mm512_cvtepi32_ps(x.high)}; }

// What the dots of a block of 32 begin with: what the offset of its codes adds, taken off.
template <class Block>
inline Pair dot_start(const BlockScale& x) {
  if constexpr (kOffsetShift<Block> == 0) return broadcast(0);
  const __m512i lanes = _mm512_slli_epi32(_mm512_set1_epi32(x.negated_sum), kOffsetShift<Block>);
  return {lanes, lanes};
}

struct alignas(64) Sums {
  Pair dot[kRowTile];   // of the super-block so far
  Pair part[kRowTile];  // of its last sub-block
};

// dot += even * scale of the even sub-block + odd * scale of the odd one: both fit into 16 bits (SuperBlockScale).
inline Pair add_scaled(Pair dot, Pair even, Pair odd, Pair scales) {
  constexpr __mmask32 kUpperHalves = 0xaaaaaaaa;
  const auto both = [](__m512i low, __m512i high) {
    return _mm512_mask_blend_epi16(kUpperHalves, low, _mm512_slli_epi32(high, 16));
  };
  return {_mm512_dpwssd_epi32(dot.low, both(even.low, odd.low), scales.low),
          _mm512_dpwssd_epi32(dot.high, both(even.high, odd.high), scales.high)};
}

inline Pair widen(const uint8_t (&pairs)[kPanelRows][2]) {
  const __m256i* from = reinterpret_cast<const __m256i*>(pairs);
  return {_mm512_cvtepu8_epi16(_mm256_load_si256(from)), _mm512_cvtepu8_epi16(_mm256_load_si256(from + 1))};
}

inline Pair widen(const int8_t (&pairs)[kPanelRows][2]) {
  const __m256i* from = reinterpret_cast<const __m256i*>(pairs);
  return {_mm512_cvtepi8_epi16(_mm256_load_si256(from)), _mm512_cvtepi8_epi16(_mm256_load_si256(from + 1))};
}

// The minima of a super-block, two side by side, and their sums with the activations of one row.
struct MinimaOf32 {
  Pair pairs[kBlocksOfSuper / 2];

  template <class Block>
  explicit MinimaOf32(const Block& block) {
    for (int j = 0; j < kBlocksOfSuper / 2; ++j) pairs[j] = widen(block.minima[j]);
  }
  Pair dot(const SuperBlockScale& x, const int32_t*, ptrdiff_t) const {
    Pair dot = broadcast(0);
    for (int j = 0; j < kBlocksOfSuper / 2; ++j) add(dot, pairs[j], broadcast_bytes(x.sums + 2 * j));
    return dot;
  }
  static void add(Pair& dot, Pair minima, __m512i two) {
    dot.low = _mm512_dpwssd_epi32(dot.low, minima.low, two);
    dot.high = _mm512_dpwssd_epi32(dot.high, minima.high, two);
  }
};

struct MinimaOf16 {
  Pair pairs[kBlocksOfSuper];

  explicit MinimaOf16(const PanelQ2_K& block) {
    for (int j = 0; j < kBlocksOfSuper; ++j) pairs[j] = shift_right(widen(block.scales_minima[j]), 4);
  }
  // offsets[j * stride]: -32 times the sums over 16 inputs, which fit 16 bits.
  Pair dot(const SuperBlockScale&, const int32_t* offsets, ptrdiff_t stride) const {
    Pair dot = broadcast(0);
    for (int j = 0; j < kBlocksOfSuper; ++j, offsets += stride) {
      const int two = (offsets[0] & 0xffff) | static_cast<int>(static_cast<uint32_t>(offsets[1]) << 16);
      MinimaOf32::add(dot, pairs[j], _mm512_set1_epi32(two));
    }
    const __m512i zero = _mm512_setzero_si512();
    return {_mm512_srai_epi32(_mm512_sub_epi32(zero, dot.low), 5), _mm512_srai_epi32(_mm512_sub_epi32(zero, dot.high), 5)};
  }
};

struct NoMinima {
  template <class Block>
  explicit NoMinima(const Block&) {}
};

template <class Block>
struct MinimaOf {
  using type = NoMinima;
};
template <>
struct MinimaOf<PanelQ2_K> {
  using type = MinimaOf16;
};
template <class Block>
  requires requires(Block block) { block.minima; }
struct MinimaOf<Block> {
  using type = MinimaOf32;
};

// out += the sums of a super-block times its scales. offsets[j * stride]: of its sub-blocks.
template <class Block>
[[gnu::always_inline]] inline void add_sums(const Block& block, int rows, const SuperBlockScale* x, const int32_t* offsets,
                                            ptrdiff_t stride, const Sums& sums, Outputs& out) {
  constexpr bool has_minima = requires { block.minimum; };
  const PairPs scale = load_f16(block.scale);
  PairPs minimum;
  if constexpr (has_minima) minimum = load_f16(block.minimum) * _mm512_set1_ps(-1.0f);
  const typename MinimaOf<Block>::type minima(block);
  for (int m = 0; m < rows; ++m, ++x) {
    PairPs part = scale * to_f32(sums.dot[m]);
    if constexpr (has_minima) part = fused(minimum, to_f32(minima.dot(*x, offsets + 2 * m, stride)), part);
    out.acc[m] = fused(part, _mm512_set1_ps(x->scale), out.acc[m]);
  }
}

}  // namespace
}  // namespace outpace::avx512vnni
