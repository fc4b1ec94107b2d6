// Sixteen f32 lanes with the operations that numerics.h, vector_body.h and attention_body.h ask of a lane type, each
// the scalar one lane by lane.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "numerics.h"

namespace outpace::avx512vnni {

// The first `count` lanes of 16; all of them from 16 on.
static inline __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1u);
}

struct F32x16 {
  __m512 v;
  F32x16() = default;
  F32x16(__m512 lanes) : v(lanes) {}
  explicit F32x16(float x) : v(_mm512_set1_ps(x)) {}

  static F32x16 load(const float* x) { return _mm512_loadu_ps(x); }
  static F32x16 load(const uint16_t* f16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(f16)));
  }
  // Reads the first `count` only, which may be more than 16 or less than 1; the others are 0, or otherwise's.
  static F32x16 load_first(const float* x, int count) { return _mm512_maskz_loadu_ps(first_lanes(count), x); }
  static F32x16 load_first_or(const float* x, int count, F32x16 otherwise) {
    return _mm512_mask_loadu_ps(otherwise.v, first_lanes(count), x);
  }
  // Each of the first eight twice, side by side.
  static F32x16 load_first_twice(const float* x, int count) {
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(twice, load_first(x, count < 8 ? count : 8).v);
  }
};

static inline F32x16 operator+(F32x16 a, F32x16 b) { return _mm512_add_ps(a.v, b.v); }
static inline F32x16 operator-(F32x16 a, F32x16 b) { return _mm512_sub_ps(a.v, b.v); }
static inline F32x16 operator*(F32x16 a, F32x16 b) { return _mm512_mul_ps(a.v, b.v); }
static inline F32x16 operator/(F32x16 a, F32x16 b) { return _mm512_div_ps(a.v, b.v); }
static inline F32x16 fused(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
static inline F32x16 fused_minus(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmsub_ps(a.v, b.v, c.v); }
static inline F32x16 larger(F32x16 a, F32x16 b) { return _mm512_max_ps(a.v, b.v); }
static inline F32x16 smaller(F32x16 a, F32x16 b) { return _mm512_min_ps(a.v, b.v); }
static inline F32x16 scale(F32x16 x, F32x16 n) { return _mm512_scalef_ps(x.v, n.v); }
static inline F32x16 add_exponent(F32x16 x, F32x16 rounded) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(rounded.v), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), exponent));
}

// Whether every lane is; NaN is not.
template <size_t n>
static inline bool all_at_least(const F32x16 (&x)[n], float least) {
  __mmask16 all = 0xffff;
  for (const F32x16& lanes : x) all = _mm512_mask_cmp_ps_mask(all, lanes.v, _mm512_set1_ps(least), _CMP_GE_OQ);
  return all == 0xffff;
}

static inline void store(float* y, F32x16 x) { _mm512_storeu_ps(y, x.v); }
static inline void store_first(float* y, F32x16 x, int count) { _mm512_mask_storeu_ps(y, first_lanes(count), x.v); }
static inline void store_first_f16(uint16_t* y, F32x16 x, int count) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm256_mask_storeu_epi16(y, first_lanes(count), _mm512_cvtps_ph(x.v, nearest));
}

// Of each pair (a, b) of neighbours fma(a, cos, -(b sin)) and fma(a, sin, b cos); c and s have every value twice.
static inline F32x16 rotate_pairs(F32x16 x, F32x16 c, F32x16 s) {
  constexpr __mmask16 odd = 0xaaaa;
  const __m512 with_a = _mm512_mask_mov_ps(c.v, odd, s.v), with_b = _mm512_mask_mov_ps(s.v, odd, c.v);
  return _mm512_fmaddsub_ps(_mm512_moveldup_ps(x.v), with_a, _mm512_mul_ps(_mm512_movehdup_ps(x.v), with_b));
}

// The reduction tree of every sum over lanes: lane i and lane i + 8, then + 4, + 2, + 1.
static inline float sum_of_lanes(F32x16 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float largest_lane(F32x16 x) { return _mm512_reduce_max_ps(x.v); }

}  // namespace outpace::avx512vnni
