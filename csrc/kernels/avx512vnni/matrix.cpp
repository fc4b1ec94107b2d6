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

inline float quantise_super_block(const float* x, int8_t* q) {
  const float largest = largest_magnitude<16>(x);
  float scale;
  if (quantise_degenerate<16>(largest, scale, q)) return scale;
  round_to_int8<16>(x, 127.0f / largest, q);
  const int most = most_abs_sum16(q);
  if (most <= kMostAbsSum16) return largest / 127.0f;
  const float wider = largest * (static_cast<float>(most + 8) / static_cast<float>(kMostAbsSum16 - 9));
  round_to_int8<16>(x, 127.0f / wider, q);
  return wider / 127.0f;
}

void quantise_super_block(Activations& x, int b, int row) {
  int8_t q[kSuperBlock];
  SuperBlockScale& out = *x.scale256(b, row);
  out.scale = quantise_super_block(x.f32(row) + b * kSuperBlock, q);
  for (int j = 0; j < kBlocksOfSuper; ++j) {
    const int8_t* block = q + j * kBlock;
    const int low = _mm512_reduce_add_epi32(load16(block)), high = _mm512_reduce_add_epi32(load16(block + 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x.q256(b * kBlocksOfSuper + j, row)),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block)));
    int32_t* offsets = x.offsets256(b * kBlocksOfSuper + j, row);
    offsets[0] = -32 * low;
    offsets[1] = -32 * high;
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

constexpr int kAhead = 8192;  // bytes that prefetching runs ahead

struct Rows {  // of one tile of the activations
  const Activations& x;
  int first, count;
};

struct alignas(64) Outputs {
  PairPs acc[kRowTile];
};

inline Pair broadcast(int32_t value) {
  const __m512i lanes = _mm512_set1_epi32(value);
  return {lanes, lanes};
}

