#include "measure.h"

#include <arm_neon.h>

namespace outpace {

static uint64_t sum(const uint64_t* x, size_t n) {
  constexpr size_t kAhead = 512;  // 4 kB
  uint64x2_t total[8];
  for (uint64x2_t& t : total) t = vdupq_n_u64(0);
  for (size_t i = 0; i < n; i += 16)
    for (int j = 0; j < 8; ++j) {
      if (j % 4 == 0) __builtin_prefetch(x + i + j * 2 + kAhead, 0, 3);
      total[j] = vaddq_u64(total[j], vld1q_u64(x + i + j * 2));
    }
  uint64_t all = 0;
  for (const uint64x2_t& t : total) all += vaddvq_u64(t);
  return all;
}

// In assembly, so that the compiler neither hoists the products out of the loop nor moves the sums about.
#define OUTPACE_FOUR(op, a, b, c, d) op(a) op(b) op(c) op(d)
#define OUTPACE_SIXTEEN(op)                                                       \
  OUTPACE_FOUR(op, 16, 17, 18, 19) OUTPACE_FOUR(op, 20, 21, 22, 23)               \
  OUTPACE_FOUR(op, 24, 25, 26, 27) OUTPACE_FOUR(op, 28, 29, 30, 31)
#define OUTPACE_LOOP(op, times)                                                                                      \
  const int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);                                                              \
  for (int round = 0; round < rounds * times; ++round)                                                               \
    asm volatile(OUTPACE_SIXTEEN(op)                                                                                 \
                 :                                                                                                   \
                 : "w"(x), "w"(y)                                                                                    \
                 : "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", \
                   "v30", "v31");                                                                                    \
  return uint32_t(rounds);

#define OUTPACE_DOT(n) "sdot v" #n ".4s, %0.16b, %1.16b\n "
#define OUTPACE_PRODUCT(n) ".arch_extension i8mm\n smmla v" #n ".4s, %0.16b, %1.16b\n "

static uint32_t add_dots(int rounds) { OUTPACE_LOOP(OUTPACE_DOT, 4) }
static uint32_t add_products(int rounds) { OUTPACE_LOOP(OUTPACE_PRODUCT, 2) }
static_assert(kMultiplyAdds == 4 * 16 * 16 && kMultiplyAdds == 2 * 16 * 32);

const Probes& neon_probes() {
  static const Probes probes{sum, add_dots};
  return probes;
}

const Probes& neoni8mm_probes() {
  static const Probes probes{sum, add_products};
  return probes;
}

}  // namespace outpace
