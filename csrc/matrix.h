// Weights as the kernels read them: panels of kPanelRows output rows at the file's own bits, and the activations they
// meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "formats.h"
#include "kernels/kernels.h"

namespace outpace {

struct Matrix {
  Format format;
  int rows, cols;                 // rows = outputs; cols = inputs, a multiple of the format's block
  std::shared_ptr<uint8_t> data;  // 64-byte aligned, [panel][block]

  Matrix(Format format, int rows, int cols);  // throws std::invalid_argument on bad shapes, std::bad_alloc
  int panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int blocks() const;             // of a row
  size_t file_row_bytes() const;
  size_t panel_bytes() const;     // of one panel, all columns
  size_t bytes() const;           // of all panels: what a multiply reads
  const uint8_t* panel(int index) const { return data.get() + static_cast<size_t>(index) * panel_bytes(); }

  // Packs rows [first_row, first_row + count) from the file's own layout; first_row is a multiple of kPanelRows, and
  // so is count unless the last row is among them. Rows past `rows` in the last panel are zeros.
  // Throws std::invalid_argument when sizes disagree. Disjoint rows may be packed from several threads at once.
  void pack(int first_row, int count, const uint8_t* file_rows, size_t size);
  void dequantise_row(int row, float* out) const;  // [cols]; exactly the file's values
};

// What a block of 32 quantised activations has beside its int8: x = scale * q.
struct BlockScale {
  float scale;
  float scaled_sum;     // scale * sum of q
  int32_t negated_sum;  // -sum of q
};

// The same for a super-block of 256. The scale is such that no 16 neighbours have more than kMostAbsSum16 together in
// absolute value: then a dot product with 4-bit weights over 32 inputs, or with 6-bit weights over 16, fits into 16
// bits, and two of them meet their integer scales in one instruction.
struct SuperBlockScale {
  float scale;
  int32_t offsets[16];  // -32 times the sum of q over 16 inputs: what Q6_K's code 32 stands for
  int16_t sums[8];      // of q over 32 inputs
};
constexpr int kMostAbsSum16 = 1023;

// Buffers for up to `max_rows` rows of up to `max_cols` columns; no allocation after construction.
// The int8 forms of a row: [cols] in the row's order, and a scale for every block.
struct Activations {
  Activations(int max_rows, int max_cols);  // throws std::invalid_argument, std::bad_alloc
  int rows = 0, cols = 0;
  bool wants_32 = false, wants_256 = false;  // what quantise() has to produce for the matrices that will read it

  float* f32(int row) { return f32_.get() + row * f32_stride(); }  // [cols], 64-byte aligned
  const float* f32(int row) const { return f32_.get() + row * f32_stride(); }
  int8_t* q32(int row) { return q32_.get() + row * q_stride(); }
  const int8_t* q32(int row) const { return q32_.get() + row * q_stride(); }
  int8_t* q256(int row) { return q256_.get() + row * q_stride(); }
  const int8_t* q256(int row) const { return q256_.get() + row * q_stride(); }
  BlockScale* scales32(int row) { return scales32_.get() + row * (q_stride() / kBlock); }
  const BlockScale* scales32(int row) const { return scales32_.get() + row * (q_stride() / kBlock); }
  SuperBlockScale* scales256(int row) { return scales256_.get() + row * (q_stride() / kSuperBlock); }
  const SuperBlockScale* scales256(int row) const { return scales256_.get() + row * (q_stride() / kSuperBlock); }

  // Of one row of the current shape, in elements.
  ptrdiff_t f32_stride() const { return (cols + 15) / 16 * 16; }
  ptrdiff_t q_stride() const { return cols; }

 private:
  template <class T>
  using Buffer = std::unique_ptr<T[], void (*)(void*)>;
  Buffer<float> f32_;
  Buffer<int8_t> q32_, q256_;
  Buffer<BlockScale> scales32_;
  Buffer<SuperBlockScale> scales256_;
};

}  // namespace outpace
