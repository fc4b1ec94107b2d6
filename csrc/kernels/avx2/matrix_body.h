// Matrix products with AVX2: the sums of kernels/portable/matrix.cpp, a lane for every output row. Compiled by matrix.cpp
// and, with the dot instruction, by matrix_vnni.cpp.
//
// A block of weights is unpacked once, into memory that stays in the first-level cache, and then meets the rows of
// activations of a tile; few rows take codes where they lie.
#pragma once

#include <utility>

#include "kernels/avx2/blocks.h"
#include "kernels/avx2/dense.h"
#include "kernels/avx2/lanes.h"
#include "kernels/avx2/super_blocks.h"

namespace outpace {
namespace {

using Product = void (*)(const uint8_t* panel, int count, const Rows& rows, Outputs& out);

// make<unpacked, rows>(): the product for so many rows, or, with 0, for any number. One to eight rows of the formats that
// models mostly come in have a product each, in which compilers know all addresses and where each prefetch goes.
template <class Block, class Make, size_t... less_one>
Product for_known_rows(int rows, Make make, std::index_sequence<less_one...>) {
  static constexpr Product kProducts[] = {make.template operator()<(less_one >= kFew<Block>), int(less_one) + 1>()...};
  return kProducts[rows - 1];
}

template <class Block, class Make>
Product for_rows(int rows, bool once, Make make) {
  if constexpr (kRowsKnown<Block>) {
    if (once && rows <= 8) return for_known_rows<Block>(rows, make, std::make_index_sequence<8>());
  }
  if constexpr (kFew<Block> > 0) {
    if (rows <= kFew<Block>) return make.template operator()<false, 0>();
  }
  if constexpr (kFew<Block> < kRowTile) return make.template operator()<true, 0>();
  return nullptr;
}

template <class Block>
Product of_blocks(int rows, bool once) {
  return for_rows<Block>(rows, once, []<bool unpacked, int known_rows>() -> Product {
    return multiply_blocks<Block, unpacked, known_rows>;
  });
}

template <class Block>
Product of_super_blocks(int rows, bool once) {
  return for_rows<Block>(rows, once, []<bool unpacked, int known_rows>() -> Product {
    return multiply_super_blocks<Block, unpacked, known_rows>;
  });
}

// once: Products::once
Product product_of(Format format, int rows, bool once) {
  switch (format) {
    case Format::f32: return multiply_dense<float>;
    case Format::f16: return multiply_dense<F16>;
    case Format::bf16: return multiply_dense<Bf16>;
    case Format::q4_0: return of_blocks<PanelQ4_0>(rows, once);
    case Format::q4_1: return of_blocks<PanelQ4_1>(rows, once);
    case Format::q5_0: return of_blocks<PanelQ5_0>(rows, once);
    case Format::q5_1: return of_blocks<PanelQ5_1>(rows, once);
    case Format::q8_0: return of_blocks<PanelQ8_0>(rows, once);
    case Format::q2_k: return of_super_blocks<PanelQ2_K>(rows, once);
    case Format::q3_k: return of_super_blocks<PanelQ3_K>(rows, once);
    case Format::q4_k: return of_super_blocks<PanelQ4_K>(rows, once);
    case Format::q5_k: return of_super_blocks<PanelQ5_K>(rows, once);
    case Format::q6_k: return of_super_blocks<PanelQ6_K>(rows, once);
    case Format::iq4_nl: return of_blocks<PanelIQ4_NL>(rows, once);
    case Format::iq4_xs: return of_super_blocks<PanelIQ4_XS>(rows, once);
  }
  return nullptr;
}

void multiply_panels(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
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
      product_of(w.format, rows.count, y.once)(w.panel(p), count, rows, out);
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
