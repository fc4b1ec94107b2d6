// The formats of super-blocks of 256 weights: their file layouts and formulas, which are GGUF's, and how they fill a panel.
#pragma once

#include <cstring>

#include "formats_bits.h"

namespace outpace::packing {

// Eight scales and minima of 6 bits in 12 bytes; the upper two bits of the last four of each lie in the first eight
// bytes.
inline void read_six_bit_scales(const uint8_t* packed, BlockCodes& out) {
  for (int j = 0; j < 4; ++j) {
    out.scales[j] = packed[j] & 63;
    out.minima[j] = packed[j + 4] & 63;
    out.scales[j + 4] = (packed[j + 8] & 15) | (packed[j] >> 6) << 4;
    out.minima[j + 4] = packed[j + 8] >> 4 | (packed[j + 4] >> 6) << 4;
  }
}

// Each 32 bytes hold one sub-block of 32 in the low halves, the next in the high ones.
inline void read_file_nibble_pairs(const uint8_t* nibbles, uint8_t* codes) {
  for (int j = 0; j < kBlocksOfSuper; j += 2) {
    for (int i = 0; i < kBlock; ++i) {
      codes[32 * j + i] = nibbles[16 * j + i] & 15;
      codes[32 * j + 32 + i] = nibbles[16 * j + i] >> 4;
    }
  }
}

// Each 32 bytes hold the low two bits of four times 32 inputs.
inline void read_file_twos(const uint8_t* bytes, uint8_t* codes) {
  for (int k = 0; k < kSuperBlock; ++k) codes[k] = bytes[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3;
}

struct Q2_K {
  using Panel = PanelQ2_K;
  static constexpr FormatInfo info{"Q2_K", kSuperBlock, 84, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    for (int j = 0; j < 16; ++j) {
      out.scales[j] = block[j] & 15;
      out.minima[j] = block[j] >> 4;
    }
    read_file_twos(block + 16, out.codes);
    out.scale = load16(block + 80);
    out.minimum = load16(block + 82);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int j = 0; j < kBlocksOfSuper; ++j) write_twos(codes.codes + 32 * j, panel.twos[j], lane);
    for (int j = 0; j < 16; ++j) {
      panel.scales_minima[j / 2][lane][j % 2] = static_cast<uint8_t>(codes.scales[j] | codes.minima[j] << 4);
    }
    panel.scale[lane] = codes.scale;
    panel.minimum[lane] = codes.minimum;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int j = 0; j < kBlocksOfSuper; ++j) read_twos(panel.twos[j], lane, out.codes + 32 * j);
    for (int j = 0; j < 16; ++j) {
      out.scales[j] = panel.scales_minima[j / 2][lane][j % 2] & 15;
      out.minima[j] = panel.scales_minima[j / 2][lane][j % 2] >> 4;
    }
    out.scale = panel.scale[lane];
    out.minimum = panel.minimum[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    for (int j = 0; j < 16; ++j) {
      const float scale = f16_to_f32(codes.scale) * static_cast<float>(codes.scales[j]);
      const float minimum = f16_to_f32(codes.minimum) * static_cast<float>(codes.minima[j]);
      for (int i = 16 * j; i < 16 * j + 16; ++i) out[i] = scale * static_cast<float>(codes.codes[i]) - minimum;
    }
  }
};

struct Q3_K {
  using Panel = PanelQ3_K;
  static constexpr FormatInfo info{"Q3_K", kSuperBlock, 110, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    read_file_twos(block + 32, out.codes);
    for (int k = 0; k < kSuperBlock; ++k) {  // bit j of byte i belongs to input 32 j + i
      out.codes[k] = static_cast<uint8_t>(out.codes[k] | (block[k % 32] >> k / 32 & 1) << 2);
    }
    const uint8_t* packed = block + 96;  // 16 scales of 6 bits: 8 bytes of low nibbles, 4 with four pairs of high bits
    for (int j = 0; j < 16; ++j) {
      const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4, high = packed[8 + j % 4] >> j / 4 * 2 & 3;
      out.scales[j] = (low | high << 4) - 32;
    }
    out.scale = load16(block + 108);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      write_twos(codes.codes + 32 * j, panel.twos[j], lane);
      write_bits(codes.codes + 32 * j, 2, panel.third_bits[j], lane);
    }
    for (int j = 0; j < 16; ++j) panel.scales[j / 2][lane][j % 2] = static_cast<int8_t>(codes.scales[j]);
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      read_twos(panel.twos[j], lane, out.codes + 32 * j);
      read_bits(panel.third_bits[j], 2, lane, out.codes + 32 * j);
    }
    for (int j = 0; j < 16; ++j) out.scales[j] = panel.scales[j / 2][lane][j % 2];
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    for (int j = 0; j < 16; ++j) {
      const float scale = f16_to_f32(codes.scale) * static_cast<float>(codes.scales[j]);
      for (int i = 16 * j; i < 16 * j + 16; ++i) out[i] = scale * static_cast<float>(codes.codes[i] - 4);
    }
  }
};

