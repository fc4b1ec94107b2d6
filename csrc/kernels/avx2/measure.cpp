#include "measure.h"

#include <immintrin.h>

namespace outpace {

static uint64_t sum(const uint64_t* x, size_t n) {
  constexpr size_t kAhead = 512;  // 4 kB: as far ahead as a page lets the hardware look
  __m256i total[8];
  for (__m256i& t : total) t = _mm256_setzero_si256();
  for (size_t i = 0; i < n; i += 32)
    for (int j = 0; j < 8; ++j) {
      if (j % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(x + i + j * 4 + kAhead), _MM_HINT_T0);
      const __m256i four = _mm256_load_si256(reinterpret_cast<const __m256i*>(x + i + j * 4));
      total[j] = _mm256_add_epi64(total[j], four);
    }
  uint64_t all = 0;
  for (const __m256i& t : total) {
    alignas(32) uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), t);
    for (const uint64_t lane : lanes) all += lane;
  }
  return all;
}

// In assembly, so that the compiler neither hoists the products out of the loop nor moves the sums about. What maddubs
// adds in pairs is not added up here: that is other pipes' work.
#define OUTPACE_FOUR(op, a, b, c, d) op(a) op(b) op(c) op(d)
#define OUTPACE_TWELVE(op) OUTPACE_FOUR(op, 4, 5, 6, 7) OUTPACE_FOUR(op, 8, 9, 10, 11) OUTPACE_FOUR(op, 12, 13, 14, 15)
#define OUTPACE_LOOP(op)                                                                                           \
  const __m256i x = _mm256_set1_epi32(0x01020304), y = _mm256_set1_epi32(0x04030201);                              \
  for (int round = 0; round < rounds; ++round)                                                                     \
    asm volatile(OUTPACE_TWELVE(op) OUTPACE_TWELVE(op) OUTPACE_FOUR(op, 4, 5, 6, 7) OUTPACE_FOUR(op, 8, 9, 10, 11) \
                 :                                                                                                 \
                 : "x"(x), "x"(y)                                                                                  \
                 : "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",    \
                   "xmm15");                                                                                       \
  return uint32_t(rounds);

#define OUTPACE_PAIRS(n) "vpmaddubsw %0, %1, %%ymm" #n "\n "
#define OUTPACE_DOT(n) "%{vex%} vpdpbusd %0, %1, %%ymm" #n "\n "

static uint32_t add_pairs(int rounds) { OUTPACE_LOOP(OUTPACE_PAIRS) }
static uint32_t add_dots(int rounds) { OUTPACE_LOOP(OUTPACE_DOT) }
static_assert(kMultiplyAdds == 32 * 32);

const Probes& avx2_probes() {
  static const Probes probes{sum, add_pairs};
  return probes;
}

const Probes& avxvnni_probes() {
  static const Probes probes{sum, add_dots};
  return probes;
}

}  // namespace outpace
