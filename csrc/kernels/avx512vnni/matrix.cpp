// Matrix products with AVX-512 VNNI: the sums of kernels/portable/matrix.cpp, a lane for every output row.
//
// A block of weights is unpacked once into sixteen registers (eight steps of two times 16 rows) and then meets every
// row of activations of a tile; each broadcast of four activations serves both registers of a step. Accumulators live
// in the first-level cache. What limits it, once the weights arrive in time, is the number of multiplications: dots,
// scales and fused multiply-adds share two of the processor's pipes, so everything else (sums of the activations, the
// codes' offsets, 16-bit pairs of K-format dots) is arranged to need none.
//
// Everything has internal linkage: no copy compiled for this instruction set may be linked into code for others.

#include <immintrin.h>

#include <cstring>

#include "kernels/ahead.h"
#include "kernels/avx512vnni/functions.h"
#include "kernels/avx512vnni/matrix_dense.h"
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

// The dots with both halves of a block: two chains of instructions keep the multipliers busier than one.
inline void dot_halves(const Pair (&steps)[kSteps], const int8_t* q, Pair& first, Pair& second) {
  for (int s = 0; s < kSteps / 2; ++s) {
    add_dot(first, steps[s], q + 4 * s);
    add_dot(second, steps[s + 4], q + 4 * (s + 4));
  }
}

inline Pair dot_block(const Pair (&steps)[kSteps], const int8_t* q, Pair start) {
  Pair second = broadcast(0);
  dot_halves(steps, q, start, second);
  return {_mm512_add_epi32(start.low, second.low), _mm512_add_epi32(start.high, second.high)};
}

inline PairPs to_f32(Pair x) { return {_mm512_cvtepi32_ps(x.low), _mm512_cvtepi32_ps(x.high)}; }

template <class Block>
void multiply_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = rows.x.q32(0, rows.first);
  const BlockScale* x = rows.x.scale32(0, rows.first);
  for (const Block* end = blocks + count; blocks != end; ++blocks) {
    const Block& block = *blocks;
    Ahead ahead(block, rows.onward, 0, 1, rows.count);
    Pair steps[kSteps];
    unpack(block, steps);
    const PairPs scale = load_f16(block.scale);
    PairPs minimum;
    if constexpr (requires { block.minimum; }) minimum = load_f16(block.minimum);
    for (int m = 0; m < rows.count; ++m, q += kBlock, ++x) {
      ahead.ask_some();
      Pair start = broadcast(0);
      if constexpr (kOffsetShift<Block> != 0) {
        start.low = start.high = _mm512_slli_epi32(_mm512_set1_epi32(x->negated_sum), kOffsetShift<Block>);
      }
      const Pair dot = dot_block(steps, q, start);
      out.acc[m] = fused(to_f32(dot), scale * _mm512_set1_ps(x->scale), out.acc[m]);
      if constexpr (requires { block.minimum; }) {
        out.acc[m] = fused(minimum, _mm512_set1_ps(x->scaled_sum), out.acc[m]);
      }
    }
  }
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

// A sub-block of 32 inputs and the rows that meet it.
struct SubBlock {
  const int8_t* q;         // [rows][32]
  const int32_t* offsets;  // [rows][2]
  int rows;
  Ahead ahead;
};

inline void add_sub_block(const PanelQ4_K& block, int j, SubBlock x, Sums& sums) {
  Pair steps[kSteps];
  unpack(block, j, steps);
  if (j % 2 == 0) {
    for (int m = 0; m < x.rows; ++m, x.q += kBlock) {
      x.ahead.ask_some();
      sums.part[m] = dot_block(steps, x.q, broadcast(0));
    }
    return;
  }
  const Pair scales = widen(block.scales[j / 2]);
  for (int m = 0; m < x.rows; ++m, x.q += kBlock) {
    x.ahead.ask_some();
    sums.dot[m] = add_scaled(sums.dot[m], sums.part[m], dot_block(steps, x.q, broadcast(0)), scales);
  }
}

// The integer scales of the two halves of a sub-block side by side, for the formats that add_halves() serves.
inline Pair half_scales(const PanelQ6_K& block, int j) { return widen(block.scales[j]); }

inline Pair half_scales(const PanelQ3_K& block, int j) { return widen(block.scales[j]); }

inline Pair half_scales(const PanelQ2_K& block, int j) {
  return widen(block.scales_minima[j]) & _mm512_set1_epi16(15);
}

inline Pair half_scales(const PanelQ5_K& block, int j) {
  const auto both = [](__m512i scales) { return _mm512_or_si512(scales, _mm512_slli_epi32(scales, 16)); };
  const __m128i* from = reinterpret_cast<const __m128i*>(block.scales[j]);
  return {both(_mm512_cvtepu8_epi32(_mm_load_si128(from))), both(_mm512_cvtepu8_epi32(_mm_load_si128(from + 1)))};
}

// Codes whose dot product with 16 inputs fits 16 bits, and with 32 does not, or that have a scale for every 16.
// `Block` codes stand for 2^-offset_shift of 32 less than they are; none: for themselves.
template <bool has_offset, int offset_shift, class Block>
inline void add_halves(const Block& block, int j, SubBlock x, Sums& sums) {
  Pair steps[kSteps];
  unpack(block, j, steps);
  const Pair scales = half_scales(block, j);
  for (int m = 0; m < x.rows; ++m, x.q += kBlock, x.offsets += 2) {
    x.ahead.ask_some();
    Pair even = broadcast(has_offset ? x.offsets[0] >> offset_shift : 0);
    Pair odd = broadcast(has_offset ? x.offsets[1] >> offset_shift : 0);
    dot_halves(steps, x.q, even, odd);
    sums.dot[m] = add_scaled(sums.dot[m], even, odd, scales);
  }
}

