// The formats of blocks of 32 weights: their file layouts and formulas, which are GGUF's, and how they fill a panel.
#pragma once

#include <cstring>

#include "formats_bits.h"

namespace outpace::packing {

struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr FormatInfo info{"Q4_0", kBlock, 18, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    read_file_nibbles(block + 2, out.codes);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    write_nibbles(codes.codes, panel.nibbles, lane);
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    read_nibbles(panel.nibbles, lane, out.codes);
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    const float scale = f16_to_f32(codes.scale);
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(codes.codes[i] - 8);
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr FormatInfo info{"Q4_1", kBlock, 20, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    out.minimum = load16(block + 2);
    read_file_nibbles(block + 4, out.codes);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    write_nibbles(codes.codes, panel.nibbles, lane);
    panel.scale[lane] = codes.scale;
    panel.minimum[lane] = codes.minimum;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    read_nibbles(panel.nibbles, lane, out.codes);
    out.scale = panel.scale[lane];
    out.minimum = panel.minimum[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    const float scale = f16_to_f32(codes.scale), minimum = f16_to_f32(codes.minimum);
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(codes.codes[i]) + minimum;
  }
};

// The fifth bits of a file's block: bit i belongs to input i.
inline void add_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (bits >> i & 1) << 4);
}

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr FormatInfo info{"Q5_0", kBlock, 22, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    read_file_nibbles(block + 6, out.codes);
    add_fifth_bits(load32(block + 2), out.codes);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    write_nibbles(codes.codes, panel.nibbles, lane);
    write_bits(codes.codes, 4, panel.fifth_bits, lane);
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    read_nibbles(panel.nibbles, lane, out.codes);
    read_bits(panel.fifth_bits, 4, lane, out.codes);
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    const float scale = f16_to_f32(codes.scale);
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(codes.codes[i] - 16);
  }
};

struct Q5_1 {
  using Panel = PanelQ5_1;
  static constexpr FormatInfo info{"Q5_1", kBlock, 24, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    out.minimum = load16(block + 2);
    read_file_nibbles(block + 8, out.codes);
    add_fifth_bits(load32(block + 4), out.codes);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    write_nibbles(codes.codes, panel.nibbles, lane);
    write_bits(codes.codes, 4, panel.fifth_bits, lane);
    panel.scale[lane] = codes.scale;
    panel.minimum[lane] = codes.minimum;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    read_nibbles(panel.nibbles, lane, out.codes);
    read_bits(panel.fifth_bits, 4, lane, out.codes);
    out.scale = panel.scale[lane];
    out.minimum = panel.minimum[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) { Q4_1::dequantise(codes, out); }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr FormatInfo info{"Q8_0", kBlock, 34, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    for (int i = 0; i < kBlock; ++i) out.codes[i] = block[2 + i] ^ 0x80;  // int8 + 128
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int s = 0; s < 8; ++s) std::memcpy(panel.codes[s] + 4 * lane, codes.codes + 4 * s, 4);
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int s = 0; s < 8; ++s) std::memcpy(out.codes + 4 * s, panel.codes[s] + 4 * lane, 4);
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    const float scale = f16_to_f32(codes.scale);
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(codes.codes[i] - 128);
  }
};

// Codes are places in a table of 16 values.
struct IQ4_NL {
  using Panel = PanelIQ4_NL;
  static constexpr FormatInfo info{"IQ4_NL", kBlock, 18, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) { Q4_0::read_file(block, out); }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    write_nibbles(codes.codes, panel.nibbles, lane);
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    read_nibbles(panel.nibbles, lane, out.codes);
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    const float scale = f16_to_f32(codes.scale);
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(kIq4Values[codes.codes[i]]);
  }
};

}  // namespace outpace::packing
