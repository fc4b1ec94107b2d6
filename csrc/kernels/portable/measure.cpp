#include "measure.h"

namespace outpace {

static uint64_t sum(const uint64_t* x, size_t n) {
  uint64_t total[8] = {};
  for (size_t i = 0; i < n; i += 8)
    for (int lane = 0; lane < 8; ++lane) total[lane] += x[i + lane];
  uint64_t all = 0;
  for (const uint64_t t : total) all += t;
  return all;
}

static uint32_t multiply_add(int rounds) {
  uint32_t sums[64] = {};
  uint8_t x[64];
  for (int i = 0; i < 64; ++i) x[i] = uint8_t(i);
  for (int round = 0; round < rounds; ++round) {
    const uint32_t y = uint32_t(round) & 127;
    for (int i = 0; i < kMultiplyAdds; ++i) sums[i % 64] += x[i % 64] * y;
  }
  uint32_t all = 0;
  for (const uint32_t s : sums) all += s;
  return all;
}

const Probes& portable_probes() {
  static const Probes probes{sum, multiply_add};
  return probes;
}

}  // namespace outpace
