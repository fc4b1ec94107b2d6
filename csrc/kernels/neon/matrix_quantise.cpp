// Activations to int8 with NEON: the values of kernels/portable/matrix.cpp.

#include <arm_neon.h>

#include <limits>

#include "kernels/neon/functions.h"
#include "matrix.h"

namespace outpace::neon {
namespace {

constexpr float kSmallestLargest = 1e-30f;  // as in the portable file

inline float largest_magnitude(const float* x, int n) {
  uint32x4_t largest = vdupq_n_u32(0);
  for (int i = 0; i < n; i += 4) {
    const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + i));
    largest = vmaxq_u32(largest, vandq_u32(bits, vdupq_n_u32(0x7fffffff)));
  }
  return vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(largest))), 0);
}

inline bool is_degenerate(float largest) {
  return !(largest >= kSmallestLargest && largest <= std::numeric_limits<float>::max());
}

inline float degenerate_scale(float largest) {
  return largest < kSmallestLargest ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

// Sixteen values to the nearest integer, ties to even, which is how the conversion rounds.
inline int8x16_t rounded(const float* x, float reciprocal) {
  int16x4_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), reciprocal)));
  return vcombine_s8(vmovn_s16(vcombine_s16(words[0], words[1])), vmovn_s16(vcombine_s16(words[2], words[3])));
}

void quantise_block(const float* x, int8_t* to, BlockScale& out) {
  const float largest = largest_magnitude(x, kBlock);
  int8x16_t q[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
  if (is_degenerate(largest)) {
    out.scale = degenerate_scale(largest);
  } else {
    out.scale = largest / 127.0f;
    for (int h = 0; h < 2; ++h) q[h] = rounded(x + 16 * h, 127.0f / largest);
  }
  for (int h = 0; h < 2; ++h) vst1q_s8(to + 16 * h, q[h]);
  const int total = vaddlvq_s8(q[0]) + vaddlvq_s8(q[1]);
  out.scaled_sum = out.scale * static_cast<float>(total);
  out.negated_sum = -total;
}

constexpr int kSixteens = kSuperBlock / 16;

inline int most_abs_sum16(const int8x16_t (&q)[kSixteens]) {
  int most = 0;
  for (const int8x16_t& bytes : q) {
    const int total = vaddlvq_u8(vreinterpretq_u8_s8(vabsq_s8(bytes)));
    most = total > most ? total : most;
  }
  return most;
}

// Fills q and returns the scale.
inline float quantise_super_block(const float* x, int8x16_t (&q)[kSixteens]) {
  const float largest = largest_magnitude(x, kSuperBlock);
  if (is_degenerate(largest)) {
    for (int8x16_t& bytes : q) bytes = vdupq_n_s8(0);
    return degenerate_scale(largest);
  }
  for (int i = 0; i < kSixteens; ++i) q[i] = rounded(x + 16 * i, 127.0f / largest);
  const int most = most_abs_sum16(q);
  if (most <= kMostAbsSum16) return largest / 127.0f;
  const float wider = largest * (static_cast<float>(most + 8) / static_cast<float>(kMostAbsSum16 - 9));
  for (int i = 0; i < kSixteens; ++i) q[i] = rounded(x + 16 * i, 127.0f / wider);
  return wider / 127.0f;
}

void quantise_super_block(Activations& x, const float* from, int b, int row) {
  int8x16_t q[kSixteens];
  SuperBlockScale& out = *x.scale256(b, row);
  out.scale = quantise_super_block(from, q);
  for (int j = 0; j < kBlocksOfSuper; ++j) {
    int8_t* to = x.q256(b * kBlocksOfSuper + j, row);
    int32_t* offsets = x.offsets256(b * kBlocksOfSuper + j, row);
    int total = 0;
    for (int h = 0; h < 2; ++h) {
      const int sum = vaddlvq_s8(q[2 * j + h]);
      vst1q_s8(to + 16 * h, q[2 * j + h]);
      offsets[h] = -32 * sum;
      total += sum;
    }
    out.sums[j] = static_cast<int16_t>(total);
  }
}

}  // namespace

void quantise(Activations& x, int col0, int col1) {
  for (int row = 0; row < x.rows; ++row) {
    const float* const from = x.f32(row, col0, col1) - col0;
    for (int b = col0 / kBlock; x.wants_32 && b < col1 / kBlock; ++b) {
      quantise_block(from + b * kBlock, x.q32(b, row), *x.scale32(b, row));
    }
    for (int b = col0 / kSuperBlock; x.wants_256 && b < col1 / kSuperBlock; ++b) quantise_super_block(x, from + b * kSuperBlock, b, row);
  }
}

}  // namespace outpace::neon
