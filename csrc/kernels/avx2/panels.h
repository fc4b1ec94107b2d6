// Blocks of weight panels as the dot instructions read them. A new format is one `unpack`, and an offset if its codes
// have one.
#pragma once

#include <type_traits>

#include "kernels/avx2/dots.h"

namespace outpace {
namespace {

inline __m256 load_f16(const uint16_t* f16) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(f16)));
}

inline __m256i bits_of(__m256i bytes, int shift, int count) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8(static_cast<char>((1 << count) - 1)));
}

// -- codes that are taken out of a panel as they are needed --------------------------------------------------------------

struct Nibbles {
  const uint8_t (&bytes)[4][kStepBytes];
  void pair_at(int step, int v, __m256i& low, __m256i& high) const {
    const __m256i both = load(bytes[step] + 32 * v);
    low = bits_of(both, 0, 4);
    high = bits_of(both, 4, 4);
  }
};

struct Twos {
  const uint8_t (&bytes)[2][kStepBytes];
  __m256i at(int step, int v) const { return bits_of(load(bytes[step / 4] + 32 * v), step % 4 * 2, 2); }
};

struct Sixes {
  const uint8_t (&bytes)[2][3][kStepBytes];
  __m256i at(int step, int v) const {
    const auto of_three = [&](int s) { return load(bytes[step / 4][s] + 32 * v); };
    if (step % 4 < 3) return bits_of(of_three(step % 4), 0, 6);
    const __m256i low = bits_of(of_three(0), 6, 2);
    const __m256i middle = _mm256_and_si256(_mm256_srli_epi16(of_three(1), 4), _mm256_set1_epi8(0x0c));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(of_three(2), 2), _mm256_set1_epi8(0x30));
    return _mm256_or_si256(low, _mm256_or_si256(middle, high));
  }
};

// The step that is spread over the other three comes first, and those are loaded again: there are no registers to keep
// them in.
template <int first, int last, int R, int N, int known_rows>
[[gnu::always_inline]] inline void add_steps(const Sixes& codes, int v, const int8_t* q, const Lines<known_rows>& lines,
                                             Grid<R, N>& sums) {
  static_assert(last - first == kSteps / 2);
  q = afresh(q);
  lines.begin_step(first, kSteps);
  add_step(codes, last - 1, v, q, sums);
  reload();
  each_step<first, last - 1>([&]<int s>() __attribute__((always_inline)) {
    lines.begin_step(s + 1, kSteps);
    add_step(codes, s, v, q, sums);
  });
}

struct Bytes {
  const uint8_t (&bytes)[kSteps][kStepBytes];
  __m256i at(int step, int v) const { return load(bytes[step] + 32 * v); }
};

// Codes of 8 bits whose value is 128 less, with their sign.
struct SignedBytes {
  const uint8_t (&bytes)[kSteps][kStepBytes];
  __m256i values_at(int step, int v) const {
    return _mm256_xor_si256(load(bytes[step] + 32 * v), _mm256_set1_epi8(static_cast<char>(0x80)));
  }
  __m256i magnitudes_at(int step, int v) const { return _mm256_abs_epi8(values_at(step, v)); }
};

struct SignedSteps {
  Steps values, magnitudes;
  __m256i values_at(int step, int v) const { return values.at(step, v); }
  __m256i magnitudes_at(int step, int v) const { return magnitudes.at(step, v); }
};

// -- unpacking ----------------------------------------------------------------------------------------------------------

template <class Codes>
inline void unpack_codes(const Codes& codes, Steps& steps) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    for (int v = 0; v < kVectors; ++v) steps.of[s][v] = codes.at(s, v);
  }
}

inline void unpack_codes(const Nibbles& codes, Steps& steps) {
  for (int s = 0; s < kSteps / 2; ++s) {
    for (int v = 0; v < kVectors; ++v) codes.pair_at(s, v, steps.of[s][v], steps.of[s + kSteps / 2][v]);
  }
}

inline void unpack_codes(const SignedBytes& codes, SignedSteps& steps) {
  for (int s = 0; s < kSteps; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      steps.values.of[s][v] = codes.values_at(s, v);
      steps.magnitudes.of[s][v] = codes.magnitudes_at(s, v);
    }
  }
}

// Adds `value` to the codes whose bit is set.
inline void add_bits(const uint8_t (&bits)[kSteps][kStepBytes / 8], char value, Steps& steps) {
  const __m256i byte_of =
      _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  for (int s = 0; s < kSteps; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(broadcast(bits[s] + 4 * v), byte_of), bit_of);
      const __m256i added = _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit_of), _mm256_set1_epi8(value));
      steps.of[s][v] = _mm256_or_si256(steps.of[s][v], added);
    }
  }
}

// kIq4Values, `more` higher.
inline void unpack_places(const uint8_t (&nibbles)[4][kStepBytes], int more, Steps& steps) {
  unpack_codes(Nibbles{nibbles}, steps);
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Values));
  const __m256i table = _mm256_broadcastsi128_si256(_mm_add_epi8(values, _mm_set1_epi8(static_cast<char>(more))));
  for (auto& step : steps.of) {
    for (__m256i& places : step) places = _mm256_shuffle_epi8(table, places);
  }
}

