#include "kernels/portable/functions.h"
#include "measure.h"
#include "sampler_passes.h"

namespace outpace {

const Kernels& portable_kernels() {
  using namespace portable;
  static constexpr Kernels table{
      .name = "portable",
      .quantise = quantise,
      .multiply = multiply,
      .panel_squares = panel_squares,
      .scale = scale,
      .silu_multiply = silu_multiply,
      .gelu_multiply = gelu_multiply,
      .add = add,
      .rope = rope,
      .to_f16 = to_f16,
      .attend = attend,
      .sampler = portable_sampler_passes,
      .probes = portable_probes,
  };
  return table;
}

}  // namespace outpace
