// Matrix products with AVX-512 VNNI: the sums of kernels/portable/matrix.cpp, a lane for every output row.
//
// A block of weights is unpacked once into sixteen registers (eight steps of two times 16 rows) and then meets every
// row of activations of a tile; each broadcast of four activations serves both registers of a step. Accumulators live
// in the first-level cache. Everything has internal linkage: no copy compiled for this instruction set may be linked
// into code for others.

#include <immintrin.h>

#include <limits>

#include "kernels/avx512vnni/functions.h"
#include "matrix.h"

namespace outpace::avx512vnni {
namespace {

// -- activations ------------------------------------------------------------------------------------------------------

constexpr float kSmallestLargest = 1e-30f;  // as in the portable file

inline __m512i magnitude_bits(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

inline float as_float(uint32_t bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits)))); }

template <int registers>
inline float largest_magnitude(const float* x) {
  __m512i largest = magnitude_bits(_mm512_loadu_ps(x));
  for (int i = 1; i < registers; ++i) {
    largest = _mm512_max_epu32(largest, magnitude_bits(_mm512_loadu_ps(x + 16 * i)));
  }
  return as_float(_mm512_reduce_max_epu32(largest));
}

// Writes int8 and returns nothing: the nearest integer, ties to even, is what the conversion gives by itself.
template <int registers>
inline void round_to_int8(const float* x, float reciprocal, int8_t* q) {
  const __m512 factor = _mm512_set1_ps(reciprocal);
  for (int i = 0; i < registers; ++i) {
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i), _mm512_cvtsepi32_epi8(rounded));
  }
}

template <int registers>
inline bool quantise_degenerate(float largest, float& scale, int8_t* q) {
  if (largest >= kSmallestLargest && largest <= std::numeric_limits<float>::max()) return false;
  scale = largest < kSmallestLargest ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < registers; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i), _mm_setzero_si128());
  }
  return true;
}

inline __m512i load16(const int8_t* q) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
}

void quantise_block(const float* x, int8_t* q, BlockScale& out) {
  const float largest = largest_magnitude<2>(x);
  if (!quantise_degenerate<2>(largest, out.scale, q)) {
    out.scale = largest / 127.0f;
    round_to_int8<2>(x, 127.0f / largest, q);
  }
  const int total = _mm512_reduce_add_epi32(_mm512_add_epi32(load16(q), load16(q + 16)));
  out.scaled_sum = out.scale * static_cast<float>(total);
  out.negated_sum = -total;
}

inline int most_abs_sum16(const int8_t* q) {
  int most = 0;
  for (int j = 0; j < kSuperBlock; j += 16) {
    const int total = _mm512_reduce_add_epi32(_mm512_abs_epi32(load16(q + j)));
    most = total > most ? total : most;
  }
  return most;
}

void quantise_super_block(const float* x, int8_t* q, SuperBlockScale& out) {
  const float largest = largest_magnitude<16>(x);
  if (!quantise_degenerate<16>(largest, out.scale, q)) {
    out.scale = largest / 127.0f;
    round_to_int8<16>(x, 127.0f / largest, q);
    const int most = most_abs_sum16(q);
    if (most > kMostAbsSum16) {
      const float wider = largest * (static_cast<float>(most + 8) / static_cast<float>(kMostAbsSum16 - 9));
      out.scale = wider / 127.0f;
      round_to_int8<16>(x, 127.0f / wider, q);
    }
  }
  for (int j = 0; j < 8; ++j) {
    const int low = _mm512_reduce_add_epi32(load16(q + 32 * j));
    const int high = _mm512_reduce_add_epi32(load16(q + 32 * j + 16));
    out.offsets[2 * j] = -32 * low;
    out.offsets[2 * j + 1] = -32 * high;
    out.sums[j] = static_cast<int16_t>(low + high);
  }
}

// -- weights ----------------------------------------------------------------------------------------------------------

constexpr int kSteps = kBlock / 4;

struct Pair {  // the two registers of a panel: rows 0-15 and 16-31
  __m512i low, high;
};

struct PairPs {
  __m512 low, high;
};

inline __m512i load(const void* bytes) { return _mm512_load_si512(bytes); }

