// The plain sampler fused: filters without a sort, noise only for tokens that can still win. Gives the token and the
// probabilities of src/outpace/sampling.py's Reference, to the bit.
#pragma once

#include <cstdint>

#include "sampler_math.h"

namespace outpace {

struct SamplerSettings {
  bool greedy;
  double temperature;
  int64_t top_k;  // 0 = off
  double top_p;   // 1 = off
  double min_p;   // 0 = off
};

constexpr int64_t kMaxVocab = (int64_t{1} << 19) - 1;  // the sum of this many weights fits 63 bits

// The token drawn from a row of n logits; -1 where the row holds a NaN, only -inf, or not 1 to kMaxVocab entries.
// mask: null, or a bit for each token, bit t % 32 of word t / 32; what it excludes counts as -inf, whatever its logit.
// No allocation after a thread's first call for a size.
int64_t draw_token(const float* row, int64_t n, const uint32_t* mask, const SamplerSettings& settings,
                   const sampling::NoiseKey& key);

// Writes [n] the law after the mask and the filters; false (and nothing written) where draw_token gives -1.
bool token_probs(const float* row, int64_t n, const uint32_t* mask, const SamplerSettings& settings, double* out);

}  // namespace outpace
