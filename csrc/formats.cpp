#include "formats.h"

#include <array>
#include <bit>
#include <stdexcept>

#include "formats_256.h"
#include "formats_32.h"

namespace outpace {
namespace {

using namespace packing;

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

// In the order of Format.
constexpr std::array kEntries{
    dense("F32", 4),    dense("F16", 2),    dense("BF16", 2),   quantised<Q4_0>(), quantised<Q4_1>(),
    quantised<Q5_0>(),  quantised<Q5_1>(),  quantised<Q8_0>(),  quantised<Q2_K>(), quantised<Q3_K>(),
    quantised<Q4_K>(),  quantised<Q5_K>(),  quantised<Q6_K>(),  quantised<IQ4_NL>(), quantised<IQ4_XS>()};
static_assert(kEntries.size() == kFormatCount);

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
