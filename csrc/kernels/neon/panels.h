// Blocks of weight panels as the dot product reads them: signed values, so that no format has an offset. A new format is
// one `unpack`.
#pragma once

#include <arm_neon.h>

#include "formats.h"

namespace outpace {
namespace {

constexpr int kVectors = kPanelRows / 4;  // registers of a panel's 32 rows

// A block's values: one register for a step of four output rows.
struct Steps {
  int8x16_t of[kSteps][kVectors];
};

inline float32x4_t load_f16(const uint16_t* f16) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(f16))); }

inline int8x16_t bits_of(uint8x16_t bytes, int shift, int count) {
  const uint8x16_t shifted = vshlq_u8(bytes, vdupq_n_s8(static_cast<int8_t>(-shift)));
  return vreinterpretq_s8_u8(vandq_u8(shifted, vdupq_n_u8(static_cast<uint8_t>((1 << count) - 1))));
}

inline void unpack_nibbles(const uint8_t (&nibbles)[4][kStepBytes], int offset, Steps& steps) {
  const int8x16_t less = vdupq_n_s8(static_cast<int8_t>(offset));
  for (int s = 0; s < 4; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      const uint8x16_t both = vld1q_u8(nibbles[s] + 16 * v);
      steps.of[s][v] = vsubq_s8(bits_of(both, 0, 4), less);
      steps.of[s + 4][v] = vsubq_s8(bits_of(both, 4, 4), less);
    }
  }
}

inline void unpack_twos(const uint8_t (&twos)[2][kStepBytes], int offset, Steps& steps) {
  const int8x16_t less = vdupq_n_s8(static_cast<int8_t>(offset));
  for (int h = 0; h < 2; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      const uint8x16_t four = vld1q_u8(twos[h] + 16 * v);
      for (int s = 0; s < 4; ++s) steps.of[4 * h + s][v] = vsubq_s8(bits_of(four, 2 * s, 2), less);
    }
  }
}

// Adds `value` to the values whose bit is set.
inline void add_bits(const uint8_t (&bits)[kSteps][kStepBytes / 8], int value, Steps& steps) {
  static constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bit_of = vld1q_u8(kBits), added = vdupq_n_u8(static_cast<uint8_t>(value));
  for (int s = 0; s < kSteps; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      const uint8x16_t spread = vcombine_u8(vdup_n_u8(bits[s][2 * v]), vdup_n_u8(bits[s][2 * v + 1]));
      const uint8x16_t more = vandq_u8(vtstq_u8(spread, bit_of), added);
      steps.of[s][v] = vaddq_s8(steps.of[s][v], vreinterpretq_s8_u8(more));
    }
  }
}

inline void unpack_places(const uint8_t (&nibbles)[4][kStepBytes], Steps& steps) {
  unpack_nibbles(nibbles, 0, steps);
  const int8x16_t table = vld1q_s8(kIq4Values);
  for (auto& step : steps.of) {
    for (int8x16_t& places : step) places = vqtbl1q_s8(table, vreinterpretq_u8_s8(places));
  }
}

// -- blocks of 32 -----------------------------------------------------------------------------------------------------

inline void unpack(const PanelQ4_0& block, Steps& steps) { unpack_nibbles(block.nibbles, 8, steps); }

inline void unpack(const PanelQ4_1& block, Steps& steps) { unpack_nibbles(block.nibbles, 0, steps); }

inline void unpack(const PanelQ5_0& block, Steps& steps) {
  unpack_nibbles(block.nibbles, 16, steps);
  add_bits(block.fifth_bits, 16, steps);
}

inline void unpack(const PanelQ5_1& block, Steps& steps) {
  unpack_nibbles(block.nibbles, 0, steps);
  add_bits(block.fifth_bits, 16, steps);
}

inline void unpack(const PanelQ8_0& block, Steps& steps) {
  for (int s = 0; s < kSteps; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      steps.of[s][v] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(block.codes[s] + 16 * v), vdupq_n_u8(128)));
    }
  }
}

inline void unpack(const PanelIQ4_NL& block, Steps& steps) { unpack_places(block.nibbles, steps); }

// -- super-blocks -----------------------------------------------------------------------------------------------------

inline void unpack(const PanelQ2_K& block, int j, Steps& steps) { unpack_twos(block.twos[j], 0, steps); }

