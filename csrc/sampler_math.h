// What src/outpace/numerics.py and noise.py define, operation for operation: float64 2^x and ln x without fused
// multiply-adds, and Philox4x32-10. Internal linkage, since each instruction set compiles its own copy.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector crosses a function that is not inlined
#endif

namespace outpace::sampling {

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kRound = 0x1.8p52;  // adding it rounds a number below 2^51 to an integer

constexpr int kWeightBits = 44;
constexpr double kUnitWeight = 0x1p44;
constexpr double kRoundWeight = 0x1p52;    // adding it leaves a weight, rounded, in the low bits
constexpr double kLowestExponent = -64.0;  // 2^-64 2^44 rounds to 0, as everything below does

// 2^x for -1022 <= x < 1023.5; T is double, or a vector of doubles whose bits a vector U holds.
template <class T, class U>
static inline T exp2(const T& x) {
  const T shifted = x + kRound;
  const T f = x - (shifted - kRound);
  const T z = f * f;
  T even = z * 0x1.e9cf6bae28dfap-32 + 0x1.b524fd8aaaf5bp-24;
  T odd = z * 0x1.e60651f100284p-28 + 0x1.62bfd46e250c2p-20;
  even = even * z + 0x1.ffcbfc65fcd1ap-17;
  odd = odd * z + 0x1.4309130972919p-13;
  even = even * z + 0x1.5d87fe78a5555p-10;
  odd = odd * z + 0x1.3b2ab6fba1dd5p-7;
  even = even * z + 0x1.c6b08d704a0c1p-5;
  odd = odd * z + 0x1.ebfbdff82c598p-3;
  even = even * z + 0x1.62e42fefa39efp-1;
  const T near_one = 1.0 + f * (even + f * odd);
  const U exponent = std::bit_cast<U>(shifted) - std::bit_cast<uint64_t>(kRound) + uint64_t{1023};
  return near_one * std::bit_cast<T>(exponent << 52);
}

// ln x for normal positive x.
static inline double log(double x) {
  constexpr int64_t one = std::bit_cast<int64_t>(1.0), sqrt_half = std::bit_cast<int64_t>(0x1.6a09e667f3bcdp-1);
  const int64_t offset = std::bit_cast<int64_t>(x) + (one - sqrt_half);
  const double n = static_cast<double>((offset >> 52) - 1023);
  const double m = std::bit_cast<double>((offset & ((int64_t{1} << 52) - 1)) + sqrt_half);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = z * (2.0 / 21.0) + 2.0 / 19.0;
  series = series * z + 2.0 / 17.0;
  series = series * z + 2.0 / 15.0;
  series = series * z + 2.0 / 13.0;
  series = series * z + 2.0 / 11.0;
  series = series * z + 2.0 / 9.0;
  series = series * z + 2.0 / 7.0;
  series = series * z + 2.0 / 5.0;
  series = series * z + 2.0 / 3.0;
  return n * kLn2High + (f - (s * (f - z * series) - n * kLn2Low));
}

// round(2^44 2^x), ties to even, for x <= 0.
static inline int64_t weight(double x) {
  if (!(x > kLowestExponent)) return 0;
  const double rounded = exp2<double, uint64_t>(x) * kUnitWeight + kRoundWeight;
  return std::bit_cast<int64_t>(rounded) - std::bit_cast<int64_t>(kRoundWeight);
}

// The key and the last three counter words of Philox; noise.py says what they hold. The first word is the block.
struct NoiseKey {
  uint64_t seed;
  uint32_t place, node, choice_and_purpose;
};

static inline void philox(uint32_t block, const NoiseKey& key, uint32_t out[4]) {
  uint32_t c0 = block, c1 = key.place, c2 = key.node, c3 = key.choice_and_purpose;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// -ln u of a token at a place, u in (0, 1): as noise.py's keyed_exponential. The purpose after a Gumbel purpose holds
// the low bits.
static inline double exponential(uint32_t token, const NoiseKey& key) {
  NoiseKey low_key = key;
  ++low_key.choice_and_purpose;
  uint32_t high[4], low[4];
  philox(token >> 2, key, high);
  philox(token >> 2, low_key, low);
  const uint64_t k = uint64_t{high[token & 3]} << 20 | low[token & 3] >> 12;
  return -log((static_cast<double>(k) + 0.5) * 0x1p-52);
}

// A number below the base-2 logarithm of 1 - u for every u whose top 32 bits are `high`, by at most 0.09: what a chord
// of the logarithm gives. Gumbel noise -ln(-ln u) is below -ln(1 - u), so it is less than -ln 2 times this.
static inline float log2_tail_bound(uint32_t high) {
  const int32_t half = static_cast<int32_t>(~high >> 1);
  return static_cast<float>(std::bit_cast<int32_t>(static_cast<float>(half))) * 0x1p-23f - (127.0f + 31.0f);
}

// Whether a token with this x, in log base 2, could still reach `best`. The margin covers float32's rounding for x and
// best within 64 of 0: yes too often by a few in a hundred, never no wrongly.
template <class T>
static inline auto could_reach(const T& x_log2, const T& tail_bound, float best_log2) {
  return x_log2 - tail_bound > best_log2 - 1e-3f;
}

}  // namespace outpace::sampling
