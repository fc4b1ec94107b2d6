// Matrix products, as every instruction set must compute them, to the last bit.
//
// An output is one f32 accumulator that starts at +0 and takes the blocks of its row in order; a block's dot product is
// an exact integer. So the result depends on that row of weights and that row of activations only; the row's factor, if it
// has one, multiplies it once at the end.
//
//   F32, F16, BF16      acc = fma(w[k], x[k], acc)                         for k = 0, 1, ...
//   Q4_0 Q5_0 Q8_0      acc = fma(f32(dot), w.scale * x.scale, acc)        for every block of 32
//   IQ4_NL
//   Q4_1 Q5_1           the same, then acc = fma(w.minimum, x.scaled_sum, acc)
//   Q3_K Q6_K IQ4_XS    acc = fma(w.scale * f32(dot), x.scale, acc)        for every super-block of 256
//   Q2_K Q4_K Q5_K      part = fma(-w.minimum, f32(min_dot), w.scale * f32(dot)); acc = fma(part, x.scale, acc)
//
// dot is the sum of weight code (less the format's offset, or what stands at its place in a table) times activation,
// in the formats of 256 times the sub-block's integer scale; min_dot is the sum of integer minimum times the sub-block's
// sum of activations. Both are exact, in whatever order they are summed.
//
// A further format of 32 is one `read_codes` here; of 256 one `read_codes`, one `scale_of` and, if it has minima, one
// `minimum_of`.

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/portable/functions.h"
#include "matrix.h"
#include "numerics.h"

namespace outpace::portable {
namespace {

using numerics::f16_to_f32;
using numerics::fused;

// -- activations ------------------------------------------------------------------------------------------------------

// Below this a block is all zeros: its scale's reciprocal would overflow.
constexpr float kSmallestLargest = 1e-30f;

// The largest absolute value; NaN when there is one, infinity when there is one.
float largest_magnitude(const float* x, int n) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

// q = x / scale to the nearest integer, ties to even; the caller sees to |q| <= 127.
void round_to_int8(const float* x, int n, float reciprocal, int8_t* q) {
  using numerics::kRounder;
  for (int i = 0; i < n; ++i) q[i] = static_cast<int8_t>((x[i] * reciprocal + kRounder) - kRounder);
}

// Zeros and the scale 0 for nothing but (almost) zeros; the scale NaN, and so NaN in every output, for values that are
// not finite. Returns whether it was one of these.
bool quantise_degenerate(float largest, int n, float& scale, int8_t* q) {
  if (largest >= kSmallestLargest && largest <= std::numeric_limits<float>::max()) return false;
  scale = largest < kSmallestLargest ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < n; ++i) q[i] = 0;
  return true;
}

int sum(const int8_t* q, int n) {
  int total = 0;
  for (int i = 0; i < n; ++i) total += q[i];
  return total;
}

void quantise_block(const float* x, int8_t* q, BlockScale& out) {
  const float largest = largest_magnitude(x, kBlock);
  if (!quantise_degenerate(largest, kBlock, out.scale, q)) {
    out.scale = largest / 127.0f;
    round_to_int8(x, kBlock, 127.0f / largest, q);
  }
  const int total = sum(q, kBlock);
  out.scaled_sum = out.scale * static_cast<float>(total);
  out.negated_sum = -total;
}

int most_abs_sum16(const int8_t* q) {
  int most = 0;
  for (int j = 0; j < kSuperBlock; j += 16) {
    int total = 0;
    for (int i = j; i < j + 16; ++i) total += q[i] < 0 ? -q[i] : q[i];
    most = total > most ? total : most;
  }
  return most;
}

// Fills q[256] and returns the scale.
float quantise_super_block(const float* x, int8_t* q) {
  const float largest = largest_magnitude(x, kSuperBlock);
  float scale;
  if (quantise_degenerate(largest, kSuperBlock, scale, q)) return scale;
  round_to_int8(x, kSuperBlock, 127.0f / largest, q);
  const int most = most_abs_sum16(q);
  if (most <= kMostAbsSum16) return largest / 127.0f;
  // Sixteen roundings move a sum by 8 at most, before and after; one more for those of the scale itself.
  const float wider = largest * (static_cast<float>(most + 8) / static_cast<float>(kMostAbsSum16 - 9));
  round_to_int8(x, kSuperBlock, 127.0f / wider, q);
  return wider / 127.0f;
}

void quantise_super_block(Activations& x, const float* from, int b, int row) {
  int8_t q[kSuperBlock];
  SuperBlockScale& out = *x.scale256(b, row);
  out.scale = quantise_super_block(from, q);
  for (int j = 0; j < kBlocksOfSuper; ++j) {
    const int8_t* block = q + j * kBlock;
    std::copy_n(block, kBlock, x.q256(b * kBlocksOfSuper + j, row));
    int32_t* offsets = x.offsets256(b * kBlocksOfSuper + j, row);
    offsets[0] = -32 * sum(block, 16);
    offsets[1] = -32 * sum(block + 16, 16);
    out.sums[j] = static_cast<int16_t>(sum(block, kBlock));
  }
}

// -- products ---------------------------------------------------------------------------------------------------------

struct Panel {
  const uint8_t* blocks;
  int count;  // of blocks
  const Products& products;
  int first, lanes;  // outputs
};

using Lanes = float[kPanelRows];

void store(const Lanes& acc, const Panel& panel, int row) {
  float* const y = panel.products.row(row) + panel.first;
  for (int n = 0; n < panel.lanes; ++n) y[n] = acc[n] * panel.products.factor(row);
}

// A panel's block of 32 inputs as the integers that meet the activations: [input][row].
using Codes = int16_t[kBlock][kPanelRows];

void read_nibbles(const uint8_t (&nibbles)[4][kStepBytes], int offset, Codes& codes) {
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < kPanelRows; ++n) {
      const int both = nibbles[k / 4][4 * n + k % 4];
      codes[k][n] = static_cast<int16_t>((both & 15) - offset);
      codes[k + 16][n] = static_cast<int16_t>((both >> 4) - offset);
    }
  }
}

