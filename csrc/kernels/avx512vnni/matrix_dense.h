// Products with weights in f32, f16 and bf16.
#pragma once

#include <immintrin.h>

#include <array>
#include <utility>

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

constexpr int kDenseRows = 8;  // whose sums are in registers together

// `count` rows, over so few columns that further rows find the weights in the cache.
template <int count, class Weight>
void add_columns(const Weight* weights, int columns, const Onward& onward, const float* x, ptrdiff_t stride, PairPs* acc) {
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

template <class Weight, size_t... less_one>
constexpr auto column_functions(std::index_sequence<less_one...>) {
  return std::array{add_columns<int(less_one) + 1, Weight>...};
}

template <class Weight>
void multiply_dense(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  static constexpr auto kAdd = column_functions<Weight>(std::make_index_sequence<kDenseRows>());
  constexpr int kColumns = 64;
  const Weight* weights = reinterpret_cast<const Weight*>(panel);
  const ptrdiff_t stride = rows.x.f32_stride();
  const int parts = (rows.count + kDenseRows - 1) / kDenseRows;  // as even as can be
  for (int k = 0; k < count; k += kColumns, weights += kColumns * kPanelRows) {
    const int columns = count - k < kColumns ? count - k : kColumns;
    for (int part = 0; part < parts; ++part) {
      const int begin = rows.count * part / parts, end = rows.count * (part + 1) / parts;
      kAdd[end - begin - 1](weights, columns, rows.onward, rows.x.f32(rows.first + begin) + k, stride, out.acc + begin);
    }
  }
}

}  // namespace
}  // namespace outpace::avx512vnni
