// The portable kernels: the readable reference of every result, to the last bit.
// kernels.h says what each function does.
#pragma once

#include "kernels/kernels.h"

namespace outpace::portable {

// matrix.cpp
void quantise(Activations& x, int col0, int col1);
void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);

// vector.cpp
void panel_squares(const float* x, float* sums, int n);
void scale(const float* x, float factor, const float* weight, float* y, int n);
void silu_multiply(const float* gate, const float* up, float* y, int n);
void gelu_multiply(const float* gate, const float* up, float* y, int n);
void add(const float* x, float* y, int n);
void rope(float* head, const float* cos, const float* sin, int head_dim, bool interleaved);
void to_f16(const float* x, uint16_t* y, int n);

// attention.cpp
void attend(const AttentionTask& task);

}  // namespace outpace::portable