inline Pair load_pair(const uint8_t* bytes) { return {load(bytes), load(bytes + 64)}; }

inline PairPs load_f16(const uint16_t* f16) {
  const __m256i* from = reinterpret_cast<const __m256i*>(f16);
  return {_mm512_cvtph_ps(_mm256_load_si256(from)), _mm512_cvtph_ps(_mm256_load_si256(from + 1))};
}

inline Pair operator&(Pair a, __m512i mask) { return {_mm512_and_si512(a.low, mask), _mm512_and_si512(a.high, mask)}; }

inline Pair shift_right(Pair a, int bits) {
  return {_mm512_srli_epi16(a.low, static_cast<unsigned>(bits)), _mm512_srli_epi16(a.high, static_cast<unsigned>(bits))};
}

inline void unpack_nibbles(const uint8_t (&nibbles)[4][kStepBytes], Pair (&steps)[kSteps]) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (int s = 0; s < 4; ++s) {
    const Pair both = load_pair(nibbles[s]);
    steps[s] = both & mask;
    steps[s + 4] = shift_right(both, 4) & mask;
  }
}

inline void unpack(const PanelQ4_0& block, Pair (&steps)[kSteps]) { unpack_nibbles(block.nibbles, steps); }

inline void unpack(const PanelQ4_1& block, Pair (&steps)[kSteps]) { unpack_nibbles(block.nibbles, steps); }

inline void unpack(const PanelQ5_0& block, Pair (&steps)[kSteps]) {
  unpack_nibbles(block.nibbles, steps);
  const __m512i sixteen = _mm512_set1_epi8(16);
  for (int s = 0; s < kSteps; ++s) {
    const uint64_t* bits = reinterpret_cast<const uint64_t*>(block.fifth_bits[s]);
    steps[s].low = _mm512_mask_add_epi8(steps[s].low, bits[0], steps[s].low, sixteen);
    steps[s].high = _mm512_mask_add_epi8(steps[s].high, bits[1], steps[s].high, sixteen);
  }
}

inline void unpack(const PanelQ8_0& block, Pair (&steps)[kSteps]) {
  for (int s = 0; s < kSteps; ++s) steps[s] = load_pair(block.codes[s]);
}

inline void unpack(const PanelQ4_K& block, int j, Pair (&steps)[kSteps]) { unpack_nibbles(block.nibbles[j], steps); }

inline void unpack(const PanelQ6_K& block, int j, Pair (&steps)[kSteps]) {
  unpack_nibbles(block.nibbles[j], steps);
  const __m512i mask = _mm512_set1_epi8(0x30);
  for (int h = 0; h < 2; ++h) {
    const Pair bits = load_pair(block.high_bits[j][h]);
    const Pair shifted[4] = {{_mm512_slli_epi16(bits.low, 4), _mm512_slli_epi16(bits.high, 4)},
                             {_mm512_slli_epi16(bits.low, 2), _mm512_slli_epi16(bits.high, 2)},
                             bits,
                             shift_right(bits, 2)};
    for (int c = 0; c < 4; ++c) {
      constexpr int kFirstOrBothOthers = 0xf8;  // truth table of a | (b & c)
      Pair& step = steps[4 * h + c];
      step.low = _mm512_ternarylogic_epi32(step.low, shifted[c].low, mask, kFirstOrBothOthers);
      step.high = _mm512_ternarylogic_epi32(step.high, shifted[c].high, mask, kFirstOrBothOthers);
    }
  }
}

// What a code stands for less its value: 2^shift times the sum of the activations is to be taken off. 0: nothing.
template <class Block>
constexpr int kOffsetShift = 0;
template <>
constexpr int kOffsetShift<PanelQ4_0> = 3;
template <>
constexpr int kOffsetShift<PanelQ5_0> = 4;
template <>
constexpr int kOffsetShift<PanelQ8_0> = 7;

// -- products ---------------------------------------------------------------------------------------------------------

constexpr int kRowTile = 16;  // rows of activations that meet an unpacked block

struct alignas(64) Tile {
  PairPs acc[kRowTile];
};

