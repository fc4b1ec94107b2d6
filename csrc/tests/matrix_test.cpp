// Formats, packing and matrix products.

#include "matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "file_weights.h"

namespace outpace::test {
namespace {

const std::vector<Format> kFormats = [] {
  std::vector<Format> all;
  for (int i = 0; i < kFormatCount; ++i) all.push_back(static_cast<Format>(i));
  return all;
}();

Matrix packed(Format format, int rows, int cols, const std::vector<uint8_t>& file) {
  Matrix matrix(format, rows, cols);
  matrix.pack(0, rows, file.data(), file.size());
  return matrix;
}

Activations random_activations(int rows, int cols, std::mt19937& random) {
  Activations x(rows, cols);
  x.rows = rows;
  x.cols = cols;
  x.wants_32 = cols % kBlock == 0;
  x.wants_256 = cols % kSuperBlock == 0;
  std::normal_distribution<float> normal;
  for (int m = 0; m < rows; ++m) {
    for (int k = 0; k < cols; ++k) x.f32(m)[k] = normal(random);
  }
  return x;
}

std::vector<float> product(const Kernels& kernels, const Matrix& w, Activations& x, bool once = false) {
  std::vector<float> y(static_cast<size_t>(x.rows) * w.rows, -1.0f);
  kernels.quantise(x, 0, x.cols);
  kernels.multiply(w, 0, w.panels(), x, {.y = y.data(), .stride = w.rows, .once = once});
  return y;
}

bool same_bits(float a, float b) {  // any NaN equals any other
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) { return same_bits(x, y); });
}

// An activation as the kernels see it: rounded to int8 and back, or as it is.
double represented(const Activations& x, ActivationKind kind, int row, int k) {
  switch (kind) {
    case ActivationKind::int8_32: return double{x.scale32(k / kBlock, row)->scale} * x.q32(k / kBlock, row)[k % kBlock];
    case ActivationKind::int8_256: return double{x.scale256(k / kSuperBlock, row)->scale} * x.q256(k / kBlock, row)[k % kBlock];
    case ActivationKind::f32: break;
  }
  return x.f32(row)[k];
}

int smallest_cols(Format format) { return std::max(format_info(format).block, 32); }

// Every kernel table against the portable one: the int8 forms and the outputs, bit for bit.
void check_kernels_agree(const Matrix& w, Activations& x, const char* what) {
  const std::vector<float> expected = product(portable_kernels(), w, x);
  const std::vector<int8_t> q32(x.q32(0, 0), x.q32(0, 0) + (x.wants_32 ? x.rows * x.cols : 0));
  const std::vector<int8_t> q256(x.q256(0, 0), x.q256(0, 0) + (x.wants_256 ? x.rows * x.cols : 0));
  for (const Kernels* kernels : available_kernels()) {
    if (same_bits(product(*kernels, w, x), expected) && same_bits(product(*kernels, w, x, true), expected) &&
        std::equal(q32.begin(), q32.end(), x.q32(0, 0)) && std::equal(q256.begin(), q256.end(), x.q256(0, 0))) {
      continue;
    }
    fail(__FILE__, __LINE__, std::string(kernels->name) + " differs from portable: " + format_info(w.format).name + " " +
                                 std::to_string(w.rows) + " x " + std::to_string(w.cols) + ", " +
                                 std::to_string(x.rows) + " rows, " + what);
  }
}

}  // namespace

TEST(matrix_dequantises_every_format_to_the_files_values) {
  std::mt19937 random(1);
  for (const Format format : kFormats) {
    for (const bool wild : {false, true}) {
      const int rows = 40, cols = 2 * smallest_cols(format);
      const std::vector<uint8_t> file = random_rows(format, rows, cols, wild, random);
      const Matrix matrix = packed(format, rows, cols, file);
      std::vector<float> from_panel(cols), from_file(cols);
      for (int row = 0; row < rows; ++row) {
        const uint8_t* bytes = file.data() + row * matrix.file_row_bytes();
        matrix.dequantise_row(row, from_panel.data());
        dequantise_file_row(format, bytes, cols, from_file.data());
        for (int k = 0; k < cols; ++k) {
          CHECK(same_bits(from_panel[k], weight_of_file(format, bytes, k)));
          CHECK(same_bits(from_file[k], weight_of_file(format, bytes, k)));
        }
      }
    }
  }
}

TEST(matrix_panels_take_at_most_8_percent_more_than_the_file) {
  for (const Format format : kFormats) {
    const FormatInfo& info = format_info(format);
    CHECK(info.panel_bytes * 100 <= info.file_bytes * kPanelRows * 108);
    CHECK(format_named(info.name) == format);
  }
}

TEST(matrix_packs_in_parts_as_in_one) {
  std::mt19937 random(2);
  for (const Format format : kFormats) {
    const int rows = 75, cols = smallest_cols(format);
    const std::vector<uint8_t> file = random_rows(format, rows, cols, false, random);
    const Matrix whole = packed(format, rows, cols, file);
    Matrix parts(format, rows, cols);
    const size_t row = parts.file_row_bytes();
    parts.pack(64, 11, file.data() + 64 * row, 11 * row);
    parts.pack(0, 64, file.data(), 64 * row);
    CHECK(std::memcmp(whole.data.get(), parts.data.get(), whole.bytes()) == 0);
  }
}