inline void unpack(const PanelQ3_K& block, int j, Steps& steps) {
  unpack_twos(block.twos[j], 4, steps);
  add_bits(block.third_bits[j], 4, steps);
}

inline void unpack(const PanelQ4_K& block, int j, Steps& steps) { unpack_nibbles(block.nibbles[j], 0, steps); }

inline void unpack(const PanelQ5_K& block, int j, Steps& steps) {
  unpack_nibbles(block.nibbles[j], 0, steps);
  add_bits(block.fifth_bits[j], 16, steps);
}

inline void unpack(const PanelIQ4_XS& block, int j, Steps& steps) { unpack_places(block.nibbles[j], steps); }

inline void unpack(const PanelQ6_K& block, int j, Steps& steps) {
  const int8x16_t less = vdupq_n_s8(32);
  for (int h = 0; h < 2; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      int8x16_t fourth = vnegq_s8(less);
      for (int s = 0; s < 3; ++s) {
        const uint8x16_t bytes = vld1q_u8(block.codes[j][h][s] + 16 * v);
        steps.of[4 * h + s][v] = vsubq_s8(bits_of(bytes, 0, 6), less);
        fourth = vaddq_s8(fourth, vshlq_s8(bits_of(bytes, 6, 2), vdupq_n_s8(static_cast<int8_t>(2 * s))));
      }
      steps.of[4 * h + 3][v] = fourth;
    }
  }
}

// -- integers of sub-blocks of 16, of four rows from 4 v on -----------------------------------------------------------

inline int32x4_t one_of(const uint8_t (&pairs)[kPanelRows][2], int which, int v) {
  const uint32x4_t both = vmovl_u16(vreinterpret_u16_u8(vld1_u8(pairs[4 * v])));
  return vreinterpretq_s32_u32(which == 0 ? vandq_u32(both, vdupq_n_u32(255)) : vshrq_n_u32(both, 8));
}

inline int32x4_t one_of(const int8_t (&pairs)[kPanelRows][2], int which, int v) {
  const int16x4_t both = vreinterpret_s16_s8(vld1_s8(pairs[4 * v]));
  return vmovl_s16(vshr_n_s16(which == 0 ? vshl_n_s16(both, 8) : both, 8));
}

template <class Byte>
inline int32x4_t widened(const Byte* four) {
  const int32_t all[4] = {four[0], four[1], four[2], four[3]};
  return vld1q_s32(all);
}

inline int32x4_t scale_of(const PanelQ2_K& block, int j, int v) {
  return vandq_s32(one_of(block.scales_minima[j / 2], j % 2, v), vdupq_n_s32(15));
}
inline int32x4_t scale_of(const PanelQ3_K& block, int j, int v) { return one_of(block.scales[j / 2], j % 2, v); }
inline int32x4_t scale_of(const PanelQ4_K& block, int j, int v) { return one_of(block.scales[j / 4], j / 2 % 2, v); }
inline int32x4_t scale_of(const PanelQ5_K& block, int j, int v) { return widened(block.scales[j / 2] + 4 * v); }
inline int32x4_t scale_of(const PanelQ6_K& block, int j, int v) { return one_of(block.scales[j / 2], j % 2, v); }
inline int32x4_t scale_of(const PanelIQ4_XS& block, int j, int v) { return widened(block.scales[j / 2] + 4 * v); }

// Of 16 inputs in Q2_K, of 32 in the others.
inline int32x4_t minimum_of(const PanelQ2_K& block, int j, int v) {
  return vshrq_n_s32(one_of(block.scales_minima[j / 2], j % 2, v), 4);
}
inline int32x4_t minimum_of(const PanelQ4_K& block, int j, int v) { return one_of(block.minima[j / 2], j % 2, v); }
inline int32x4_t minimum_of(const PanelQ5_K& block, int j, int v) { return one_of(block.minima[j / 2], j % 2, v); }

// Whether a sub-block of 32 inputs has two scales.
template <class Block>
constexpr bool kScalesOf16 = false;
template <>
constexpr bool kScalesOf16<PanelQ2_K> = true;
template <>
constexpr bool kScalesOf16<PanelQ3_K> = true;
template <>
constexpr bool kScalesOf16<PanelQ6_K> = true;

}  // namespace
}  // namespace outpace
