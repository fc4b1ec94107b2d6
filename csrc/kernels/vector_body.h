// Operations on one row of f32 for sixteen lanes of any instruction set; portable/vector.cpp states the order of every
// sum. A set's lanes.h brings the lane type V. Internal linkage: each instruction set compiles its own copy.
#pragma once

#include "numerics.h"

namespace outpace::lanes {
namespace {

constexpr int kWidth = 16;

template <class V>
void rms_norm(const float* x, const float* weight, float epsilon, float* y, int n) {
  const int whole = n & ~(kWidth - 1), rest = n - whole;
  V squares(0.0f);
  for (int i = 0; i < whole; i += kWidth) squares = fused(V::load(x + i), V::load(x + i), squares);
  const V last = V::load_first(x + whole, rest);
  squares = fused(last, last, squares);  // adds 0 to the lanes past the end
  const float mean_square = sum_of_lanes(squares) / static_cast<float>(n);
  const V inverse_rms(1.0f / __builtin_sqrtf(mean_square + epsilon));
  for (int i = 0; i < whole; i += kWidth) store(y + i, (V::load(x + i) * inverse_rms) * V::load(weight + i));
  store_first(y + whole, (last * inverse_rms) * V::load_first(weight + whole, rest), rest);
}

template <class V>
void silu_multiply(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; i += kWidth) {
    store_first(y + i, numerics::silu(V::load_first(gate + i, n - i)) * V::load_first(up + i, n - i), n - i);
  }
}

template <class V>
void add(const float* x, float* y, int n) {
  for (int i = 0; i < n; i += kWidth) {
    store_first(y + i, V::load_first(y + i, n - i) + V::load_first(x + i, n - i), n - i);
  }
}

template <class V>
void rope_halves(float* head, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i += kWidth) {
    const int left = half - i;
    const V a = V::load_first(head + i, left), b = V::load_first(head + half + i, left);
    const V c = V::load_first(cos + i, left), s = V::load_first(sin + i, left);
    store_first(head + i, fused_minus(a, c, b * s), left);
    store_first(head + half + i, fused(a, s, b * c), left);
  }
}

// Eight pairs at a time: the even lanes are the first of each pair, the odd lanes the second.
template <class V>
void rope_pairs(float* head, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i += kWidth / 2) {
    const int left = half - i;
    const V x = V::load_first(head + 2 * i, 2 * left);
    store_first(head + 2 * i, rotate_pairs(x, V::load_first_twice(cos + i, left), V::load_first_twice(sin + i, left)),
                2 * left);
  }
}

template <class V>
void rope(float* head, const float* cos, const float* sin, int head_dim, bool interleaved) {
  interleaved ? rope_pairs<V>(head, cos, sin, head_dim / 2) : rope_halves<V>(head, cos, sin, head_dim / 2);
}

template <class V>
void to_f16(const float* x, uint16_t* y, int n) {
  for (int i = 0; i < n; i += kWidth) store_first_f16(y + i, V::load_first(x + i, n - i), n - i);
}

}  // namespace
}  // namespace outpace::lanes
