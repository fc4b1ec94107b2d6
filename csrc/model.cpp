#include "model.h"

#include <algorithm>
#include <stdexcept>

#include "forward.h"
#include "messages.h"

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

static void check_ropes(const ModelConfig& c) {
  require(!c.ropes.empty(), "a model needs at least one rope");
  for (const RopeShape& rope : c.ropes) {
    require(rope.theta > 1.0 && rope.theta < 1e12,
            "rope_theta must be in (1, 1e12), got " + shown(rope.theta));
    require(rope.divisors.empty() || int(rope.divisors.size()) == c.head_dim / 2,
            "a rope needs " + std::to_string(c.head_dim / 2) + " divisors, got " + std::to_string(rope.divisors.size()));
    require(rope.scale > 0.0f && rope.scale < 1e3f, "a rope's scale must be in (0, 1000), got " + shown(rope.scale));
  }
  require(int(c.shapes.size()) == c.layers,
          "a model needs the shapes of " + std::to_string(c.layers) + " layers, got " + std::to_string(c.shapes.size()));
  for (const LayerShape& shape : c.shapes) {
    require(shape.window >= 0, "a window must be at least 0, got " + std::to_string(shape.window));
    require(shape.rope >= 0 && shape.rope < int(c.ropes.size()),
            "rope must be in [0, " + std::to_string(c.ropes.size()) + "), got " + std::to_string(shape.rope));
  }
}

static void check_experts(const ModelConfig& c) {
  require(c.experts >= 0 && c.experts_used >= 0 && c.experts_used <= c.experts && (c.experts == 0 || c.experts_used > 0),
          "a token uses at least one of the experts and at most all, got " + std::to_string(c.experts_used) + " of " +
              std::to_string(c.experts));
  require(c.experts == 0 || (c.hidden_size % kPanelRows == 0 && c.ffn_size % kPanelRows == 0),
          "hidden_size and ffn_size of a mixture must be multiples of " + std::to_string(kPanelRows) + ", got " +
              std::to_string(c.hidden_size) + " and " + std::to_string(c.ffn_size));
  require(int64_t(std::max(c.experts, 1)) * std::max(c.ffn_size, c.hidden_size) < INT32_MAX, "the experts are too large");
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
  require(c.head_dim % 16 == 0 && c.head_dim <= kMaxHeadDim,
          "head_dim must be a multiple of 16 and at most " + std::to_string(kMaxHeadDim) + ", got " +
              std::to_string(c.head_dim));
  require(c.heads % c.kv_heads == 0, "heads must be a multiple of kv_heads, got " + std::to_string(c.heads) + " and " +
                                         std::to_string(c.kv_heads));
  check_ropes(c);
  require(c.norm_epsilon > 0.0f && c.norm_epsilon < 1.0f,
          "norm_epsilon must be in (0, 1), got " + shown(c.norm_epsilon));
  require(c.attention_scale > 0.0f && c.attention_scale < 1e6f,
          "attention_scale must be in (0, 1e6), got " + shown(c.attention_scale));
  require(c.embedding_scale > 0.0f && c.embedding_scale < 1e6f,
          "embedding_scale must be in (0, 1e6), got " + shown(c.embedding_scale));
  check_experts(c);
}

static const ModelConfig& checked(const ModelConfig& config) {
  check_config(config);
  return config;
}

static std::vector<RotaryTable> rotary_tables(const ModelConfig& config) {
  std::vector<RotaryTable> tables;
  for (const RopeShape& rope : config.ropes)
    tables.emplace_back(rope.theta, config.head_dim, rope.divisors.empty() ? nullptr : rope.divisors.data());
  return tables;
}