void read_codes(const PanelQ4_0& block, Codes& codes) { read_nibbles(block.nibbles, 8, codes); }

void read_codes(const PanelQ4_1& block, Codes& codes) { read_nibbles(block.nibbles, 0, codes); }

// The places of a table that nibbles hold become its values.
void look_up(const int8_t (&table)[16], Codes& codes) {
  for (auto& step : codes) {
    for (int16_t& code : step) code = table[code];
  }
}

// Adds `value` to the codes whose bit is set.
void add_bits(const uint8_t (&bits)[kSteps][kStepBytes / 8], int value, Codes& codes) {
  for (int k = 0; k < kBlock; ++k) {
    for (int n = 0; n < kPanelRows; ++n) {
      const int i = 4 * n + k % 4;
      codes[k][n] = static_cast<int16_t>(codes[k][n] + (bits[k / 4][i / 8] >> i % 8 & 1) * value);
    }
  }
}

void read_twos(const uint8_t (&twos)[2][kStepBytes], int offset, Codes& codes) {
  for (int k = 0; k < kBlock; ++k) {
    for (int n = 0; n < kPanelRows; ++n) {
      codes[k][n] = static_cast<int16_t>((twos[k / 16][4 * n + k % 4] >> k / 4 % 4 * 2 & 3) - offset);
    }
  }
}

void read_codes(const PanelQ5_0& block, Codes& codes) {
  read_nibbles(block.nibbles, 16, codes);
  add_bits(block.fifth_bits, 16, codes);
}

void read_codes(const PanelQ5_1& block, Codes& codes) {
  read_nibbles(block.nibbles, 0, codes);
  add_bits(block.fifth_bits, 16, codes);
}

