// A decoder of the Llama family: RMS norm, grouped-query attention with rotary positions, SwiGLU.
//
// A row's logits depend on the tokens of its own path only, to the last bit: not on the rows beside it, the way that
// they were cut into passes, the number of threads or the instruction set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention.h"
#include "buffers.h"
#include "file_rows.h"
#include "kernels/kernels.h"
#include "kv_cache.h"
#include "matrix.h"
#include "threads.h"

namespace outpace {

// How positions become angles; the layers of one model may do it in different ways.
struct RopeShape {
  double theta;
  std::vector<float> divisors;  // [head_dim / 2], of the frequencies; empty: all 1
  float scale = 1.0f;           // of cosines and sines
};

struct LayerShape {
  int window = 0;  // positions that a row attends to, its own included; 0: all
  int rope = 0;    // which of the model's
};

constexpr int kMaxHeadDim = 512;

enum class Gate : uint8_t { silu, gelu };

struct ModelConfig {
  int layers, hidden_size, heads, kv_heads, head_dim, ffn_size, vocab_size;
  int context;            // positions that a session may hold
  bool rope_interleaved;  // rotary pairs (2i, 2i + 1); otherwise (i, i + head_dim / 2)
  float norm_epsilon;
  std::vector<RopeShape> ropes;
  std::vector<LayerShape> shapes;  // of each layer
  float attention_scale;           // of the products of queries and keys
  float embedding_scale = 1.0f;
  Gate gate = Gate::silu;
  int experts = 0, experts_used = 0;  // of a mixture, of ffn_size each

  int query_size() const { return heads * head_dim; }
  int kv_size() const { return kv_heads * head_dim; }
  int group() const { return heads / kv_heads; }  // query heads that share a kv head
};

using SharedMatrix = std::shared_ptr<const Matrix>;

// Vectors are empty where the model has none. The experts of a mixture lie one after the other in `gate`, `up` and
// `down`; `router` scores them.
struct LayerWeights {
  std::vector<float> attention_norm, q_bias, k_bias, v_bias, q_norm, k_norm, attention_post_norm;
  std::vector<float> ffn_norm, ffn_post_norm;
  SharedMatrix q, k, v, out, router, gate, up, down;
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  SharedMatrix output;
  std::shared_ptr<const FileRows> embedding;  // null: the embedding is `output`
};

// What one request adds to a pass: tokens[0] follows the session's cached tokens, tokens[i + 1] follows
// tokens[parents[i] + 1].
struct Work {
  std::shared_ptr<Session> session;
  std::vector<int32_t> tokens, parents;
};

struct Outputs {
  Floats logits;  // [rows][output_size], all requests' rows one after the other; null unless asked for
  Floats hidden;  // [rows][taps][hidden_size]; null without taps
  int rows = 0;
};

class ForwardPass;  // forward.h

class Model {
 public:
  // Throws std::invalid_argument when shapes, sizes or numbers do not fit each other.
  Model(const ModelConfig& config, ModelWeights weights, int threads, const Kernels& kernels);
  ~Model();

  const ModelConfig& config() const { return config_; }
  const Kernels& kernels() const { return kernels_; }
  int threads() const { return pool_->threads(); }
  size_t pass_bytes() const;     // weights that one pass reads
  std::vector<Stretch> pass_stretches() const;  // where its matrices lie, in their order
  size_t weight_bytes() const;   // weights held
  size_t scratch_bytes() const;  // working memory, without logits
  int output_size() const { return weights_.output->rows; }  // logits of a row; fewer than tokens in a trimmed draft
  const KvCache& cache() const { return *cache_; }

  std::shared_ptr<Session> open();

  // Logits after every row, and the outputs of the layers `taps`; the rows stay staged in their sessions until
  // commit. Throws std::invalid_argument, and then nothing is staged in them.
  // inputs: [rows][hidden_size] instead of the tokens' embeddings, or null.
  Outputs score(std::vector<Work> work, const std::vector<int>& taps, const float* inputs = nullptr);
  // Caches `tokens` after what `session` holds; no logits.
  Outputs prefill(const std::shared_ptr<Session>& session, std::vector<int32_t> tokens, const std::vector<int>& taps,
                  const float* inputs = nullptr);

  // What will be read soon after the next pass with taps: threads that are idle then bring it into the caches.
  void expect_after_taps(Stretches soon);

  Floats embed(const std::vector<int32_t>& tokens);        // [tokens][hidden_size]
  Floats output_rows(const std::vector<int32_t>& tokens);  // [tokens][hidden_size], of the output matrix
  Floats head(const float* hidden, int rows);              // [rows][output_size]: the final norm and the output matrix

 private:
  friend class ForwardPass;
  friend class Mixture;

  void check() const;
  void check_token(int32_t token) const;
  void check_taps(const std::vector<int>& taps) const;
  void embed_row(int32_t token, float* out) const;
  void extend_rope(int positions);
  // [cos, sin][head_dim / 2]
  const float* rope_row(int position, int rope) const {
    const size_t row = size_t(rope) * kPagePositions + position % kPagePositions;
    return rope_rows_[position / kPagePositions].data() + row * config_.head_dim;
  }
  Outputs forward(const std::vector<Session*>& sessions, const std::vector<int>& taps, bool wants_logits,
                  const float* inputs);

  const ModelConfig config_;
  const ModelWeights weights_;
  const Kernels& kernels_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::shared_ptr<KvCache> cache_;
  const std::shared_ptr<BufferPool> buffers_;
  const std::vector<RotaryTable> rotary_;
  std::vector<std::vector<float>> rope_rows_;  // [position / kPagePositions][rope][position][cos, sin][head_dim / 2]
  std::unique_ptr<ForwardPass> pass_;
  Stretches soon_after_taps_;
};

}  // namespace outpace
