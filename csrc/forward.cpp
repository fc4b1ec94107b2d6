#include "forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace outpace {

ForwardPass::Own::Own(const ModelConfig& config, int context)
    : keys(context / kPagePositions + 1),
      values(keys.size()),
      attention(attention_scratch(config.head_dim, config.group(), kTaskRows) + 16),
      key(config.head_dim),
      value(config.head_dim),
      visible(kTaskRows),
      inverse_rms(kRows) {}

ForwardPass::ForwardPass(const Model& model)
    : model_(model),
      config_(model.config_),
      kernels_(model.kernels_),
      pool_(*model.pool_),
      threads_(pool_.threads()),
      normed_(kRows, config_.hidden_size),
      attended_(kRows, config_.query_size()),
      activated_(kRows, config_.ffn_size),
      heads_(config_.heads, config_.kv_heads, config_.head_dim, threads_),
      x_(model.buffers_->take(size_t(kRows) * config_.hidden_size)),
      qkv_(model.buffers_->take(kRows * qkv_stride())),
      up_(model.buffers_->take(size_t(kRows) * config_.ffn_size)),
      product_(model.buffers_->take(size_t(kRows) * config_.hidden_size)),
      squares_of_thread_(size_t(kRows) * (config_.hidden_size / kPanelRows + 1)),
      squares_(model.buffers_->take(squares_of_thread_ * threads_)),
      post_squares_(model.buffers_->take(squares_of_thread_ * threads_)) {
  const LayerWeights& first = model.weights_.layers.front();
  for (const LayerWeights& layer : model.weights_.layers) {
    for (const SharedMatrix& w : {layer.q, layer.k, layer.v, layer.gate, layer.up}) normed_.x.want(w->format);
    attended_.x.want(layer.out->format);
    activated_.x.want(layer.down->format);
    if (layer.router != nullptr) normed_.x.want(layer.router->format);
  }
  normed_.x.want(model.weights_.output->format);
  hidden_panels_ = panel_shares(first.out->panels(), normed_.unit(), threads_);
  ffn_panels_ = panel_shares((config_.ffn_size + kPanelRows - 1) / kPanelRows, activated_.unit(), threads_);
  vocab_panels_ = panel_shares(model.weights_.output->panels(), 1, threads_);
  normed_.divide(columns_of(hidden_panels_, config_.hidden_size));
  activated_.divide(columns_of(ffn_panels_, config_.ffn_size));
  std::vector<Range> attended;
  for (const HeadShare& share : heads_.threads)
    attended.push_back({share.heads.begin * config_.head_dim, share.heads.end * config_.head_dim});
  attended_.divide(attended);
  own_.reserve(threads_);
  for (int t = 0; t < threads_; ++t) own_.emplace_back(config_, model.cache_->context);
  if (config_.experts > 0) mixture_ = std::make_unique<Mixture>(model, kRows, hidden_panels_);
}

size_t ForwardPass::bytes() const {
  const size_t f32 = size_t(kRows) * (2 * config_.hidden_size + qkv_stride() + config_.ffn_size);
  const size_t columns = size_t(config_.hidden_size) + config_.query_size() + config_.ffn_size;
  // Activations hold f32, and int8 with scales and sums, in either form: at most 3 bytes a value.
  size_t total = (f32 + 2 * squares_of_thread_ * threads_) * sizeof(float) + columns * kRows * (sizeof(float) + 3);
  for (const Own& own : own_) total += own.attention.size() * sizeof(float);
  return total + (mixture_ != nullptr ? mixture_->bytes() : 0);
}

void ForwardPass::plan(const std::vector<Session*>& sessions, int first) {
  tasks_.clear();
  int row = -first;  // of the session's first row, in this block
  for (Session* session : sessions) {
    const int begin = std::max(row, 0), end = std::min(row + session->staged(), rows_);
    for (int at = begin; at < end; at += kTaskRows)
      tasks_.push_back({session, at - row, at, std::min(kTaskRows, end - at)});
    if (begin < end && !session->is_chain()) {
      const size_t block = 2 * session->cache()->shape.block();
      for (Own& own : own_) {
        own.slot_of_leaf.resize(std::max(own.slot_of_leaf.size(), size_t(session->leaves())));
        own.own_keys.resize(std::max(own.own_keys.size(), size_t(kTaskRows) * session->own_blocks()));
        own.own_values.resize(own.own_keys.size());
        const size_t leaves = std::min(kTaskRows, session->leaves());
        own.gathered.resize(std::max(own.gathered.size(), leaves * session->own_blocks() * block));
      }
    }
    row += session->staged();
  }
}

void ForwardPass::begin(int rows) { rows_ = normed_.x.rows = attended_.x.rows = activated_.x.rows = rows; }

