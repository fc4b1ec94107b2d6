#include "kernels/attention_body.h"
#include "kernels/neon/functions.h"
#include "kernels/neon/lanes.h"
#include "kernels/vector_body.h"
#include "measure.h"
#include "sampler_passes.h"

namespace outpace {

static constexpr Kernels kTable{
    .name = "neon",
    .quantise = neon::quantise,
    .multiply = neon::multiply,
    .panel_squares = lanes::panel_squares<neon::F32x16>,
    .scale = lanes::scale<neon::F32x16>,
    .silu_multiply = lanes::silu_multiply<neon::F32x16>,
    .gelu_multiply = lanes::gelu_multiply<neon::F32x16>,
    .add = lanes::add<neon::F32x16>,
    .rope = lanes::rope<neon::F32x16>,
    .to_f16 = lanes::to_f16<neon::F32x16>,
    .attend = lanes::Attention<neon::F32x16, 6, 1>::attend,  // 24 registers of sums in 32
    .sampler = portable_sampler_passes,  // NEON is in every aarch64: the compiler's own vectors are these registers
    .probes = neon_probes,
};

const Kernels& neon_kernels() { return kTable; }

const Kernels& neoni8mm_kernels() {
  static constexpr Kernels table = [] {
    Kernels with_products = kTable;
    with_products.name = "neoni8mm";
    with_products.multiply = neon::multiply_i8mm;
    with_products.probes = neoni8mm_probes;
    return with_products;
  }();
  return table;
}

}  // namespace outpace
