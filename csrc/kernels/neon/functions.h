// The NEON kernels: the bits of the portable ones, faster. Compiled only for aarch64, called only where the processor has
// the dot product. kernels.h says what each function does.
#pragma once

#include "kernels/kernels.h"

namespace outpace::neon {

// matrix_quantise.cpp, matrix.cpp; the others are kernels/vector_body.h's and kernels/attention_body.h's
void quantise(Activations& x, int col0, int col1);
void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);
// matrix_i8mm.cpp: with the 8-bit matrix product
void multiply_i8mm(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);

}  // namespace outpace::neon
