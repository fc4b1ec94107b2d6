// Matrices, formats, kernels and ceilings for Python.

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings_arrays.h"
#include "file_rows.h"
#include "matrix.h"
#include "measure.h"
#include "threads.h"
#include "weight_rounding.h"

namespace outpace {

static int count_rows(const Bytes& file_rows, size_t row_bytes) {
  if (file_rows.size() % row_bytes != 0 || file_rows.size() / row_bytes > size_t(INT32_MAX))
    throw std::invalid_argument("a row takes " + std::to_string(row_bytes) + " bytes, got " +
                                std::to_string(file_rows.size()) + " bytes of rows");
  return int(file_rows.size() / row_bytes);
}

static void pack(Matrix& w, int first_row, const Bytes& file_rows) {
  const int count = count_rows(file_rows, w.file_row_bytes());
  const nb::gil_scoped_release release;
  w.pack(first_row, count, file_rows.data(), file_rows.size());
}

static void put(FileRows& table, int first_row, const Bytes& file_rows) {
  const int count = count_rows(file_rows, table.row_bytes());
  const nb::gil_scoped_release release;
  table.put(first_row, count, file_rows.data(), file_rows.size());
}

template <class Rows>
static NumpyFloats row(const Rows& w, int index) {
  if (index < 0 || index >= w.rows)
    throw std::invalid_argument("row must be in [0, " + std::to_string(w.rows) + "), got " + std::to_string(index));
  const Floats out(new float[w.cols]);
  w.dequantise_row(index, out.get());
  return as_array(out, 0, {size_t(w.cols)});
}

static NumpyFloats multiply(const Matrix& w, const Table& x, const std::string& kernel, int threads) {
  const int rows = int(x.shape(0));
  if (x.shape(1) != size_t(w.cols))
    throw std::invalid_argument("x must have " + std::to_string(w.cols) + " columns, got " +
                                std::to_string(x.shape(1)));
  const Kernels& kernels = choose_kernels(kernel);
  const std::shared_ptr<ThreadPool> pool = shared_thread_pool(threads);
  const Floats out(new float[size_t(rows) * w.rows]);
  if (rows > 0) {
    const nb::gil_scoped_release release;
    Activations activations(rows, w.cols);
    activations.rows = rows;
    activations.cols = w.cols;
    activations.wants_32 = format_info(w.format).activation == ActivationKind::int8_32;
    activations.wants_256 = format_info(w.format).activation == ActivationKind::int8_256;
    for (int i = 0; i < rows; ++i) std::copy_n(x.data() + size_t(i) * w.cols, w.cols, activations.f32(i));
    kernels.quantise(activations, 0, w.cols);
    pool->run([&](int thread, int count) {
      const Range share = static_share(w.panels(), thread, count);
      if (share.begin < share.end) kernels.multiply(w, share.begin, share.end, activations, {out.get(), w.rows});
    });
  }
  return as_array(out, 0, {size_t(rows), size_t(w.rows)});
}

static nb::object round_rows(const Bytes& rows, const std::string& from, const std::string& to) {
  const Format source = format_named(from), target = format_named(to);
  const size_t weight_bytes = size_t(format_info(source).file_bytes);
  if (rows.size() % weight_bytes != 0)
    throw std::invalid_argument("weights of " + from + " take " + std::to_string(weight_bytes) + " bytes each, got " +
                                std::to_string(rows.size()));
  auto* const blocks = new std::vector<uint8_t>();
  nb::capsule owner(blocks, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
  {
    const nb::gil_scoped_release release;
    *blocks = round_weights(source, rows.data(), rows.size() / weight_bytes, target);
  }
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(blocks->data(), {blocks->size()}, owner));
}

static size_t packed_bytes(const std::string& format, int rows, int cols) {
  const FormatInfo& info = format_info(format_named(format));
  if (rows < 1 || cols < 1 || cols % info.block != 0)
    throw std::invalid_argument(format + " needs rows >= 1 and columns in blocks of " + std::to_string(info.block) +
                                ", got " + std::to_string(rows) + " x " + std::to_string(cols));
  return size_t((rows + kPanelRows - 1) / kPanelRows) * (cols / info.block) * info.panel_bytes;
}

static nb::dict formats() {
  nb::dict all;
  for (int i = 0; i < kFormatCount; ++i) {
    const FormatInfo& info = format_info(static_cast<Format>(i));
    all[info.name] = nb::make_tuple(info.block, info.file_bytes);
  }
  return all;
}

}  // namespace outpace

