// How codes lie in the bytes of a file's block and of a panel: the pieces that several formats share.
#pragma once

#include <cstdint>
#include <cstring>

#include "formats.h"
#include "numerics.h"

namespace outpace::packing {

using numerics::f16_to_f32;

inline uint16_t load16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline uint32_t load32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline void store32(uint8_t* bytes, uint32_t value) { std::memcpy(bytes, &value, sizeof value); }

// -- nibbles of 32 inputs -------------------------------------------------------------------------------------------

inline void write_nibbles(const uint8_t* codes, uint8_t (&steps)[4][kStepBytes], int lane) {
  for (int s = 0; s < 4; ++s) {
    const uint32_t low = load32(codes + 4 * s) & 0x0f0f0f0f, high = load32(codes + 16 + 4 * s) & 0x0f0f0f0f;
    store32(steps[s] + 4 * lane, low | high << 4);
  }
}

inline void read_nibbles(const uint8_t (&steps)[4][kStepBytes], int lane, uint8_t* codes) {
  for (int s = 0; s < 4; ++s) {
    const uint32_t both = load32(steps[s] + 4 * lane);
    store32(codes + 4 * s, both & 0x0f0f0f0f);
    store32(codes + 16 + 4 * s, both >> 4 & 0x0f0f0f0f);
  }
}

// The 4-bit formats of the file: 16 bytes, byte i holds input i in its low and input i + 16 in its high half.
inline void read_file_nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}

// -- one bit more of every code ---------------------------------------------------------------------------------------
// Of each step, bit i belongs to byte i: a row's four bits are half a byte. `place` is where the bit is in a code.

using StepBits = uint8_t[kSteps][kStepBytes / 8];

inline void write_bits(const uint8_t* codes, int place, StepBits& bits, int lane) {
  const int shift = lane % 2 * 4;
  for (int s = 0; s < kSteps; ++s) {
    int four = 0;
    for (int i = 0; i < 4; ++i) four |= (codes[4 * s + i] >> place & 1) << i;
    uint8_t& byte = bits[s][lane / 2];
    byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | four << shift);
  }
}

inline void read_bits(const StepBits& bits, int place, int lane, uint8_t* codes) {
  for (int k = 0; k < kBlock; ++k) {
    const int bit = bits[k / 4][lane / 2] >> (lane % 2 * 4 + k % 4) & 1;
    codes[k] = static_cast<uint8_t>(codes[k] | bit << place);
  }
}

// -- the low two bits of 32 inputs --------------------------------------------------------------------------------------
// Four steps in one, each two bits higher than the one before.

inline void write_twos(const uint8_t* codes, uint8_t (&steps)[2][kStepBytes], int lane) {
  for (int h = 0; h < 2; ++h) {
    uint32_t all = 0;
    for (int s = 0; s < 4; ++s) all |= (load32(codes + 16 * h + 4 * s) & 0x03030303) << 2 * s;
    store32(steps[h] + 4 * lane, all);
  }
}

inline void read_twos(const uint8_t (&steps)[2][kStepBytes], int lane, uint8_t* codes) {
  for (int h = 0; h < 2; ++h) {
    const uint32_t all = load32(steps[h] + 4 * lane);
    for (int s = 0; s < 4; ++s) store32(codes + 16 * h + 4 * s, all >> 2 * s & 0x03030303);
  }
}

}  // namespace outpace::packing
