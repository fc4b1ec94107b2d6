// The text of the sampler's passes, included once by each instruction set's own file. Vectors of 512 bits are the
// compiler's own, which it splits where registers are smaller: lane by lane the same operations, hence the same bits.
// Internal linkage throughout.
#pragma once

#include <array>
#include <cstring>
#include <limits>

#include "sampler_passes.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace outpace::sampling {
namespace {

using F32x16 = float __attribute__((vector_size(64)));
using I8x16 = int8_t __attribute__((vector_size(16)));
using I32x16 = int32_t __attribute__((vector_size(64)));
using F32x8 = float __attribute__((vector_size(32)));
using F64x8 = double __attribute__((vector_size(64)));
using I64x8 = int64_t __attribute__((vector_size(64)));
using U64x8 = uint64_t __attribute__((vector_size(64)));

template <class V>
inline V load(const float* x) {
  V v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

inline F32x16 larger(const F32x16& a, const F32x16& b) { return a > b ? a : b; }

inline float largest_lane(const F32x16& lanes) {
  F32x16 x = lanes;
  x = larger(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  x = larger(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  x = larger(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  return x[0] > x[1] ? x[0] : x[1];
}

// Runs f(logits, offset) on every block of 64; the last one, if short, on a copy padded with -inf.
template <class F>
inline void for_each_block(const float* row, int64_t n, F f) {
  int64_t at = 0;
  for (; at + kSamplerBlock <= n; at += kSamplerBlock) f(row + at, at);
  if (at == n) return;
  float padded[kSamplerBlock];
  for (int i = 0; i < kSamplerBlock; ++i) {
    padded[i] = at + i < n ? row[at + i] : -std::numeric_limits<float>::infinity();
  }
  f(padded, at);
}

void masked(const float* row, const uint32_t* mask, int64_t n, float* out) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  const I32x16 lanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  int64_t at = 0;
  for (; at + 16 <= n; at += 16) {
    const int32_t bits = static_cast<int32_t>(mask[at >> 5] >> (at & 16) & 0xffffu);
    const F32x16 kept = ((bits >> lanes) & 1) != 0 ? load<F32x16>(row + at) : F32x16{} + none;
    std::memcpy(out + at, &kept, sizeof kept);
  }
  for (; at < n; ++at) out[at] = mask[at >> 5] >> (at & 31) & 1 ? row[at] : none;
}

bool block_maxima(const float* row, int64_t n, float* maxima) {
  I32x16 nan{};
  for_each_block(row, n, [&](const float* logits, int64_t at) {
    const auto a = load<F32x16>(logits), b = load<F32x16>(logits + 16);
    const auto c = load<F32x16>(logits + 32), d = load<F32x16>(logits + 48);
    nan |= (a != a) | (b != b) | (c != c) | (d != d);
    maxima[at / kSamplerBlock] = largest_lane(larger(larger(a, b), larger(c, d)));
  });
  int32_t any = 0;
  for (int lane = 0; lane < 16; ++lane) any |= nan[lane];
  return any == 0;
}

inline F64x8 widened(const float* logits) {
#ifdef __AVX512F__  // one instruction, of which gcc makes five
  return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(logits));
#else
  return __builtin_convertvector(load<F32x8>(logits), F64x8);
#endif
}

// The weights of 8 logits plus 2^52.
inline F64x8 shifted_weights(const float* logits, double largest, double log2_scale) {
  const F64x8 x = (widened(logits) - largest) * log2_scale;
  const F64x8 shifted = exp2<F64x8, U64x8>(x) * kUnitWeight + kRoundWeight;
  const F64x8 none = F64x8{} + kRoundWeight;
  return x > kLowestExponent ? shifted : none;
}

// (logit - largest) log2_scale of 16 logits in float32; halves cannot overflow, which a huge temperature would undo.
inline F32x16 scaled_log2(const float* logits, float largest, double log2_scale) {
  return (load<F32x16>(logits) * 0.5f - largest * 0.5f) * static_cast<float>(2 * log2_scale);
}

// Of an exponent x above -46 the three roundings leave 46 * 3 * 2^-24, and the polynomial is off by 3e-7.
double approximate_sum(const float* row, int64_t n, float largest, double log2_scale) {
  constexpr float round = 0x1.8p23f;
  F64x8 sums{};
  for_each_block(row, n, [&](const float* logits, int64_t) {
    F32x16 sum{};
    for (int i = 0; i < kSamplerBlock; i += 16) {
      const F32x16 x = larger(scaled_log2(logits + i, largest, log2_scale), F32x16{} - 126.0f);
      const F32x16 shifted = x + round;
      const F32x16 f = x - (shifted - round);
      F32x16 series = f * 0x1.5f089p-10f + 0x1.3d107p-7f;
      series = series * f + 0x1.c6af6cp-5f;
      series = series * f + 0x1.ebf906p-3f;
      series = series * f + 0x1.62e43p-1f;
      series = series * f + 0x1.000002p+0f;
      sum += std::bit_cast<F32x16>(std::bit_cast<I32x16>(series) + (std::bit_cast<I32x16>(shifted) << 23));
    }
    float lanes[16];
    std::memcpy(lanes, &sum, sizeof lanes);
    sums += widened(lanes) + widened(lanes + 8);
  });
  double total = 0;
  for (int lane = 0; lane < 8; ++lane) total += sums[lane];
  return total;
}

int64_t total_weight(const float* row, int64_t n, float largest, double log2_scale) {
  I64x8 sums{};
  for_each_block(row, n, [&](const float* logits, int64_t) {
    for (int i = 0; i < kSamplerBlock; i += 8) {
      const F64x8 shifted = shifted_weights(logits + i, static_cast<double>(largest), log2_scale);
      sums += std::bit_cast<I64x8>(shifted) - std::bit_cast<int64_t>(kRoundWeight);
    }
  });
  int64_t total = 0;
  for (int lane = 0; lane < 8; ++lane) total += sums[lane];
  return total;
}

void weights(const float* logits, int64_t n, float largest, double log2_scale, int64_t* out) {
  for_each_block(logits, n, [&](const float* block, int64_t at) {
    const int64_t left = n - at < kSamplerBlock ? n - at : kSamplerBlock;
    I64x8 found[kSamplerBlock / 8];
    for (int i = 0; i < kSamplerBlock / 8; ++i) {
      const F64x8 shifted = shifted_weights(block + 8 * i, static_cast<double>(largest), log2_scale);
      found[i] = std::bit_cast<I64x8>(shifted) - std::bit_cast<int64_t>(kRoundWeight);
    }
    std::memcpy(out + at, found, static_cast<size_t>(left) * sizeof(int64_t));
  });
}

void divided_weights(const float* row, int64_t n, float largest, double log2_scale, double total, double* out) {
  for_each_block(row, n, [&](const float* logits, int64_t at) {
    F64x8 block[kSamplerBlock / 8];
    for (int i = 0; i < kSamplerBlock / 8; ++i) {
      const F64x8 shifted = shifted_weights(logits + 8 * i, static_cast<double>(largest), log2_scale);
      block[i] = (shifted - kRoundWeight) / total;
    }
    const int64_t left = n - at < kSamplerBlock ? n - at : kSamplerBlock;
    std::memcpy(out + at, block, static_cast<size_t>(left) * sizeof(double));
  });
}

// Bit i = whether lane i of 64 is not 0 (all ones).
inline uint64_t mask_of(const I32x16 (&lanes)[4]) {
  uint64_t mask = 0;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const auto bytes = std::bit_cast<std::array<uint64_t, 2>>(__builtin_convertvector(lanes[quarter], I8x16));
    for (int half = 0; half < 2; ++half) {
      // Bit i of byte i, added up in the top byte.
      const uint64_t bits = ((bytes[half] & 0x8040201008040201u) * 0x0101010101010101u) >> 56;
      mask |= bits << (16 * quarter + 8 * half);
    }
  }
  return mask;
}

uint64_t at_least(const float* logits, float from) {
  I32x16 lanes[4];
  for (int quarter = 0; quarter < 4; ++quarter) lanes[quarter] = load<F32x16>(logits + 16 * quarter) >= from;
  return mask_of(lanes);
}

// For 64 tokens with bounds on their noise: bit i = whether token i could reach `best`.
inline uint64_t which_could_reach(const float* logits, const float* bounds, float largest, double log2_scale,
                                  double best) {
  const float best_log2 = static_cast<float>(best * kLog2E);
  I32x16 lanes[4];
  for (int quarter = 0; quarter < 4; ++quarter) {
    const F32x16 x_log2 = scaled_log2(logits + 16 * quarter, largest, log2_scale);
    lanes[quarter] = could_reach(x_log2, load<F32x16>(bounds + 16 * quarter), best_log2);
  }
  return mask_of(lanes);
}

// 16 counters at a time: word w of lane i belongs to token 4 i + w.
uint64_t contenders(const float* logits, uint32_t block, const NoiseKey& key, float largest, double log2_scale,
                    double best) {
  constexpr int kCounters = kSamplerBlock / 4;
  uint32_t words[4][kCounters];
  for (int i = 0; i < kCounters; ++i) {
    uint32_t out[4];
    philox(block * kCounters + static_cast<uint32_t>(i), key, out);
    for (int word = 0; word < 4; ++word) words[word][i] = out[word];
  }
  float bounds[kSamplerBlock];
  for (int i = 0; i < kCounters; ++i) {
    for (int word = 0; word < 4; ++word) bounds[4 * i + word] = log2_tail_bound(words[word][i]);
  }
  return which_could_reach(logits, bounds, largest, log2_scale, best);
}

uint64_t contenders_among(const float* logits, const uint32_t* ids, const NoiseKey& key, float largest,
                          double log2_scale, double best) {
  float bounds[kSamplerBlock];
  for (int i = 0; i < kSamplerBlock; ++i) {
    uint32_t out[4];
    philox(ids[i] >> 2, key, out);
    const uint32_t even = ids[i] & 2 ? out[2] : out[0], odd = ids[i] & 2 ? out[3] : out[1];
    bounds[i] = log2_tail_bound(ids[i] & 1 ? odd : even);
  }
  return which_could_reach(logits, bounds, largest, log2_scale, best);
}

constexpr SamplerPasses kPasses{masked,          block_maxima, approximate_sum, total_weight,    weights,
                                divided_weights, at_least,     contenders,      contenders_among};

}  // namespace
}  // namespace outpace::sampling
