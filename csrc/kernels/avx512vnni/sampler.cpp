// The sampler's passes on 512-bit registers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif
#include "kernels/sampler_passes_body.h"

namespace outpace {

const SamplerPasses& avx512vnni_sampler_passes() { return sampling::kPasses; }

}  // namespace outpace
