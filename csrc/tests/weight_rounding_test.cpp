// Weights rounded at load: within the format's own step, and refused where no scale can hold them.

#include "weight_rounding.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "numerics.h"

namespace outpace::test {
namespace {

std::vector<uint8_t> as_bytes(const std::vector<float>& weights) {
  std::vector<uint8_t> bytes(weights.size() * sizeof(float));
  std::memcpy(bytes.data(), weights.data(), bytes.size());
  return bytes;
}

std::vector<float> rounded(const std::vector<float>& weights, Format to) {
  const std::vector<uint8_t> bytes = as_bytes(weights);
  const std::vector<uint8_t> blocks = round_weights(Format::f32, bytes.data(), weights.size(), to);
  std::vector<float> out(weights.size());
  dequantise_file_row(to, blocks.data(), static_cast<int>(weights.size()), out.data());
  return out;
}

}  // namespace

TEST(weights_are_rounded_to_within_the_formats_step) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> weights(64 * kBlock);
  for (float& w : weights) w = normal(random);
  const std::vector<float> eight = rounded(weights, Format::q8_0), four = rounded(weights, Format::q4_0);
  double size = 0, error8 = 0, error4 = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    size += weights[i] * weights[i];
    error8 += std::pow(eight[i] - weights[i], 2);
    error4 += std::pow(four[i] - weights[i], 2);
  }
  CHECK(std::sqrt(error8 / size) < 0.006);
  CHECK(std::sqrt(error4 / size) < 0.085);  // the scale that meets the extreme weight alone: 0.09
}

TEST(weights_that_a_format_holds_stay_what_they_are) {
  std::vector<float> weights(kBlock);
  for (int i = 0; i < kBlock; ++i) weights[static_cast<size_t>(i)] = 0.5f * static_cast<float>(i % 16 - 8);
  CHECK(rounded(weights, Format::q4_0) == weights);
  for (int i = 0; i < kBlock; ++i) weights[static_cast<size_t>(i)] = 0.25f * static_cast<float>(i * 8 - 127);
  CHECK(rounded(weights, Format::q8_0) == weights);
  const std::vector<float> zeros(kBlock, 0.0f);
  CHECK(rounded(zeros, Format::q4_0) == zeros);
  CHECK(rounded(zeros, Format::q8_0) == zeros);
}

TEST(weights_that_cannot_be_rounded_are_refused) {
  std::vector<float> weights(kBlock, 1.0f);
  const std::vector<uint8_t> fine = as_bytes(weights);
  CHECK_THROWS(round_weights(Format::q8_0, fine.data(), kBlock, Format::q4_0), std::invalid_argument);
  CHECK_THROWS(round_weights(Format::f32, fine.data(), kBlock, Format::q6_k), std::invalid_argument);
  CHECK_THROWS(round_weights(Format::f32, fine.data(), 31, Format::q8_0), std::invalid_argument);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e6f}) {
    weights[7] = bad;
    const std::vector<uint8_t> bytes = as_bytes(weights);
    CHECK_THROWS(round_weights(Format::f32, bytes.data(), kBlock, Format::q8_0), std::invalid_argument);
  }
}

}  // namespace outpace::test
