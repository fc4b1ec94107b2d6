// Elementary functions whose bits are the same on every machine and in every instruction set: only +, -, *, /, square
// root and explicit fused multiply-add, all correctly rounded by IEEE 754, and no function of the C library.
//
// The f32 functions are templates over the lane type: `float`, or a vector type that brings its own overloads of the
// few operations below (lanes.h of an instruction set). One text, hence one result. Everything has internal linkage, so
// that a copy compiled for a newer processor is never linked into code that must run on an older one.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace outpace::numerics {

// Exact to the last bit by definition; a compiler without the instruction calls a software version.
static inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
static inline double fused(double a, double b, double c) { return std::fma(a, b, c); }

// As the processor's maxps and minps: when either operand is NaN, the second one.
static inline float larger(float a, float b) { return a > b ? a : b; }
static inline float smaller(float a, float b) { return a < b ? a : b; }

// Adding and subtracting this rounds |x| < 2^22 to the nearest integer, ties to even.
constexpr float kRounder = 0x1.8p23f;

// x * 2^n for an integer |n| <= 250 and x in [1/2, 2], rounded once: the first product is exact.
static inline float scale(float x, float n) {
  const uint32_t exponent = std::bit_cast<uint32_t>(n + kRounder) - std::bit_cast<uint32_t>(kRounder);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  const auto power = [](uint32_t k) { return std::bit_cast<float>((k + 127u) << 23); };
  return x * power(half) * power(exponent - half);
}

// x * 2^n, rounded = n + kRounder, for x and a result that are normal.
static inline float add_exponent(float x, float rounded) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) + (std::bit_cast<uint32_t>(rounded) << 23));
}

// e^x = 2^n e^r for an integer n, |r| <= ln 2 / 2; e^r by a minimax polynomial.
template <class V>
struct ExpParts {
  V rounded, rest;  // n + kRounder, e^r
};

template <class V>
static inline ExpParts<V> exp_parts(V x) {
  const V rounded = fused(x, V(0x1.715476p+0f), V(kRounder)), n = rounded - V(kRounder);
  V r = fused(n, V(-0x1.62e43p-1f), x);
  r = fused(n, V(0x1.05c61p-29f), r);
  V p = fused(r, V(0x1.6a2434p-10f), V(0x1.1239e2p-7f));
  p = fused(p, r, V(0x1.5558f2p-5f));
  p = fused(p, r, V(0x1.555492p-3f));
  p = fused(p, r, V(0x1.fffffcp-2f));
  p = fused(p, r, V(1.0f));
  p = fused(p, r, V(1.0f));
  return {rounded, p};
}

// e^x, relative error below 1.1e-7 (an ulp at most) where the result is normal; exp(0) is 1 exactly. Infinite above
// 88.72, denormal below -87.33, 0 below -103.98; NaN stays NaN.
template <class V>
static inline V exp(V x) {
  x = larger(V(-104.0f), x);
  x = smaller(V(89.0f), x);
  const ExpParts<V> parts = exp_parts(x);
  return scale(parts.rest, parts.rounded - V(kRounder));
}

// The same bits in half the time for x from here to 0 and a little above, where nothing is denormal.
constexpr float kLeastNormalExp = -87.0f;
template <class V>
static inline V normal_exp(V x) {
  const ExpParts<V> parts = exp_parts(x);
  return add_exponent(parts.rest, parts.rounded);
}

// x / (1 + e^-x), the gate of SwiGLU.
template <class V>
static inline V silu(V x) {
  return x / (V(1.0f) + exp(V(0.0f) - x));
}

// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as x / (1 + e^-2u).
template <class V>
static inline V gelu(V x) {
  const V u = fused(x * x * x, V(0x1.6e4e26p-5f), x);
  return x / (V(1.0f) + exp(u * V(-0x1.9884533p+0f)));
}

// -- f16 -------------------------------------------------------------------------------------------------------------

// Exact; a NaN becomes quiet.
static inline float f16_to_f32(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16;
  const uint32_t exponent = (x >> 10) & 0x1fu, fraction = x & 0x3ffu;
  if (exponent == 0x1fu) {
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

// The nearest f16, ties to even; infinity from 65520 on.
static inline uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^-14 the unit is 2^-24: adding 0.5 leaves the count of units in the low bits
    const float units = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(units) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

// -- f64: for tables computed once ----------------------------------------------------------------------------------

// e^x for |x| < 700, relative error below 4e-16.
static inline double exp(double x) {
  const double n = fused(x, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
  const double r = fused(n, -0x1.abc9e3b39803fp-56, fused(n, -0x1.62e42fefa39efp-1, x));
  double term = 1.0, sum = 0.0;
  double terms[16];
  for (int k = 0; k < 16; ++k) terms[k] = term, term *= r / (k + 1);
  for (int k = 15; k >= 0; --k) sum += terms[k];
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

// ln x for normal x > 0, absolute error below 4e-16 + 2e-16 |ln x|.
static inline double log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | (1023ull << 52));
  if (m > 0x1.6a09e667f3bcdp0) m *= 0.5, ++exponent;  // m in [sqrt(1/2), sqrt(2)]
  const double f = (m - 1.0) / (m + 1.0), f2 = f * f;  // ln m = 2 artanh f
  double series = 0.0;
  for (int k = 25; k >= 3; k -= 2) series = fused(series, f2, 1.0 / k);
  const double ln_m = 2.0 * fused(series * f2, f, f);
  return fused(exponent, 0x1.62e42fefa39efp-1, fused(exponent, 0x1.abc9e3b39803fp-56, ln_m));
}

struct SinCos {
  double sin, cos;
};

// sin x and cos x for |x| < 2^30, absolute error below 2e-16: x = k pi/2 + r with pi/2 in three parts.
static inline SinCos sin_cos(double x) {
  const double k = fused(x, 0x1.45f306dc9c883p-1, 0x1.8p52) - 0x1.8p52;
  double r = fused(k, -0x1.921fb54442d18p+0, x);
  r = fused(k, -0x1.1a62633145c07p-54, r);
  r = fused(k, 0x1.f1976b7ed8fbcp-110, r);
  const double r2 = r * r;
  // Taylor series, nested: sin r = r (1 - r^2/6 (1 - r^2/20 (...))). The first term left out is below 1e-18.
  double sine = 0.0, cosine = 0.0;
  for (int j = 17; j >= 3; j -= 2) sine = (1.0 - sine) * (r2 / (j * (j - 1)));
  for (int j = 18; j >= 2; j -= 2) cosine = (1.0 - cosine) * (r2 / (j * (j - 1)));
  sine = fused(-sine, r, r);
  cosine = 1.0 - cosine;
  switch (static_cast<int64_t>(k) & 3) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
  }
}

}  // namespace outpace::numerics
