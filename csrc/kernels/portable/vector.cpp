// Operations on one row of f32. Sums are 16 partial sums, lane i taking the elements i, i + 16, .. in order, then
// sum_of_lanes().

#include "kernels/portable/functions.h"
#include "kernels/portable/lanes.h"
#include "numerics.h"

namespace outpace::portable {

using numerics::fused;

void panel_squares(const float* x, float* sums, int n) {
  for (int first = 0; first < n; first += kPanelRows) {
    float lanes[kLanes] = {};
    for (int i = first; i < n && i < first + kPanelRows; ++i) lanes[i % kLanes] = fused(x[i], x[i], lanes[i % kLanes]);
    sums[first / kPanelRows] = sum_of_lanes(lanes);
  }
}

void scale(const float* x, float factor, const float* weight, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = (x[i] * factor) * weight[i];
}

void silu_multiply(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = numerics::silu(gate[i]) * up[i];
}

void gelu_multiply(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = numerics::gelu(gate[i]) * up[i];
}

void add(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] += x[i];
}

void rope(float* head, const float* cos, const float* sin, int head_dim, bool interleaved) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = fused(a, cos[i], -(b * sin[i]));
    second = fused(a, sin[i], b * cos[i]);
  }
}

void to_f16(const float* x, uint16_t* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = numerics::f32_to_f16(x[i]);
}

}  // namespace outpace::portable
