#include "kernels/attention_body.h"
#include "kernels/avx512vnni/functions.h"
#include "kernels/avx512vnni/lanes.h"
#include "kernels/vector_body.h"
#include "measure.h"
#include "sampler_passes.h"

namespace outpace {

const Kernels& avx512vnni_kernels() {
  using namespace avx512vnni;
  static constexpr Kernels table{
      .name = "avx512vnni",
      .quantise = quantise,
      .multiply = multiply,
      .panel_squares = lanes::panel_squares<F32x16>,
      .scale = lanes::scale<F32x16>,
      .silu_multiply = lanes::silu_multiply<F32x16>,
      .gelu_multiply = lanes::gelu_multiply<F32x16>,
      .add = lanes::add<F32x16>,
      .rope = lanes::rope<F32x16>,
      .to_f16 = lanes::to_f16<F32x16>,
      .attend = lanes::Attention<F32x16, 6, 4>::attend,  // 24 sums in 32 registers
      .sampler = avx512vnni_sampler_passes,
      .probes = avx512vnni_probes,
  };
  return table;
}

}  // namespace outpace