struct Rows {
  const Activations& x;
  int first, count;
};

template <int first, int count>
inline void add_dots(const Pair (&steps)[kSteps], const int8_t* q, Pair& dot) {
  for (int s = first; s < first + count; ++s) {
    const __m512i four = _mm512_set1_epi32(*reinterpret_cast<const int*>(q + 4 * s));
    dot.low = _mm512_dpbusd_epi32(dot.low, steps[s].low, four);
    dot.high = _mm512_dpbusd_epi32(dot.high, steps[s].high, four);
  }
}

template <class Block>
inline void prefetch_ahead(const Block& block) {
  constexpr int kAhead = 5120;
  const char* from = reinterpret_cast<const char*>(&block) + kAhead;
  for (size_t i = 0; i < sizeof(Block); i += 64) _mm_prefetch(from + i, _MM_HINT_T0);
}

template <class Block>
void multiply_blocks(const Block* blocks, int count, const Rows& rows, Tile& tile) {
  for (int b = 0; b < count; ++b) {
    const Block& block = blocks[b];
    prefetch_ahead(block);
    Pair steps[kSteps];
    unpack(block, steps);
    const PairPs scale = load_f16(block.scale);
    PairPs minimum;
    if constexpr (requires { block.minimum; }) minimum = load_f16(block.minimum);
    const int8_t* q = rows.x.q32(rows.first) + b * kBlock;
    const BlockScale* x_scale = rows.x.scales32(rows.first) + b;
    for (int m = 0; m < rows.count; ++m, q += rows.x.q_stride(), x_scale += count) {
      Pair dot = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      if constexpr (kOffsetShift<Block> != 0) {
        dot.low = dot.high = _mm512_slli_epi32(_mm512_set1_epi32(x_scale->negated_sum), kOffsetShift<Block>);
      }
      add_dots<0, kSteps>(steps, q, dot);
      const __m512 xs = _mm512_set1_ps(x_scale->scale);
      PairPs acc = tile.acc[m];
      acc.low = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot.low), _mm512_mul_ps(scale.low, xs), acc.low);
      acc.high = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot.high), _mm512_mul_ps(scale.high, xs), acc.high);
      if constexpr (requires { block.minimum; }) {
        const __m512 sum = _mm512_set1_ps(x_scale->scaled_sum);
        acc.low = _mm512_fmadd_ps(minimum.low, sum, acc.low);
        acc.high = _mm512_fmadd_ps(minimum.high, sum, acc.high);
      }
      tile.acc[m] = acc;
    }
  }
}

struct alignas(64) Sums {
  Pair dot[kRowTile];   // of the super-block so far
  Pair part[kRowTile];  // of its last sub-block
};

// dot += even * scale of the even sub-block + odd * scale of the odd one: both fit into 16 bits (SuperBlockScale).
inline __m512i add_scaled(__m512i dot, __m512i even, __m512i odd, __m512i scales) {
  constexpr __mmask32 kUpperHalves = 0xaaaaaaaa;
  return _mm512_dpwssd_epi32(dot, _mm512_mask_blend_epi16(kUpperHalves, even, _mm512_slli_epi32(odd, 16)), scales);
}

inline Pair load_u8_as_16(const uint8_t (&pairs)[kPanelRows][2]) {
  const __m256i* from = reinterpret_cast<const __m256i*>(pairs);
  return {_mm512_cvtepu8_epi16(_mm256_load_si256(from)), _mm512_cvtepu8_epi16(_mm256_load_si256(from + 1))};
}

inline Pair load_s8_as_16(const int8_t (&pairs)[kPanelRows][2]) {
  const __m256i* from = reinterpret_cast<const __m256i*>(pairs);
  return {_mm512_cvtepi8_epi16(_mm256_load_si256(from)), _mm512_cvtepi8_epi16(_mm256_load_si256(from + 1))};
}