Model::Model(const ModelConfig& config, ModelWeights weights, int threads, const Kernels& kernels)
    : config_(checked(config)),
      weights_(std::move(weights)),
      kernels_(kernels),
      pool_(shared_thread_pool(threads)),
      cache_(std::make_shared<KvCache>(CacheShape{config.layers, config.kv_heads, config.head_dim}, config.context)),
      buffers_(std::make_shared<BufferPool>()),
      rotary_(rotary_tables(config)) {
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
    check_size(layer.attention_post_norm, c.hidden_size, at + "post_attention_norm", true);
    check_size(layer.ffn_post_norm, c.hidden_size, at + "post_ffw_norm", true);
    check_size(layer.q_norm, c.head_dim, at + "attn_q_norm", true);
    check_size(layer.k_norm, c.head_dim, at + "attn_k_norm", true);
    check_size(layer.q_bias, c.query_size(), at + "attn_q.bias", true);
    check_size(layer.k_bias, c.kv_size(), at + "attn_k.bias", true);
    check_size(layer.v_bias, c.kv_size(), at + "attn_v.bias", true);
    check_shape(layer.q, c.query_size(), c.hidden_size, at + "attn_q");
    check_shape(layer.k, c.kv_size(), c.hidden_size, at + "attn_k");
    check_shape(layer.v, c.kv_size(), c.hidden_size, at + "attn_v");
    check_shape(layer.out, c.hidden_size, c.query_size(), at + "attn_output");
    const int parts = std::max(c.experts, 1);
    if (c.experts > 0) check_shape(layer.router, c.experts, c.hidden_size, at + "ffn_gate_inp");
    check_shape(layer.gate, parts * c.ffn_size, c.hidden_size, at + "ffn_gate");
    check_shape(layer.up, parts * c.ffn_size, c.hidden_size, at + "ffn_up");
    check_shape(layer.down, parts * c.hidden_size, c.ffn_size, at + "ffn_down");
  }
  check_size(weights_.output_norm, c.hidden_size, "output_norm");
  require(weights_.output != nullptr, "output is missing");
  const bool trimmed = weights_.embedding != nullptr && output_size() < c.vocab_size;
  check_shape(weights_.output, trimmed ? output_size() : c.vocab_size, c.hidden_size, "output");
  if (weights_.embedding != nullptr)
    require(weights_.embedding->rows == c.vocab_size && weights_.embedding->cols == c.hidden_size,
            "token_embd must be " + std::to_string(c.vocab_size) + " by " + std::to_string(c.hidden_size));
}

// Bytes of a layer, of whose experts a pass reads `used` of `experts` (0 of 0: there are none).
static size_t layer_bytes(const LayerWeights& layer, int used, int experts) {
  size_t total = 0, ffn = 0;
  for (const SharedMatrix& w : {layer.q, layer.k, layer.v, layer.out}) total += w->bytes();
  for (const SharedMatrix& w : {layer.gate, layer.up, layer.down}) ffn += w->bytes();
  if (layer.router != nullptr) total += layer.router->bytes();
  for (const auto* v : {&layer.attention_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm,
                        &layer.attention_post_norm, &layer.ffn_norm, &layer.ffn_post_norm})
    total += v->size() * sizeof(float);
  return total + (experts > 0 ? ffn / experts * used : ffn);
}

size_t Model::pass_bytes() const {
  size_t total = weights_.output->bytes() + weights_.output_norm.size() * sizeof(float);
  for (const LayerWeights& layer : weights_.layers) total += layer_bytes(layer, config_.experts_used, config_.experts);
  return total;
}

std::vector<Stretch> Model::pass_stretches() const {
  std::vector<Stretch> all;
  for (const LayerWeights& layer : weights_.layers) {
    for (const SharedMatrix& w : {layer.q, layer.k, layer.v, layer.out, layer.gate, layer.up, layer.down}) {
      all.push_back({w->data.get(), w->bytes()});
    }
  }
  all.push_back({weights_.output->data.get(), weights_.output->bytes()});
  return all;
}

