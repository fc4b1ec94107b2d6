// A tile of activations that meets a block of weights, and the arithmetic of its outputs.
#pragma once

#include <immintrin.h>

#include "kernels/ahead.h"
#include "kernels/avx512vnni/matrix_panels.h"
#include "matrix.h"

namespace outpace::avx512vnni {
namespace {

struct Rows {  // of one tile of the activations
  const Activations& x;
  int first, count;
  Onward onward;
};

struct alignas(64) Outputs {
  PairPs acc[kRowTile];
};

inline PairPs operator*(PairPs a, __m512 b) { return {_mm512_mul_ps(a.low, b), _mm512_mul_ps(a.high, b)}; }

inline PairPs operator*(PairPs a, PairPs b) { return {_mm512_mul_ps(a.low, b.low), _mm512_mul_ps(a.high, b.high)}; }

inline PairPs fused(PairPs a, PairPs b, PairPs c) {
  return {_mm512_fmadd_ps(a.low, b.low, c.low), _mm512_fmadd_ps(a.high, b.high, c.high)};
}

inline PairPs fused(PairPs a, __m512 b, PairPs c) {
  return {_mm512_fmadd_ps(a.low, b, c.low), _mm512_fmadd_ps(a.high, b, c.high)};
}

}  // namespace
}  // namespace outpace::avx512vnni
