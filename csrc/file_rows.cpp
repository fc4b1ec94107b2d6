#include "file_rows.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace outpace {

FileRows::FileRows(Format format, int rows, int cols) : format(format), rows(rows), cols(cols) {
  const int block = format_info(format).block;
  if (rows < 1 || cols < 1 || cols % block != 0)
    throw std::invalid_argument("rows must be at least 1 and cols a multiple of " + std::to_string(block) + ", got " +
                                std::to_string(rows) + " x " + std::to_string(cols));
  data.reset(new uint8_t[bytes()]);
}

size_t FileRows::row_bytes() const {
  const FormatInfo& info = format_info(format);
  return size_t(cols / info.block) * info.file_bytes;
}

void FileRows::put(int first_row, int count, const uint8_t* file_rows, size_t size) {
  if (first_row < 0 || count < 0 || count > rows - first_row || size != size_t(count) * row_bytes())
    throw std::invalid_argument("rows [" + std::to_string(first_row) + ", " + std::to_string(first_row + count) +
                                ") of " + std::to_string(size) + " bytes do not fit in " + std::to_string(rows) +
                                " rows of " + std::to_string(row_bytes()) + " bytes");
  std::memcpy(data.get() + size_t(first_row) * row_bytes(), file_rows, size);
}

}  // namespace outpace
