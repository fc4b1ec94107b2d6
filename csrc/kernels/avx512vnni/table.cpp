#include "kernels/avx512vnni/functions.h"

namespace outpace {

const Kernels& avx512vnni_kernels() {
  using namespace avx512vnni;
  static constexpr Kernels table{
      .name = "avx512vnni",
      .quantise = quantise,
      .multiply = multiply,
      .rms_norm = rms_norm,
      .silu_multiply = silu_multiply,
      .add = add,
      .rope = rope,
      .to_f16 = to_f16,
      .attend = attend,
  };
  return table;
}

}  // namespace outpace
