// Products with weights in f32, f16 and bf16.
#pragma once

#include <immintrin.h>

#include "kernels/avx512vnni/matrix_tile.h"

namespace outpace::avx512vnni {
namespace {

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
inline void add_columns(const Weight* weights, int columns, const Onward& onward, const float* x, ptrdiff_t stride,
                        PairPs* acc) {
  PairPs sum[count];
  for (int m = 0; m < count; ++m) sum[m] = acc[m];
  for (int k = 0; k < columns; ++k, weights += kPanelRows) {
    const char* const ahead = onward.behind(weights);
    for (size_t i = 0; i < kPanelRows * sizeof(Weight); i += 64) fetch_weights(ahead + i, onward.once);
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
        add_columns<8>(weights, columns, rows.onward, x, stride, out.acc + m), m += 8;
      } else if (left >= 4) {
        add_columns<4>(weights, columns, rows.onward, x, stride, out.acc + m), m += 4;
      } else if (left >= 2) {
        add_columns<2>(weights, columns, rows.onward, x, stride, out.acc + m), m += 2;
      } else {
        add_columns<1>(weights, columns, rows.onward, x, stride, out.acc + m), m += 1;
      }
    }
  }
}

}  // namespace
}  // namespace outpace::avx512vnni
