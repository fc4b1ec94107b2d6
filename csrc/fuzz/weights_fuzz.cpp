// Bytes of a weight file as the engine takes them in: sizes that may not fit, any bits as weights. Nothing may be read
// or written out of bounds, whatever comes is either refused or packed, a packed row reads back as the file's, and every
// instruction set multiplies it to the same bits.
//
// Input: format, rows, columns in blocks, rows of activations, first row and count to pack (one byte each), then the
// bytes of the rows.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "file_rows.h"
#include "matrix.h"
#include "weight_rounding.h"

namespace outpace {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct Input {
  const uint8_t* data;
  size_t size;
  int byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};

// The bytes of `rows` rows, repeated or cut to what they have to be.
std::vector<uint8_t> filled(const Input& input, size_t bytes) {
  std::vector<uint8_t> all(bytes);
  for (size_t i = 0; i < bytes && input.size > 0; ++i) all[i] = input.data[i % input.size];
  return all;
}

void check_products(const Matrix& w, int rows) {
  Activations x(rows, w.cols);
  x.rows = rows;
  x.cols = w.cols;
  x.wants_32 = format_info(w.format).activation == ActivationKind::int8_32;
  x.wants_256 = format_info(w.format).activation == ActivationKind::int8_256;
  const std::vector<float> weights = [&] {
    std::vector<float> row(static_cast<size_t>(w.cols));
    w.dequantise_row(0, row.data());  // activations as wild as the file itself
    return row;
  }();
  for (int m = 0; m < rows; ++m) {
    for (int k = 0; k < w.cols; ++k) x.f32(m)[k] = (k + m) % 7 == 0 ? weights[static_cast<size_t>(k)] : 0.1f * static_cast<float>(k % 11 - m);
  }
  std::vector<float> expected;
  static const std::vector<const Kernels*> sets = available_kernels();
  for (const Kernels* kernels : sets) {
    std::vector<float> y(static_cast<size_t>(rows) * w.rows);
    kernels->quantise(x, 0, w.cols);
    kernels->multiply(w, 0, w.panels(), x, {y.data(), w.rows});
    if (expected.empty()) expected = y;
    require(std::equal(y.begin(), y.end(), expected.begin(), same), kernels->name);
  }
}

// Dense weights rounded at load: blocks of the size asked for, or a refusal of what is not finite.
void check_rounding(Format format, const std::vector<uint8_t>& file) {
  const size_t count = file.size() / static_cast<size_t>(format_info(format).file_bytes) / kBlock * kBlock;
  for (const Format target : {Format::q8_0, Format::q4_0}) {
    try {
      const std::vector<uint8_t> blocks = round_weights(format, file.data(), count, target);
      require(blocks.size() == count / kBlock * static_cast<size_t>(format_info(target).file_bytes), "whole blocks");
    } catch (const std::invalid_argument&) {
    }
  }
}

void run(Input input) {
  const Format format = static_cast<Format>(input.byte() % kFormatCount);
  const int rows = input.byte() % 40, blocks = input.byte() % 3, activations = 1 + input.byte() % 5;
  const int first = input.byte() - 8, count = input.byte() - 8;
  const int cols = blocks * std::max(format_info(format).block, kBlock);
  try {
    Matrix part(format, rows, cols);
    part.pack(first, count, input.data, input.size);  // sizes seldom agree
  } catch (const std::invalid_argument&) {
  }
  try {
    FileRows table(format, rows, cols);
    table.put(first, count, input.data, input.size);
  } catch (const std::invalid_argument&) {
  }
  if (rows == 0 || cols == 0) return;
  Matrix w(format, rows, cols);
  FileRows table(format, rows, cols);
  const std::vector<uint8_t> file = filled(input, w.file_row_bytes() * static_cast<size_t>(rows));
  // Whole panels, and bits beside the file's own for the K formats' integers only.
  const size_t whole = w.file_row_bytes() * static_cast<size_t>(w.panels() * kPanelRows);
  require(w.bytes() <= whole + whole / 16, "panels hold what the file holds");
  w.pack(0, rows, file.data(), file.size());
  table.put(0, rows, file.data(), file.size());
  std::vector<float> packed(static_cast<size_t>(cols)), looked_up(static_cast<size_t>(cols));
  for (int row = 0; row < rows; ++row) {
    w.dequantise_row(row, packed.data());
    table.dequantise_row(row, looked_up.data());
    require(std::equal(packed.begin(), packed.end(), looked_up.begin(), same), "a packed row is the file's");
  }
  check_products(w, activations);
  if (block_functions(format) == nullptr) check_rounding(format, file);
}

}  // namespace
}  // namespace outpace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  outpace::run({data, size});
  return 0;
}