inline void add_block(const PanelQ4_K& block, int j, const Rows& rows, int b, Sums& sums) {
  Pair steps[kSteps];
  unpack(block, j, steps);
  const int8_t* q = rows.x.q256(rows.first) + b * kSuperBlock + j * kBlock;
  if (j % 2 == 0) {
    for (int m = 0; m < rows.count; ++m, q += rows.x.q_stride()) {
      Pair dot = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      add_dots<0, kSteps>(steps, q, dot);
      sums.part[m] = dot;
    }
    return;
  }
  const Pair scales = load_u8_as_16(block.scales[j / 2]);
  for (int m = 0; m < rows.count; ++m, q += rows.x.q_stride()) {
    Pair dot = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    add_dots<0, kSteps>(steps, q, dot);
    sums.dot[m].low = add_scaled(sums.dot[m].low, sums.part[m].low, dot.low, scales.low);
    sums.dot[m].high = add_scaled(sums.dot[m].high, sums.part[m].high, dot.high, scales.high);
  }
}

inline void add_block(const PanelQ6_K& block, int j, const Rows& rows, int b, Sums& sums) {
  Pair steps[kSteps];
  unpack(block, j, steps);
  const Pair scales = load_s8_as_16(block.scales[j]);
  const int8_t* q = rows.x.q256(rows.first) + b * kSuperBlock + j * kBlock;
  const SuperBlockScale* x_scale = rows.x.scales256(rows.first) + b;
  const ptrdiff_t stride = rows.x.q_stride();
  for (int m = 0; m < rows.count; ++m, q += stride, x_scale += stride / kSuperBlock) {
    Pair even, odd;
    even.low = even.high = _mm512_set1_epi32(x_scale->offsets[2 * j]);
    odd.low = odd.high = _mm512_set1_epi32(x_scale->offsets[2 * j + 1]);
    add_dots<0, 4>(steps, q, even);
    add_dots<4, 4>(steps, q, odd);
    sums.dot[m].low = add_scaled(sums.dot[m].low, even.low, odd.low, scales.low);
    sums.dot[m].high = add_scaled(sums.dot[m].high, even.high, odd.high, scales.high);
  }
}

inline Pair min_dots(const Pair (&minima)[4], const int16_t* sums) {
  Pair dot = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int j = 0; j < 4; ++j) {
    const __m512i two = _mm512_set1_epi32(*reinterpret_cast<const int*>(sums + 2 * j));
    dot.low = _mm512_dpwssd_epi32(dot.low, minima[j].low, two);
    dot.high = _mm512_dpwssd_epi32(dot.high, minima[j].high, two);
  }
  return dot;
}

template <class Block>
void multiply_super_blocks(const Block* blocks, int count, const Rows& rows, Tile& tile) {
  constexpr bool has_minima = requires(Block block) { block.minima; };
  Sums sums;
  for (int b = 0; b < count; ++b) {
    const Block& block = blocks[b];
    for (int m = 0; m < rows.count; ++m) sums.dot[m] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    prefetch_ahead(block);
    for (int j = 0; j < kBlocksOfSuper; ++j) add_block(block, j, rows, b, sums);
    const PairPs scale = load_f16(block.scale);
    PairPs minimum;
    Pair minima[4];
    if constexpr (has_minima) {
      minimum = load_f16(block.minimum);
      for (int j = 0; j < 4; ++j) minima[j] = load_u8_as_16(block.minima[j]);
    }
    const SuperBlockScale* x_scale = rows.x.scales256(rows.first) + b;
    for (int m = 0; m < rows.count; ++m, x_scale += count) {
      PairPs part = {_mm512_mul_ps(scale.low, _mm512_cvtepi32_ps(sums.dot[m].low)),
                     _mm512_mul_ps(scale.high, _mm512_cvtepi32_ps(sums.dot[m].high))};
      if constexpr (has_minima) {
        const Pair dot = min_dots(minima, x_scale->sums);
        part.low = _mm512_fnmadd_ps(minimum.low, _mm512_cvtepi32_ps(dot.low), part.low);
        part.high = _mm512_fnmadd_ps(minimum.high, _mm512_cvtepi32_ps(dot.high), part.high);
      }
      const __m512 xs = _mm512_set1_ps(x_scale->scale);
      tile.acc[m].low = _mm512_fmadd_ps(part.low, xs, tile.acc[m].low);
      tile.acc[m].high = _mm512_fmadd_ps(part.high, xs, tile.acc[m].high);
    }
  }
}

