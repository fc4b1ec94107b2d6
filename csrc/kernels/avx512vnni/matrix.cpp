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
// In registers from the rounding to the sums: reading back bytes that were stored in smaller pieces would wait for them.

constexpr float kSmallestLargest = 1e-30f;  // as in the portable file

template <int registers>
inline float largest_magnitude(const float* x) {
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < registers; ++i) {
    const __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + 16 * i));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  const int bits = static_cast<int>(_mm512_reduce_max_epu32(largest));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

inline bool is_degenerate(float largest) {
  return !(largest >= kSmallestLargest && largest <= std::numeric_limits<float>::max());
}

inline float degenerate_scale(float largest) {
  return largest < kSmallestLargest ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

// Sixteen values to the nearest integer, ties to even, which is how the conversion rounds.
inline __m512i rounded(const float* x, __m512 reciprocal) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), reciprocal));
}

inline __m256i round_block(const float* x, float reciprocal) {
  const __m512 factor = _mm512_set1_ps(reciprocal);
  const __m512i words = _mm512_packs_epi32(rounded(x, factor), rounded(x + 16, factor));  // by quarters
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return _mm512_cvtsepi16_epi8(_mm512_permutexvar_epi64(order, words));
}

// The sums of fours in a block, four inputs a lane, added up.
inline int sum_block(__m256i q) {
  const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(sum);
}

void quantise_block(const float* x, int8_t* to, BlockScale& out) {
  const float largest = largest_magnitude<2>(x);
  __m256i q = _mm256_setzero_si256();
  if (is_degenerate(largest)) {
    out.scale = degenerate_scale(largest);
  } else {
    out.scale = largest / 127.0f;
    q = round_block(x, 127.0f / largest);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), q);
  const int total = sum_block(q);
  out.scaled_sum = out.scale * static_cast<float>(total);
  out.negated_sum = -total;
}

constexpr int kQuarters = kSuperBlock / 64;

inline void round_super_block(const float* x, float reciprocal, __m512i (&q)[kQuarters]) {
  const __m512 factor = _mm512_set1_ps(reciprocal);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int i = 0; i < kQuarters; ++i, x += 64) {
    const __m512i first = _mm512_packs_epi32(rounded(x, factor), rounded(x + 16, factor));
    const __m512i second = _mm512_packs_epi32(rounded(x + 32, factor), rounded(x + 48, factor));
    q[i] = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second));
  }
}

// Sums of four sixteens, each in the four lanes of its quarter.
inline __m512i sums16(__m512i unsigned_bytes, __m512i signed_bytes) {
  __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), unsigned_bytes, signed_bytes);
  sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
  return _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
}

inline int most_abs_sum16(const __m512i (&q)[kQuarters]) {
  __m512i most = _mm512_setzero_si512();
  for (const __m512i& bytes : q) {
    most = _mm512_max_epi32(most, sums16(_mm512_abs_epi8(bytes), _mm512_set1_epi8(1)));
  }
  return _mm512_reduce_max_epi32(most);
}

// Fills q and returns the scale.
inline float quantise_super_block(const float* x, __m512i (&q)[kQuarters]) {
  const float largest = largest_magnitude<16>(x);
  if (is_degenerate(largest)) {
    for (__m512i& bytes : q) bytes = _mm512_setzero_si512();
    return degenerate_scale(largest);
  }
  round_super_block(x, 127.0f / largest, q);
  const int most = most_abs_sum16(q);
  if (most <= kMostAbsSum16) return largest / 127.0f;
  const float wider = largest * (static_cast<float>(most + 8) / static_cast<float>(kMostAbsSum16 - 9));
  round_super_block(x, 127.0f / wider, q);
  return wider / 127.0f;
}

void quantise_row_32(Activations& x, int row) {
  const int width = x.tile_width(row);
  const float* from = x.f32(row);
  int8_t* q = x.q32(0, row);
  BlockScale* scale = x.scale32(0, row);
  for (int b = 0; b < x.cols / kBlock; ++b, from += kBlock, q += width * kBlock, scale += width) {
    quantise_block(from, q, *scale);
  }
}

