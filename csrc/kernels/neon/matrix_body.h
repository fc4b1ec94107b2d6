// Matrix products with NEON: the sums of kernels/portable/matrix.cpp, a lane for every output row. Compiled by matrix.cpp
// and, with the 8-bit matrix product, by matrix_i8mm.cpp.
//
// A block of weights is unpacked once, into memory that stays in the first-level cache, and then meets the rows of
// activations of a tile four at a time: with sixteen outputs these are sixteen sums in registers.
#pragma once

#include "kernels/ahead.h"
#include "kernels/neon/dots.h"
#include "kernels/neon/lanes.h"
#include "matrix.h"

namespace outpace {
namespace {

struct Rows {  // of one tile of the activations
  const Activations& x;
  int first, count;
  Onward onward;
};

struct Outputs {
  float32x4_t acc[kRowTile][kVectors];
};

constexpr int kAtOnce = 4;  // rows, and registers of a panel

// Of a tile of `rows`: how often in_parts() asks for memory ahead.
constexpr int parts(int rows) { return (rows / 4 + rows % 4 / 2 + rows % 2) * kVectors / kAtOnce; }

template <int R, class Work>
inline void in_vectors(int m, Ahead& ahead, Work& work) {
  for (int v = 0; v < kVectors; v += kAtOnce) {
    ahead.ask_some();
    work.template operator()<R, kAtOnce>(m, v);
  }
}

// Calls work<R, N>(m, v) for rows m to m + R and registers v to v + N of a panel until all of both are done.
template <class Work>
inline void in_parts(int rows, Ahead& ahead, Work work) {
  int m = 0;
  for (; rows - m >= 4; m += 4) in_vectors<4>(m, ahead, work);
  if (rows - m >= 2) in_vectors<2>(m, ahead, work), m += 2;
  if (rows > m) in_vectors<1>(m, ahead, work);
}

// -- blocks of 32 -----------------------------------------------------------------------------------------------------

template <class Block>
void multiply_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = rows.x.q32(0, rows.first);
  const BlockScale* x = rows.x.scale32(0, rows.first);
  for (const Block* end = blocks + count; blocks != end; ++blocks, q += kBlock * rows.count, x += rows.count) {
    const Block& block = *blocks;
    Ahead ahead(block, rows.onward, 0, 1, parts(rows.count));
    Steps steps;
    unpack(block, steps);
    in_parts(rows.count, ahead, [&]<int R, int N>(int m, int v) {
      const Grid<R, N> sums = dots<0, kSteps, R, N>(steps, v, q + m * kBlock);
      for (int n = 0; n < N; ++n) {
        const float32x4_t scale = load_f16(block.scale + 4 * (v + n));
        for (int i = 0; i < R; ++i) {
          float32x4_t& acc = out.acc[m + i][v + n];
          acc = vfmaq_f32(acc, vcvtq_f32_s32(sums.of[i][n]), vmulq_n_f32(scale, x[m + i].scale));
          if constexpr (requires { block.minimum; }) {
            acc = vfmaq_n_f32(acc, load_f16(block.minimum + 4 * (v + n)), x[m + i].scaled_sum);
          }
        }
      }
    });
  }
}

// -- super-blocks -----------------------------------------------------------------------------------------------------

struct Sums {
  int32x4_t dot[kRowTile][kVectors];  // of the super-block so far
};

template <class Block>
inline void add_sub_block(const Block& block, int j, const int8_t* q, int rows, Ahead& ahead, Sums& out) {
  Steps steps;
  unpack(block, j, steps);
  in_parts(rows, ahead, [&]<int R, int N>(int m, int v) {
    const auto add = [&](const Grid<R, N>& sums, int j16) {
      for (int n = 0; n < N; ++n) {
        const int32x4_t scale = scale_of(block, j16, v + n);
        for (int i = 0; i < R; ++i) {
          int32x4_t& dot = out.dot[m + i][v + n];
          dot = vmlaq_s32(dot, sums.of[i][n], scale);
        }
      }
    };
    if constexpr (kScalesOf16<Block>) {
      add(dots<0, kSteps / 2, R, N>(steps, v, q + m * kBlock), 2 * j);
      add(dots<kSteps / 2, kSteps, R, N>(steps, v, q + m * kBlock), 2 * j + 1);
    } else {
      add(dots<0, kSteps, R, N>(steps, v, q + m * kBlock), 2 * j);
    }
  });
}

// The sum of integer minima times a row's sums of activations; offsets[j * stride]: -32 times those over 16 inputs.
template <class Block>
inline int32x4_t min_dot(const Block& block, int v, const SuperBlockScale& x, const int32_t*, ptrdiff_t) {
  int32x4_t dot = vdupq_n_s32(0);
  for (int j = 0; j < kBlocksOfSuper; ++j) dot = vmlaq_n_s32(dot, minimum_of(block, j, v), x.sums[j]);
  return dot;
}

inline int32x4_t min_dot(const PanelQ2_K& block, int v, const SuperBlockScale&, const int32_t* offsets,
                         ptrdiff_t stride) {
  int32x4_t dot = vdupq_n_s32(0);
  for (int j = 0; j < 2 * kBlocksOfSuper; ++j) {
    dot = vmlaq_n_s32(dot, minimum_of(block, j, v), offsets[j / 2 * stride + j % 2] / -32);
  }
  return dot;
}

template <class Block>
inline void add_super_block(const Block& block, const Sums& sums, const SuperBlockScale* x, const int32_t* offsets,
                            int rows, Outputs& out) {
  for (int v = 0; v < kVectors; ++v) {
    const float32x4_t scale = load_f16(block.scale + 4 * v);
    for (int m = 0; m < rows; ++m) {
      float32x4_t part = vmulq_f32(scale, vcvtq_f32_s32(sums.dot[m][v]));
      if constexpr (requires { block.minimum; }) {
        const float32x4_t minimum = vnegq_f32(load_f16(block.minimum + 4 * v));
        part = vfmaq_f32(part, minimum, vcvtq_f32_s32(min_dot(block, v, x[m], offsets + 2 * m, 2 * rows)));
      }
      out.acc[m][v] = vfmaq_n_f32(out.acc[m][v], part, x[m].scale);
    }
  }
}

template <class Block>
void multiply_super_blocks(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  const Block* blocks = reinterpret_cast<const Block*>(panel);
  const int8_t* q = rows.x.q256(0, rows.first);
  const int32_t* offsets = rows.x.offsets256(0, rows.first);
  const SuperBlockScale* x = rows.x.scale256(0, rows.first);
  Sums sums;
  for (const Block* end = blocks + count; blocks != end; ++blocks, x += rows.count) {
    for (int m = 0; m < rows.count; ++m) {
      for (int32x4_t& dot : sums.dot[m]) dot = vdupq_n_s32(0);
    }
    for (int j = 0; j < kBlocksOfSuper; ++j, q += kBlock * rows.count) {
      Ahead ahead(*blocks, rows.onward, j, kBlocksOfSuper, parts(rows.count));
      add_sub_block(*blocks, j, q, rows.count, ahead, sums);
    }
    add_super_block(*blocks, sums, x, offsets, rows.count, out);
    offsets += kBlocksOfSuper * 2 * rows.count;
  }
}

// -- dense weights ----------------------------------------------------------------------------------------------------

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

inline float32x4_t load_dense(const float* column) { return vld1q_f32(column); }
inline float32x4_t load_dense(const F16* column) { return load_f16(&column->bits); }
inline float32x4_t load_dense(const Bf16* column) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&column->bits), 16));
}

