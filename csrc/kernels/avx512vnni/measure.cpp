#include "measure.h"

#include <immintrin.h>

namespace outpace {

static uint64_t sum(const uint64_t* x, size_t n) {
  constexpr size_t kAhead = 512;  // 4 kB: as far ahead as a page lets the hardware look
  __m512i total[8];
  for (__m512i& t : total) t = _mm512_setzero_si512();
  for (size_t i = 0; i < n; i += 64)
    for (int j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(x + i + j * 8 + kAhead), _MM_HINT_T0);
      total[j] = _mm512_add_epi64(total[j], _mm512_load_si512(x + i + j * 8));
    }
  uint64_t all = 0;
  for (const __m512i& t : total) {
    alignas(64) uint64_t lanes[8];
    _mm512_store_si512(lanes, t);
    for (const uint64_t lane : lanes) all += lane;
  }
  return all;
}

// In assembly, so that the compiler neither hoists the products out of the loop nor moves the sums about. Sixteen of
// them hide the latency of each.
static uint32_t multiply_add(int rounds) {
#define OUTPACE_TWO(a, b) "vpdpbusd %0, %1, %%zmm" #a "\n vpdpbusd %0, %1, %%zmm" #b "\n "
  const __m512i x = _mm512_set1_epi32(0x01020304), y = _mm512_set1_epi32(0x04030201);
  for (int round = 0; round < rounds; ++round)
    asm volatile(OUTPACE_TWO(16, 17) OUTPACE_TWO(18, 19) OUTPACE_TWO(20, 21) OUTPACE_TWO(22, 23)
                 OUTPACE_TWO(24, 25) OUTPACE_TWO(26, 27) OUTPACE_TWO(28, 29) OUTPACE_TWO(30, 31)
                 :
                 : "v"(x), "v"(y)
                 : "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",
                   "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
#undef OUTPACE_TWO
  return uint32_t(rounds);
}
static_assert(kMultiplyAdds == 16 * 64);

const Probes& avx512vnni_probes() {
  static const Probes probes{sum, multiply_add};
  return probes;
}

}  // namespace outpace