void ForwardPass::run(const std::vector<Session*>& sessions, int first, int rows, const std::vector<int>& taps,
                      bool wants_logits, const float* inputs, const Outputs& outputs) {
  begin(rows);
  inputs_ = inputs == nullptr ? nullptr : inputs + size_t(first) * config_.hidden_size;
  taps_ = &taps;
  hidden_ = taps.empty() ? nullptr : outputs.hidden.get() + size_t(first) * taps.size() * config_.hidden_size;
  logits_ = wants_logits ? outputs.logits.get() + size_t(first) * model_.output_size() : nullptr;
  plan(sessions, first);
  pool_.run([this](int thread, int) { layers(thread); });
}

void ForwardPass::run_head(const float* hidden, int rows, float* logits) {
  for (int first = 0; first < rows; first += kRows) {
    begin(std::min(kRows, rows - first));
    logits_ = logits + size_t(first) * model_.output_size();
    std::memcpy(x_.get(), hidden + size_t(first) * config_.hidden_size,
                size_t(rows_) * config_.hidden_size * sizeof(float));
    pool_.run([this](int thread, int) { head(thread); });
  }
}

// A phase's results are handed over at its end; the hidden states stay with the thread that has their columns.
void ForwardPass::layers(int thread) {
  embed(thread);
  pool_.barrier();
  for (int i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = model_.weights_.layers[i];
    project(layer, normalise(layer.attention_norm, thread), thread);
    attention(layer, i, thread);
    multiply_own(*layer.out, hand_over(attended_, thread), thread);
    add_product(layer.attention_post_norm, thread);
    feed_forward(layer, i, thread);
    add_product(layer.ffn_post_norm, thread);
    tap(i, thread);
  }
  if (logits_ != nullptr) head(thread);
}

void ForwardPass::embed(int thread) {
  const Range rows = static_share(rows_, thread, threads_);
  if (inputs_ != nullptr) {
    const size_t begin = size_t(rows.begin) * config_.hidden_size, end = size_t(rows.end) * config_.hidden_size;
    std::copy(inputs_ + begin, inputs_ + end, x_.get() + begin);
    return;
  }
  for (const Task& task : tasks_)
    for (int i = std::max(0, rows.begin - task.row); i < std::min(task.rows, rows.end - task.row); ++i)
      model_.embed_row(task.session->token(task.session_row + i),
                       x_.get() + size_t(task.row + i) * config_.hidden_size);
}

// Keeps the output of `layer` where it is asked for: [row][tap][hidden].
void ForwardPass::tap(int layer, int thread) {
  const size_t taps = taps_->size(), hidden = config_.hidden_size;
  const Range columns = normed_.written[thread];
  for (size_t t = 0; t < taps; ++t) {
    if ((*taps_)[t] != layer) continue;
    for (int row = 0; row < rows_; ++row)
      std::copy(x_.get() + row * hidden + columns.begin, x_.get() + row * hidden + columns.end,
                hidden_ + (row * taps + t) * hidden + columns.begin);
  }
}

// The root mean squares of rows of which every thread has the columns that it computes, inverted, for itself. A row's
// squares are summed panel by panel, then over the panels in order.
void ForwardPass::measure(const float* rows, float* all_squares, int thread) {
  const auto panels = [this](int t) { return size_t(hidden_panels_[t].end - hidden_panels_[t].begin); };
  const Range columns = normed_.written[thread];
  float* const squares = all_squares + thread * squares_of_thread_;
  for (int row = 0; row < rows_; ++row)
    kernels_.panel_squares(rows + size_t(row) * config_.hidden_size + columns.begin, squares + row * panels(thread),
                           columns.end - columns.begin);
  pool_.barrier();
  for (int row = 0; row < rows_; ++row) {
    float sum = 0.0f;
    for (int t = 0; t < threads_; ++t) {
      const float* of_thread = all_squares + t * squares_of_thread_ + row * panels(t);
      for (size_t panel = 0; panel < panels(t); ++panel) sum += of_thread[panel];
    }
    own_[thread].inverse_rms[row] = 1.0f / std::sqrt(sum / float(config_.hidden_size) + config_.norm_epsilon);
  }
}

// The hidden states, normed and quantised for the matrices that read them.
const Activations& ForwardPass::normalise(const std::vector<float>& weight, int thread) {
  const Range columns = normed_.written[thread];
  measure(x_.get(), squares_.get(), thread);
  for (int row = 0; row < rows_; ++row)
    kernels_.scale(x_.get() + size_t(row) * config_.hidden_size + columns.begin, own_[thread].inverse_rms[row],
                   weight.data() + columns.begin, normed_.x.f32(row) + columns.begin, columns.end - columns.begin);
  return hand_over(normed_, thread);
}

