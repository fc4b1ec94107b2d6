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

// In assembly, so that the compiler neither hoists the products out of the loop nor moves the sums about. Additions
// follow their products at a distance: next to them they would take the products' pipes, and a tenth of the rate.
#define OUTPACE_LAGGING(product, add, a, b, c, d) \
  product(12) add(13, a) product(13) add(14, b) product(14) add(15, c) product(15) add(12, d)
#define OUTPACE_EIGHT(product, add) \
  OUTPACE_LAGGING(product, add, 4, 5, 6, 7) OUTPACE_LAGGING(product, add, 8, 9, 10, 11)
#define OUTPACE_FOUR_TIMES(eight) eight eight eight eight
#define OUTPACE_LOOP(times, body)                                                                              \
  const __m256i x = _mm256_set1_epi32(0x01020304), y = _mm256_set1_epi32(0x04030201);                           \
  for (int i = 0; i < times * rounds; ++i)                                                                      \
    asm volatile(body                                                                                           \
                 :                                                                                              \
                 : "x"(x), "x"(y)                                                                               \
                 : "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", \
                   "xmm15");                                                                                    \
  return uint32_t(rounds);

#define OUTPACE_PAIRS(t) "vpmaddubsw %0, %1, %%ymm" #t "\n "
#define OUTPACE_ADD_PAIRS(t, n) "vpaddw %%ymm" #t ", %%ymm" #n ", %%ymm" #n "\n "
#define OUTPACE_WIDE_PAIRS(t) "vpmaddwd %0, %1, %%ymm" #t "\n "
#define OUTPACE_ADD_WIDE_PAIRS(t, n) "vpaddd %%ymm" #t ", %%ymm" #n ", %%ymm" #n "\n "
#define OUTPACE_DOT(n) "%{vex%} vpdpbusd %0, %1, %%ymm" #n "\n "
#define OUTPACE_FOUR_DOTS(a, b, c, d) OUTPACE_DOT(a) OUTPACE_DOT(b) OUTPACE_DOT(c) OUTPACE_DOT(d)
#define OUTPACE_EIGHT_DOTS OUTPACE_FOUR_DOTS(4, 5, 6, 7) OUTPACE_FOUR_DOTS(8, 9, 10, 11)
#define OUTPACE_TWELVE_DOTS OUTPACE_EIGHT_DOTS OUTPACE_FOUR_DOTS(12, 13, 14, 15)

static uint32_t add_pairs(int rounds) {
  OUTPACE_LOOP(1, OUTPACE_FOUR_TIMES(OUTPACE_EIGHT(OUTPACE_PAIRS, OUTPACE_ADD_PAIRS)))
}
// Pairs of 8-bit codes saturate 16 bits: as 16-bit ones they take two instructions, and so does every other way.
static uint32_t add_wide_pairs(int rounds) {
  OUTPACE_LOOP(2, OUTPACE_FOUR_TIMES(OUTPACE_EIGHT(OUTPACE_WIDE_PAIRS, OUTPACE_ADD_WIDE_PAIRS)))
}
static uint32_t add_dots(int rounds) {
  OUTPACE_LOOP(1, OUTPACE_TWELVE_DOTS OUTPACE_TWELVE_DOTS OUTPACE_EIGHT_DOTS)
}
static_assert(kMultiplyAdds == 32 * 32);

const Probes& avx2_probes() {
  static const Probes probes{sum, add_pairs, add_wide_pairs};
  return probes;
}

const Probes& avxvnni_probes() {
  static const Probes probes{sum, add_dots};
  return probes;
}

}  // namespace outpace
