// Dots of 8-bit values and activations: with the dot product, four inputs of four output rows for one row of
// activations an instruction; with the 8-bit matrix product (i8mm), eight inputs of two output rows for two.
#pragma once

#include <arm_neon.h>

#include "kernels/neon/panels.h"

namespace outpace {
namespace {

// Integers of R rows of activations by 4 N outputs.
template <int R, int N>
struct Grid {
  int32x4_t of[R][N];
};

#ifdef __ARM_FEATURE_MATMUL_INT8

// Rows in pairs: [row 0 of two outputs, row 1 of the same two], turned round at the end.
template <int first, int last, int R, int N>
inline void add_row_pairs(const Steps& steps, int v, const int8_t* q, Grid<R, N>& sums) {
  for (int s = first; s < last; s += 2) {
    int8x16_t rows[R / 2];
    for (int m = 0; m < R; m += 2) {
      rows[m / 2] = vcombine_s8(vld1_s8(q + m * kBlock + 4 * s), vld1_s8(q + (m + 1) * kBlock + 4 * s));
    }
    for (int n = 0; n < N; ++n) {
      const int32x4_t even = vreinterpretq_s32_s8(steps.of[s][v + n]), odd = vreinterpretq_s32_s8(steps.of[s + 1][v + n]);
      const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(even, odd)), high = vreinterpretq_s8_s32(vzip2q_s32(even, odd));
      for (int m = 0; m < R; m += 2) {
        sums.of[m][n] = vmmlaq_s32(sums.of[m][n], low, rows[m / 2]);
        sums.of[m + 1][n] = vmmlaq_s32(sums.of[m + 1][n], high, rows[m / 2]);
      }
    }
  }
  for (int m = 0; m < R; m += 2) {
    for (int n = 0; n < N; ++n) {
      const int32x4_t low = sums.of[m][n], high = sums.of[m + 1][n];
      sums.of[m][n] = vuzp1q_s32(low, high);
      sums.of[m + 1][n] = vuzp2q_s32(low, high);
    }
  }
}

#endif

// Steps [first, last) of outputs 4 v to 4 (v + N) and R rows of activations, q [R][32].
template <int first, int last, int R, int N>
inline Grid<R, N> dots(const Steps& steps, int v, const int8_t* q) {
  Grid<R, N> sums;
  for (auto& row : sums.of) {
    for (int32x4_t& sum : row) sum = vdupq_n_s32(0);
  }
#ifdef __ARM_FEATURE_MATMUL_INT8
  if constexpr (R % 2 == 0) {
    add_row_pairs<first, last>(steps, v, q, sums);
    return sums;
  }
#endif
  for (int s = first; s < last; ++s) {
    for (int m = 0; m < R; ++m) {
      const int8x16_t four = vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(q + m * kBlock + 4 * s)));
      for (int n = 0; n < N; ++n) sums.of[m][n] = vdotq_s32(sums.of[m][n], steps.of[s][v + n], four);
    }
  }
  return sums;
}

}  // namespace
}  // namespace outpace
