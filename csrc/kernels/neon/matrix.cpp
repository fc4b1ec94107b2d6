#include "kernels/neon/functions.h"
#include "kernels/neon/matrix_body.h"

namespace outpace::neon {

void multiply(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
  multiply_panels(w, panel0, panel1, x, y);
}

}  // namespace outpace::neon