void quantise_row_256(Activations& x, int row) {
  const int width = x.tile_width(row);
  const float* from = x.f32(row);
  int8_t* to = x.q256(0, row);
  int32_t* offsets = x.offsets256(0, row);
  SuperBlockScale* out = x.scale256(0, row);
  for (int b = 0; b < x.cols / kSuperBlock; ++b, from += kSuperBlock, out += width) {
    __m512i q[kQuarters];
    out->scale = quantise_super_block(from, q);
    for (int i = 0; i < kQuarters; ++i, to += 2 * width * kBlock, offsets += 2 * width * 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(q[i]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + width * kBlock), _mm512_extracti64x4_epi64(q[i], 1));
      const __m512i quarters = sums16(_mm512_set1_epi8(1), q[i]);
      const __m128i sums = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, quarters));
      const __m128i negated = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(sums, 5));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(offsets), negated);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(offsets + width * 2), _mm_srli_si128(negated, 8));
      out->sums[2 * i] = static_cast<int16_t>(_mm_extract_epi32(sums, 0) + _mm_extract_epi32(sums, 1));
      out->sums[2 * i + 1] = static_cast<int16_t>(_mm_extract_epi32(sums, 2) + _mm_extract_epi32(sums, 3));
    }
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

// Bits of `a` where the mask has ones, of `b` where it has zeros.
inline Pair select(__m512i mask, Pair a, Pair b) {
  constexpr int kTruthTable = 0xca;
  return {_mm512_ternarylogic_epi32(mask, a.low, b.low, kTruthTable),
          _mm512_ternarylogic_epi32(mask, a.high, b.high, kTruthTable)};
}

inline void unpack(const PanelQ6_K& block, int j, Pair (&steps)[kSteps]) {
  const __m512i six = _mm512_set1_epi8(63), two = _mm512_set1_epi8(3), four = _mm512_set1_epi8(15);
  for (int h = 0; h < 2; ++h) {
    Pair bytes[3];
    for (int s = 0; s < 3; ++s) {
      bytes[s] = load_pair(block.codes[j][h][s]);
      steps[4 * h + s] = bytes[s] & six;
    }
    const Pair lower = select(two, shift_right(bytes[0], 6), shift_right(bytes[1], 4));
    steps[4 * h + 3] = select(four, lower, shift_right(bytes[2], 2)) & six;
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

// `count` rows of activations at a time, over so few columns that the next rows find the weights in the cache.
template <int count, class Weight>
inline void add_columns(const Weight* weights, int columns, const float* x, ptrdiff_t stride, PairPs* acc) {
  PairPs sum[count];
  for (int m = 0; m < count; ++m) sum[m] = acc[m];
  for (int k = 0; k < columns; ++k, weights += kPanelRows) {
    const PairPs w = load_dense(weights);
    for (int m = 0; m < count; ++m) sum[m] = fused(w, _mm512_set1_ps(x[m * stride + k]), sum[m]);
  }
  for (int m = 0; m < count; ++m) acc[m] = sum[m];
}

template <class Weight>
void multiply_dense(const Weight* weights, int count, const Rows& rows, Outputs& out) {
  constexpr int kColumns = 64;
  const ptrdiff_t stride = rows.x.f32_stride();
  for (int k = 0; k < count; k += kColumns, weights += kColumns * kPanelRows) {
    const int columns = count - k < kColumns ? count - k : kColumns;
    const char* ahead = reinterpret_cast<const char*>(weights) + kAhead;
    for (size_t i = 0; i < kColumns * kPanelRows * sizeof(Weight); i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
    int m = 0;
    for (; m + 4 <= rows.count; m += 4) {
      add_columns<4>(weights, columns, rows.x.f32(rows.first + m) + k, stride, out.acc + m);
    }
    for (; m < rows.count; ++m) {
      add_columns<1>(weights, columns, rows.x.f32(rows.first + m) + k, stride, out.acc + m);
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
    if (x.wants_32) quantise_row_32(x, row);
    if (x.wants_256) quantise_row_256(x, row);
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
