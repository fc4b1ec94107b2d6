// Dots of 8-bit codes and activations on 256-bit registers, with and without the dot instruction (AVX-VNNI).
//
// Without it, maddubs adds products in pairs to 16 bits, where it saturates: two neighbours of an unsigned code below 64
// and an activation never reach that. Pairs of several steps are then added up in 16 bits. Such a sum may wrap around
// on the way as long as its final value fits, which is why a code's offset is what a sum starts with: less their
// offsets, 5-bit codes fit over 32 inputs, and so do 4-bit ones, with or without; 6-bit ones fit over 16 inputs whose
// absolute sum is bounded (SuperBlockScale). Either way a sum has two 16-bit halves: of inputs 0 and 1 of every step
// (of four inputs), and of 2 and 3. Codes of 8 bits are taken with their sign and added up in 32 bits.
//
// Everything has internal linkage: each of the two is compiled on its own.
#pragma once

#include <immintrin.h>

#include <cstring>
#include <utility>

#include "formats.h"
#include "kernels/avx2/lines.h"
#include "matrix.h"

namespace outpace {
namespace {

constexpr int kVectors = kPanelRows / 8;  // registers of a panel's 32 rows

// A block's unsigned codes, unpacked: one register for a step of eight output rows.
struct alignas(32) Steps {
  __m256i of[kSteps][kVectors];
  __m256i at(int step, int v) const { return of[step][v]; }
};

// Integers of R rows of activations by 8 N outputs. Functions take it by reference: what they return stays in memory
// where they have reload() in them.
template <int R, int N>
struct Grid {
  __m256i of[R][N];
  // One by one: `= {}` may become an instruction that clears memory, and then the sums are there.
  void fill(int m, __m256i from) {
    for (__m256i& sum : of[m]) sum = from;
  }
  void clear() {
    for (int m = 0; m < R; ++m) fill(m, _mm256_setzero_si256());
  }
};

inline __m256i load(const void* bytes) { return _mm256_load_si256(static_cast<const __m256i*>(bytes)); }

// The four bytes at `from` in every lane.
inline __m256i broadcast(const void* from) {
  int bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return _mm256_set1_epi32(bytes);
}

#ifdef __AVXVNNI__

constexpr bool kHasDot = true;

inline __m256i add_products(__m256i sum, __m256i codes, __m256i q) { return _mm256_dpbusd_avx_epi32(sum, codes, q); }

// `halves` holds what two 16-bit halves start with, less the factor.
inline __m256i start(__m256i halves, int factor) {
  return _mm256_madd_epi16(halves, _mm256_set1_epi16(static_cast<short>(factor)));
}

// The dots themselves, once all steps are added.
inline __m256i finished(__m256i sum) { return sum; }

// dot + sum * integer, the sum fitting 16 bits.
inline __m256i add_scaled(__m256i dot, __m256i sum, __m256i integer) {
  return _mm256_dpwssd_avx_epi32(dot, sum, integer);
}

#else

constexpr bool kHasDot = false;

inline __m256i add_products(__m256i sum, __m256i codes, __m256i q) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, q));
  // Nothing is to be added before its turn: compilers would build trees of sums, for which registers do not suffice.
  asm("" : "+x"(sum));
  return sum;
}

inline __m256i start(__m256i halves, int factor) {
  return _mm256_mullo_epi16(halves, _mm256_set1_epi16(static_cast<short>(factor)));
}

inline __m256i finished(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

inline __m256i add_scaled(__m256i dot, __m256i sum, __m256i integer) {
  return _mm256_add_epi32(dot, _mm256_madd_epi16(sum, integer));
}

#endif

// Of eight rows' integers, two neighbouring sub-blocks' side by side, those of sub-block `which` as add_scaled() wants
// them: in both halves of a lane, or with 0 in the upper one.
inline __m256i integers(__m256i pairs, int which) {
  if (kHasDot) return which == 0 ? _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(pairs, 16);
  alignas(16) static constexpr uint8_t kOrder[2][16] = {{0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13},
                                                        {2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15}};
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kOrder[which]));
  return _mm256_shuffle_epi8(pairs, _mm256_broadcastsi128_si256(order));
}

