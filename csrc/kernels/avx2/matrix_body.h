// Matrix products with AVX2: the sums of kernels/portable/matrix.cpp, a lane for every output row. Compiled by matrix.cpp
// and, with the dot instruction, by matrix_vnni.cpp.
//
// A block of weights is unpacked once, into memory that stays in the first-level cache, and then meets the rows of
// activations of a tile.
#pragma once

#include "kernels/avx2/blocks.h"
#include "kernels/avx2/dense.h"
#include "kernels/avx2/lanes.h"
#include "kernels/avx2/super_blocks.h"

namespace outpace {
namespace {

using Product = void (*)(const uint8_t* panel, int count, const Rows& rows, Outputs& out);

Product product_of(Format format) {
  switch (format) {
    case Format::f32: return multiply_dense<float>;
    case Format::f16: return multiply_dense<F16>;
    case Format::bf16: return multiply_dense<Bf16>;
    case Format::q4_0: return multiply_blocks<PanelQ4_0>;
    case Format::q4_1: return multiply_blocks<PanelQ4_1>;
    case Format::q5_0: return multiply_blocks<PanelQ5_0>;
    case Format::q5_1: return multiply_blocks<PanelQ5_1>;
    case Format::q8_0: return multiply_blocks<PanelQ8_0>;
    case Format::q2_k: return multiply_super_blocks<PanelQ2_K>;
    case Format::q3_k: return multiply_super_blocks<PanelQ3_K>;
    case Format::q4_k: return multiply_super_blocks<PanelQ4_K>;
    case Format::q5_k: return multiply_super_blocks<PanelQ5_K>;
    case Format::q6_k: return multiply_super_blocks<PanelQ6_K>;
    case Format::iq4_nl: return multiply_blocks<PanelIQ4_NL>;
    case Format::iq4_xs: return multiply_super_blocks<PanelIQ4_XS>;
  }
  return nullptr;
}

void multiply_panels(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
  const Product product = product_of(w.format);
  const int count = w.blocks();
  const Onward onward(w.panel(panel1), y.next, y.once);
  Outputs out;
  for (int p = panel0; p < panel1; ++p) {
    const int outputs = w.rows - p * kPanelRows;
    for (int row = 0; row < x.rows; row += kRowTile) {
      const Rows rows{x, row, x.rows - row < kRowTile ? x.rows - row : kRowTile, onward};
      for (int m = 0; m < rows.count; ++m) {
        for (__m256& acc : out.acc[m]) acc = _mm256_setzero_ps();
      }
      product(w.panel(p), count, rows, out);
      for (int m = 0; m < rows.count; ++m) {
        float* const to = y.row(row + m) + p * kPanelRows;
        const avx2::F32x16 factor(y.factor(row + m));
        for (int v = 0; v < kVectors; v += 2) {
          store_first(to + 8 * v, avx2::F32x16(out.acc[m][v], out.acc[m][v + 1]) * factor, outputs - 8 * v);
        }
      }
    }
  }
}

}  // namespace
}  // namespace outpace