TEST(matrix_refuses_bad_shapes_and_sizes) {
  CHECK_THROWS(Matrix(Format::q4_k, 32, 128), std::invalid_argument);
  CHECK_THROWS(Matrix(Format::q4_1, 32, 33), std::invalid_argument);
  CHECK_THROWS(Matrix(Format::f32, 0, 32), std::invalid_argument);
  CHECK_THROWS(Matrix(Format::f32, 32, -1), std::invalid_argument);
  CHECK_THROWS(Activations(0, 32), std::invalid_argument);
  CHECK_THROWS(format_named("IQ3_S"), std::invalid_argument);
  Matrix matrix(Format::q8_0, 70, 32);
  const std::vector<uint8_t> file(70 * 34);
  CHECK_THROWS(matrix.pack(0, 70, file.data(), file.size() - 1), std::invalid_argument);
  CHECK_THROWS(matrix.pack(16, 32, file.data(), 32 * 34), std::invalid_argument);
  CHECK_THROWS(matrix.pack(0, 33, file.data(), 33 * 34), std::invalid_argument);
  CHECK_THROWS(matrix.pack(64, 32, file.data(), 32 * 34), std::invalid_argument);
  CHECK_THROWS(matrix.pack(-32, 32, file.data(), 32 * 34), std::invalid_argument);
}

TEST(matrix_quantises_activations_to_within_half_a_step) {
  std::mt19937 random(3);
  Activations x = random_activations(3, 512, random);
  std::fill_n(x.f32(1), 256, 1.5f);  // neighbours all alike: the scale widens until their sums fit
  std::fill_n(x.f32(2), 512, 0.0f);
  portable_kernels().quantise(x, 0, 512);
  for (int row = 0; row < 3; ++row) {
    for (int k = 0; k < 512; ++k) {
      const double error32 = std::abs(represented(x, ActivationKind::int8_32, row, k) - x.f32(row)[k]);
      const double error256 = std::abs(represented(x, ActivationKind::int8_256, row, k) - x.f32(row)[k]);
      CHECK(error32 <= 0.50001 * x.scale32(k / kBlock, row)->scale);
      CHECK(error256 <= 0.50001 * x.scale256(k / kSuperBlock, row)->scale);
    }
    for (int k = 0; k < 512; k += 16) {
      int total = 0;
      for (int i = k; i < k + 16; ++i) total += std::abs(x.q256(k / kBlock, row)[i % kBlock]);
      CHECK(total <= kMostAbsSum16);
    }
  }
}

TEST(matrix_product_is_the_dot_product_of_what_the_blocks_represent) {
  std::mt19937 random(4);
  for (const Format format : kFormats) {
    const int rows = 50, cols = 3 * smallest_cols(format);
    const Matrix w = packed(format, rows, cols, random_rows(format, rows, cols, false, random));
    Activations x = random_activations(5, cols, random);
    const std::vector<float> y = product(portable_kernels(), w, x);
    std::vector<float> weights(cols);
    for (int n = 0; n < rows; ++n) {
      w.dequantise_row(n, weights.data());
      for (int m = 0; m < x.rows; ++m) {
        double dot = 0, magnitude = 0;
        for (int k = 0; k < cols; ++k) {
          const double term = weights[k] * represented(x, format_info(format).activation, m, k);
          dot += term;
          magnitude += std::abs(term);
        }
        CHECK(std::abs(y[m * rows + n] - dot) <= 1e-5 * magnitude);
      }
    }
  }
}

TEST(matrix_kernels_give_the_portable_bits) {
  std::mt19937 random(5);
  for (const Format format : kFormats) {
    for (int rows = 1; rows <= 33; ++rows) {
      const int cols = smallest_cols(format) * (1 + rows % 3), outputs = 31 + rows;
      const Matrix w = packed(format, outputs, cols, random_rows(format, outputs, cols, false, random));
      Activations x = random_activations(rows, cols, random);
      check_kernels_agree(w, x, "random");
    }
  }
}

TEST(matrix_kernels_give_the_portable_bits_at_the_extremes) {
  std::mt19937 random(6);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Format format : kFormats) {
    const int outputs = 32, cols = 2 * smallest_cols(format);
    Activations x = random_activations(7, cols, random);
    std::fill_n(x.f32(1), cols, 3.0f);
    std::fill_n(x.f32(2), cols, -3.0f);
    std::fill_n(x.f32(3), cols, 0.0f);
    std::fill_n(x.f32(4), cols, 1e-38f);
    x.f32(5)[1] = infinity;
    x.f32(6)[cols - 1] = std::numeric_limits<float>::quiet_NaN();
    for (const int fill : {0x00, 0xff, 0x7f, 0x80}) {
      std::vector<uint8_t> file = random_rows(format, outputs, cols, false, random);
      const FormatInfo& info = format_info(format);
      for (size_t i = 0; i < file.size(); ++i) {
        const int at = static_cast<int>(i % info.file_bytes);
        const Halves halves = halves_of(format);
        const bool is_f16 = at / 2 == halves.scale / 2 || (halves.minimum > 0 && at / 2 == halves.minimum / 2);
        if (info.block > 1 && !is_f16) file[i] = static_cast<uint8_t>(fill);
      }
      check_kernels_agree(packed(format, outputs, cols, file), x, "codes all alike");
    }
    check_kernels_agree(packed(format, outputs, cols, random_rows(format, outputs, cols, true, random)), x, "any bits");
  }
}