struct Q4_K {
  using Panel = PanelQ4_K;
  static constexpr FormatInfo info{"Q4_K", kSuperBlock, 144, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    out.minimum = load16(block + 2);
    read_six_bit_scales(block + 4, out);
    read_file_nibble_pairs(block + 16, out.codes);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int j = 0; j < 8; ++j) {
      write_nibbles(codes.codes + 32 * j, panel.nibbles[j], lane);
      panel.scales[j / 2][lane][j % 2] = static_cast<uint8_t>(codes.scales[j]);
      panel.minima[j / 2][lane][j % 2] = static_cast<uint8_t>(codes.minima[j]);
    }
    panel.scale[lane] = codes.scale;
    panel.minimum[lane] = codes.minimum;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int j = 0; j < 8; ++j) {
      read_nibbles(panel.nibbles[j], lane, out.codes + 32 * j);
      out.scales[j] = panel.scales[j / 2][lane][j % 2];
      out.minima[j] = panel.minima[j / 2][lane][j % 2];
    }
    out.scale = panel.scale[lane];
    out.minimum = panel.minimum[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    for (int j = 0; j < 8; ++j) {
      const float scale = f16_to_f32(codes.scale) * static_cast<float>(codes.scales[j]);
      const float minimum = f16_to_f32(codes.minimum) * static_cast<float>(codes.minima[j]);
      for (int i = 32 * j; i < 32 * j + 32; ++i) out[i] = scale * static_cast<float>(codes.codes[i]) - minimum;
    }
  }
};

struct Q5_K {
  using Panel = PanelQ5_K;
  static constexpr FormatInfo info{"Q5_K", kSuperBlock, 176, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    out.minimum = load16(block + 2);
    read_six_bit_scales(block + 4, out);
    read_file_nibble_pairs(block + 48, out.codes);
    for (int k = 0; k < kSuperBlock; ++k) {  // bit j of byte i belongs to input 32 j + i
      out.codes[k] = static_cast<uint8_t>(out.codes[k] | (block[16 + k % 32] >> k / 32 & 1) << 4);
    }
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      write_nibbles(codes.codes + 32 * j, panel.nibbles[j], lane);
      write_bits(codes.codes + 32 * j, 4, panel.fifth_bits[j], lane);
      panel.scales[j][lane] = static_cast<uint8_t>(codes.scales[j]);
      panel.minima[j / 2][lane][j % 2] = static_cast<uint8_t>(codes.minima[j]);
    }
    panel.scale[lane] = codes.scale;
    panel.minimum[lane] = codes.minimum;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      read_nibbles(panel.nibbles[j], lane, out.codes + 32 * j);
      read_bits(panel.fifth_bits[j], 4, lane, out.codes + 32 * j);
      out.scales[j] = panel.scales[j][lane];
      out.minima[j] = panel.minima[j / 2][lane][j % 2];
    }
    out.scale = panel.scale[lane];
    out.minimum = panel.minimum[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) { Q4_K::dequantise(codes, out); }
};

