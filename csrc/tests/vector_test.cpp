// The operations on rows: every instruction set against the portable reference, bit for bit, and that against double
// precision.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "attention.h"
#include "check.h"
#include "kernels/kernels.h"
#include "numerics.h"

namespace outpace {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Equal bits, all NaNs being one.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

std::vector<float> normal_floats(int n, uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

// Any bit pattern, hence also denormals, infinities and NaNs.
std::vector<float> wild_floats(int n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return x;
}

const int kLengths[] = {1, 7, 15, 16, 17, 31, 48, 64, 100, 576, 1536};

template <class Operation>
void check_against_portable(Operation operation) {
  for (const int n : kLengths) {
    for (const bool wild : {false, true}) {
      const auto seed = static_cast<uint32_t>(n);
      const std::vector<float> x = wild ? wild_floats(n, seed) : normal_floats(n, seed, 3.0f);
      const std::vector<float> y = wild ? wild_floats(n, seed + 1) : normal_floats(n, seed + 1);
      const std::vector<float> expected = operation(portable_kernels(), x, y);
      for (const Kernels* kernels : available_kernels()) CHECK(same(operation(*kernels, x, y), expected));
    }
  }
}

}  // namespace

TEST(vector_panel_squares_have_the_same_bits_everywhere) {
  check_against_portable([](const Kernels& kernels, const std::vector<float>& x, const std::vector<float>&) {
    std::vector<float> sums((x.size() + kPanelRows - 1) / kPanelRows);
    kernels.panel_squares(x.data(), sums.data(), static_cast<int>(x.size()));
    return sums;
  });
}

TEST(vector_scale_has_the_same_bits_everywhere) {
  check_against_portable([](const Kernels& kernels, const std::vector<float>& x, const std::vector<float>& weight) {
    std::vector<float> y(x.size());
    kernels.scale(x.data(), 0.37f, weight.data(), y.data(), static_cast<int>(x.size()));
    return y;
  });
}

TEST(vector_gelu_multiply_is_near_the_exact_one_and_has_the_same_bits_everywhere) {
  std::vector<float> gate, up;
  for (float x = -12.0f; x < 12.0f; x += 0.017f) gate.push_back(x), up.push_back(1.5f - x);
  std::vector<float> expected(gate.size()), y(gate.size());
  portable_kernels().gelu_multiply(gate.data(), up.data(), expected.data(), static_cast<int>(gate.size()));
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i], inner = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    const double exact = x * (1 + std::tanh(inner)) / 2 * up[i];
    CHECK(std::abs(expected[i] - exact) <= 2e-6 * std::max(1.0, std::abs(exact)));
  }
  for (const Kernels* kernels : available_kernels()) {
    kernels->gelu_multiply(gate.data(), up.data(), y.data(), static_cast<int>(gate.size()));
    CHECK(y == expected);
  }
}

TEST(vector_silu_multiply_has_the_same_bits_everywhere) {
  check_against_portable([](const Kernels& kernels, const std::vector<float>& gate, const std::vector<float>& up) {
    std::vector<float> y(gate.size());
    kernels.silu_multiply(gate.data(), up.data(), y.data(), static_cast<int>(gate.size()));
    return y;
  });
}

TEST(vector_add_has_the_same_bits_everywhere) {
  check_against_portable([](const Kernels& kernels, const std::vector<float>& x, std::vector<float> y) {
    kernels.add(x.data(), y.data(), static_cast<int>(x.size()));
    return y;
  });
}

TEST(vector_operations_write_nothing_past_the_end) {
  for (const Kernels* kernels : available_kernels()) {
    const std::vector<float> x = normal_floats(32, 1);
    std::vector<float> y(32, 5.0f);
    std::vector<uint16_t> half(32, 5);
    kernels->scale(x.data(), 0.5f, x.data(), y.data(), 19);
    kernels->silu_multiply(x.data(), x.data(), y.data(), 19);
    kernels->add(x.data(), y.data(), 19);
    kernels->to_f16(x.data(), half.data(), 19);
    for (size_t i = 19; i < 32; ++i) CHECK(y[i] == 5.0f && half[i] == 5);
  }
}

TEST(vector_panel_squares_are_sums_of_32_squares) {
  const std::vector<float> x = normal_floats(100, 2, 4.0f);
  std::vector<float> sums(5, 7.0f);
  portable_kernels().panel_squares(x.data(), sums.data(), 100);
  for (size_t panel = 0; panel < 4; ++panel) {
    double exact = 0.0;
    for (size_t i = 32 * panel; i < 32 * panel + 32 && i < 100; ++i) exact += static_cast<double>(x[i]) * x[i];
    CHECK(std::abs(sums[panel] - exact) <= 4e-7 * exact);
  }
  CHECK_EQUAL(sums[4], 7.0f);
}

TEST(vector_exp_is_within_one_unit_of_the_last_place) {
  for (uint32_t bits = 0; bits < 0x42b17000u; bits += 257) {  // 0 .. 88.7
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      const double exact = std::exp(static_cast<double>(x)), got = numerics::exp(x);
      CHECK(std::abs(got - exact) <= 1.1e-7 * exact + 0x1p-150);
    }
  }
}

TEST(vector_exp_of_normal_results_is_the_same_exp) {
  for (uint32_t bits = 0; -std::bit_cast<float>(bits) >= numerics::kLeastNormalExp; bits += 128) {
    const float x = -std::bit_cast<float>(bits);
    CHECK_EQUAL(numerics::normal_exp(x), numerics::exp(x));
  }
  CHECK_EQUAL(numerics::normal_exp(numerics::kLeastNormalExp), numerics::exp(numerics::kLeastNormalExp));
}

