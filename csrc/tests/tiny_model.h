// A random decoder small enough to be run hundreds of times under a sanitizer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model.h"

namespace outpace::test {

struct TinyShape {
  int layers = 2, hidden_size = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn_size = 96, vocab_size = 101;
  int context = 200;
  bool rope_interleaved = true, biases = false, tied = true;
  std::vector<Format> formats = {Format::f32};  // of the matrices, in turn
};

// The same weights for the same shape and seed, whatever the threads and kernels.
std::unique_ptr<Model> tiny_model(const TinyShape& shape = {}, int threads = 1,
                                  const Kernels& kernels = portable_kernels(), uint32_t seed = 1);

// `count` random token ids.
std::vector<int32_t> tiny_tokens(const TinyShape& shape, int count, uint32_t seed = 7);

}  // namespace outpace::test
