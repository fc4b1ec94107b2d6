#include "file_weights.h"

#include <bit>
#include <cstring>

#include "numerics.h"

namespace outpace::test {
namespace {

float f16(const uint8_t* bytes) {
  return numerics::f16_to_f32(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Weight `i` of a block of the file, after the GGUF layouts.
float weight_of_block(Format format, const uint8_t* p, int i) {
  const auto nibble = [i](const uint8_t* bytes) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; };
  switch (format) {
    case Format::f32: {
      float value;
      std::memcpy(&value, p, 4);
      return value;
    }
    case Format::f16: return f16(p);
    case Format::bf16: return std::bit_cast<float>(static_cast<uint32_t>(p[0] | p[1] << 8) << 16);
    case Format::q4_0: return f16(p) * static_cast<float>(nibble(p + 2) - 8);
    case Format::q4_1: return f16(p) * static_cast<float>(nibble(p + 4)) + f16(p + 2);
    case Format::q5_0: {
      const int fifth = p[2 + i / 8] >> i % 8 & 1;
      return f16(p) * static_cast<float>((nibble(p + 6) | fifth << 4) - 16);
    }
    case Format::q5_1: {
      const int fifth = p[4 + i / 8] >> i % 8 & 1;
      return f16(p) * static_cast<float>(nibble(p + 8) | fifth << 4) + f16(p + 2);
    }
    case Format::q8_0: return f16(p) * static_cast<float>(static_cast<int8_t>(p[2 + i]));
    case Format::q2_k: {
      const int code = p[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3, integers = p[i / 16];
      return f16(p + 80) * static_cast<float>(integers & 15) * static_cast<float>(code) -
             f16(p + 82) * static_cast<float>(integers >> 4);
    }
    case Format::q3_k: {
      const int low = p[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3, high = p[i % 32] >> i / 32 & 1;
      const int j = i / 16, nibble_of_scale = j < 8 ? p[96 + j] & 15 : p[96 + j - 8] >> 4;
      const int scale = nibble_of_scale + (p[104 + j % 4] >> 2 * (j / 4) & 3) * 16 - 32;
      return f16(p + 108) * static_cast<float>(scale) * static_cast<float>(low + 4 * high - 4);
    }
    case Format::q4_k:
    case Format::q5_k: {
      const uint8_t *packed = p + 4, *codes = p + (format == Format::q4_k ? 16 : 48) + i / 64 * 32;
      const int j = i / 32, low = j % 2 == 0 ? codes[i % 32] & 15 : codes[i % 32] >> 4;
      const int code = low + (format == Format::q4_k ? 0 : (p[16 + i % 32] >> j & 1) * 16);
      const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) + (packed[j - 4] >> 6) * 16;
      const int minimum = j < 4 ? packed[j + 4] & 63 : (packed[j + 4] >> 4) + (packed[j] >> 6) * 16;
      return f16(p) * static_cast<float>(scale) * static_cast<float>(code) - f16(p + 2) * static_cast<float>(minimum);
    }
    case Format::iq4_nl: return f16(p) * static_cast<float>(kIq4[nibble(p + 2)]);
    case Format::iq4_xs: {
      const int j = i / 32, low = p[4 + j / 2] >> j % 2 * 4 & 15, high = (p[2] | p[3] << 8) >> 2 * j & 3;
      const int place = i % 32 < 16 ? p[8 + 16 * j + i % 16] & 15 : p[8 + 16 * j + i % 16] >> 4;
      return f16(p) * static_cast<float>(low + 16 * high - 32) * static_cast<float>(kIq4[place]);
    }
    case Format::q6_k: {
      const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
      const uint8_t nibbles = p[64 * half + quarter % 2 * 32 + l], high = p[128 + 32 * half + l];
      const int code = (quarter < 2 ? nibbles & 15 : nibbles >> 4) + (high >> 2 * quarter & 3) * 16;
      return f16(p + 208) * static_cast<float>(static_cast<int8_t>(p[192 + i / 16])) * static_cast<float>(code - 32);
    }
  }
  return 0.0f;
}

}  // namespace

Halves halves_of(Format format) {
  switch (format) {
    case Format::q2_k: return {80, 82};
    case Format::q3_k: return {108, -1};
    case Format::q6_k: return {208, -1};
    case Format::q4_1:
    case Format::q5_1:
    case Format::q4_k:
    case Format::q5_k: return {0, 2};
    default: return {0, -1};
  }
}

float weight_of_file(Format format, const uint8_t* row, int k) {
  const FormatInfo& info = format_info(format);
  return weight_of_block(format, row + static_cast<size_t>(k / info.block) * info.file_bytes, k % info.block);
}

std::vector<uint8_t> random_rows(Format format, int rows, int cols, bool wild, std::mt19937& random) {
  const FormatInfo& info = format_info(format);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * (cols / info.block) * info.file_bytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  if (wild) return bytes;
  const auto moderate = [&](uint8_t* at) {  // 2^-7 to 2^-4, either sign
    at[1] = static_cast<uint8_t>((at[1] & 0x83) | 0x20 | (random() % 3 << 2));
  };
  for (uint8_t* p = bytes.data(); p < bytes.data() + bytes.size(); p += info.file_bytes) {
    if (format == Format::f32) p[3] = 0x3d, p[2] &= 0xbf;
    else if (format == Format::bf16) p[1] = static_cast<uint8_t>((p[1] & 0x80) | 0x3d);
    else moderate(p + halves_of(format).scale);
    if (halves_of(format).minimum > 0) moderate(p + halves_of(format).minimum);
  }
  return bytes;
}

}  // namespace outpace::test
