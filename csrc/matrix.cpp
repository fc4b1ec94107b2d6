#include "matrix.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "matrix_memory.h"

namespace outpace {
namespace {

constexpr size_t kCacheLine = 64;

void* allocate(size_t bytes) {
  void* memory = std::aligned_alloc(kCacheLine, (bytes + kCacheLine - 1) / kCacheLine * kCacheLine);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

std::string shape(int rows, int cols) { return std::to_string(rows) + " x " + std::to_string(cols); }

void check_shape(Format format, int rows, int cols) {
  const FormatInfo& info = format_info(format);
  if (rows < 1 || cols < 1 || cols % info.block != 0) {
    throw std::invalid_argument("a " + std::string(info.name) + " matrix needs at least one row and columns in " +
                                "multiples of " + std::to_string(info.block) + ", got " + shape(rows, cols));
  }
}

// Columns of a dense panel are written together: `kPanelRows` rows are read side by side.
void pack_dense(uint8_t* panel, const uint8_t* rows, int count, int cols, size_t row_bytes, size_t weight_bytes) {
  constexpr int kColumns = 64;
  for (int k0 = 0; k0 < cols; k0 += kColumns) {
    for (int lane = 0; lane < count; ++lane) {
      const uint8_t* from = rows + lane * row_bytes;
      for (int k = k0; k < std::min(cols, k0 + kColumns); ++k) {
        std::memcpy(panel + (static_cast<size_t>(k) * kPanelRows + lane) * weight_bytes, from + k * weight_bytes,
                    weight_bytes);
      }
    }
  }
}

}  // namespace

Matrix::Matrix(Format format_, int rows_, int cols_) : format(format_), rows(rows_), cols(cols_) {
  check_shape(format, rows, cols);
  data = allocate_weights(bytes());
  if (rows % kPanelRows != 0) std::memset(data.get() + bytes() - panel_bytes(), 0, panel_bytes());
}

Matrix::Matrix(Format format_, int rows_, int cols_, std::shared_ptr<uint8_t> data_)
    : format(format_), rows(rows_), cols(cols_), data(std::move(data_)) {}

Matrix Matrix::view(int first_panel, int count) const {
  const int first = first_panel * kPanelRows, last = std::min(rows, first + count * kPanelRows);
  return {format, last - first, cols, {data, data.get() + static_cast<size_t>(first_panel) * panel_bytes()}};
}

int Matrix::blocks() const { return cols / format_info(format).block; }

size_t Matrix::file_row_bytes() const { return static_cast<size_t>(blocks()) * format_info(format).file_bytes; }

size_t Matrix::panel_bytes() const { return static_cast<size_t>(blocks()) * format_info(format).panel_bytes; }

size_t Matrix::bytes() const { return panels() * panel_bytes(); }

void Matrix::pack(int first_row, int count, const uint8_t* file_rows, size_t size) {
  const bool whole_panels = first_row % kPanelRows == 0 && (count % kPanelRows == 0 || first_row + count == rows);
  if (first_row < 0 || count < 1 || count > rows - first_row || !whole_panels) {
    throw std::invalid_argument("rows are packed in whole panels of " + std::to_string(kPanelRows) + ", got rows " +
                                std::to_string(first_row) + " to " + std::to_string(first_row + count) + " of " +
                                std::to_string(rows));
  }
  const size_t row_bytes = file_row_bytes();
  if (size != row_bytes * count) {
    throw std::invalid_argument(std::to_string(count) + " rows of a " + format_info(format).name + " matrix of " +
                                shape(rows, cols) + " have " + std::to_string(row_bytes * count) + " bytes, got " +
                                std::to_string(size));
  }
  const FormatInfo& info = format_info(format);
  const BlockFunctions* functions = block_functions(format);
  for (int row = 0; row < count; row += kPanelRows) {
    uint8_t* panel = data.get() + (first_row + row) / kPanelRows * panel_bytes();
    const uint8_t* from = file_rows + row * row_bytes;
    const int lanes = std::min(kPanelRows, count - row);
    if (functions == nullptr) {
      pack_dense(panel, from, lanes, cols, row_bytes, info.file_bytes);
      continue;
    }
    BlockCodes codes;
    for (int b = 0; b < blocks(); ++b) {
      for (int lane = 0; lane < lanes; ++lane) {
        functions->read_file(from + lane * row_bytes + static_cast<size_t>(b) * info.file_bytes, codes);
        functions->write_panel(codes, panel + static_cast<size_t>(b) * info.panel_bytes, lane);
      }
    }
  }
}

void Matrix::dequantise_row(int row, float* out) const {
  const FormatInfo& info = format_info(format);
  const BlockFunctions* functions = block_functions(format);
  const uint8_t* block = panel(row / kPanelRows);
  const int lane = row % kPanelRows;
  BlockCodes codes;
  for (int k = 0; k < cols; k += info.block, block += info.panel_bytes) {
    if (functions == nullptr) {
      out[k] = dense_weight(format, block + static_cast<size_t>(lane) * info.file_bytes);
    } else {
      functions->read_panel(block, lane, codes);
      functions->dequantise(codes, out + k);
    }
  }
}

namespace {

template <class T>
std::unique_ptr<T[], void (*)(void*)> buffer(size_t count) {
  return {static_cast<T*>(allocate(count * sizeof(T))), std::free};
}

size_t checked_size(int max_rows, int max_cols) {
  if (max_rows < 1 || max_cols < 1) {
    throw std::invalid_argument("activations need at least one row and one column, got " + shape(max_rows, max_cols));
  }
  return static_cast<size_t>(max_rows) * ((static_cast<size_t>(max_cols) + 15) / 16 * 16);
}

}  // namespace

Activations::Activations(int max_rows, int max_cols)
    : max_rows_(max_rows),
      f32_(buffer<float>(checked_size(max_rows, max_cols))),
      q32_(buffer<int8_t>(checked_size(max_rows, max_cols))),
      q256_(buffer<int8_t>(checked_size(max_rows, max_cols))),
      scales32_(buffer<BlockScale>(checked_size(max_rows, max_cols) / kBlock + 1)),
      offsets256_(buffer<int32_t>(checked_size(max_rows, max_cols) / 16 + 1)),
      scales256_(buffer<SuperBlockScale>(checked_size(max_rows, max_cols) / kSuperBlock + 1)) {}

void Activations::want(Format format) {
  const ActivationKind kind = format_info(format).activation;
  wants_32 = wants_32 || kind == ActivationKind::int8_32;
  wants_256 = wants_256 || kind == ActivationKind::int8_256;
  wants_f32 = wants_f32 || kind == ActivationKind::f32;
}

}  // namespace outpace
