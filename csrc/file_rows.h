// A matrix whose rows are only looked up, never multiplied: an untied embedding, in the file's own layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "formats.h"

namespace outpace {

struct FileRows {
  Format format;
  int rows, cols;
  std::unique_ptr<uint8_t[]> data;

  FileRows(Format format, int rows, int cols);  // throws std::invalid_argument on bad shapes, std::bad_alloc
  size_t row_bytes() const;
  size_t bytes() const { return size_t(rows) * row_bytes(); }
  // Copies the file's bytes of rows [first_row, first_row + count). Throws std::invalid_argument when sizes disagree.
  void put(int first_row, int count, const uint8_t* file_rows, size_t size);
  void dequantise_row(int row, float* out) const {  // [cols]; exactly the file's values
    dequantise_file_row(format, data.get() + size_t(row) * row_bytes(), cols, out);
  }
};

}  // namespace outpace