inline PairPs load_dense(const float* column) { return {_mm512_load_ps(column), _mm512_load_ps(column + 16)}; }

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

inline PairPs load_dense(const F16* column) { return load_f16(&column->bits); }

inline PairPs load_dense(const Bf16* column) {
  const __m256i* from = reinterpret_cast<const __m256i*>(column);
  const auto widen = [](__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); };
  return {widen(_mm256_load_si256(from)), widen(_mm256_load_si256(from + 1))};
}

template <class Weight>
void multiply_dense(const Weight* weights, int count, const Rows& rows, Tile& tile) {
  for (int k = 0; k < count; ++k, weights += kPanelRows) {
    const PairPs w = load_dense(weights);
    const float* x = rows.x.f32(rows.first) + k;
    for (int m = 0; m < rows.count; ++m, x += rows.x.f32_stride()) {
      const __m512 value = _mm512_set1_ps(*x);
      tile.acc[m].low = _mm512_fmadd_ps(w.low, value, tile.acc[m].low);
      tile.acc[m].high = _mm512_fmadd_ps(w.high, value, tile.acc[m].high);
    }
  }
}

void multiply_tile(const Matrix& w, int panel, const Rows& rows, Tile& tile) {
  const uint8_t* data = w.panel(panel);
  const int count = w.blocks();
  const auto as = [&]<class T>(T) { return reinterpret_cast<const T*>(data); };
  switch (w.format) {
    case Format::f32: return multiply_dense(as(float{}), count, rows, tile);
    case Format::f16: return multiply_dense(as(F16{}), count, rows, tile);
    case Format::bf16: return multiply_dense(as(Bf16{}), count, rows, tile);
    case Format::q4_0: return multiply_blocks(as(PanelQ4_0{}), count, rows, tile);
    case Format::q4_1: return multiply_blocks(as(PanelQ4_1{}), count, rows, tile);
    case Format::q5_0: return multiply_blocks(as(PanelQ5_0{}), count, rows, tile);
    case Format::q8_0: return multiply_blocks(as(PanelQ8_0{}), count, rows, tile);
    case Format::q4_k: return multiply_super_blocks(as(PanelQ4_K{}), count, rows, tile);
    case Format::q6_k: return multiply_super_blocks(as(PanelQ6_K{}), count, rows, tile);
  }
}

}  // namespace

void quantise(Activations& x, int row0, int row1) {
  for (int row = row0; row < row1; ++row) {
    for (int b = 0; x.wants_32 && b < x.cols / kBlock; ++b) {
      quantise_block(x.f32(row) + b * kBlock, x.q32(row) + b * kBlock, x.scales32(row)[b]);
    }
    for (int b = 0; x.wants_256 && b < x.cols / kSuperBlock; ++b) {
      quantise_super_block(x.f32(row) + b * kSuperBlock, x.q256(row) + b * kSuperBlock, x.scales256(row)[b]);
    }
  }
}

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, float* y, ptrdiff_t y_stride) {
  Tile tile;
  for (int p = panel0; p < panel1; ++p) {
    const int lanes = w.rows - p * kPanelRows;
    const __mmask16 low = lanes >= 16 ? 0xffff : static_cast<__mmask16>((1u << lanes) - 1);
    const __mmask16 high = lanes >= 32 ? 0xffff : lanes <= 16 ? 0 : static_cast<__mmask16>((1u << (lanes - 16)) - 1);
    for (int row = 0; row < x.rows; row += kRowTile) {
      const Rows rows{x, row, x.rows - row < kRowTile ? x.rows - row : kRowTile};
      for (int m = 0; m < rows.count; ++m) tile.acc[m] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      multiply_tile(w, p, rows, tile);
      float* out = y + row * y_stride + p * kPanelRows;
      for (int m = 0; m < rows.count; ++m, out += y_stride) {
        _mm512_mask_storeu_ps(out, low, tile.acc[m].low);
        _mm512_mask_storeu_ps(out + 16, high, tile.acc[m].high);
      }
    }
  }
}

}  // namespace outpace::avx512vnni
