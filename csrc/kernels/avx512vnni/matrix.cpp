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

#include <utility>

#include "kernels/ahead.h"
#include "kernels/avx512vnni/functions.h"
#include "kernels/avx512vnni/matrix_dense.h"
#include "kernels/avx512vnni/matrix_few.h"
#include "kernels/avx512vnni/matrix_panels.h"
#include "kernels/avx512vnni/matrix_super.h"
#include "kernels/avx512vnni/matrix_tile.h"
#include "matrix.h"

namespace outpace::avx512vnni {
namespace {

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
      const Pair dot = dot_block(steps, q, dot_start<Block>(*x));
      out.acc[m] = fused(to_f32(dot), scale * _mm512_set1_ps(x->scale), out.acc[m]);
      if constexpr (requires { block.minimum; }) {
        out.acc[m] = fused(minimum, _mm512_set1_ps(x->scaled_sum), out.acc[m]);
      }
    }
  }
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

// Not inlined: what it keeps in registers would drive the steps out of them.
template <class Block>
[[gnu::noinline]] void add_sums_of_tile(const Block& block, int rows, const SuperBlockScale* x, const int32_t* offsets,
                                        ptrdiff_t stride, const Sums& sums, Outputs& out) {
  add_sums(block, rows, x, offsets, stride, sums, out);
}

template <class Block>
void multiply_super_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
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
    add_sums_of_tile(block, rows.count, x, offsets, stride, sums, out);
    x += rows.count;
  }
}

using Product = void (*)(const uint8_t* panel, int count, const Rows& rows, Outputs& out);

template <class Block, size_t... less_one>
Product product_of_few(int rows, std::index_sequence<less_one...>) {
  static constexpr Product kProducts[] = {multiply_few_rows<int(less_one) + 1, Block>...};
  return kProducts[rows - 1];
}

template <class Block>
Product product_of_blocks(int rows, bool once) {
  if constexpr (kFewRows<Block> > 0) {
    if (once && rows <= kFewRows<Block>) return product_of_few<Block>(rows, std::make_index_sequence<kFewRows<Block>>());
  }
  if constexpr (kIsSuper<Block>) return multiply_super_blocks<Block>;
  else return multiply_blocks<Block>;
}

// once: Products::once
Product product_of(Format format, int rows, bool once) {
  switch (format) {
    case Format::f32: return multiply_dense<float>;
    case Format::f16: return multiply_dense<F16>;
    case Format::bf16: return multiply_dense<Bf16>;
    case Format::q4_0: return product_of_blocks<PanelQ4_0>(rows, once);
    case Format::q4_1: return product_of_blocks<PanelQ4_1>(rows, once);
    case Format::q5_0: return product_of_blocks<PanelQ5_0>(rows, once);
    case Format::q5_1: return product_of_blocks<PanelQ5_1>(rows, once);
    case Format::q8_0: return product_of_blocks<PanelQ8_0>(rows, once);
    case Format::q2_k: return product_of_blocks<PanelQ2_K>(rows, once);
    case Format::q3_k: return product_of_blocks<PanelQ3_K>(rows, once);
    case Format::q4_k: return product_of_blocks<PanelQ4_K>(rows, once);
    case Format::q5_k: return product_of_blocks<PanelQ5_K>(rows, once);
    case Format::q6_k: return product_of_blocks<PanelQ6_K>(rows, once);
    case Format::iq4_nl: return product_of_blocks<PanelIQ4_NL>(rows, once);
    case Format::iq4_xs: return product_of_blocks<PanelIQ4_XS>(rows, once);
  }
  return nullptr;
}

// Ones for the first `count` of 16 lanes.
inline __mmask16 first_lanes(int count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

}  // namespace

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
  const int count = w.blocks();
  const Onward onward(w.panel(panel1), y.next, y.once);
  Outputs out;
  for (int p = panel0; p < panel1; ++p) {
    const int lanes = w.rows - p * kPanelRows;
    const __mmask16 low = first_lanes(lanes), high = first_lanes(lanes - 16);
    for (int row = 0; row < x.rows; row += kRowTile) {
      const Rows rows{x, row, x.rows - row < kRowTile ? x.rows - row : kRowTile, onward};
      for (int m = 0; m < rows.count; ++m) out.acc[m] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      product_of(w.format, rows.count, y.once)(w.panel(p), count, rows, out);
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
