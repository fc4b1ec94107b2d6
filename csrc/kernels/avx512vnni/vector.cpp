// Operations on one row of f32; portable/vector.cpp states the order of every sum.

#include "kernels/avx512vnni/functions.h"
#include "kernels/avx512vnni/lanes.h"

namespace outpace::avx512vnni {

void rms_norm(const float* x, const float* weight, float epsilon, float* y, int n) {
  const int whole = n & ~15;
  const __mmask16 rest = first_lanes(n - whole);
  F32x16 squares(0.0f);
  for (int i = 0; i < whole; i += 16) squares = fused(load(x + i), load(x + i), squares);
  const F32x16 last = load(x + whole, rest);
  squares = fused(last, last, squares);  // adds 0 to the lanes past the end
  const float mean_square = sum_of_lanes(squares) / static_cast<float>(n);
  const F32x16 inverse_rms(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean_square + epsilon))));
  for (int i = 0; i < whole; i += 16) store(y + i, (load(x + i) * inverse_rms) * load(weight + i));
  store(y + whole, (last * inverse_rms) * load(weight + whole, rest), rest);
}

void silu_multiply(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    store(y + i, numerics::silu(load(gate + i, lanes)) * load(up + i, lanes), lanes);
  }
}

void add(const float* x, float* y, int n) {
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    store(y + i, load(y + i, lanes) + load(x + i, lanes), lanes);
  }
}

static void rope_halves(float* head, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i += 16) {
    const __mmask16 lanes = first_lanes(half - i);
    const F32x16 a = load(head + i, lanes), b = load(head + half + i, lanes);
    const F32x16 c = load(cos + i, lanes), s = load(sin + i, lanes);
    store(head + i, _mm512_fmsub_ps(a.v, c.v, (b * s).v), lanes);
    store(head + half + i, fused(a, s, b * c), lanes);
  }
}

// Eight pairs at a time: the even lanes are the first of each pair, the odd lanes the second.
static void rope_pairs(float* head, const float* cos, const float* sin, int half) {
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  for (int i = 0; i < half; i += 8) {
    const __mmask16 pairs = first_lanes(half - i < 8 ? half - i : 8), lanes = first_lanes(2 * (half - i));
    const __m512 x = load(head + 2 * i, lanes).v, swapped = _mm512_permute_ps(x, 0b10'11'00'01);
    const __m512 c = _mm512_permutexvar_ps(twice, load(cos + i, pairs).v);
    const __m512 s = _mm512_permutexvar_ps(twice, load(sin + i, pairs).v);
    // first: fma(a, cos, -(b sin)); second: fma(a, sin, b cos). The factor a is x in even lanes, swapped in odd ones.
    constexpr __mmask16 odd = 0xaaaa;
    const __m512 a = _mm512_mask_mov_ps(x, odd, swapped), b = _mm512_mask_mov_ps(swapped, odd, x);
    const __m512 with_a = _mm512_mask_mov_ps(c, odd, s), with_b = _mm512_mask_mov_ps(s, odd, c);
    store(head + 2 * i, _mm512_fmaddsub_ps(a, with_a, _mm512_mul_ps(b, with_b)), lanes);
  }
}

void rope(float* head, const float* cos, const float* sin, int head_dim, bool interleaved) {
  interleaved ? rope_pairs(head, cos, sin, head_dim / 2) : rope_halves(head, cos, sin, head_dim / 2);
}

void to_f16(const float* x, uint16_t* y, int n) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    _mm256_mask_storeu_epi16(y + i, lanes, _mm512_cvtps_ph(load(x + i, lanes).v, nearest));
  }
}

}  // namespace outpace::avx512vnni