// The same pointer, of which the compiler knows nothing: it would compute the addresses of all steps once for several
// tiles and keep them in memory, in want of registers.
[[gnu::always_inline]] inline const int8_t* afresh(const int8_t* q) {
  asm("" : "+r"(q));
  return q;
}

// Adds a step of outputs 8 v to 8 (v + N) and R rows of activations, q [R][32].
template <class Codes, int R, int N>
[[gnu::always_inline]] inline void add_step(const Codes& codes, int step, int v, const int8_t* q, Grid<R, N>& sums) {
  __m256i of_step[N];
  for (int n = 0; n < N; ++n) of_step[n] = codes.at(step, v + n);
  for (int m = 0; m < R; ++m) {
    const __m256i four = broadcast(q + m * kBlock + 4 * step);
    for (int n = 0; n < N; ++n) sums.of[m][n] = add_products(sums.of[m][n], of_step[n], four);
  }
}

// Calls work<s>() for all s in [first, last), one after the other: a loop that asks for memory is not unrolled in time.
template <int first, int last, class Work>
[[gnu::always_inline]] inline void each_step(Work work) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (work.template operator()<first + i>(), ...);
  }(std::make_integer_sequence<int, last - first>());
}

// Adds steps [first, last).
template <int first, int last, class Codes, int R, int N, int known_rows>
[[gnu::always_inline]] inline void add_steps(const Codes& codes, int v, const int8_t* q, const Lines<known_rows>& lines,
                                             Grid<R, N>& sums) {
  q = afresh(q);
  each_step<first, last>([&]<int s>() __attribute__((always_inline)) {
    lines.begin_step(s, kSteps);
    add_step(codes, s, v, q, sums);
  });
}

// The same of all steps, with codes that come out of memory in twos, a step's and the fourth next one's.
template <class Codes, int R, int N, int known_rows>
[[gnu::always_inline]] inline void add_paired_steps(const Codes& codes, int v, const int8_t* q,
                                                    const Lines<known_rows>& lines, Grid<R, N>& sums) {
  q = afresh(q);
  each_step<0, kSteps / 2>([&]<int s>() __attribute__((always_inline)) {
    lines.begin_step(s, kSteps / 2);
    __m256i low[N], high[N];
    for (int n = 0; n < N; ++n) codes.pair_at(s, v + n, low[n], high[n]);
    for (int m = 0; m < R; ++m) {
      const __m256i four = broadcast(q + m * kBlock + 4 * s);
      for (int n = 0; n < N; ++n) sums.of[m][n] = add_products(sums.of[m][n], low[n], four);
    }
    for (int m = 0; m < R; ++m) {
      const __m256i four = broadcast(q + m * kBlock + 4 * s + kBlock / 2);
      for (int n = 0; n < N; ++n) sums.of[m][n] = add_products(sums.of[m][n], high[n], four);
    }
  });
}

template <int first, int last, class Codes, int R, int N, int known_rows>
  requires requires(Codes codes, __m256i& half) { codes.pair_at(0, 0, half, half); }
[[gnu::always_inline]] inline void add_steps(const Codes& codes, int v, const int8_t* q, const Lines<known_rows>& lines,
                                             Grid<R, N>& sums) {
  static_assert(first == 0 && last == kSteps);
  add_paired_steps(codes, v, q, lines, sums);
}

// The same with signed codes of 8 bits, to 32 bits at once: `codes` has their magnitudes and the values, whose signs go
// to the activations.
template <class Codes, int R, int N, int known_rows>
[[gnu::always_inline]] inline void add_signed_steps(const Codes& codes, int v, const int8_t* q,
                                                    const Lines<known_rows>& lines, Grid<R, N>& sums) {
  q = afresh(q);
  each_step<0, kSteps>([&]<int s>() __attribute__((always_inline)) {
    lines.begin_step(s, kSteps);
    __m256i magnitudes[N], values[N];
    for (int n = 0; n < N; ++n) magnitudes[n] = codes.magnitudes_at(s, v + n), values[n] = codes.values_at(s, v + n);
    for (int m = 0; m < R; ++m) {
      const __m256i four = broadcast(q + m * kBlock + 4 * s);
      for (int n = 0; n < N; ++n) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitudes[n], _mm256_sign_epi8(four, values[n]));
        __m256i& sum = sums.of[m][n];
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        asm("" : "+x"(sum));
      }
    }
  });
}

}  // namespace
}  // namespace outpace