template <class Weight>
void multiply_dense(const uint8_t* panel, int count, const Rows& rows, Outputs& out) {
  constexpr int kColumns = 64;  // so few that the next rows find the weights in the cache
  struct Stretch {
    Weight weights[kColumns][kPanelRows];
  };
  const Stretch* stretch = reinterpret_cast<const Stretch*>(panel);
  const ptrdiff_t stride = rows.x.f32_stride();
  for (int k = 0; k < count; k += kColumns, ++stretch) {
    const int columns = count - k < kColumns ? count - k : kColumns;
    Ahead ahead(*stretch, rows.onward, 0, 1, parts(rows.count));
    in_parts(rows.count, ahead, [&]<int R, int N>(int m, int v) {
      const float* x = rows.x.f32(rows.first + m) + k;
      float32x4_t sums[R][N];
      for (int i = 0; i < R; ++i) {
        for (int n = 0; n < N; ++n) sums[i][n] = out.acc[m + i][v + n];
      }
      for (int c = 0; c < columns; ++c) {
        for (int n = 0; n < N; ++n) {
          const float32x4_t w = load_dense(stretch->weights[c] + 4 * (v + n));
          for (int i = 0; i < R; ++i) sums[i][n] = vfmaq_n_f32(sums[i][n], w, x[i * stride + c]);
        }
      }
      for (int i = 0; i < R; ++i) {
        for (int n = 0; n < N; ++n) out.acc[m + i][v + n] = sums[i][n];
      }
    });
  }
}

// -- a matrix ---------------------------------------------------------------------------------------------------------

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
        for (float32x4_t& acc : out.acc[m]) acc = vdupq_n_f32(0.0f);
      }
      product(w.panel(p), count, rows, out);
      for (int m = 0; m < rows.count; ++m) {
        float* const to = y.row(row + m) + p * kPanelRows;
        const float factor = y.factor(row + m);
        for (int v = 0; v < kVectors; v += 4) {
          neon::F32x16 sixteen;
          for (int i = 0; i < 4; ++i) sixteen.v[i] = vmulq_n_f32(out.acc[m][v + i], factor);
          store_first(to + 4 * v, sixteen, outputs - 4 * v);
        }
      }
    }
  }
}

}  // namespace
}  // namespace outpace
