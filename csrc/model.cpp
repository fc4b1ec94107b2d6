#include "model.h"

#include <algorithm>
#include <stdexcept>

#include "forward.h"

namespace outpace {

static void require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

static void check_shape(const SharedMatrix& w, int rows, int cols, const std::string& name) {
  require(w != nullptr, name + " is missing");
  require(w->rows == rows && w->cols == cols, name + " must be " + std::to_string(rows) + " by " +
                                                  std::to_string(cols) + ", got " + std::to_string(w->rows) + " by " +
                                                  std::to_string(w->cols));
}

static void check_size(const std::vector<float>& v, int size, const std::string& name, bool optional = false) {
  require(int(v.size()) == size || (optional && v.empty()),
          name + " must have " + std::to_string(size) + " elements, got " + std::to_string(v.size()));
}

static void check_config(const ModelConfig& c) {
  const auto positive = [](int value, const char* name) {
    require(value >= 1, std::string(name) + " must be at least 1, got " + std::to_string(value));
  };
  positive(c.layers, "layers");
  positive(c.hidden_size, "hidden_size");
  positive(c.heads, "heads");
  positive(c.kv_heads, "kv_heads");
  positive(c.head_dim, "head_dim");
  positive(c.ffn_size, "ffn_size");
  positive(c.vocab_size, "vocab_size");
  positive(c.context, "context");
  require(c.context <= 1 << 20, "context must be at most 1048576, got " + std::to_string(c.context));
  require(c.head_dim % 16 == 0 && c.head_dim <= 512,
          "head_dim must be a multiple of 16 and at most 512, got " + std::to_string(c.head_dim));
  require(c.heads % c.kv_heads == 0, "heads must be a multiple of kv_heads, got " + std::to_string(c.heads) + " and " +
                                         std::to_string(c.kv_heads));
  require(c.rope_theta > 1.0 && c.rope_theta < 1e12,
          "rope_theta must be in (1, 1e12), got " + std::to_string(c.rope_theta));
  require(c.norm_epsilon > 0.0f && c.norm_epsilon < 1.0f,
          "norm_epsilon must be in (0, 1), got " + std::to_string(c.norm_epsilon));
}

static const ModelConfig& checked(const ModelConfig& config) {
  check_config(config);
  return config;
}

Model::Model(const ModelConfig& config, ModelWeights weights, int threads, const Kernels& kernels)
    : config_(checked(config)),
      weights_(std::move(weights)),
      kernels_(kernels),
      pool_(shared_thread_pool(threads)),
      cache_(std::make_shared<KvCache>(CacheShape{config.layers, config.kv_heads, config.head_dim}, config.context)),
      buffers_(std::make_shared<BufferPool>()),
      rotary_(config.rope_theta, config.head_dim) {
  check();
  pass_ = std::make_unique<ForwardPass>(*this);
}

Model::~Model() = default;

void Model::check() const {
  const ModelConfig& c = config_;
  require(int(weights_.layers.size()) == c.layers,
          "the model has " + std::to_string(c.layers) + " layers, got " + std::to_string(weights_.layers.size()));
  for (int i = 0; i < c.layers; ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const std::string at = "blk." + std::to_string(i) + ".";
    check_size(layer.attention_norm, c.hidden_size, at + "attn_norm");
    check_size(layer.ffn_norm, c.hidden_size, at + "ffn_norm");
    check_size(layer.q_bias, c.query_size(), at + "attn_q.bias", true);
    check_size(layer.k_bias, c.kv_size(), at + "attn_k.bias", true);
    check_size(layer.v_bias, c.kv_size(), at + "attn_v.bias", true);
    check_shape(layer.q, c.query_size(), c.hidden_size, at + "attn_q");
    check_shape(layer.k, c.kv_size(), c.hidden_size, at + "attn_k");
    check_shape(layer.v, c.kv_size(), c.hidden_size, at + "attn_v");
    check_shape(layer.out, c.hidden_size, c.query_size(), at + "attn_output");
    check_shape(layer.gate, c.ffn_size, c.hidden_size, at + "ffn_gate");
    check_shape(layer.up, c.ffn_size, c.hidden_size, at + "ffn_up");
    check_shape(layer.down, c.hidden_size, c.ffn_size, at + "ffn_down");
  }
  check_size(weights_.output_norm, c.hidden_size, "output_norm");
  check_shape(weights_.output, c.vocab_size, c.hidden_size, "output");
  if (weights_.embedding != nullptr)
    require(weights_.embedding->rows == c.vocab_size && weights_.embedding->cols == c.hidden_size,
            "token_embd must be " + std::to_string(c.vocab_size) + " by " + std::to_string(c.hidden_size));
}

static size_t layer_bytes(const LayerWeights& layer) {
  size_t total = 0;
  for (const SharedMatrix& w : {layer.q, layer.k, layer.v, layer.out, layer.gate, layer.up, layer.down})
    total += w->bytes();
  for (const auto* v : {&layer.attention_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.ffn_norm})
    total += v->size() * sizeof(float);
  return total;
}

size_t Model::pass_bytes() const {
  size_t total = weights_.output->bytes() + weights_.output_norm.size() * sizeof(float);
  for (const LayerWeights& layer : weights_.layers) total += layer_bytes(layer);
  return total;
}

size_t Model::weight_bytes() const {
  return pass_bytes() + (weights_.embedding != nullptr ? weights_.embedding->bytes() : 0);
}
size_t Model::scratch_bytes() const { return pass_->bytes(); }

std::shared_ptr<Session> Model::open() { return std::make_shared<Session>(cache_); }

void Model::check_token(int32_t token) const {
  if (token < 0 || token >= config_.vocab_size)
    throw std::invalid_argument("token ids must be in [0, " + std::to_string(config_.vocab_size) + "), got " +
                                std::to_string(token));
}

void Model::check_taps(const std::vector<int>& taps) const {
  for (const int layer : taps)
    if (layer < 0 || layer >= config_.layers)
      throw std::invalid_argument("taps are layers in [0, " + std::to_string(config_.layers) + "), got " +
                                  std::to_string(layer));
}

void Model::embed_row(int32_t token, float* out) const {
  if (weights_.embedding != nullptr) return weights_.embedding->dequantise_row(token, out);
  weights_.output->dequantise_row(token, out);
}

void Model::extend_rope(int positions) {
  const int half = config_.head_dim / 2;
  while (int(rope_.size()) * kPagePositions < positions) {
    std::vector<float> rows(size_t(kPagePositions) * config_.head_dim);
    for (int i = 0; i < kPagePositions; ++i) {
      float* const row = rows.data() + size_t(i) * config_.head_dim;
      rotary_.fill(int(rope_.size()) * kPagePositions + i, row, row + half);
    }
    rope_.push_back(std::move(rows));
  }
}

Outputs Model::forward(const std::vector<Session*>& sessions, const std::vector<int>& taps, bool wants_logits) {
  Outputs outputs;
  int positions = 0;
  for (const Session* session : sessions) {
    outputs.rows += session->staged();
    positions = std::max(positions, session->last_position() + 1);
  }
  extend_rope(positions);
  if (wants_logits) outputs.logits = buffers_->take(size_t(outputs.rows) * config_.vocab_size);
  if (!taps.empty()) outputs.hidden = buffers_->take(size_t(outputs.rows) * taps.size() * config_.hidden_size);
  for (int first = 0; first < outputs.rows; first += ForwardPass::kRows) {
    const int rows = std::min(ForwardPass::kRows, outputs.rows - first);
    pass_->run(sessions, first, rows, taps, wants_logits, outputs);
  }
  return outputs;
}

Outputs Model::score(std::vector<Work> work, const std::vector<int>& taps) {
  const std::lock_guard lock(cache_->busy);
  check_taps(taps);
  std::vector<Session*> sessions;
  for (const Work& item : work) {
    require(item.session != nullptr && !item.session->closed(), "this session is closed");
    require(item.session->cache() == cache_, "this session belongs to another model");
    require(std::find(sessions.begin(), sessions.end(), item.session.get()) == sessions.end(),
            "a session can be scored once in a pass");
    for (const int32_t token : item.tokens) check_token(token);
    sessions.push_back(item.session.get());
  }
  try {
    for (Work& item : work) item.session->stage(std::move(item.tokens), std::move(item.parents));
    return forward(sessions, taps, true);
  } catch (...) {
    for (Session* session : sessions) session->unstage();
    throw;
  }
}

Outputs Model::prefill(const std::shared_ptr<Session>& session, std::vector<int32_t> tokens,
                       const std::vector<int>& taps) {
  const std::lock_guard lock(cache_->busy);
  check_taps(taps);
  require(session != nullptr && !session->closed(), "this session is closed");
  require(session->cache() == cache_, "this session belongs to another model");
  for (const int32_t token : tokens) check_token(token);
  if (tokens.empty()) return {};
  std::vector<int32_t> parents(tokens.size() - 1);
  for (size_t i = 0; i < parents.size(); ++i) parents[i] = int32_t(i) - 1;
  session->stage(std::move(tokens), std::move(parents));
  try {
    Outputs outputs = forward({session.get()}, taps, false);
    session->commit_all();
    return outputs;
  } catch (...) {
    session->unstage();
    throw;
  }
}

Floats Model::embed(const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) check_token(token);
  Floats out = buffers_->take(tokens.size() * config_.hidden_size);
  for (size_t i = 0; i < tokens.size(); ++i) embed_row(tokens[i], out.get() + i * config_.hidden_size);
  return out;
}

Floats Model::head(const float* hidden, int rows) {
  const std::lock_guard lock(cache_->busy);
  Floats out = buffers_->take(size_t(rows) * config_.vocab_size);
  pass_->run_head(hidden, rows, out.get());
  return out;
}

}  // namespace outpace
