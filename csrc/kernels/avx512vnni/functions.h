// The AVX-512 VNNI kernels: the bits of the portable ones, faster. Compiled only for x86-64, called only where cpuid allows.
// kernels.h says what each function does.
#pragma once

#include "kernels/kernels.h"

namespace outpace::avx512vnni {

// matrix.cpp, matrix_quantise.cpp
void quantise(Activations& x, int row0, int row1);
void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, float* y, ptrdiff_t y_stride);

// vector.cpp
void rms_norm(const float* x, const float* weight, float epsilon, float* y, int n);
void silu_multiply(const float* gate, const float* up, float* y, int n);
void add(const float* x, float* y, int n);
void rope(float* head, const float* cos, const float* sin, int head_dim, bool interleaved);
void to_f16(const float* x, uint16_t* y, int n);

// attention.cpp
void attend(const AttentionTask& task);

}  // namespace outpace::avx512vnni
