#include "formats.h"

#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "numerics.h"

namespace outpace {
namespace {

using numerics::f16_to_f32;

uint16_t load16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint32_t load32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

void store32(uint8_t* bytes, uint32_t value) { std::memcpy(bytes, &value, sizeof value); }

// -- nibbles of 32 inputs -------------------------------------------------------------------------------------------

void write_nibbles(const uint8_t* codes, uint8_t (&steps)[4][kStepBytes], int lane) {
  for (int s = 0; s < 4; ++s) {
    const uint32_t low = load32(codes + 4 * s) & 0x0f0f0f0f, high = load32(codes + 16 + 4 * s) & 0x0f0f0f0f;
    store32(steps[s] + 4 * lane, low | high << 4);
  }
}

void read_nibbles(const uint8_t (&steps)[4][kStepBytes], int lane, uint8_t* codes) {
  for (int s = 0; s < 4; ++s) {
    const uint32_t both = load32(steps[s] + 4 * lane);
    store32(codes + 4 * s, both & 0x0f0f0f0f);
    store32(codes + 16 + 4 * s, both >> 4 & 0x0f0f0f0f);
  }
}

// The 4-bit formats of the file: 16 bytes, byte i holds input i in its low and input i + 16 in its high half.
void read_file_nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}

// -- the formats ----------------------------------------------------------------------------------------------------
// File layouts and formulas are GGUF's.

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

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr FormatInfo info{"Q5_0", kBlock, 22, sizeof(Panel), ActivationKind::int8_32};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    const uint32_t fifth = load32(block + 2);  // bit i belongs to input i
    read_file_nibbles(block + 6, out.codes);
    for (int i = 0; i < kBlock; ++i) out.codes[i] = static_cast<uint8_t>(out.codes[i] | (fifth >> i & 1) << 4);
  }
  static void write_panel(const BlockCodes& codes, Panel& panel, int lane) {
    write_nibbles(codes.codes, panel.nibbles, lane);
    const int shift = lane % 2 * 4;  // a lane's four bits are half a byte
    for (int s = 0; s < 8; ++s) {
      int bits = 0;
      for (int i = 0; i < 4; ++i) bits |= (codes.codes[4 * s + i] >> 4) << i;
      uint8_t& byte = panel.fifth_bits[s][lane / 2];
      byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | bits << shift);
    }
    panel.scale[lane] = codes.scale;
  }
  static void read_panel(const Panel& panel, int lane, BlockCodes& out) {
    read_nibbles(panel.nibbles, lane, out.codes);
    for (int k = 0; k < kBlock; ++k) {
      const int bit = panel.fifth_bits[k / 4][lane / 2] >> (lane % 2 * 4 + k % 4) & 1;
      out.codes[k] = static_cast<uint8_t>(out.codes[k] | bit << 4);
    }
    out.scale = panel.scale[lane];
  }
  static void dequantise(const BlockCodes& codes, float* out) {
    const float scale = f16_to_f32(codes.scale);
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(codes.codes[i] - 16);
  }
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

struct Q4_K {
  using Panel = PanelQ4_K;
  static constexpr FormatInfo info{"Q4_K", kSuperBlock, 144, sizeof(Panel), ActivationKind::int8_256};

  static void read_file(const uint8_t* block, BlockCodes& out) {
    out.scale = load16(block);
    out.minimum = load16(block + 2);
    // Eight scales and minima of 6 bits in 12 bytes; the upper two bits of the last four of each lie in the first
    // eight bytes.
    const uint8_t* packed = block + 4;
    for (int j = 0; j < 4; ++j) {
      out.scales[j] = packed[j] & 63;
      out.minima[j] = packed[j + 4] & 63;
      out.scales[j + 4] = (packed[j + 8] & 15) | (packed[j] >> 6) << 4;
      out.minima[j + 4] = packed[j + 8] >> 4 | (packed[j + 4] >> 6) << 4;
    }
    const uint8_t* nibbles = block + 16;  // 32 bytes: one sub-block in the low halves, the next in the high ones
    for (int j = 0; j < 8; j += 2) {
      for (int i = 0; i < kBlock; ++i) {
        out.codes[32 * j + i] = nibbles[16 * j + i] & 15;
        out.codes[32 * j + 32 + i] = nibbles[16 * j + i] >> 4;
      }
    }
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

// -- tables ---------------------------------------------------------------------------------------------------------

struct Entry {
  FormatInfo info;
  bool quantised;
  BlockFunctions functions;
};

template <class F>
constexpr Entry quantised() {
  return {F::info,
          true,
          {F::read_file,
           [](const BlockCodes& codes, uint8_t* block, int lane) {
             F::write_panel(codes, *reinterpret_cast<typename F::Panel*>(block), lane);
           },
           [](const uint8_t* block, int lane, BlockCodes& out) {
             F::read_panel(*reinterpret_cast<const typename F::Panel*>(block), lane, out);
           },
           F::dequantise}};
}

constexpr Entry dense(const char* name, int bytes) {
  return {{name, 1, bytes, bytes * kPanelRows, ActivationKind::f32}, false, {}};
}

constexpr std::array<Entry, 9> kEntries{dense("F32", 4),   dense("F16", 2),   dense("BF16", 2),
                                        quantised<Q4_0>(), quantised<Q4_1>(), quantised<Q5_0>(),
                                        quantised<Q8_0>(), quantised<Q4_K>(), quantised<Q6_K>()};

const Entry& entry(Format format) { return kEntries.at(static_cast<size_t>(format)); }

}  // namespace

const FormatInfo& format_info(Format format) { return entry(format).info; }

Format format_named(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (name == kEntries[i].info.name) return static_cast<Format>(i);
    known += (i == 0 ? "" : ", ") + std::string(kEntries[i].info.name);
  }
  throw std::invalid_argument("weight format must be one of " + known + ", got " + name);
}

const BlockFunctions* block_functions(Format format) {
  return entry(format).quantised ? &entry(format).functions : nullptr;
}

float dense_weight(Format format, const uint8_t* bits) {
  if (format == Format::f32) return std::bit_cast<float>(load32(bits));
  if (format == Format::f16) return f16_to_f32(load16(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(load16(bits)) << 16);
}

void dequantise_file_row(Format format, const uint8_t* row, int cols, float* out) {
  const FormatInfo& info = format_info(format);
  const BlockFunctions* functions = block_functions(format);
  if (functions == nullptr) {
    for (int k = 0; k < cols; ++k) out[k] = dense_weight(format, row + static_cast<size_t>(k) * info.file_bytes);
    return;
  }
  BlockCodes codes;
  for (int k = 0; k < cols; k += info.block, row += info.file_bytes) {
    functions->read_file(row, codes);
    functions->dequantise(codes, out + k);
  }
}

}  // namespace outpace
