// Sixteen f32 lanes with the operations that numerics.h asks of a lane type, each the scalar one lane by lane.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "numerics.h"

namespace outpace::avx512vnni {

struct F32x16 {
  __m512 v;
  F32x16() = default;
  F32x16(__m512 lanes) : v(lanes) {}
  explicit F32x16(float x) : v(_mm512_set1_ps(x)) {}
};

static inline F32x16 operator+(F32x16 a, F32x16 b) { return _mm512_add_ps(a.v, b.v); }
static inline F32x16 operator-(F32x16 a, F32x16 b) { return _mm512_sub_ps(a.v, b.v); }
static inline F32x16 operator*(F32x16 a, F32x16 b) { return _mm512_mul_ps(a.v, b.v); }
static inline F32x16 operator/(F32x16 a, F32x16 b) { return _mm512_div_ps(a.v, b.v); }
static inline F32x16 fused(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
static inline F32x16 larger(F32x16 a, F32x16 b) { return _mm512_max_ps(a.v, b.v); }
static inline F32x16 smaller(F32x16 a, F32x16 b) { return _mm512_min_ps(a.v, b.v); }
static inline F32x16 scale(F32x16 x, F32x16 n) { return _mm512_scalef_ps(x.v, n.v); }

// The first `count` lanes of 16; all of them from 16 on.
static inline __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1u);
}

static inline F32x16 load(const float* x) { return _mm512_loadu_ps(x); }
static inline F32x16 load(const float* x, __mmask16 lanes) { return _mm512_maskz_loadu_ps(lanes, x); }  // others 0
static inline F32x16 load(const uint16_t* f16) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(f16)));
}
static inline void store(float* y, F32x16 x) { _mm512_storeu_ps(y, x.v); }
static inline void store(float* y, F32x16 x, __mmask16 lanes) { _mm512_mask_storeu_ps(y, lanes, x.v); }

// The reduction tree of every sum over lanes: lane i and lane i + 8, then + 4, + 2, + 1.
static inline float sum_of_lanes(F32x16 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float largest_lane(F32x16 x) { return _mm512_reduce_max_ps(x.v); }

}  // namespace outpace::avx512vnni