void read_codes(const PanelIQ4_NL& block, Codes& codes) {
  read_nibbles(block.nibbles, 0, codes);
  look_up(kIq4Values, codes);
}

void read_codes(const PanelQ8_0& block, Codes& codes) {
  for (int k = 0; k < kBlock; ++k) {
    for (int n = 0; n < kPanelRows; ++n) {
      codes[k][n] = static_cast<int16_t>(block.codes[k / 4][4 * n + k % 4] - 128);
    }
  }
}

void read_codes(const PanelQ2_K& block, int j, Codes& codes) { read_twos(block.twos[j], 0, codes); }

void read_codes(const PanelQ3_K& block, int j, Codes& codes) {
  read_twos(block.twos[j], 4, codes);
  add_bits(block.third_bits[j], 4, codes);
}

void read_codes(const PanelQ4_K& block, int j, Codes& codes) { read_nibbles(block.nibbles[j], 0, codes); }

void read_codes(const PanelQ5_K& block, int j, Codes& codes) {
  read_nibbles(block.nibbles[j], 0, codes);
  add_bits(block.fifth_bits[j], 16, codes);
}

void read_codes(const PanelIQ4_XS& block, int j, Codes& codes) {
  read_nibbles(block.nibbles[j], 0, codes);
  look_up(kIq4Values, codes);
}

void read_codes(const PanelQ6_K& block, int j, Codes& codes) {
  for (int k = 0; k < kBlock; ++k) {
    const auto& steps = block.codes[j][k / 16];
    const int step = k / 4 % 4;
    for (int n = 0; n < kPanelRows; ++n) {
      const int i = 4 * n + k % 4;
      const int code = step < 3 ? steps[step][i] & 63 : steps[0][i] >> 6 | steps[1][i] >> 6 << 2 | steps[2][i] >> 6 << 4;
      codes[k][n] = static_cast<int16_t>(code - 32);
    }
  }
}

// part[n] = sum over `count` inputs of codes[k][n] * q[k].
void dot_codes(const int16_t (*codes)[kPanelRows], const int8_t* q, int count, int32_t (&part)[kPanelRows]) {
  std::fill_n(part, kPanelRows, 0);
  for (int k = 0; k < count; ++k) {
    for (int n = 0; n < kPanelRows; ++n) part[n] += codes[k][n] * q[k];
  }
}

template <class Block>
void multiply_blocks(const Panel& panel, const Activations& x, int row) {
  const Block* blocks = reinterpret_cast<const Block*>(panel.blocks);
  Lanes acc = {};
  for (int b = 0; b < panel.count; ++b) {
    Codes codes;
    read_codes(blocks[b], codes);
    const BlockScale& scale = *x.scale32(b, row);
    int32_t dot[kPanelRows];
    dot_codes(codes, x.q32(b, row), kBlock, dot);
    for (int n = 0; n < kPanelRows; ++n) {
      acc[n] = fused(static_cast<float>(dot[n]), f16_to_f32(blocks[b].scale[n]) * scale.scale, acc[n]);
      if constexpr (requires { blocks[b].minimum; }) {
        acc[n] = fused(f16_to_f32(blocks[b].minimum[n]), scale.scaled_sum, acc[n]);
      }
    }
  }
  store(acc, panel, row);
}

// The integers of sub-block `j` of 16 inputs, of row n.
int scale_of(const PanelQ2_K& block, int j, int n) { return block.scales_minima[j / 2][n][j % 2] & 15; }
int scale_of(const PanelQ3_K& block, int j, int n) { return block.scales[j / 2][n][j % 2]; }
int scale_of(const PanelQ4_K& block, int j, int n) { return block.scales[j / 4][n][j / 2 % 2]; }
int scale_of(const PanelQ5_K& block, int j, int n) { return block.scales[j / 2][n]; }
int scale_of(const PanelQ6_K& block, int j, int n) { return block.scales[j / 2][n][j % 2]; }
int scale_of(const PanelIQ4_XS& block, int j, int n) { return block.scales[j / 2][n]; }

