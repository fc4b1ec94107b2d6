// The AVX-512 VNNI kernels: the bits of the portable ones, faster. Compiled only for x86-64, called only where cpuid allows.
// kernels.h says what each function does.
#pragma once

#include "kernels/kernels.h"

namespace outpace::avx512vnni {

// matrix.cpp, matrix_quantise.cpp; the others are kernels/vector_body.h's and kernels/attention_body.h's
void quantise(Activations& x, int col0, int col1);
void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);

}  // namespace outpace::avx512vnni