TEST(matrix_row_does_not_depend_on_company_panels_or_slices) {
  std::mt19937 random(7);
  for (const Kernels* kernels : available_kernels()) {
    for (const Format format : kFormats) {
      const int outputs = 100, cols = 2 * smallest_cols(format), rows = 37;
      const Matrix w = packed(format, outputs, cols, random_rows(format, outputs, cols, false, random));
      Activations all = random_activations(rows, cols, random);
      const std::vector<float> together = product(*kernels, w, all);
      for (const int m : {0, 1, 15, 16, 31, 36}) {
        Activations one = random_activations(1, cols, random);
        std::copy_n(all.f32(m), cols, one.f32(0));
        const std::vector<float> alone = product(*kernels, w, one);
        CHECK(std::equal(alone.begin(), alone.end(), together.begin() + m * outputs, [](float a, float b) {
          return same_bits(a, b);
        }));
      }
      std::vector<float> slices(together.size());
      kernels->quantise(all, cols / 2, cols);
      kernels->quantise(all, 0, cols / 2);
      for (const auto& [first, last] : {std::pair{3, 4}, {0, 1}, {1, 3}}) {
        kernels->multiply(w, first, last, all, {slices.data(), outputs});
      }
      CHECK(same_bits(slices, together));
    }
  }
}

TEST(matrix_product_writes_its_own_outputs_only) {
  std::mt19937 random(8);
  for (const Kernels* kernels : available_kernels()) {
    for (const int outputs : {1, 15, 16, 17, 31, 33}) {
      const Matrix w = packed(Format::q8_0, outputs, 32, random_rows(Format::q8_0, outputs, 32, false, random));
      Activations x = random_activations(2, 32, random);
      kernels->quantise(x, 0, 32);
      std::vector<float> y(2 * (outputs + 1), 7.0f);
      kernels->multiply(w, 0, w.panels(), x, {y.data(), outputs + 1});
      CHECK_EQUAL(y[outputs], 7.0f);
      CHECK_EQUAL(y[2 * outputs + 1], 7.0f);
    }
  }
}

TEST(matrix_product_multiplies_a_row_by_its_factor_once_at_the_end) {
  std::mt19937 random(9);
  const float factors[3] = {0.3f, -7.0f, 1e-20f};
  for (const Kernels* kernels : available_kernels()) {
    for (const Format format : {Format::f32, Format::q4_1, Format::q8_0, Format::q4_k}) {
      const int outputs = 33, cols = smallest_cols(format);
      const Matrix w = packed(format, outputs, cols, random_rows(format, outputs, cols, false, random));
      Activations x = random_activations(3, cols, random);
      std::vector<float> want = product(*kernels, w, x), y(want.size());
      for (int i = 0; i < int(want.size()); ++i) want[i] *= factors[i / outputs];
      kernels->multiply(w, 0, w.panels(), x, {y.data(), outputs, factors});
      CHECK(same_bits(y, want));
    }
  }
}

TEST(matrix_columns_that_lie_apart_are_quantised_to_the_same) {
  std::mt19937 random(10);
  constexpr int kCols = 768, kRowCount = 3, kBorder = 256;
  for (const Kernels* kernels : available_kernels()) {
    for (const Format format : {Format::q4_1, Format::q4_k}) {
      const Matrix w = packed(format, 32, kCols, random_rows(format, 32, kCols, false, random));
      Activations whole = random_activations(kRowCount, kCols, random), apart(kRowCount + 4, kCols);
      apart.rows = kRowCount, apart.cols = kCols, apart.apart = true;
      apart.want(format);
      for (int row = 0; row < kRowCount; ++row) {
        std::copy_n(whole.f32(row), kBorder, apart.f32(row, 0, kBorder));
        std::copy_n(whole.f32(row) + kBorder, kCols - kBorder, apart.f32(row, kBorder, kCols));
      }
      kernels->quantise(apart, 0, kBorder);
      kernels->quantise(apart, kBorder, kCols);
      std::vector<float> y(kRowCount * 32);
      kernels->multiply(w, 0, 1, apart, {y.data(), 32});
      CHECK(same_bits(y, product(*kernels, w, whole)));
    }
  }
}

TEST(kernels_are_chosen_by_name) {
  CHECK_EQUAL(choose_kernels("portable").name, std::string("portable"));
  CHECK_EQUAL(available_kernels().back()->name, std::string("portable"));
  CHECK_THROWS(choose_kernels("abacus"), std::invalid_argument);
}

}  // namespace outpace::test
