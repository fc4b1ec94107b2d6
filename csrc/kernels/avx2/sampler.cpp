// The sampler's passes on 256-bit registers.
#include "kernels/sampler_passes_body.h"

namespace outpace {

const SamplerPasses& avx2_sampler_passes() { return sampling::kPasses; }

}  // namespace outpace