size_t Model::weight_bytes() const {
  size_t total = weights_.output->bytes() + weights_.output_norm.size() * sizeof(float);
  for (const LayerWeights& layer : weights_.layers) total += layer_bytes(layer, config_.experts, config_.experts);
  return total + (weights_.embedding != nullptr ? weights_.embedding->bytes() : 0);
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
  if (weights_.embedding != nullptr) weights_.embedding->dequantise_row(token, out);
  else weights_.output->dequantise_row(token, out);
  if (config_.embedding_scale == 1.0f) return;
  for (int i = 0; i < config_.hidden_size; ++i) out[i] *= config_.embedding_scale;
}

void Model::extend_rope(int positions) {
  const int half = config_.head_dim / 2, ropes = int(config_.ropes.size());
  while (int(rope_rows_.size()) * kPagePositions < positions) {
    std::vector<float> rows(size_t(ropes) * kPagePositions * config_.head_dim);
    for (int r = 0; r < ropes; ++r) {
      for (int i = 0; i < kPagePositions; ++i) {
        float* const row = rows.data() + (size_t(r) * kPagePositions + i) * config_.head_dim;
        rotary_[r].fill(int(rope_rows_.size()) * kPagePositions + i, row, row + half);
        for (int k = 0; k < config_.head_dim; ++k) row[k] *= config_.ropes[r].scale;
      }
    }
    rope_rows_.push_back(std::move(rows));
  }
}

Outputs Model::forward(const std::vector<Session*>& sessions, const std::vector<int>& taps, bool wants_logits,
                       const float* inputs) {
  Outputs outputs;
  int positions = 0;
  for (const Session* session : sessions) {
    outputs.rows += session->staged();
    positions = std::max(positions, session->last_position() + 1);
  }
  extend_rope(positions);
  if (wants_logits) outputs.logits = buffers_->take(size_t(outputs.rows) * output_size());
  if (!taps.empty()) outputs.hidden = buffers_->take(size_t(outputs.rows) * taps.size() * config_.hidden_size);
  for (int first = 0; first < outputs.rows; first += ForwardPass::kRows) {
    const int rows = std::min(ForwardPass::kRows, outputs.rows - first);
    const bool asked = wants_logits && !taps.empty() && first + rows == outputs.rows;
    Stretches soon = asked ? std::exchange(soon_after_taps_, nullptr) : nullptr;
    pass_->run(sessions, first, rows, taps, wants_logits, inputs, outputs, std::move(soon));
  }
  return outputs;
}

void Model::expect_after_taps(Stretches soon) {
  const std::lock_guard lock(cache_->busy);
  soon_after_taps_ = std::move(soon);
}

Outputs Model::score(std::vector<Work> work, const std::vector<int>& taps, const float* inputs) {
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
    return forward(sessions, taps, true, inputs);
  } catch (...) {
    for (Session* session : sessions) session->unstage();
    throw;
  }
}

Outputs Model::prefill(const std::shared_ptr<Session>& session, std::vector<int32_t> tokens,
                       const std::vector<int>& taps, const float* inputs) {
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
    Outputs outputs = forward({session.get()}, taps, false, inputs);
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

Floats Model::output_rows(const std::vector<int32_t>& tokens) {
  const int rows = weights_.output->rows;
  for (const int32_t token : tokens)
    require(token >= 0 && token < rows, "the output matrix has " + std::to_string(rows) + " rows, got token " +
                                            std::to_string(token));
  Floats out = buffers_->take(tokens.size() * config_.hidden_size);
  for (size_t i = 0; i < tokens.size(); ++i)
    weights_.output->dequantise_row(tokens[i], out.get() + i * config_.hidden_size);
  return out;
}

Floats Model::head(const float* hidden, int rows) {
  const std::lock_guard lock(cache_->busy);
  Floats out = buffers_->take(size_t(rows) * output_size());
  pass_->run_head(hidden, rows, out.get());
  return out;
}

}  // namespace outpace
