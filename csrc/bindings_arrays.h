// NumPy arrays in and out, without a copy on the way out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "buffers.h"

namespace outpace {

namespace nb = nanobind;

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using NumpyFloats = nb::ndarray<nb::numpy, float>;

// An array that starts at `first` of a buffer and keeps all of the buffer alive.
inline NumpyFloats as_array(const Floats& buffer, size_t first, std::initializer_list<size_t> shape) {
  const nb::capsule owner(new Floats(buffer), [](void* held) noexcept { delete static_cast<Floats*>(held); });
  return NumpyFloats(buffer.get() + first, shape.size(), shape.begin(), owner);
}

// Python's integers, out of whose 64 bits a model takes 32.
inline std::vector<int32_t> as_int32(const std::vector<int64_t>& values, const char* what) {
  std::vector<int32_t> out;
  out.reserve(values.size());
  for (const int64_t value : values) {
    if (value != static_cast<int32_t>(value))
      throw std::invalid_argument(std::string(what) + " must fit in 32 bits, got " + std::to_string(value));
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace outpace