// What all threads have written, quantised and visible to all.
const Activations& ForwardPass::hand_over(SharedActivations& shared, int thread) {
  if (!shared.at_once) pool_.barrier();
  kernels_.quantise(shared.x, shared.quantised[thread].begin, shared.quantised[thread].end);
  pool_.barrier();
  return shared.x;
}

void ForwardPass::project(const LayerWeights& layer, const Activations& x, int thread) {
  const HeadShare& share = heads_.threads[thread];
  float* const q = qkv_.get();
  float* const k = q + config_.query_size();
  const auto multiply = [&](const Matrix& w, Range panels, float* out) {
    if (panels.begin < panels.end) kernels_.multiply(w, panels.begin, panels.end, x, out, qkv_stride());
  };
  multiply(*layer.k, share.k, k);
  multiply(*layer.v, share.v, k + config_.kv_size());
  multiply(*layer.q, share.q, q);
}

void ForwardPass::attention(const LayerWeights& layer, int index, int thread) {
  const HeadShare& share = heads_.threads[thread];
  const int group = config_.group();
  Own& own = own_[thread];
  if (!heads_.own_panels) pool_.barrier();
  for (const Task& task : tasks_) {
    for (int head = share.kv_heads.begin; head < share.kv_heads.end; ++head) store(layer, index, task, head, own);
    rotate_queries(layer, index, task, share.heads);
  }
  const auto attend_groups = [&](bool whole) {
    for (const Task& task : tasks_) {
      for (Range part = share.heads; part.begin < share.heads.end; part.begin = part.end) {
        part.end = std::min(share.heads.end, (part.begin / group + 1) * group);
        if ((part.end - part.begin == group) == whole) attend(index, task, part, own);
      }
    }
  };
  // A group that two threads share has its keys from one of them, which has stored them by the time they meet.
  attend_groups(true);
  if (!heads_.own_keys) pool_.barrier();
  attend_groups(false);
}

// Of one query or key, where the model norms them.
void ForwardPass::normalise_head(const std::vector<float>& weight, float* head) const {
  if (weight.empty()) return;
  const int dim = config_.head_dim;
  float squares[kMaxHeadDim / kPanelRows], sum = 0.0f;
  kernels_.panel_squares(head, squares, dim);
  for (int i = 0; i * kPanelRows < dim; ++i) sum += squares[i];
  kernels_.scale(head, 1.0f / std::sqrt(sum / float(dim) + config_.norm_epsilon), weight.data(), head, dim);
}

void ForwardPass::rotate_queries(const LayerWeights& weights, int layer, const Task& task, Range heads) {
  const int dim = config_.head_dim, size = (heads.end - heads.begin) * dim;
  for (int i = 0; i < task.rows; ++i) {
    float* const q = qkv_.get() + (task.row + i) * qkv_stride() + heads.begin * dim;
    if (!weights.q_bias.empty()) kernels_.add(weights.q_bias.data() + heads.begin * dim, q, size);
    const float* const cos = model_.rope_row(task.session->position(task.session_row + i), config_.shapes[layer].rope);
    for (int at = 0; at < size; at += dim) {
      normalise_head(weights.q_norm, q + at);
      kernels_.rope(q + at, cos, cos + dim / 2, dim, config_.rope_interleaved);
    }
  }
}

void ForwardPass::store(const LayerWeights& weights, int layer, const Task& task, int kv_head, Own& own) {
  const int dim = config_.head_dim;
  for (int i = 0; i < task.rows; ++i) {
    float* const k = qkv_.get() + (task.row + i) * qkv_stride() + config_.query_size() + kv_head * dim;
    float* const v = k + config_.kv_size();
    if (!weights.k_bias.empty()) kernels_.add(weights.k_bias.data() + kv_head * dim, k, dim);
    if (!weights.v_bias.empty()) kernels_.add(weights.v_bias.data() + kv_head * dim, v, dim);
    normalise_head(weights.k_norm, k);
    const float* const cos = model_.rope_row(task.session->position(task.session_row + i), config_.shapes[layer].rope);
    kernels_.rope(k, cos, cos + dim / 2, dim, config_.rope_interleaved);
    kernels_.to_f16(k, own.key.data(), dim);
    kernels_.to_f16(v, own.value.data(), dim);
    task.session->store(task.session_row + i, layer, kv_head, own.key.data(), own.value.data());
  }
}

