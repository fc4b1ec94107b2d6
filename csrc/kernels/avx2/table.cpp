#include "kernels/attention_body.h"
#include "kernels/avx2/functions.h"
#include "kernels/avx2/lanes.h"
#include "kernels/vector_body.h"
#include "measure.h"
#include "sampler_passes.h"

namespace outpace {

static constexpr Kernels kTable{
    .name = "avx2",
    .quantise = avx2::quantise,
    .multiply = avx2::multiply,
    .panel_squares = lanes::panel_squares<avx2::F32x16>,
    .scale = lanes::scale<avx2::F32x16>,
    .silu_multiply = lanes::silu_multiply<avx2::F32x16>,
    .gelu_multiply = lanes::gelu_multiply<avx2::F32x16>,
    .add = lanes::add<avx2::F32x16>,
    .rope = lanes::rope<avx2::F32x16>,
    .to_f16 = lanes::to_f16<avx2::F32x16>,
    .attend = lanes::Attention<avx2::F32x16, 6, 1>::attend,  // 12 registers of sums in 16
    .sampler = avx2_sampler_passes,
    .probes = avx2_probes,
};

const Kernels& avx2_kernels() { return kTable; }

const Kernels& avxvnni_kernels() {
  static constexpr Kernels table = [] {
    Kernels with_dot = kTable;
    with_dot.name = "avxvnni";
    with_dot.multiply = avx2::multiply_vnni;
    with_dot.probes = avxvnni_probes;
    return with_dot;
  }();
  return table;
}

}  // namespace outpace
