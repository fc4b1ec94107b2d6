// Products with F32, F16 and BF16 weights.
#pragma once

#include "kernels/avx2/tile.h"

namespace outpace {
namespace {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

inline __m256 load_dense(const float* column) { return _mm256_load_ps(column); }

inline __m256 load_dense(const F16* column) { return load_f16(&column->bits); }

inline __m256 load_dense(const Bf16* column) {
  const __m128i bits = _mm_load_si128(reinterpret_cast<const __m128i*>(column));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <class Weight>
void multiply_dense(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  constexpr int kColumns = 64;  // so few that the next rows find the weights in the cache
  struct Stretch {
    Weight weights[kColumns][kPanelRows];
  };
  const Stretch* stretch = reinterpret_cast<const Stretch*>(panel);
  const ptrdiff_t stride = rows.x.f32_stride();
  for (int k = 0; k < count; k += kColumns, ++stretch) {
    const int columns = count - k < kColumns ? count - k : kColumns;
    Lines<0> lines(*stretch, rows.onward, 0, 1, tiles(rows.count));
    in_tiles(rows.count, lines, [&]<int R, int N>(int m, int v) __attribute__((always_inline)) {
      const float* x = rows.x.f32(rows.first + m) + k;
      __m256 sums[R][N];
      for (int i = 0; i < R; ++i) {
        for (int n = 0; n < N; ++n) sums[i][n] = out.acc[m + i][v + n];
      }
      for (int c = 0; c < columns; ++c) {
        __m256 w[N];
        for (int n = 0; n < N; ++n) w[n] = load_dense(stretch->weights[c] + 8 * (v + n));
        for (int i = 0; i < R; ++i) {
          const __m256 factor = _mm256_set1_ps(x[i * stride + c]);
          for (int n = 0; n < N; ++n) sums[i][n] = _mm256_fmadd_ps(w[n], factor, sums[i][n]);
        }
      }
      for (int i = 0; i < R; ++i) {
        for (int n = 0; n < N; ++n) out.acc[m + i][v + n] = sums[i][n];
      }
    });
  }
}

}  // namespace
}  // namespace outpace
