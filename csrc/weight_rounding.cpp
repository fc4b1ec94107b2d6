#include "weight_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "messages.h"
#include "numerics.h"

namespace outpace {
namespace {

using Weights = float[kBlock];

// The weight of the largest magnitude, with its sign.
float extreme(const Weights& w) {
  float found = 0.0f;
  for (const float x : w) found = std::abs(x) > std::abs(found) ? x : found;
  return found;
}

// The scale as a file holds it, and 1 / its value (0 for a scale of 0: all codes stand for 0 then).
struct Scale {
  uint16_t bits;
  float value, inverse;
  explicit Scale(float exact) : bits(numerics::f32_to_f16(exact)), value(numerics::f16_to_f32(bits)) {
    inverse = value == 0.0f ? 0.0f : 1.0f / value;
  }
};

float nearest(float x, float low, float high) { return std::clamp(std::nearbyint(x), low, high); }

void round_q8_0(const Weights& w, uint8_t* block) {
  const Scale scale(std::abs(extreme(w)) / 127.0f);
  std::memcpy(block, &scale.bits, sizeof scale.bits);
  for (int i = 0; i < kBlock; ++i)
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(nearest(w[i] * scale.inverse, -127.0f, 127.0f)));
}

// Codes 0 to 15 stand for -8 to 7. The extreme weight need not be met exactly: of several scales the one with the least
// squared error is taken.
void round_q4_0(const Weights& w, uint8_t* block) {
  constexpr float kDivisors[] = {-8.0f, -7.75f, -7.5f, -7.25f, -7.0f, -8.25f, -8.5f, 7.0f, 7.25f, 7.5f};
  const float largest = extreme(w);
  float least = INFINITY;
  Scale best(0.0f);
  for (const float divisor : kDivisors) {
    const Scale scale(largest / divisor);
    float error = 0.0f;
    for (const float x : w) {
      const float difference = x - scale.value * nearest(x * scale.inverse, -8.0f, 7.0f);
      error += difference * difference;
    }
    if (error < least) least = error, best = scale;
  }
  std::memcpy(block, &best.bits, sizeof best.bits);
  const auto code = [&](int i) { return static_cast<int>(nearest(w[i] * best.inverse, -8.0f, 7.0f)) + 8; };
  for (int i = 0; i < kBlock / 2; ++i) block[2 + i] = static_cast<uint8_t>(code(i) | code(i + kBlock / 2) << 4);
}

}  // namespace

std::vector<uint8_t> round_weights(Format from, const uint8_t* weights, size_t count, Format to) {
  const FormatInfo& source = format_info(from);
  if (source.block != 1 || (to != Format::q8_0 && to != Format::q4_0)) {
    throw std::invalid_argument(std::string("F32, F16 and BF16 are rounded to Q8_0 or Q4_0, got ") + source.name +
                                " to " + format_info(to).name);
  }
  if (count % kBlock != 0) {
    throw std::invalid_argument("weights are rounded in blocks of 32, got " + std::to_string(count));
  }
  const size_t bytes = static_cast<size_t>(format_info(to).file_bytes);
  std::vector<uint8_t> out(count / kBlock * bytes);
  Weights w;
  for (size_t block = 0; block < count / kBlock; ++block) {
    for (int i = 0; i < kBlock; ++i) {
      w[i] = dense_weight(from, weights + (block * kBlock + static_cast<size_t>(i)) * static_cast<size_t>(source.file_bytes));
      if (!(std::abs(w[i]) < 4e5f)) {  // 65504, the largest f16, times 7
        throw std::invalid_argument("a weight is " + shown(w[i]) + ", which no scale can hold");
      }
    }
    (to == Format::q8_0 ? round_q8_0 : round_q4_0)(w, out.data() + block * bytes);
  }
  return out;
}

}  // namespace outpace
