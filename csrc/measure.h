// What the machine can do at most: the ceilings beside which the engine's times are printed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace outpace {

// The loops of one instruction set that reach the ceilings.
struct Probes {
  uint64_t (*sum)(const uint64_t* x, size_t n);  // n is a multiple of 64; x is 64-byte aligned
  // 8-bit multiply-adds, operands in registers, by the instructions that the products are made of: `rounds` times
  // kMultiplyAdds of them.
  uint32_t (*multiply_add)(int rounds);
  // With codes of all 8 bits; null: as fast as with fewer.
  uint32_t (*multiply_add_wide)(int rounds) = nullptr;
};
constexpr int kMultiplyAdds = 16 * 64;

const Probes& portable_probes();
#ifdef OUTPACE_X86_64
const Probes& avx512vnni_probes();
const Probes& avxvnni_probes();
const Probes& avx2_probes();
#endif
#ifdef OUTPACE_AARCH64
const Probes& neoni8mm_probes();
const Probes& neon_probes();
#endif

// Bytes a second that `threads` threads read of a buffer of `bytes` bytes: a plain sum, the best of several.
// Throws std::invalid_argument unless bytes >= 1 MiB.
double measure_bandwidth(int threads, size_t bytes, const Kernels& kernels);
// 8-bit integer multiply-adds a second of `threads` threads, the best of several. `wide`: with codes of all 8 bits.
double measure_integer_rate(int threads, const Kernels& kernels, bool wide);

}  // namespace outpace
