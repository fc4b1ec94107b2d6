// The passes over a whole row of logits that the sampler makes, in one version for each instruction set; all give the
// same bits.
#pragma once

#include <cstdint>

#include "sampler_math.h"

namespace outpace {

constexpr int kSamplerBlock = 64;  // tokens of a block: what one pass summarises or tests at a time

constexpr double kSumError = 0x1p-17;

// `largest` is the row's largest logit, finite; `log2_scale` is log2(e) / temperature. A token's weight is
// round(2^44 2^((logit - largest) log2_scale)).
struct SamplerPasses {
  // Copies a row, with -inf for each token whose bit is 0: bit t % 32 of word t / 32.
  void (*masked)(const float* row, const uint32_t* mask, int64_t n, float* out);
  // Writes the largest logit of every block; returns false if any logit is NaN.
  bool (*block_maxima)(const float* row, int64_t n, float* maxima);
  // The sum of 2^((logit - largest) log2_scale), which is the weights' over 2^44, within kSumError of itself where only
  // those above 2^-46 count. In float32: a quarter of the time of the exact sum.
  double (*approximate_sum)(const float* row, int64_t n, float largest, double log2_scale);
  // The sum of the weights of all tokens.
  int64_t (*total_weight)(const float* row, int64_t n, float largest, double log2_scale);
  void (*weights)(const float* logits, int64_t n, float largest, double log2_scale, int64_t* out);
  // Writes every token's weight divided by `total`.
  void (*divided_weights)(const float* row, int64_t n, float largest, double log2_scale, double total, double* out);
  // Bit i of a block of 64 says whether logits[i] >= from.
  uint64_t (*at_least)(const float* logits, float from);
  // Bit i says whether token 64 * block + i could reach `best`, a value of (logit - largest) / temperature + noise.
  uint64_t (*contenders)(const float* logits, uint32_t block, const sampling::NoiseKey& key, float largest,
                         double log2_scale, double best);
  // The same for 64 tokens anywhere in the row, given their ids and logits.
  uint64_t (*contenders_among)(const float* logits, const uint32_t* ids, const sampling::NoiseKey& key, float largest,
                               double log2_scale, double best);
};

const SamplerPasses& portable_sampler_passes();
#ifdef OUTPACE_X86_64
const SamplerPasses& avx512vnni_sampler_passes();
const SamplerPasses& avx2_sampler_passes();
#endif

}  // namespace outpace
