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

#include "kernels/avx512vnni/functions.h"
#include "kernels/avx512vnni/matrix_panels.h"
#include "matrix.h"

namespace outpace::avx512vnni {
namespace {

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
void multiply_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
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
    const __m512i two = broadcast_bytes(sums + 2 * j);
    dot.low = _mm512_dpwssd_epi32(dot.low, minima[j].low, two);
    dot.high = _mm512_dpwssd_epi32(dot.high, minima[j].high, two);
  }
  return dot;
}

template <class Block>
void multiply_super_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
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

// `count` rows at a time, over so few columns that the next rows find the weights in the cache.
template <int count, class Weight>
inline void add_columns(const Weight* weights, int columns, const float* x, ptrdiff_t stride, PairPs* acc) {
  PairPs sum[count];
  for (int m = 0; m < count; ++m) sum[m] = acc[m];
  for (int k = 0; k < columns; ++k, weights += kPanelRows) {
    const char* ahead = reinterpret_cast<const char*>(weights) + kAhead;
    for (size_t i = 0; i < kPanelRows * sizeof(Weight); i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
    const PairPs w = load_dense(weights);
    for (int m = 0; m < count; ++m) sum[m] = fused(w, _mm512_set1_ps(x[m * stride + k]), sum[m]);
  }
  for (int m = 0; m < count; ++m) acc[m] = sum[m];
}

template <class Weight>
void multiply_dense(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  constexpr int kColumns = 64;
  const Weight* weights = reinterpret_cast<const Weight*>(panel);
  const ptrdiff_t stride = rows.x.f32_stride();
  for (int k = 0; k < count; k += kColumns, weights += kColumns * kPanelRows) {
    const int columns = count - k < kColumns ? count - k : kColumns;
    for (int m = 0; m < rows.count;) {
      const float* x = rows.x.f32(rows.first + m) + k;
      const int left = rows.count - m;
      if (left >= 8) {
        add_columns<8>(weights, columns, x, stride, out.acc + m), m += 8;
      } else if (left >= 4) {
        add_columns<4>(weights, columns, x, stride, out.acc + m), m += 4;
      } else if (left >= 2) {
        add_columns<2>(weights, columns, x, stride, out.acc + m), m += 2;
      } else {
        add_columns<1>(weights, columns, x, stride, out.acc + m), m += 1;
      }
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
    case Format::q8_0: return multiply_blocks<PanelQ8_0>;
    case Format::q4_k: return multiply_super_blocks<PanelQ4_K>;
    case Format::q6_k: return multiply_super_blocks<PanelQ6_K>;
  }
  return nullptr;
}

// Ones for the first `count` of 16 lanes.
inline __mmask16 first_lanes(int count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

}  // namespace

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, float* y, ptrdiff_t y_stride) {
  const Product product = product_of(w.format);
  const int count = w.blocks();
  Outputs out;
  for (int p = panel0; p < panel1; ++p) {
    const int lanes = w.rows - p * kPanelRows;
    const __mmask16 low = first_lanes(lanes), high = first_lanes(lanes - 16);
    for (int row = 0; row < x.rows; row += kRowTile) {
      const Rows rows{x, row, x.rows - row < kRowTile ? x.rows - row : kRowTile};
      for (int m = 0; m < rows.count; ++m) out.acc[m] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      product(w.panel(p), count, rows, out);
      float* to = y + row * y_stride + p * kPanelRows;
      for (int m = 0; m < rows.count; ++m, to += y_stride) {
        _mm512_mask_storeu_ps(to, low, out.acc[m].low);
        _mm512_mask_storeu_ps(to + 16, high, out.acc[m].high);
      }
    }
  }
}

}  // namespace outpace::avx512vnni
