// Weights as the kernels read them: panels of 16 output rows at the file's own bits, and the activations they meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace outpace {

enum class Format : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q8_0, q4_k, q6_k };

// How a format's activations are represented: f32, int8 in blocks of 32 with a scale each, or int8 in super-blocks of
// 256 with one scale and a sum every 16 (or 32).
enum class ActivationKind : uint8_t { f32, int8_32, int8_256 };

struct FormatInfo {
  const char* name;          // as GGUF spells it: "Q4_K"
  int block;                 // weights of a block of the file
  int file_bytes;            // bytes of a block in the file
  int panel_bytes;           // bytes of a block of kPanelRows rows in a panel
  ActivationKind activation;
};
const FormatInfo& format_info(Format format);
Format format_named(const std::string& name);  // throws std::invalid_argument, listing the known names

struct Matrix {
  Format format;
  int rows, cols;  // rows = outputs; cols = inputs, a multiple of the format's block
  std::unique_ptr<uint8_t[], void (*)(void*)> data;  // 64-byte aligned panels, then slack for prefetching

  Matrix(Format format, int rows, int cols);  // throws std::invalid_argument on bad shapes, std::bad_alloc
  int panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  size_t file_row_bytes() const;
  size_t panel_bytes() const;          // of one panel (all columns)
  size_t bytes() const;                // of all panels: what a multiply reads
  // Packs rows [first_row, first_row + count) from the file's own layout; first_row is a multiple of kPanelRows.
  // Rows past `rows` in the last panel are zero weights. Throws std::invalid_argument when sizes disagree.
  void pack(int first_row, int count, const uint8_t* file_rows, size_t size);
  void dequantise_row(int row, float* out) const;  // [cols]; exactly the file's values
};

// Buffers for up to `max_rows` rows of up to `max_cols` columns; no allocation after construction.
struct Activations {
  Activations(int max_rows, int max_cols);
  int rows = 0, cols = 0;
  bool wants_32 = false, wants_256 = false;  // what quantise() has to produce for the matrices that will read it
  float* f32(int row);                        // [cols], 64-byte aligned
  const float* f32(int row) const;
  // ... the quantised forms: layout is the kernels' own business, stated in matrix.cpp
};

}  // namespace outpace