inline void unpack_places(const uint8_t (&nibbles)[4][kStepBytes], Steps& steps) {
  unpack_places(nibbles, 128, steps);
}
inline void unpack_places(const uint8_t (&nibbles)[4][kStepBytes], SignedSteps& steps) {
  unpack_places(nibbles, 0, steps.values);
  for (int s = 0; s < kSteps; ++s) {
    for (int v = 0; v < kVectors; ++v) steps.magnitudes.of[s][v] = _mm256_abs_epi8(steps.values.of[s][v]);
  }
}

// -- blocks of 32 -----------------------------------------------------------------------------------------------------

inline void unpack(const PanelQ5_0& block, Steps& steps) {
  unpack_codes(Nibbles{block.nibbles}, steps);
  add_bits(block.fifth_bits, 16, steps);
}

inline void unpack(const PanelQ5_1& block, Steps& steps) {
  unpack_codes(Nibbles{block.nibbles}, steps);
  add_bits(block.fifth_bits, 16, steps);
}

template <class AnySteps>
inline void unpack(const PanelIQ4_NL& block, AnySteps& steps) {
  unpack_places(block.nibbles, steps);
}

// -- super-blocks -----------------------------------------------------------------------------------------------------

inline void unpack(const PanelQ3_K& block, int j, Steps& steps) {
  unpack_codes(Twos{block.twos[j]}, steps);
  add_bits(block.third_bits[j], 4, steps);
}

inline void unpack(const PanelQ5_K& block, int j, Steps& steps) {
  unpack_codes(Nibbles{block.nibbles[j]}, steps);
  add_bits(block.fifth_bits[j], 16, steps);
}

template <class AnySteps>
inline void unpack(const PanelIQ4_XS& block, int j, AnySteps& steps) {
  unpack_places(block.nibbles[j], steps);
}

// -- how a format is computed -----------------------------------------------------------------------------------------

// What a code stands for less its value. 0: nothing.
template <class Block>
constexpr int kOffset = 0;
template <>
constexpr int kOffset<PanelQ4_0> = 8;
template <>
constexpr int kOffset<PanelQ5_0> = 16;
template <>
constexpr int kOffset<PanelQ8_0> = 128;
template <>
constexpr int kOffset<PanelIQ4_NL> = 128;

// What is taken off a code as if it were an offset, so that sums fit 16 bits, and given back to the dot.
template <class Block>
constexpr int kLoan = 0;
template <>
constexpr int kLoan<PanelQ5_1> = kHasDot ? 0 : 16;

inline Nibbles in_place(const PanelQ4_0& block) { return {block.nibbles}; }
inline Nibbles in_place(const PanelQ4_1& block) { return {block.nibbles}; }
inline Nibbles in_place(const PanelQ4_K& block, int j) { return {block.nibbles[j]}; }
inline Twos in_place(const PanelQ2_K& block, int j) { return {block.twos[j]}; }
inline Sixes in_place(const PanelQ6_K& block, int j) { return {block.codes[j]}; }
#ifdef __AVXVNNI__
inline Bytes in_place(const PanelQ8_0& block) { return {block.codes}; }
#else
inline SignedBytes in_place(const PanelQ8_0& block) { return {block.codes}; }
#endif

template <class Block>
constexpr bool kHas8Bits = std::is_same_v<Block, PanelQ8_0> || std::is_same_v<Block, PanelIQ4_NL> ||
                           std::is_same_v<Block, PanelIQ4_XS>;

template <class Block>
concept LiesReady = requires(const Block& block) { in_place(block); } || requires(const Block& block) { in_place(block, 0); };

// Up to so many rows take codes where they lie; for more it pays to unpack them first, unless that is little work and the
// dot instruction leaves the other pipes idle.
template <class Block>
constexpr int kFew = !LiesReady<Block> ? 0 : kHasDot ? kRowTile : 8;
template <>
constexpr int kFew<PanelQ6_K> = kHasDot ? 7 : 2;
template <>
constexpr int kFew<PanelQ8_0> = kHasDot ? kRowTile : 4;  // without it magnitudes are work, too

// Whether up to eight rows of a format have functions of their own (matrix_body.h).
template <class Block>
constexpr bool kRowsKnown = false;
template <>
constexpr bool kRowsKnown<PanelQ4_0> = true;
template <>
constexpr bool kRowsKnown<PanelQ4_1> = true;
template <>
constexpr bool kRowsKnown<PanelQ8_0> = true;
template <>
constexpr bool kRowsKnown<PanelQ4_K> = true;
template <>
constexpr bool kRowsKnown<PanelQ6_K> = true;

// Calls work(codes of the block, or of its sub-block j).
template <bool unpacked, class Work, class Block, class... J>
[[gnu::always_inline]] inline void with_codes(Work work, const Block& block, J... j) {
  if constexpr (unpacked) {
    std::conditional_t<kHas8Bits<Block> && !kHasDot, SignedSteps, Steps> steps;
    if constexpr (LiesReady<Block>) {
      unpack_codes(in_place(block, j...), steps);
    } else {
      unpack(block, j..., steps);
    }
    work(steps);
  } else {
    work(in_place(block, j...));
  }
}

}  // namespace
}  // namespace outpace
