// The weight formats: what a block of the file holds, and how a panel holds the same block of 32 rows.
//
// A quantised weight is an unsigned code with a scale: a whole block's (f16) or, in the K formats, a small integer of
// its sub-block times the super-block's (f16). A panel keeps the codes, integers and f16 as they are in the file, in
// the order in which a kernel reads them; nothing is rounded, nothing is widened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/kernels.h"

namespace outpace {

enum class Format : uint8_t {
  f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs
};
constexpr int kFormatCount = 15;

// How a format's activations are represented: f32, int8 in blocks of 32, or int8 in super-blocks of 256.
enum class ActivationKind : uint8_t { f32, int8_32, int8_256 };

struct FormatInfo {
  const char* name;  // as GGUF spells it: "Q4_K"
  int block;         // weights of a block
  int file_bytes;    // bytes of a block in the file
  int panel_bytes;   // bytes of the same block of kPanelRows rows in a panel
  ActivationKind activation;
};

const FormatInfo& format_info(Format format);
Format format_named(const std::string& name);  // throws std::invalid_argument, listing the known names

// Writes the `cols` weights of a row of the file as f32, by the format's formula.
void dequantise_file_row(Format format, const uint8_t* row, int cols, float* out);

// -- panels ---------------------------------------------------------------------------------------------------------
// A *step* is what one integer dot instruction takes: four inputs of every row, [kPanelRows][4] bytes. A block of 32
// inputs has eight steps. Nibbles hold step s in the low half and step s + 4 in the high half of bytes [s][row][4].

constexpr int kBlock = 32;         // inputs of a block
constexpr int kSuperBlock = 256;   // inputs of a super-block of the K formats
constexpr int kBlocksOfSuper = kSuperBlock / kBlock;
constexpr int kSteps = kBlock / 4;
constexpr int kStepBytes = kPanelRows * 4;

struct alignas(64) PanelQ4_0 {
  uint8_t nibbles[4][kStepBytes];
  uint16_t scale[kPanelRows];
};
struct alignas(64) PanelQ4_1 {
  uint8_t nibbles[4][kStepBytes];
  uint16_t scale[kPanelRows], minimum[kPanelRows];
};
struct alignas(64) PanelQ5_0 {
  uint8_t nibbles[4][kStepBytes];
  uint8_t fifth_bits[kSteps][kStepBytes / 8];  // of step s: bit i belongs to byte i
  uint16_t scale[kPanelRows];
};
struct alignas(64) PanelQ5_1 {
  uint8_t nibbles[4][kStepBytes];
  uint8_t fifth_bits[kSteps][kStepBytes / 8];
  uint16_t scale[kPanelRows], minimum[kPanelRows];
};
struct alignas(64) PanelQ8_0 {
  uint8_t codes[8][kStepBytes];  // weight + 128
  uint16_t scale[kPanelRows];
};
struct alignas(64) PanelIQ4_NL {
  uint8_t nibbles[4][kStepBytes];  // places in kIq4Values
  uint16_t scale[kPanelRows];
};
// Integers of two neighbouring sub-blocks lie side by side: one 16-bit dot instruction applies both.
struct alignas(64) PanelQ4_K {
  uint8_t nibbles[kBlocksOfSuper][4][kStepBytes];
  uint8_t scales[kBlocksOfSuper / 2][kPanelRows][2];  // of 32 inputs each
  uint8_t minima[kBlocksOfSuper / 2][kPanelRows][2];
  uint16_t scale[kPanelRows], minimum[kPanelRows];
};
struct alignas(64) PanelQ5_K {
  uint8_t nibbles[kBlocksOfSuper][4][kStepBytes];
  uint8_t fifth_bits[kBlocksOfSuper][kSteps][kStepBytes / 8];
  uint8_t scales[kBlocksOfSuper][kPanelRows];         // of 32 inputs each
  uint8_t minima[kBlocksOfSuper / 2][kPanelRows][2];  // of 32 inputs each
  uint16_t scale[kPanelRows], minimum[kPanelRows];
};
struct alignas(64) PanelQ2_K {
  uint8_t twos[kBlocksOfSuper][2][kStepBytes];        // of each 16 inputs, four steps in one, two bits each
  uint8_t scales_minima[kBlocksOfSuper][kPanelRows][2];  // of 16 inputs each: scale | minimum << 4
  uint16_t scale[kPanelRows], minimum[kPanelRows];
};
struct alignas(64) PanelQ3_K {
  uint8_t twos[kBlocksOfSuper][2][kStepBytes];  // as in Q2_K
  uint8_t third_bits[kBlocksOfSuper][kSteps][kStepBytes / 8];
  int8_t scales[kBlocksOfSuper][kPanelRows][2];  // of 16 inputs each
  uint16_t scale[kPanelRows];
};
struct alignas(64) PanelQ6_K {
  // Of each 16 inputs, four steps in three: the low six bits are a step's, the high two a third of the fourth step.
  uint8_t codes[kBlocksOfSuper][2][3][kStepBytes];
  int8_t scales[kBlocksOfSuper][kPanelRows][2];  // of 16 inputs each
  uint16_t scale[kPanelRows];
};
struct alignas(64) PanelIQ4_XS {
  uint8_t nibbles[kBlocksOfSuper][4][kStepBytes];  // places in kIq4Values
  int8_t scales[kBlocksOfSuper][kPanelRows];       // of 32 inputs each
  uint16_t scale[kPanelRows];
};

// What the codes of IQ4_NL and IQ4_XS stand for.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// A block of one row, taken out of a file or a panel.
struct BlockCodes {
  uint8_t codes[kSuperBlock];
  int scales[16], minima[16];  // sub-blocks' integers
  uint16_t scale, minimum;    // f16
};

// What matrix.cpp needs of a quantised format; null for F32, F16 and BF16.
struct BlockFunctions {
  void (*read_file)(const uint8_t* block, BlockCodes& out);
  void (*write_panel)(const BlockCodes& codes, uint8_t* panel_block, int lane);
  void (*read_panel)(const uint8_t* panel_block, int lane, BlockCodes& out);
  void (*dequantise)(const BlockCodes& codes, float* out);
};
const BlockFunctions* block_functions(Format format);

// F32, F16 and BF16: one weight, `bits` as the file has them.
float dense_weight(Format format, const uint8_t* bits);

}  // namespace outpace
