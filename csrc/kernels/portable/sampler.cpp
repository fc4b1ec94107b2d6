// The sampler's passes for any processor.
#include "kernels/sampler_passes_body.h"

namespace outpace {

const SamplerPasses& portable_sampler_passes() { return sampling::kPasses; }

}  // namespace outpace