inline void add_sub_block(const PanelQ6_K& block, int j, SubBlock x, Sums& sums) {
  add_halves<true, 0>(block, j, x, sums);
}

inline void add_sub_block(const PanelQ3_K& block, int j, SubBlock x, Sums& sums) {
  add_halves<true, 3>(block, j, x, sums);
}

inline void add_sub_block(const PanelQ2_K& block, int j, SubBlock x, Sums& sums) {
  add_halves<false, 0>(block, j, x, sums);
}

inline void add_sub_block(const PanelQ5_K& block, int j, SubBlock x, Sums& sums) {
  add_halves<false, 0>(block, j, x, sums);
}

// The values of the table are too large for sums in 16 bits.
inline void add_sub_block(const PanelIQ4_XS& block, int j, SubBlock x, Sums& sums) {
  Pair steps[kSteps];
  unpack(block, j, steps);
  const __m128i* from = reinterpret_cast<const __m128i*>(block.scales[j]);
  const __m512i low = _mm512_cvtepi8_epi32(_mm_load_si128(from)), high = _mm512_cvtepi8_epi32(_mm_load_si128(from + 1));
  for (int m = 0; m < x.rows; ++m, x.q += kBlock, x.offsets += 2) {
    x.ahead.ask_some();
    const Pair dot = dot_block(steps, x.q, broadcast((x.offsets[0] + x.offsets[1]) * 4));  // 4 * 32 = the table's 128
    sums.dot[m] = {_mm512_add_epi32(sums.dot[m].low, _mm512_mullo_epi32(dot.low, low)),
                   _mm512_add_epi32(sums.dot[m].high, _mm512_mullo_epi32(dot.high, high))};
  }
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

template <class Block>
void multiply_super_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  constexpr bool has_minima = requires(Block block) { block.minimum; };
  const int8_t* q = rows.x.q256(0, rows.first);
  const int32_t* offsets = rows.x.offsets256(0, rows.first);
  const SuperBlockScale* x = rows.x.scale256(0, rows.first);
  const ptrdiff_t stride = 2 * rows.count;  // of the offsets, between blocks
  Sums sums;
  for (const Block* end = blocks + count; blocks != end; ++blocks, offsets += kBlocksOfSuper * stride) {
    const Block& block = *blocks;
    for (int m = 0; m < rows.count; ++m) sums.dot[m] = broadcast(0);
    for (int j = 0; j < kBlocksOfSuper; ++j, q += kBlock * rows.count) {
      const Ahead ahead(block, rows.onward, j, kBlocksOfSuper, rows.count);
      add_sub_block(block, j, {q, offsets + j * stride, rows.count, ahead}, sums);
    }
    const PairPs scale = load_f16(block.scale);
    PairPs minimum;
    if constexpr (has_minima) minimum = load_f16(block.minimum) * _mm512_set1_ps(-1.0f);
    const typename MinimaOf<Block>::type minima(block);
    for (int m = 0; m < rows.count; ++m, ++x) {
      PairPs part = scale * to_f32(sums.dot[m]);
      if constexpr (has_minima) part = fused(minimum, to_f32(minima.dot(*x, offsets + 2 * m, stride)), part);
      out.acc[m] = fused(part, _mm512_set1_ps(x->scale), out.acc[m]);
    }
  }
}

using Product = void (*)(const uint8_t* panel, int count, const Rows& rows, Outputs& out);

Product product_of(Format format) {
  switch (format) {
    case Format::f32: return multiply_dense<float>;
    case Format::f16: return multiply_dense<F16>;
    case Format::bf16: return multiply_dense<Bf16>;
    case Format::q4_0: return multiply_blocks<PanelQ4_0>;
    case Format::q4_1: return multiply_blocks<PanelQ4_1>;
    case Format::q5_0: return multiply_blocks<PanelQ5_0>;
    case Format::q5_1: return multiply_blocks<PanelQ5_1>;
    case Format::q8_0: return multiply_blocks<PanelQ8_0>;
    case Format::q2_k: return multiply_super_blocks<PanelQ2_K>;
    case Format::q3_k: return multiply_super_blocks<PanelQ3_K>;
    case Format::q4_k: return multiply_super_blocks<PanelQ4_K>;
    case Format::q5_k: return multiply_super_blocks<PanelQ5_K>;
    case Format::q6_k: return multiply_super_blocks<PanelQ6_K>;
    case Format::iq4_nl: return multiply_blocks<PanelIQ4_NL>;
    case Format::iq4_xs: return multiply_super_blocks<PanelIQ4_XS>;
  }
  return nullptr;
}

// Ones for the first `count` of 16 lanes.
inline __mmask16 first_lanes(int count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

}  // namespace

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
  const Product product = product_of(w.format);
  const int count = w.blocks();
  const Onward onward(w.panel(panel1), y.next, y.once);
  Outputs out;
  for (int p = panel0; p < panel1; ++p) {
    const int lanes = w.rows - p * kPanelRows;
    const __mmask16 low = first_lanes(lanes), high = first_lanes(lanes - 16);
    for (int row = 0; row < x.rows; row += kRowTile) {
      const Rows rows{x, row, x.rows - row < kRowTile ? x.rows - row : kRowTile, onward};
      for (int m = 0; m < rows.count; ++m) out.acc[m] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      product(w.panel(p), count, rows, out);
      for (int m = 0; m < rows.count; ++m) {
        float* const to = y.row(row + m) + p * kPanelRows;
        const PairPs products = out.acc[m] * _mm512_set1_ps(y.factor(row + m));
        _mm512_mask_storeu_ps(to, low, products.low);
        _mm512_mask_storeu_ps(to + 16, high, products.high);
      }
    }
  }
}

}  // namespace outpace::avx512vnni
