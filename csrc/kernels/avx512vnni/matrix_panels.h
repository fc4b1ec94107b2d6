// Blocks of weight panels in registers: what a format's codes look like to the dot instruction. A new format is one
// `unpack`, and an offset if its codes have one.
#pragma once

#include <immintrin.h>

#include "formats.h"

namespace outpace::avx512vnni {
namespace {

struct Pair {  // the two registers of a panel: rows 0-15 and 16-31
  __m512i low, high;
};

struct PairPs {
  __m512 low, high;
};

inline __m512i load(const void* bytes) { return _mm512_load_si512(bytes); }

inline Pair load_pair(const uint8_t* bytes) { return {load(bytes), load(bytes + 64)}; }

inline PairPs load_f16(const uint16_t* f16) {
  const __m256i* from = reinterpret_cast<const __m256i*>(f16);
  return {_mm512_cvtph_ps(_mm256_load_si256(from)), _mm512_cvtph_ps(_mm256_load_si256(from + 1))};
}

inline Pair operator&(Pair a, __m512i mask) { return {_mm512_and_si512(a.low, mask), _mm512_and_si512(a.high, mask)}; }

inline Pair shift_right(Pair a, int bits) {
  return {_mm512_srli_epi16(a.low, static_cast<unsigned>(bits)), _mm512_srli_epi16(a.high, static_cast<unsigned>(bits))};
}

inline void unpack_nibbles(const uint8_t (&nibbles)[4][kStepBytes], Pair (&steps)[kSteps]) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (int s = 0; s < 4; ++s) {
    const Pair both = load_pair(nibbles[s]);
    steps[s] = both & mask;
    steps[s + 4] = shift_right(both, 4) & mask;
  }
}

inline void unpack(const PanelQ4_0& block, Pair (&steps)[kSteps]) { unpack_nibbles(block.nibbles, steps); }

inline void unpack(const PanelQ4_1& block, Pair (&steps)[kSteps]) { unpack_nibbles(block.nibbles, steps); }

// Adds `value` to the codes of a step whose bit is set.
inline void add_bits(const uint8_t (&bits)[kStepBytes / 8], char value, Pair& step) {
  const __m512i added = _mm512_set1_epi8(value);
  const uint64_t* const halves = reinterpret_cast<const uint64_t*>(bits);
  step.low = _mm512_mask_add_epi8(step.low, halves[0], step.low, added);
  step.high = _mm512_mask_add_epi8(step.high, halves[1], step.high, added);
}

inline void add_bits(const uint8_t (&bits)[kSteps][kStepBytes / 8], char value, Pair (&steps)[kSteps]) {
  for (int s = 0; s < kSteps; ++s) add_bits(bits[s], value, steps[s]);
}

inline void unpack_twos(const uint8_t (&twos)[2][kStepBytes], Pair (&steps)[kSteps]) {
  const __m512i mask = _mm512_set1_epi8(3);
  for (int h = 0; h < 2; ++h) {
    const Pair four = load_pair(twos[h]);
    for (int s = 0; s < 4; ++s) steps[4 * h + s] = shift_right(four, 2 * s) & mask;
  }
}

// kIq4Values, 128 higher.
inline void unpack_places(const uint8_t (&nibbles)[4][kStepBytes], Pair (&steps)[kSteps]) {
  unpack_nibbles(nibbles, steps);
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Values));
  const __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8(static_cast<char>(0x80))));
  for (Pair& step : steps) {
    step = {_mm512_shuffle_epi8(table, step.low), _mm512_shuffle_epi8(table, step.high)};
  }
}

inline void unpack(const PanelQ5_0& block, Pair (&steps)[kSteps]) {
  unpack_nibbles(block.nibbles, steps);
  add_bits(block.fifth_bits, 16, steps);
}

inline void unpack(const PanelQ5_1& block, Pair (&steps)[kSteps]) {
  unpack_nibbles(block.nibbles, steps);
  add_bits(block.fifth_bits, 16, steps);
}

inline void unpack(const PanelIQ4_NL& block, Pair (&steps)[kSteps]) { unpack_places(block.nibbles, steps); }

inline void unpack(const PanelQ8_0& block, Pair (&steps)[kSteps]) {
  for (int s = 0; s < kSteps; ++s) steps[s] = load_pair(block.codes[s]);
}

inline void unpack(const PanelQ4_K& block, int j, Pair (&steps)[kSteps]) { unpack_nibbles(block.nibbles[j], steps); }

inline void unpack(const PanelQ5_K& block, int j, Pair (&steps)[kSteps]) {
  unpack_nibbles(block.nibbles[j], steps);
  add_bits(block.fifth_bits[j], 16, steps);
}

inline void unpack(const PanelQ2_K& block, int j, Pair (&steps)[kSteps]) { unpack_twos(block.twos[j], steps); }

inline void unpack(const PanelQ3_K& block, int j, Pair (&steps)[kSteps]) {
  unpack_twos(block.twos[j], steps);
  add_bits(block.third_bits[j], 4, steps);
}

inline void unpack(const PanelIQ4_XS& block, int j, Pair (&steps)[kSteps]) { unpack_places(block.nibbles[j], steps); }

// Bits of `a` where the mask has ones, of `b` where it has zeros.
inline Pair select(__m512i mask, Pair a, Pair b) {
  constexpr int kTruthTable = 0xca;
  return {_mm512_ternarylogic_epi32(mask, a.low, b.low, kTruthTable),
          _mm512_ternarylogic_epi32(mask, a.high, b.high, kTruthTable)};
}

inline void unpack(const PanelQ6_K& block, int j, Pair (&steps)[kSteps]) {
  const __m512i six = _mm512_set1_epi8(63), two = _mm512_set1_epi8(3), four = _mm512_set1_epi8(15);
  for (int h = 0; h < 2; ++h) {
    Pair bytes[3];
    for (int s = 0; s < 3; ++s) {
      bytes[s] = load_pair(block.codes[j][h][s]);
      steps[4 * h + s] = bytes[s] & six;
    }
    const Pair lower = select(two, shift_right(bytes[0], 6), shift_right(bytes[1], 4));
    steps[4 * h + 3] = select(four, lower, shift_right(bytes[2], 2)) & six;
  }
}

// Whether a block is one of 256 inputs, in eight parts.
template <class Block>
constexpr bool kIsSuper = requires(const Block& block, Pair (&steps)[kSteps]) { unpack(block, 0, steps); };

// What a code stands for less its value: 2^shift times the sum of the activations is to be taken off. 0: nothing.
template <class Block>
constexpr int kOffsetShift = 0;
template <>
constexpr int kOffsetShift<PanelQ4_0> = 3;
template <>
constexpr int kOffsetShift<PanelQ5_0> = 4;
template <>
constexpr int kOffsetShift<PanelQ8_0> = 7;
template <>
constexpr int kOffsetShift<PanelIQ4_NL> = 7;

}  // namespace
}  // namespace outpace::avx512vnni