void bind_matrix(nanobind::module_& module) {
  using namespace outpace;
  using namespace nanobind::literals;
  nb::class_<Matrix>(module, "Matrix", "A weight matrix in panels, at the file's own bits.")
      .def("__init__",
           [](Matrix* self, const std::string& format, int rows, int cols) {
             new (self) Matrix(format_named(format), rows, cols);
           },
           "format"_a, "rows"_a, "cols"_a)
      .def_prop_ro("format", [](const Matrix& w) { return format_info(w.format).name; })
      .def_ro("rows", &Matrix::rows)
      .def_ro("cols", &Matrix::cols)
      .def_prop_ro("nbytes", &Matrix::bytes, "Bytes that a product reads.")
      .def("pack", &pack, "first_row"_a, "file_rows"_a,
           "Packs the file's bytes of some rows, from `first_row` (a multiple of panel_rows) on.")
      .def("row", &row<Matrix>, "index"_a, "Returns a row's values, [cols] f32, exactly the file's.")
      .def("multiply", &multiply, "x"_a, "kernel"_a = "", "threads"_a = 1,
           "Returns x [n, cols] times the matrix, [n, rows] f32.");

  nb::class_<FileRows>(module, "FileRows", "A matrix whose rows are only looked up, in the file's own layout.")
      .def("__init__",
           [](FileRows* self, const std::string& format, int rows, int cols) {
             new (self) FileRows(format_named(format), rows, cols);
           },
           "format"_a, "rows"_a, "cols"_a)
      .def_ro("rows", &FileRows::rows)
      .def_ro("cols", &FileRows::cols)
      .def_prop_ro("nbytes", &FileRows::bytes)
      .def("put", &put, "first_row"_a, "file_rows"_a, "Copies the file's bytes of some rows, from `first_row` on.")
      .def("row", &row<FileRows>, "index"_a, "Returns a row's values, [cols] f32, exactly the file's.");

  module.attr("panel_rows") = kPanelRows;
  module.def("formats", &formats, "Returns name -> (weights of a block, its bytes in a file) of every weight format.");
  module.def("round_weights", &round_rows, "weights"_a, "source"_a, "target"_a,
             "Returns the bytes of dense weights rounded to Q8_0 or Q4_0, as a file would hold them.");
  module.def("packed_bytes", &packed_bytes, "format"_a, "rows"_a, "cols"_a, "Returns the bytes of a packed matrix.");
  module.def(
      "kernels",
      [] {
        std::vector<std::string> names;
        for (const Kernels* kernels : available_kernels()) names.emplace_back(kernels->name);
        return names;
      },
      "Returns the names of the kernels that this processor runs, best first.");
  module.def("chosen_kernel", [](const std::string& name) { return std::string(choose_kernels(name).name); },
             "name"_a = "", "Returns the kernels that `name`, or else OUTPACE_KERNEL, or else the processor calls for.");
  module.def("cpu_features", &cpu_features, "Returns the names of the processor's features that matter here.");
  module.def(
      "measure_bandwidth",
      [](int threads, size_t bytes, const std::string& kernel) {
        const Kernels& kernels = choose_kernels(kernel);
        const nb::gil_scoped_release release;
        return measure_bandwidth(threads, bytes, kernels);
      },
      "threads"_a, "bytes"_a = size_t(512) << 20, "kernel"_a = "",
      "Returns the bytes a second that a plain sum reads from memory.");
  module.def(
      "measure_integer_rate",
      [](int threads, const std::string& kernel, bool wide) {
        const Kernels& kernels = choose_kernels(kernel);
        const nb::gil_scoped_release release;
        return measure_integer_rate(threads, kernels, wide);
      },
      "threads"_a, "kernel"_a = "", "wide"_a = false,
      "Returns 8-bit integer multiply-adds a second, operands in registers; `wide`: with codes of all 8 bits.");
}
