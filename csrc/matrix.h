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
  // Where panels [begin, end) begin; null if there are none.
  const uint8_t* start(int begin, int end) const { return begin < end ? panel(begin) : nullptr; }

  // Packs rows [first_row, first_row + count) from the file's own layout; first_row is a multiple of kPanelRows, and
  // so is count unless the last row is among them. Rows past `rows` in the last panel are zeros.
  // Throws std::invalid_argument when sizes disagree. Disjoint rows may be packed from several threads at once.
  void pack(int first_row, int count, const uint8_t* file_rows, size_t size);
  void dequantise_row(int row, float* out) const;  // [cols]; exactly the file's values
  Matrix view(int first_panel, int count) const;   // of whole panels, which stay where they are

 private:
  Matrix(Format format, int rows, int cols, std::shared_ptr<uint8_t> data);
};

// What a block of 32 quantised activations has beside its int8: x = scale * q.
struct BlockScale {
  float scale;
  float scaled_sum;     // scale * sum of q
  int32_t negated_sum;  // -sum of q; of the AVX2 kernels two 16-bit sums, see kernels/avx2/dots.h
};

// The same for a super-block of 256. The scale is such that no 16 neighbours have more than kMostAbsSum16 together in
// absolute value: then a dot product with 4-bit weights over 32 inputs, or with 6-bit weights over 16, fits into 16
// bits, and two of them meet their integer scales in one instruction.
struct SuperBlockScale {
  float scale;
  int16_t sums[kBlocksOfSuper];  // of q over 32 inputs
};
constexpr int kMostAbsSum16 = 1023;

// Output n of row m goes to y[m * stride + n], multiplied by factors[m] where there are any: a norm's factor may be known
// later than what it multiplies.
struct Products {
  float* y;
  ptrdiff_t stride;
  const float* factors = nullptr;
  const uint8_t* next = nullptr;  // weights that the thread reads after these, where known
  bool once = false;              // whether the caches will hold other things when these weights are read again

  float* row(int m) const { return y + m * stride; }
  float factor(int m) const { return factors == nullptr ? 1.0f : factors[m]; }
};

// Rows of activations that meet an unpacked block of weights. Their int8 blocks lie side by side, [block][row][32].
constexpr int kRowTile = 16;

// Buffers for up to `max_rows` rows of up to `max_cols` columns; no allocation after construction.
struct Activations {
  Activations(int max_rows, int max_cols);  // throws std::invalid_argument, std::bad_alloc
  int rows = 0, cols = 0;
  // What the matrices read that will meet it: quantise() has to produce the int8 forms.
  bool wants_32 = false, wants_256 = false, wants_f32 = false;
  void want(Format format);                  // of a matrix that will

  float* f32(int row) { return f32_.get() + row * f32_stride(); }  // [cols], 64-byte aligned
  const float* f32(int row) const { return f32_.get() + row * f32_stride(); }
  ptrdiff_t f32_stride() const { return (cols + 15) / 16 * 16; }

  // Columns [col0, col1) of a row, for whoever writes just these and quantises them. Where columns lie `apart`, those of
  // one writer follow each other row by row, far from others', and f32(row) means nothing.
  bool apart = false;
  float* f32(int row, int col0, int col1) { return f32_.get() + place_f32(row, col0, col1); }
  const float* f32(int row, int col0, int col1) const { return f32_.get() + place_f32(row, col0, col1); }
  ptrdiff_t f32_stride(int col0, int col1) const { return apart ? col1 - col0 : f32_stride(); }

  // Rows of the tile that `row` is in: the distance between two blocks of a row.
  int tile_width(int row) const {
    const int after_first = rows - row / kRowTile * kRowTile;
    return after_first < kRowTile ? after_first : kRowTile;
  }
  // Where the int8 forms keep a block (or super-block) of a row; the next rows of its tile follow it.
  int8_t* q32(int block, int row) const { return q32_.get() + kBlock * place(block, row, cols / kBlock); }
  BlockScale* scale32(int block, int row) const { return scales32_.get() + place(block, row, cols / kBlock); }
  int8_t* q256(int block, int row) const { return q256_.get() + kBlock * place(block, row, cols / kBlock); }
  // [2]: -32 times the sum of q over 16 inputs, for Q6_K's code 32; of the AVX2 kernels in two 16-bit sums.
  int32_t* offsets256(int block, int row) const {
    return offsets256_.get() + 2 * place(block, row, cols / kBlock);
  }
  SuperBlockScale* scale256(int super_block, int row) const {
    return scales256_.get() + place(super_block, row, cols / kSuperBlock);
  }

 private:
  ptrdiff_t place_f32(int row, int col0, int col1) const {
    return row * f32_stride(col0, col1) + (apart ? max_rows_ : 1) * ptrdiff_t(col0);
  }
  ptrdiff_t place(int block, int row, int blocks) const {
    const int first = row / kRowTile * kRowTile;
    return static_cast<ptrdiff_t>(first) * blocks + block * tile_width(row) + (row - first);
  }

  template <class T>
  using Buffer = std::unique_ptr<T[], void (*)(void*)>;
  const int max_rows_;
  Buffer<float> f32_;
  Buffer<int8_t> q32_, q256_;
  Buffer<BlockScale> scales32_;
  Buffer<int32_t> offsets256_;
  Buffer<SuperBlockScale> scales256_;
};

}  // namespace outpace