inline void add_dot(Pair& dot, const Pair& weights, const int8_t* q) {
  const __m512i four = _mm512_set1_epi32(*reinterpret_cast<const int*>(q));
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

inline PairPs operator*(PairPs a, __m512 b) { return {_mm512_mul_ps(a.low, b), _mm512_mul_ps(a.high, b)}; }

inline PairPs operator*(PairPs a, PairPs b) { return {_mm512_mul_ps(a.low, b.low), _mm512_mul_ps(a.high, b.high)}; }

inline PairPs fused(PairPs a, PairPs b, PairPs c) {
  return {_mm512_fmadd_ps(a.low, b.low, c.low), _mm512_fmadd_ps(a.high, b.high, c.high)};
}

inline PairPs fused(PairPs a, __m512 b, PairPs c) {
  return {_mm512_fmadd_ps(a.low, b, c.low), _mm512_fmadd_ps(a.high, b, c.high)};
}

// Asks for the memory that lies kAhead bytes behind a piece of weights, a few lines with every row of activations: all
// at once they would fill the queue of misses and hold up the loads behind them. (Inlined by force: gcc drops calls to
// functions that do nothing but prefetch.)
class Ahead {
 public:
  // Of part `part` of `parts` of a block that meets `rows` rows.
  template <class Block>
  [[gnu::always_inline]] Ahead(const Block& block, int part, int parts, int rows) {
    const int lines = (static_cast<int>(sizeof(Block)) / kLine + parts - 1) / parts;
    next_ = reinterpret_cast<const char*>(&block) + kAhead + part * lines * kLine;
    end_ = next_ + lines * kLine;
    lines_a_row_ = (lines + rows - 1) / rows;
  }
  [[gnu::always_inline]] void ask_some() {
    for (int i = 0; i < lines_a_row_ && next_ < end_; ++i, next_ += kLine) _mm_prefetch(next_, _MM_HINT_T0);
  }

 private:
  static constexpr int kLine = 64;
  const char *next_, *end_;
  int lines_a_row_;
};

template <class Block>
void multiply_blocks(const Block* blocks, int count, const Rows& rows, Outputs& out) {
  const int8_t* q = rows.x.q32(0, rows.first);
  const BlockScale* x = rows.x.scale32(0, rows.first);
  for (const Block* end = blocks + count; blocks != end; ++blocks) {
    const Block& block = *blocks;
    Ahead ahead(block, 0, 1, rows.count);
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

inline void add_sub_block(const PanelQ6_K& block, int j, SubBlock x, Sums& sums) {
  Pair steps[kSteps];
  unpack(block, j, steps);
  const Pair scales = widen(block.scales[j]);
  for (int m = 0; m < x.rows; ++m, x.q += kBlock, x.offsets += 2) {
    x.ahead.ask_some();
    Pair even = broadcast(x.offsets[0]), odd = broadcast(x.offsets[1]);
    dot_halves(steps, x.q, even, odd);
    sums.dot[m] = add_scaled(sums.dot[m], even, odd, scales);
  }
}

inline Pair min_dot(const Pair (&minima)[kBlocksOfSuper / 2], const int16_t (&sums)[kBlocksOfSuper]) {
  Pair dot = broadcast(0);
  for (int j = 0; j < kBlocksOfSuper / 2; ++j) {
    const __m512i two = _mm512_set1_epi32(*reinterpret_cast<const int*>(sums + 2 * j));
    dot.low = _mm512_dpwssd_epi32(dot.low, minima[j].low, two);
    dot.high = _mm512_dpwssd_epi32(dot.high, minima[j].high, two);
  }
  return dot;
}

template <class Block>
void multiply_super_blocks(const Block* blocks, int count, const Rows& rows, Outputs& out) {
  constexpr bool has_minima = requires(Block block) { block.minima; };
  const int8_t* q = rows.x.q256(0, rows.first);
  const int32_t* offsets = rows.x.offsets256(0, rows.first);
  const SuperBlockScale* x = rows.x.scale256(0, rows.first);
  Sums sums;
  for (const Block* end = blocks + count; blocks != end; ++blocks) {
    const Block& block = *blocks;
    for (int m = 0; m < rows.count; ++m) sums.dot[m] = broadcast(0);
    for (int j = 0; j < kBlocksOfSuper; ++j, q += kBlock * rows.count, offsets += 2 * rows.count) {
      add_sub_block(block, j, {q, offsets, rows.count, Ahead(block, j, kBlocksOfSuper, rows.count)}, sums);
    }
    const PairPs scale = load_f16(block.scale);
    PairPs minimum;
    Pair minima[kBlocksOfSuper / 2];
    if constexpr (has_minima) {
      minimum = load_f16(block.minimum) * _mm512_set1_ps(-1.0f);
      for (int j = 0; j < kBlocksOfSuper / 2; ++j) minima[j] = widen(block.minima[j]);
    }
    for (int m = 0; m < rows.count; ++m, ++x) {
      PairPs part = scale * to_f32(sums.dot[m]);
      if constexpr (has_minima) part = fused(minimum, to_f32(min_dot(minima, x->sums)), part);
      out.acc[m] = fused(part, _mm512_set1_ps(x->scale), out.acc[m]);
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
void multiply_dense(const Weight* weights, int count, const Rows& rows, Outputs& out) {
  for (int k = 0; k < count; ++k, weights += kPanelRows) {
    const PairPs w = load_dense(weights);
    const float* x = rows.x.f32(rows.first) + k;
    for (int m = 0; m < rows.count; ++m, x += rows.x.f32_stride()) {
      const __m512 value = _mm512_set1_ps(*x);
      out.acc[m].low = _mm512_fmadd_ps(w.low, value, out.acc[m].low);
      out.acc[m].high = _mm512_fmadd_ps(w.high, value, out.acc[m].high);
    }
  }
}

void multiply_tile(const Matrix& w, int panel, const Rows& rows, Outputs& out) {
  const uint8_t* data = w.panel(panel);
  const int count = w.blocks();
  const auto as = [&]<class T>(T) { return reinterpret_cast<const T*>(data); };
  switch (w.format) {
    case Format::f32: return multiply_dense(as(float{}), count, rows, out);
    case Format::f16: return multiply_dense(as(F16{}), count, rows, out);
    case Format::bf16: return multiply_dense(as(Bf16{}), count, rows, out);
    case Format::q4_0: return multiply_blocks(as(PanelQ4_0{}), count, rows, out);
    case Format::q4_1: return multiply_blocks(as(PanelQ4_1{}), count, rows, out);
    case Format::q5_0: return multiply_blocks(as(PanelQ5_0{}), count, rows, out);
    case Format::q8_0: return multiply_blocks(as(PanelQ8_0{}), count, rows, out);
    case Format::q4_k: return multiply_super_blocks(as(PanelQ4_K{}), count, rows, out);
    case Format::q6_k: return multiply_super_blocks(as(PanelQ6_K{}), count, rows, out);
  }
}

}  // namespace

void quantise(Activations& x, int row0, int row1) {
  for (int row = row0; row < row1; ++row) {
    for (int b = 0; x.wants_32 && b < x.cols / kBlock; ++b) {
      quantise_block(x.f32(row) + b * kBlock, x.q32(b, row), *x.scale32(b, row));
    }
    for (int b = 0; x.wants_256 && b < x.cols / kSuperBlock; ++b) {
      quantise_super_block(x, b, row);
    }
  }
}

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, float* y, ptrdiff_t y_stride) {
  Outputs out;
  for (int p = panel0; p < panel1; ++p) {
    const int lanes = w.rows - p * kPanelRows;
    const __mmask16 low = lanes >= 16 ? 0xffff : static_cast<__mmask16>((1u << lanes) - 1);
    const __mmask16 high = lanes >= 32 ? 0xffff : lanes <= 16 ? 0 : static_cast<__mmask16>((1u << (lanes - 16)) - 1);
    for (int row = 0; row < x.rows; row += kRowTile) {
      const Rows rows{x, row, x.rows - row < kRowTile ? x.rows - row : kRowTile};
      for (int m = 0; m < rows.count; ++m) out.acc[m] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      multiply_tile(w, p, rows, out);
      float* to = y + row * y_stride + p * kPanelRows;
      for (int m = 0; m < rows.count; ++m, to += y_stride) {
        _mm512_mask_storeu_ps(to, low, out.acc[m].low);
        _mm512_mask_storeu_ps(to + 16, high, out.acc[m].high);
      }
    }
  }
}

}  // namespace outpace::avx512vnni
