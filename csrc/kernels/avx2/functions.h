// The AVX2 kernels: the bits of the portable ones, faster. Compiled only for x86-64, called only where cpuid allows.
// kernels.h says what each function does.
#pragma once

#include "kernels/kernels.h"

namespace outpace::avx2 {

// matrix_quantise.cpp, matrix.cpp; the others are kernels/vector_body.h's and kernels/attention_body.h's
void quantise(Activations& x, int col0, int col1);
void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);
// matrix_vnni.cpp: with AVX-VNNI
void multiply_vnni(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);

}  // namespace outpace::avx2
