// Operations on one row of f32 for sixteen lanes of any instruction set; portable/vector.cpp states the order of every
// sum. A set's lanes.h brings the lane type V. Internal linkage: each instruction set compiles its own copy.
#pragma once

#include "kernels/kernels.h"
#include "numerics.h"

namespace outpace::lanes {
namespace {

constexpr int kWidth = 16;

template <class V>
void panel_squares(const float* x, float* sums, int n) {
  static_assert(kPanelRows == 2 * kWidth);
  for (int i = 0; i < n; i += kPanelRows) {
    const V low = V::load_first(x + i, n - i), high = V::load_first(x + i + kWidth, n - i - kWidth);
    sums[i / kPanelRows] = sum_of_lanes(fused(high, high, low * low));  // lanes past the end add 0
  }
}

template <class V>
void scale(const float* x, float factor, const float* weight, float* y, int n) {
  const V factors(factor);
  for (int i = 0; i < n; i += kWidth) {
    store_first(y + i, (V::load_first(x + i, n - i) * factors) * V::load_first(weight + i, n - i), n - i);
  }
}

template <class V>
void silu_multiply(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; i += kWidth) {
    store_first(y + i, numerics::silu(V::load_first(gate + i, n - i)) * V::load_first(up + i, n - i), n - i);
  }
}

template <class V>
void gelu_multiply(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; i += kWidth) {
    store_first(y + i, numerics::gelu(V::load_first(gate + i, n - i)) * V::load_first(up + i, n - i), n - i);
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