int minimum_of(const PanelQ2_K& block, int j, int n) { return block.scales_minima[j / 2][n][j % 2] >> 4; }
int minimum_of(const PanelQ4_K& block, int j, int n) { return block.minima[j / 4][n][j / 2 % 2]; }
int minimum_of(const PanelQ5_K& block, int j, int n) { return block.minima[j / 4][n][j / 2 % 2]; }

template <class Block>
void multiply_super_blocks(const Panel& panel, const Activations& x, int row) {
  const Block* blocks = reinterpret_cast<const Block*>(panel.blocks);
  Lanes acc = {};
  for (int b = 0; b < panel.count; ++b) {
    Codes codes;
    int32_t dot[kPanelRows] = {}, min_dot[kPanelRows] = {};
    for (int j = 0; j < kSuperBlock / 16; ++j) {
      if (j % 2 == 0) read_codes(blocks[b], j / 2, codes);
      const int8_t* q = x.q256(b * kBlocksOfSuper + j / 2, row) + j % 2 * 16;
      int32_t part[kPanelRows];
      dot_codes(codes + j % 2 * 16, q, 16, part);
      for (int n = 0; n < kPanelRows; ++n) {
        dot[n] += part[n] * scale_of(blocks[b], j, n);
        if constexpr (requires { minimum_of(blocks[b], j, n); }) min_dot[n] += minimum_of(blocks[b], j, n) * sum(q, 16);
      }
    }
    for (int n = 0; n < kPanelRows; ++n) {
      float part = f16_to_f32(blocks[b].scale[n]) * static_cast<float>(dot[n]);
      if constexpr (requires { blocks[b].minimum; }) {
        part = fused(-f16_to_f32(blocks[b].minimum[n]), static_cast<float>(min_dot[n]), part);
      }
      acc[n] = fused(part, x.scale256(b, row)->scale, acc[n]);
    }
  }
  store(acc, panel, row);
}

template <Format format>
void multiply_dense(const Panel& panel, const Activations& x, int row) {
  constexpr size_t bytes = format == Format::f32 ? 4 : 2;
  Lanes acc = {};
  for (int k = 0; k < panel.count; ++k) {
    for (int n = 0; n < kPanelRows; ++n) {
      const uint8_t* bits = panel.blocks + (static_cast<size_t>(k) * kPanelRows + n) * bytes;
      acc[n] = fused(dense_weight(format, bits), x.f32(row)[k], acc[n]);
    }
  }
  store(acc, panel, row);
}

using PanelProduct = void (*)(const Panel&, const Activations&, int row);

PanelProduct panel_product(Format format) {
  switch (format) {
    case Format::f32: return multiply_dense<Format::f32>;
    case Format::f16: return multiply_dense<Format::f16>;
    case Format::bf16: return multiply_dense<Format::bf16>;
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

}  // namespace

void quantise(Activations& x, int col0, int col1) {
  for (int row = 0; row < x.rows; ++row) {
    const float* const from = x.f32(row, col0, col1) - col0;
    for (int b = col0 / kBlock; x.wants_32 && b < col1 / kBlock; ++b) {
      quantise_block(from + b * kBlock, x.q32(b, row), *x.scale32(b, row));
    }
    for (int b = col0 / kSuperBlock; x.wants_256 && b < col1 / kSuperBlock; ++b) {
      quantise_super_block(x, from + b * kSuperBlock, b, row);
    }
  }
}

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
  const PanelProduct product = panel_product(w.format);
  for (int p = panel0; p < panel1; ++p) {
    const int first = p * kPanelRows;
    const int lanes = w.rows - first < kPanelRows ? w.rows - first : kPanelRows;
    const Panel panel{w.panel(p), w.blocks(), y, first, lanes};
    for (int row = 0; row < x.rows; ++row) product(panel, x, row);
  }
}

}  // namespace outpace::portable
