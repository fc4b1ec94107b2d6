// Sixteen f32 lanes in two registers, with the operations that numerics.h, vector_body.h and attention_body.h ask of a
// lane type, each the scalar one lane by lane.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "numerics.h"

namespace outpace::avx2 {

// All ones in the first `count` of 8 lanes.
static inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct F32x16 {
  __m256 low, high;
  F32x16() = default;
  F32x16(__m256 low_lanes, __m256 high_lanes) : low(low_lanes), high(high_lanes) {}
  explicit F32x16(float x) : low(_mm256_set1_ps(x)), high(low) {}

  static F32x16 load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
  static F32x16 load(const uint16_t* f16) {
    const __m128i* from = reinterpret_cast<const __m128i*>(f16);
    return {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))};
  }
  // Reads the first `count` only, which may be more than 16 or less than 1; the others are 0, or otherwise's.
  static F32x16 load_first(const float* x, int count) {
    if (count >= 16) return load(x);
    return {_mm256_maskload_ps(x, first_lanes(count)), _mm256_maskload_ps(x + 8, first_lanes(count - 8))};
  }
  static F32x16 load_first_or(const float* x, int count, F32x16 otherwise) {
    const F32x16 first = load_first(x, count);
    return {_mm256_blendv_ps(otherwise.low, first.low, _mm256_castsi256_ps(first_lanes(count))),
            _mm256_blendv_ps(otherwise.high, first.high, _mm256_castsi256_ps(first_lanes(count - 8)))};
  }
  // Each of the first eight twice, side by side.
  static F32x16 load_first_twice(const float* x, int count) {
    const __m256 eight = _mm256_maskload_ps(x, first_lanes(count));
    return {_mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
            _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
};

static inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
static inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
static inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
static inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
static inline F32x16 fused(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
static inline F32x16 fused_minus(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}
static inline F32x16 larger(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
static inline F32x16 smaller(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

// As numerics.h: two powers of two, the first product exact.
static inline __m256 scale(__m256 x, __m256 n) {
  const __m256 rounder = _mm256_set1_ps(numerics::kRounder);
  const __m256i exponent =
      _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(n, rounder)), _mm256_castps_si256(rounder));
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  const auto power = [](__m256i k) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
  };
  return _mm256_mul_ps(_mm256_mul_ps(x, power(half)), power(_mm256_sub_epi32(exponent, half)));
}
static inline F32x16 scale(F32x16 x, F32x16 n) { return {scale(x.low, n.low), scale(x.high, n.high)}; }
static inline __m256 add_exponent(__m256 x, __m256 rounded) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
static inline F32x16 add_exponent(F32x16 x, F32x16 rounded) {
  return {add_exponent(x.low, rounded.low), add_exponent(x.high, rounded.high)};
}

// Whether every lane is; NaN is not.
template <size_t n>
static inline bool all_at_least(const F32x16 (&x)[n], float least) {
  const __m256 bound = _mm256_set1_ps(least);
  __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  for (const F32x16& lanes : x) {
    all = _mm256_and_ps(all, _mm256_cmp_ps(lanes.low, bound, _CMP_GE_OQ));
    all = _mm256_and_ps(all, _mm256_cmp_ps(lanes.high, bound, _CMP_GE_OQ));
  }
  return _mm256_movemask_ps(all) == 0xff;
}

static inline void store(float* y, F32x16 x) {
  _mm256_storeu_ps(y, x.low);
  _mm256_storeu_ps(y + 8, x.high);
}
static inline void store_first(float* y, F32x16 x, int count) {
  if (count >= 16) return store(y, x);
  _mm256_maskstore_ps(y, first_lanes(count), x.low);
  _mm256_maskstore_ps(y + 8, first_lanes(count - 8), x.high);
}
static inline void store_first_f16(uint16_t* y, F32x16 x, int count) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT;
  const __m256i all = _mm256_set_m128i(_mm256_cvtps_ph(x.high, nearest), _mm256_cvtps_ph(x.low, nearest));
  if (count >= 16) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), all);
  std::memcpy(y, &all, 2 * static_cast<size_t>(count));
}

// Of each pair (a, b) of neighbours fma(a, cos, -(b sin)) and fma(a, sin, b cos); c and s have every value twice.
static inline __m256 rotate_pairs(__m256 x, __m256 c, __m256 s) {
  constexpr int odd = 0xaa;
  const __m256 with_a = _mm256_blend_ps(c, s, odd), with_b = _mm256_blend_ps(s, c, odd);
  return _mm256_fmaddsub_ps(_mm256_moveldup_ps(x), with_a, _mm256_mul_ps(_mm256_movehdup_ps(x), with_b));
}
static inline F32x16 rotate_pairs(F32x16 x, F32x16 c, F32x16 s) {
  return {rotate_pairs(x.low, c.low, s.low), rotate_pairs(x.high, c.high, s.high)};
}

// The reduction tree of every sum over lanes: lane i and lane i + 8, then + 4, + 2, + 1.
static inline float sum_of_lanes(F32x16 x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float largest_lane(F32x16 x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace outpace::avx2
