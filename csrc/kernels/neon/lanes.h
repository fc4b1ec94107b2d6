// Sixteen f32 lanes in four registers, with the operations that numerics.h, vector_body.h and attention_body.h ask of a
// lane type, each the scalar one lane by lane.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "numerics.h"

namespace outpace::neon {

struct F32x16 {
  float32x4_t v[4];
  F32x16() = default;
  explicit F32x16(float x) : v{vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)} {}

  static F32x16 load(const float* x) {
    F32x16 all;
    for (int i = 0; i < 4; ++i) all.v[i] = vld1q_f32(x + 4 * i);
    return all;
  }
  static F32x16 load(const uint16_t* f16) {
    F32x16 all;
    for (int i = 0; i < 4; ++i) all.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(f16 + 4 * i)));
    return all;
  }
  // Reads the first `count` only, which may be more than 16 or less than 1; the others are 0, or otherwise's.
  static F32x16 load_first(const float* x, int count) { return load_first_or(x, count, F32x16(0.0f)); }
  static F32x16 load_first_or(const float* x, int count, F32x16 otherwise) {
    if (count >= 16) return load(x);
    if (count > 0) std::memcpy(otherwise.v, x, sizeof(float) * static_cast<size_t>(count));
    return otherwise;
  }
  // Each of the first eight twice, side by side.
  static F32x16 load_first_twice(const float* x, int count) {
    const F32x16 eight = load_first(x, count < 8 ? count : 8);
    F32x16 twice;
    for (int i = 0; i < 2; ++i) {
      twice.v[2 * i] = vzip1q_f32(eight.v[i], eight.v[i]);
      twice.v[2 * i + 1] = vzip2q_f32(eight.v[i], eight.v[i]);
    }
    return twice;
  }
};

template <class Operation>
static inline F32x16 each(Operation operation, const F32x16& a, const F32x16& b) {
  F32x16 all;
  for (int i = 0; i < 4; ++i) all.v[i] = operation(a.v[i], b.v[i]);
  return all;
}

static inline F32x16 operator+(F32x16 a, F32x16 b) { return each([](auto x, auto y) { return vaddq_f32(x, y); }, a, b); }
static inline F32x16 operator-(F32x16 a, F32x16 b) { return each([](auto x, auto y) { return vsubq_f32(x, y); }, a, b); }
static inline F32x16 operator*(F32x16 a, F32x16 b) { return each([](auto x, auto y) { return vmulq_f32(x, y); }, a, b); }
static inline F32x16 operator/(F32x16 a, F32x16 b) { return each([](auto x, auto y) { return vdivq_f32(x, y); }, a, b); }
static inline F32x16 fused(F32x16 a, F32x16 b, F32x16 c) {
  for (int i = 0; i < 4; ++i) c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
  return c;
}
static inline F32x16 fused_minus(F32x16 a, F32x16 b, F32x16 c) {
  for (int i = 0; i < 4; ++i) c.v[i] = vfmaq_f32(vnegq_f32(c.v[i]), a.v[i], b.v[i]);
  return c;
}
// The second operand where either is NaN, unlike the instructions for maximum and minimum.
static inline F32x16 larger(F32x16 a, F32x16 b) {
  return each([](auto x, auto y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }, a, b);
}
static inline F32x16 smaller(F32x16 a, F32x16 b) {
  return each([](auto x, auto y) { return vbslq_f32(vcltq_f32(x, y), x, y); }, a, b);
}

// As numerics.h: two powers of two, the first product exact.
static inline F32x16 scale(F32x16 x, F32x16 n) {
  const auto power = [](int32x4_t k) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23)); };
  const float32x4_t rounder = vdupq_n_f32(numerics::kRounder);
  for (int i = 0; i < 4; ++i) {
    const int32x4_t bits = vreinterpretq_s32_f32(vaddq_f32(n.v[i], rounder));
    const int32x4_t exponent = vsubq_s32(bits, vreinterpretq_s32_f32(rounder)), half = vshrq_n_s32(exponent, 1);
    x.v[i] = vmulq_f32(vmulq_f32(x.v[i], power(half)), power(vsubq_s32(exponent, half)));
  }
  return x;
}

static inline F32x16 add_exponent(F32x16 x, F32x16 rounded) {
  for (int i = 0; i < 4; ++i) {
    const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(rounded.v[i]), 23);
    x.v[i] = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.v[i]), exponent));
  }
  return x;
}

// Whether every lane is; NaN is not.
template <size_t n>
static inline bool all_at_least(const F32x16 (&x)[n], float least) {
  uint32x4_t all = vdupq_n_u32(~0u);
  for (const F32x16& lanes : x) {
    for (const float32x4_t& four : lanes.v) all = vandq_u32(all, vcgeq_f32(four, vdupq_n_f32(least)));
  }
  return vminvq_u32(all) != 0;
}

static inline void store(float* y, F32x16 x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(y + 4 * i, x.v[i]);
}
static inline void store_first(float* y, F32x16 x, int count) {
  if (count >= 16) return store(y, x);
  if (count > 0) std::memcpy(y, x.v, sizeof(float) * static_cast<size_t>(count));
}
static inline void store_first_f16(uint16_t* y, F32x16 x, int count) {
  uint16_t all[16];
  for (int i = 0; i < 4; ++i) vst1_u16(all + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
  std::memcpy(y, all, sizeof(uint16_t) * static_cast<size_t>(count < 16 ? count : 16));
}

// Of each pair (a, b) of neighbours fma(a, cos, -(b sin)) and fma(a, sin, b cos); c and s have every value twice.
static inline F32x16 rotate_pairs(F32x16 x, F32x16 c, F32x16 s) {
  for (int i = 0; i < 4; ++i) {
    const float32x4_t a = vtrn1q_f32(x.v[i], x.v[i]), b = vtrn2q_f32(x.v[i], x.v[i]);
    const float32x4_t first = vfmaq_f32(vnegq_f32(vmulq_f32(b, s.v[i])), a, c.v[i]);
    const float32x4_t second = vfmaq_f32(vmulq_f32(b, c.v[i]), a, s.v[i]);
    x.v[i] = vtrn1q_f32(first, second);
  }
  return x;
}

// The reduction tree of every sum over lanes: lane i and lane i + 8, then + 4, + 2, + 1.
static inline float sum_of_lanes(F32x16 x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

static inline float largest_lane(F32x16 x) {
  float lanes[16];
  store(lanes, x);
  float largest = lanes[0];
  for (const float lane : lanes) largest = numerics::larger(lane, largest);
  return largest;
}

}  // namespace outpace::neon
