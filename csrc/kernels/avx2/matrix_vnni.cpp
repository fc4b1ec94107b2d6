#include "kernels/avx2/functions.h"
#include "kernels/avx2/matrix_body.h"

namespace outpace::avx2 {

void multiply_vnni(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y) {
  multiply_panels(w, panel0, panel1, x, y);
}

}  // namespace outpace::avx2
