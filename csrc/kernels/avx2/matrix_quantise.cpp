// Activations to int8 with AVX2: the values of kernels/portable/matrix.cpp.

#include <immintrin.h>

#include <limits>

#include "kernels/avx2/functions.h"
#include "matrix.h"

namespace outpace::avx2 {
namespace {

constexpr float kSmallestLargest = 1e-30f;  // as in the portable file

template <int registers>
inline float largest_magnitude(const float* x) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < registers; ++i) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

inline bool is_degenerate(float largest) {
  return !(largest >= kSmallestLargest && largest <= std::numeric_limits<float>::max());
}

inline float degenerate_scale(float largest) {
  return largest < kSmallestLargest ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

// Eight values to the nearest integer, ties to even, which is how the conversion rounds.
inline __m256i rounded(const float* x, __m256 reciprocal) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), reciprocal));
}

inline __m256i round_block(const float* x, float reciprocal) {
  const __m256 factor = _mm256_set1_ps(reciprocal);
  const __m256i first = _mm256_packs_epi32(rounded(x, factor), rounded(x + 8, factor));  // by halves
  const __m256i second = _mm256_packs_epi32(rounded(x + 16, factor), rounded(x + 24, factor));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order);
}

// In every lane of a half the sums over its 16 inputs, in the two 16-bit parts that dots.h speaks of.
inline __m256i sums16(__m256i q) {
  __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(1, 0, 3, 2)));
  return _mm256_add_epi16(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(2, 3, 0, 1)));
}

inline __m128i sums32(__m256i sums) {
  return _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

inline int total(__m128i sums) { return _mm_cvtsi128_si32(_mm_madd_epi16(sums, _mm_set1_epi16(1))); }

void quantise_block(const float* x, int8_t* to, BlockScale& out) {
  const float largest = largest_magnitude<4>(x);
  __m256i q = _mm256_setzero_si256();
  if (is_degenerate(largest)) {
    out.scale = degenerate_scale(largest);
  } else {
    out.scale = largest / 127.0f;
    q = round_block(x, 127.0f / largest);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), q);
  const __m128i sums = sums32(sums16(q));
  out.scaled_sum = out.scale * static_cast<float>(total(sums));
  out.negated_sum = _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), sums));
}

inline void round_super_block(const float* x, float reciprocal, __m256i (&q)[kBlocksOfSuper]) {
  for (int j = 0; j < kBlocksOfSuper; ++j) q[j] = round_block(x + j * kBlock, reciprocal);
}

inline int most_abs_sum16(const __m256i (&q)[kBlocksOfSuper]) {
  __m256i most = _mm256_setzero_si256();
  for (const __m256i& bytes : q) {
    const __m256i eights = _mm256_sad_epu8(_mm256_abs_epi8(bytes), _mm256_setzero_si256());
    const __m256i sums = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, _MM_SHUFFLE(1, 0, 3, 2)));
    most = _mm256_max_epi32(most, sums);
  }
  const int first = _mm256_extract_epi32(most, 0), second = _mm256_extract_epi32(most, 4);
  return first > second ? first : second;
}

// Fills q and returns the scale.
inline float quantise_super_block(const float* x, __m256i (&q)[kBlocksOfSuper]) {
  const float largest = largest_magnitude<32>(x);
  if (is_degenerate(largest)) {
    for (__m256i& bytes : q) bytes = _mm256_setzero_si256();
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
    __m256i q[kBlocksOfSuper];
    out->scale = quantise_super_block(from, q);
    for (int j = 0; j < kBlocksOfSuper; ++j, to += width * kBlock, offsets += width * 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), q[j]);
      const __m256i sums = sums16(q[j]);
      const __m256i negated = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(sums, 5));
      offsets[0] = _mm256_extract_epi32(negated, 0);
      offsets[1] = _mm256_extract_epi32(negated, 4);
      out->sums[j] = static_cast<int16_t>(total(sums32(sums)));
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

}  // namespace outpace::avx2
