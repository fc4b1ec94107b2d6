// Activations to int8 with AVX-512: the values of kernels/portable/matrix.cpp.
//
// They stay in registers from the rounding to the sums: reading back bytes that were stored in smaller pieces would
// wait for them.

#include <immintrin.h>

#include <limits>

#include "kernels/avx512vnni/functions.h"
#include "matrix.h"

namespace outpace::avx512vnni {
namespace {

constexpr float kSmallestLargest = 1e-30f;  // as in the portable file

template <int registers>
inline float largest_magnitude(const float* x) {
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < registers; ++i) {
    const __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + 16 * i));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  const int bits = static_cast<int>(_mm512_reduce_max_epu32(largest));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

inline bool is_degenerate(float largest) {
  return !(largest >= kSmallestLargest && largest <= std::numeric_limits<float>::max());
}

inline float degenerate_scale(float largest) {
  return largest < kSmallestLargest ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

// Sixteen values to the nearest integer, ties to even, which is how the conversion rounds.
inline __m512i rounded(const float* x, __m512 reciprocal) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), reciprocal));
}

inline __m256i round_block(const float* x, float reciprocal) {
  const __m512 factor = _mm512_set1_ps(reciprocal);
  const __m512i words = _mm512_packs_epi32(rounded(x, factor), rounded(x + 16, factor));  // by quarters
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return _mm512_cvtsepi16_epi8(_mm512_permutexvar_epi64(order, words));
}

// The sums of fours in a block, four inputs a lane, added up.
inline int sum_block(__m256i q) {
  const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(sum);
}

void quantise_block(const float* x, int8_t* to, BlockScale& out) {
  const float largest = largest_magnitude<2>(x);
  __m256i q = _mm256_setzero_si256();
  if (is_degenerate(largest)) {
    out.scale = degenerate_scale(largest);
  } else {
    out.scale = largest / 127.0f;
    q = round_block(x, 127.0f / largest);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), q);
  const int total = sum_block(q);
  out.scaled_sum = out.scale * static_cast<float>(total);
  out.negated_sum = -total;
}

constexpr int kQuarters = kSuperBlock / 64;

inline void round_super_block(const float* x, float reciprocal, __m512i (&q)[kQuarters]) {
  const __m512 factor = _mm512_set1_ps(reciprocal);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int i = 0; i < kQuarters; ++i, x += 64) {
    const __m512i first = _mm512_packs_epi32(rounded(x, factor), rounded(x + 16, factor));
    const __m512i second = _mm512_packs_epi32(rounded(x + 32, factor), rounded(x + 48, factor));
    q[i] = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second));
  }
}

// Sums of four sixteens, each in the four lanes of its quarter.
inline __m512i sums16(__m512i unsigned_bytes, __m512i signed_bytes) {
  __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), unsigned_bytes, signed_bytes);
  sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
  return _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
}

inline int most_abs_sum16(const __m512i (&q)[kQuarters]) {
  __m512i most = _mm512_setzero_si512();
  for (const __m512i& bytes : q) {
    most = _mm512_max_epi32(most, sums16(_mm512_abs_epi8(bytes), _mm512_set1_epi8(1)));
  }
  return _mm512_reduce_max_epi32(most);
}

// Fills q and returns the scale.
inline float quantise_super_block(const float* x, __m512i (&q)[kQuarters]) {
  const float largest = largest_magnitude<16>(x);
  if (is_degenerate(largest)) {
    for (__m512i& bytes : q) bytes = _mm512_setzero_si512();
    return degenerate_scale(largest);
  }
  round_super_block(x, 127.0f / largest, q);
  const int most = most_abs_sum16(q);
  if (most <= kMostAbsSum16) return largest / 127.0f;
  const float wider = largest * (static_cast<float>(most + 8) / static_cast<float>(kMostAbsSum16 - 9));
  round_super_block(x, 127.0f / wider, q);
  return wider / 127.0f;
}

void quantise_row_32(Activations& x, const float* from, int row, int first, int last) {
  const int width = x.tile_width(row);
  int8_t* q = x.q32(first, row);
  BlockScale* scale = x.scale32(first, row);
  for (int b = first; b < last; ++b, from += kBlock, q += width * kBlock, scale += width) {
    quantise_block(from, q, *scale);
  }
}

void quantise_row_256(Activations& x, const float* from, int row, int first, int last) {
  const int width = x.tile_width(row);
  int8_t* to = x.q256(first * kBlocksOfSuper, row);
  int32_t* offsets = x.offsets256(first * kBlocksOfSuper, row);
  SuperBlockScale* out = x.scale256(first, row);
  for (int b = first; b < last; ++b, from += kSuperBlock, out += width) {
    __m512i q[kQuarters];
    out->scale = quantise_super_block(from, q);
    for (int i = 0; i < kQuarters; ++i, to += 2 * width * kBlock, offsets += 2 * width * 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(q[i]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + width * kBlock), _mm512_extracti64x4_epi64(q[i], 1));
      const __m512i quarters = sums16(_mm512_set1_epi8(1), q[i]);
      const __m128i sums = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, quarters));
      const __m128i negated = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(sums, 5));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(offsets), negated);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(offsets + width * 2), _mm_srli_si128(negated, 8));
      out->sums[2 * i] = static_cast<int16_t>(_mm_extract_epi32(sums, 0) + _mm_extract_epi32(sums, 1));
      out->sums[2 * i + 1] = static_cast<int16_t>(_mm_extract_epi32(sums, 2) + _mm_extract_epi32(sums, 3));
    }
  }
}

}  // namespace

void quantise(Activations& x, int col0, int col1) {
  for (int row = 0; row < x.rows; ++row) {
    const float* const from = x.f32(row, col0, col1);
    if (x.wants_32) quantise_row_32(x, from, row, col0 / kBlock, col1 / kBlock);
    if (x.wants_256) quantise_row_256(x, from, row, col0 / kSuperBlock, col1 / kSuperBlock);
  }
}

}  // namespace outpace::avx512vnni