struct Q6_K {
  using Panel = PanelQ6_K;
  static constexpr FormatInfo info{"Q6_K", kSuperBlock, 210, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    // Each half of 128 inputs: 64 bytes of nibbles and 32 bytes with four pairs of high bits.
    for (int half = 0; half < 2; ++half) {
      const uint8_t *nibbles = block + 64 * half, *high = block + 128 + 32 * half;
      uint8_t* codes = out.codes + 128 * half;
      for (int i = 0; i < 32; ++i) {
        codes[i] = static_cast<uint8_t>((nibbles[i] & 15) | (high[i] & 3) << 4);
        codes[i + 32] = static_cast<uint8_t>((nibbles[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
        codes[i + 64] = static_cast<uint8_t>(nibbles[i] >> 4 | (high[i] >> 4 & 3) << 4);
        codes[i + 96] = static_cast<uint8_t>(nibbles[i + 32] >> 4 | (high[i] >> 6) << 4);
      }
    }
    for (int j = 0; j < 16; ++j) out.scales[j] = static_cast<int8_t>(block[192 + j]);
    out.scale = load16(block + 208);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int j = 0; j < 16; ++j) {
      const uint32_t fourth = load32(codes.codes + 16 * j + 12);
      for (int s = 0; s < 3; ++s) {
        store32(panel.codes[j / 2][j % 2][s] + 4 * lane,
                load32(codes.codes + 16 * j + 4 * s) | (fourth >> 2 * s & 0x03030303) << 6);
      }
      panel.scales[j / 2][lane][j % 2] = static_cast<int8_t>(codes.scales[j]);
    }
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int j = 0; j < 16; ++j) {
      uint32_t fourth = 0;
      for (int s = 0; s < 3; ++s) {
        const uint32_t bytes = load32(panel.codes[j / 2][j % 2][s] + 4 * lane);
        store32(out.codes + 16 * j + 4 * s, bytes & 0x3f3f3f3f);
        fourth |= (bytes >> 6 & 0x03030303) << 2 * s;
      }
      store32(out.codes + 16 * j + 12, fourth);
      out.scales[j] = panel.scales[j / 2][lane][j % 2];
    }
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    for (int j = 0; j < 16; ++j) {
      const float scale = f16_to_f32(codes.scale) * static_cast<float>(codes.scales[j]);
      for (int i = 16 * j; i < 16 * j + 16; ++i) out[i] = scale * static_cast<float>(codes.codes[i] - 32);
    }
  }
};

// Codes are places in a table of 16 values.
struct IQ4_XS {
  using Panel = PanelIQ4_XS;
  static constexpr FormatInfo info{"IQ4_XS", kSuperBlock, 136, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    const int high = load16(block + 2);  // two bits of every scale
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      out.scales[j] = ((block[4 + j / 2] >> j % 2 * 4 & 15) | (high >> 2 * j & 3) << 4) - 32;
      read_file_nibbles(block + 8 + 16 * j, out.codes + 32 * j);
    }
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      write_nibbles(codes.codes + 32 * j, panel.nibbles[j], lane);
      panel.scales[j][lane] = static_cast<int8_t>(codes.scales[j]);
    }
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      read_nibbles(panel.nibbles[j], lane, out.codes + 32 * j);
      out.scales[j] = panel.scales[j][lane];
    }
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    for (int j = 0; j < kBlocksOfSuper; ++j) {
      const float scale = f16_to_f32(codes.scale) * static_cast<float>(codes.scales[j]);
      for (int i = 32 * j; i < 32 * j + 32; ++i) out[i] = scale * static_cast<float>(kIq4Values[codes.codes[i]]);
    }
  }
};

}  // namespace outpace::packing