// Query heads of one group.
void ForwardPass::attend(int layer, const Task& task, Range heads, Own& own) {
  const Session& session = *task.session;
  const int kv_head = heads.begin / config_.group();
  int last = 0;
  for (int i = 0; i < task.rows; ++i) {
    own.visible[i] = session.position(task.session_row + i) + 1;
    last = std::max(last, own.visible[i]);
  }
  AttentionTask call{};
  call.head_dim = config_.head_dim;
  call.group = heads.end - heads.begin;
  call.rows = task.rows;
  call.scale = config_.attention_scale;
  call.queries = qkv_.get() + task.row * qkv_stride() + heads.begin * config_.head_dim;
  call.query_stride = qkv_stride();
  call.out = attended_.x.f32(task.row) + heads.begin * config_.head_dim;
  call.out_stride = attended_.x.f32_stride();
  call.visible = own.visible.data();
  call.window = config_.shapes[layer].window;
  call.shared_blocks = session.is_chain() ? (last + kPagePositions - 1) / kPagePositions : session.first_own_block();
  session.blocks(layer, kv_head, call.shared_blocks, own.keys.data(), own.values.data());
  call.keys = own.keys.data();
  call.values = own.values.data();
  if (!session.is_chain()) gather(layer, task, kv_head, own, call);
  call.scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(own.attention.data()) + 63) / 64 * 64);
  kernels_.attend(call);
}

// A tree's rows read the latest blocks along the path from row 0 to a leaf below them: one copy for each leaf.
void ForwardPass::gather(int layer, const Task& task, int kv_head, Own& own, AttentionTask& call) {
  const Session& session = *task.session;
  const int blocks = session.own_blocks();
  const size_t block = session.cache()->shape.block();
  std::fill_n(own.slot_of_leaf.begin(), session.leaves(), -1);
  int slots = 0;
  for (int i = 0; i < task.rows; ++i) {
    const int leaf = session.leaf_of(task.session_row + i);
    int& slot = own.slot_of_leaf[leaf];
    if (slot < 0) {
      slot = slots++;
      session.gather(leaf, layer, kv_head, own.gathered.data() + slot * blocks * 2 * block);
    }
    for (int b = 0; b < blocks; ++b) {
      const uint16_t* keys = own.gathered.data() + (slot * blocks + b) * 2 * block;
      own.own_keys[i * blocks + b] = keys;
      own.own_values[i * blocks + b] = keys + block;
    }
  }
  call.own_blocks = blocks;
  call.own_keys = own.own_keys.data();
  call.own_values = own.own_values.data();
}

// product = w * activations, on the columns of this thread.
void ForwardPass::multiply_own(const Matrix& w, const Activations& x, int thread) {
  const Range panels = hidden_panels_[thread];
  if (panels.begin < panels.end)
    kernels_.multiply(w, panels.begin, panels.end, x, product_.get(), config_.hidden_size);
}

// x += product, normed where the model norms what it adds, on the columns of this thread.
void ForwardPass::add_product(const std::vector<float>& post_norm, int thread) {
  const Range columns = normed_.written[thread];
  const int width = columns.end - columns.begin;
  if (!post_norm.empty()) measure(product_.get(), post_squares_.get(), thread);
  for (int row = 0; row < rows_; ++row) {
    const size_t at = size_t(row) * config_.hidden_size + columns.begin;
    float* const product = product_.get() + at;
    if (!post_norm.empty())
      kernels_.scale(product, own_[thread].inverse_rms[row], post_norm.data() + columns.begin, product, width);
    kernels_.add(product, x_.get() + at, width);
  }
}

void ForwardPass::feed_forward(const LayerWeights& layer, int index, int thread) {
  const Activations& x = normalise(layer.ffn_norm, thread);
  if (mixture_ != nullptr) mixture_->run(index, x, product_.get(), thread);
  else multiply_own(*layer.down, activate(layer, x, thread), thread);
}

// gate(x) * up(x), panel by panel of both.
const Activations& ForwardPass::activate(const LayerWeights& layer, const Activations& x, int thread) {
  constexpr int kChunk = 16;  // panels whose products for many rows stay in the second-level cache
  const auto multiply = config_.gate == Gate::gelu ? kernels_.gelu_multiply : kernels_.silu_multiply;
  const Range share = ffn_panels_[thread];
  const int step = rows_ > 16 ? kChunk : std::max(1, share.end - share.begin);
  for (int first = share.begin; first < share.end; first += step) {
    const int last = std::min(first + step, share.end);
    kernels_.multiply(*layer.gate, first, last, x, activated_.x.f32(0), activated_.x.f32_stride());
    kernels_.multiply(*layer.up, first, last, x, up_.get(), config_.ffn_size);
    const int begin = first * kPanelRows, end = std::min(last * kPanelRows, config_.ffn_size);
    for (int row = 0; row < rows_; ++row) {
      float* gate = activated_.x.f32(row) + begin;
      multiply(gate, up_.get() + size_t(row) * config_.ffn_size + begin, gate, end - begin);
    }
  }
  return hand_over(activated_, thread);
}

void ForwardPass::head(int thread) {
  const Activations& x = normalise(model_.weights_.output_norm, thread);
  const Range share = vocab_panels_[thread];
  if (share.begin < share.end)
    kernels_.multiply(*model_.weights_.output, share.begin, share.end, x, logits_, model_.output_size());
}

}  // namespace outpace