TEST(vector_exp_at_the_ends) {
  CHECK_EQUAL(numerics::exp(0.0f), 1.0f);
  CHECK_EQUAL(numerics::exp(-0.0f), 1.0f);
  CHECK_EQUAL(numerics::exp(-kInfinity), 0.0f);
  CHECK_EQUAL(numerics::exp(-104.0f), 0.0f);
  CHECK_EQUAL(numerics::exp(kInfinity), kInfinity);
  CHECK_EQUAL(numerics::exp(89.0f), kInfinity);
  CHECK(std::isnan(numerics::exp(kNaN)));
}

TEST(vector_to_f16_rounds_to_nearest_even_everywhere) {
  std::vector<float> x;
  for (uint32_t half = 0; half < 0x10000u; ++half) {  // every f16, the midpoint to the next, and their neighbours
    const uint32_t bits = std::bit_cast<uint32_t>(numerics::f16_to_f32(static_cast<uint16_t>(half)));
    const uint32_t middle = half % 0x8000u < 0x400u ? 0u : 0x1000u;
    for (const uint32_t offset : {0u, middle - 1, middle, middle + 1, 0x1fffu}) {
      x.push_back(std::bit_cast<float>(bits + offset));
    }
  }
  for (int k = 0; k < 0x1000; ++k) x.push_back(static_cast<float>(k) * 0x1p-26f);  // quarters of the smallest denormal
  for (const float value : wild_floats(1 << 16, 4)) x.push_back(value);
  std::vector<uint16_t> expected(x.size()), got(x.size());
  portable_kernels().to_f16(x.data(), expected.data(), static_cast<int>(x.size()));
  for (const Kernels* kernels : available_kernels()) {
    kernels->to_f16(x.data(), got.data(), static_cast<int>(x.size()));
    CHECK(got == expected);
  }
}

TEST(vector_f16_survives_the_way_there_and_back) {
  for (uint32_t half = 0; half < 0x10000u; ++half) {
    const auto bits = static_cast<uint16_t>(half);
    const bool signalling = (half & 0x7fffu) > 0x7c00u && (half & 0x200u) == 0;
    CHECK_EQUAL(numerics::f32_to_f16(numerics::f16_to_f32(bits)), signalling ? bits | 0x200u : bits);
  }
}

TEST(vector_rope_has_the_same_bits_everywhere_and_turns_pairs) {
  for (const int head_dim : {16, 64, 80, 96, 128, 256}) {
    for (const bool interleaved : {false, true}) {
      const auto half = static_cast<size_t>(head_dim / 2);
      std::vector<float> cos(half), sin(half), expected = normal_floats(head_dim, 5);
      const std::vector<float> before = expected;
      RotaryTable(10000.0, head_dim).fill(1234, cos.data(), sin.data());
      portable_kernels().rope(expected.data(), cos.data(), sin.data(), head_dim, interleaved);
      for (size_t i = 0; i < half; ++i) {
        const size_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
        CHECK(std::abs(expected[first] - (before[first] * cos[i] - before[second] * sin[i])) < 1e-6f);
        CHECK(std::abs(expected[second] - (before[first] * sin[i] + before[second] * cos[i])) < 1e-6f);
      }
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> got = before;
        kernels->rope(got.data(), cos.data(), sin.data(), head_dim, interleaved);
        CHECK(same(got, expected));
      }
    }
  }
}

TEST(vector_rotary_table_is_exact) {
  for (const double theta : {10000.0, 100000.0, 1e6}) {
    std::vector<float> cos(64), sin(64);
    for (const int position : {0, 1, 2, 63, 4095, 131071}) {
      RotaryTable(theta, 128).fill(position, cos.data(), sin.data());
      for (size_t i = 0; i < 64; ++i) {
        const double angle = position * std::pow(theta, -2.0 * static_cast<double>(i) / 128);
        CHECK(std::abs(cos[i] - std::cos(angle)) < 6.1e-8);
        CHECK(std::abs(sin[i] - std::sin(angle)) < 6.1e-8);
      }
    }
  }
}

TEST(vector_rotary_table_divides_frequencies_and_refuses_nonsense) {
  const float divisors[] = {1.0f, 8.0f};
  float cos[2], sin[2];
  RotaryTable(10000.0, 4, divisors).fill(8, cos, sin);
  CHECK(std::abs(cos[1] - std::cos(0.01)) < 6.1e-8);
  const float zero[] = {1.0f, 0.0f};
  CHECK_THROWS(RotaryTable(10000.0, 4, zero), std::invalid_argument);
  CHECK_THROWS(RotaryTable(1.0, 4), std::invalid_argument);
  CHECK_THROWS(RotaryTable(static_cast<double>(kInfinity), 4), std::invalid_argument);
  CHECK_THROWS(RotaryTable(10000.0, 5), std::invalid_argument);
}

TEST(vector_double_precision_functions_are_close_to_the_library) {
  std::mt19937 random(6);
  std::uniform_real_distribution<double> uniform(-30.0, 30.0);
  for (int i = 0; i < 100000; ++i) {
    const double x = uniform(random), e = std::exp(x);
    CHECK(std::abs(numerics::exp(x) - e) <= 4e-16 * e);
    CHECK(std::abs(numerics::log(e) - std::log(e)) <= 4e-16 + 2e-16 * std::abs(std::log(e)));
    const double angle = x * 1e6;
    CHECK(std::abs(numerics::sin_cos(angle).sin - std::sin(angle)) < 2.3e-16);
    CHECK(std::abs(numerics::sin_cos(angle).cos - std::cos(angle)) < 2.3e-16);
  }
}

}  // namespace outpace
