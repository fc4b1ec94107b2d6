#include "forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace outpace {

static void want(Activations& x, const Matrix& w) {
  const ActivationKind kind = format_info(w.format).activation;
  x.wants_32 = x.wants_32 || kind == ActivationKind::int8_32;
  x.wants_256 = x.wants_256 || kind == ActivationKind::int8_256;
}

ForwardPass::Own::Own(const ModelConfig& config, int context)
    : normed(kOwnRows, config.hidden_size),
      attended(kOwnRows, config.query_size()),
      activated(kOwnRows, config.ffn_size),
      keys(context / kPagePositions + 1),
      values(keys.size()),
      attention(attention_scratch(config.head_dim, config.group(), kTaskRows) + 16),
      key(config.head_dim),
      value(config.head_dim),
      visible(kTaskRows) {}

ForwardPass::ForwardPass(const Model& model)
    : model_(model),
      config_(model.config_),
      kernels_(model.kernels_),
      pool_(*model.pool_),
      threads_(pool_.threads()),
      normed_(kRows, config_.hidden_size),
      attended_(kRows, config_.query_size()),
      activated_(kRows, config_.ffn_size),
      x_(size_t(kRows) * config_.hidden_size),
      qkv_(size_t(kRows) * (config_.query_size() + 2 * config_.kv_size())),
      up_(size_t(kRows) * config_.ffn_size),
      product_(x_.size()) {
  normed_.cols = config_.hidden_size;
  attended_.cols = config_.query_size();
  activated_.cols = config_.ffn_size;
  for (const LayerWeights& layer : model.weights_.layers) {
    for (const SharedMatrix& w : {layer.q, layer.k, layer.v, layer.gate, layer.up}) want(normed_, *w);
    want(attended_, *layer.out);
    want(activated_, *layer.down);
  }
  want(normed_, *model.weights_.output);
  own_.reserve(threads_);
  for (int t = 0; t < threads_; ++t) {
    Own& own = own_.emplace_back(config_, model.cache_->context);
    const auto like = [](Activations& x, const Activations& shared) {
      x.cols = shared.cols;
      x.wants_32 = shared.wants_32;
      x.wants_256 = shared.wants_256;
    };
    like(own.normed, normed_);
    like(own.attended, attended_);
    like(own.activated, activated_);
  }
}

size_t ForwardPass::bytes() const {
  const size_t f32 = x_.size() + qkv_.size() + up_.size() + product_.size();
  const size_t columns = size_t(config_.hidden_size) + config_.query_size() + config_.ffn_size;
  // Activations hold f32, and int8 with scales and sums, in either form: at most 3 bytes a value.
  size_t total = f32 * sizeof(float) + columns * kRows * (sizeof(float) + 3);
  for (const Own& own : own_) total += own.attention.size() * sizeof(float) + columns * kOwnRows * (sizeof(float) + 3);
  return total;
}

void ForwardPass::plan(const std::vector<Session*>& sessions, int first) {
  tasks_.clear();
  split_ = false;
  // Where the kv heads do not divide evenly among the threads, the rows of each session are divided, too.
  const bool uneven = int(sessions.size()) * config_.kv_heads % threads_ != 0;
  int row = -first;  // of the session's first row, in this block
  for (Session* session : sessions) {
    const int begin = std::max(row, 0), end = std::min(row + session->staged(), rows_);
    const int part = std::clamp((end - begin + threads_ - 1) / threads_, 1, kTaskRows);
    const int step = uneven ? part : kTaskRows;
    for (int at = begin; at < end; at += step) {
      tasks_.push_back({session, at - row, at, std::min(step, end - at)});
      split_ = split_ || at > begin;
    }
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

void ForwardPass::begin(int rows) {
  rows_ = normed_.rows = attended_.rows = activated_.rows = rows;
  alone_ = rows <= kOwnRows;
  if (!alone_) return;
  for (Own& own : own_) own.normed.rows = own.attended.rows = own.activated.rows = rows;
}

void ForwardPass::run(const std::vector<Session*>& sessions, int first, int rows, const std::vector<int>& taps,
                      bool wants_logits, const Outputs& outputs) {
  begin(rows);
  taps_ = &taps;
  hidden_ = taps.empty() ? nullptr : outputs.hidden.get() + size_t(first) * taps.size() * config_.hidden_size;
  logits_ = wants_logits ? outputs.logits.get() + size_t(first) * config_.vocab_size : nullptr;
  plan(sessions, first);
  pool_.run([this](int thread, int) { layers(thread); });
}

void ForwardPass::run_head(const float* hidden, int rows, float* logits) {
  for (int first = 0; first < rows; first += kRows) {
    begin(std::min(kRows, rows - first));
    logits_ = logits + size_t(first) * config_.vocab_size;
    std::memcpy(x_.data(), hidden + size_t(first) * config_.hidden_size,
                size_t(rows_) * config_.hidden_size * sizeof(float));
    pool_.run([this](int thread, int) { head(thread); });
  }
}

void ForwardPass::layers(int thread) {
  Own& own = own_[thread];
  embed(thread);
  for (int i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = model_.weights_.layers[i];
    pool_.barrier();
    if (i > 0) tap(i - 1, thread);
    project(layer, normalise(layer.attention_norm, thread), thread);
    pool_.barrier();
    each_task(thread, [&](const Task& task, int head) { rotate_and_store(layer, i, task, head, own); });
    if (split_) pool_.barrier();
    each_task(thread, [&](const Task& task, int head) { attend(i, task, head, own); });
    pool_.barrier();
    add_product(*layer.out, quantised(attended_, own.attended, thread), thread);
    pool_.barrier();
    feed_forward(layer, normalise(layer.ffn_norm, thread), thread);
    pool_.barrier();
    add_product(*layer.down, quantised(activated_, own.activated, thread), thread);
  }
  pool_.barrier();
  tap(config_.layers - 1, thread);
  if (logits_ != nullptr) head(thread);
}

void ForwardPass::embed(int thread) {
  const Range rows = static_share(rows_, thread, threads_);
  for (const Task& task : tasks_)
    for (int i = std::max(0, rows.begin - task.row); i < std::min(task.rows, rows.end - task.row); ++i)
      model_.embed_row(task.session->token(task.session_row + i),
                       x_.data() + size_t(task.row + i) * config_.hidden_size);
}

// Keeps the output of `layer` where it is asked for: [row][tap][hidden].
void ForwardPass::tap(int layer, int thread) {
  const size_t taps = taps_->size(), hidden = config_.hidden_size;
  const Range rows = static_share(rows_, thread, threads_);
  for (size_t t = 0; t < taps; ++t) {
    if ((*taps_)[t] != layer) continue;
    for (int row = rows.begin; row < rows.end; ++row)
      std::memcpy(hidden_ + (row * taps + t) * hidden, x_.data() + row * hidden, hidden * sizeof(float));
  }
}

// The hidden states, normed and quantised for the matrices that read them.
const Activations& ForwardPass::normalise(const std::vector<float>& weight, int thread) {
  Activations& out = alone_ ? own_[thread].normed : normed_;
  const Range rows = alone_ ? Range{0, rows_} : static_share(rows_, thread, threads_);
  for (int row = rows.begin; row < rows.end; ++row)
    kernels_.rms_norm(x_.data() + size_t(row) * config_.hidden_size, weight.data(), config_.norm_epsilon, out.f32(row),
                      config_.hidden_size);
  kernels_.quantise(out, rows.begin, rows.end);
  if (!alone_) pool_.barrier();
  return out;
}

// `shared` holds f32 rows that all threads have written.
const Activations& ForwardPass::quantised(Activations& shared, Activations& own, int thread) {
  if (alone_) {
    for (int row = 0; row < rows_; ++row) std::memcpy(own.f32(row), shared.f32(row), shared.cols * sizeof(float));
    kernels_.quantise(own, 0, rows_);
    return own;
  }
  const Range rows = static_share(rows_, thread, threads_);
  kernels_.quantise(shared, rows.begin, rows.end);
  pool_.barrier();
  return shared;
}

// Queries, keys and values in one job: the panels of the three matrices one after the other.
void ForwardPass::project(const LayerWeights& layer, const Activations& x, int thread) {
  const int stride = config_.query_size() + 2 * config_.kv_size();
  const int panels = layer.q->panels() + layer.k->panels() + layer.v->panels();
  const Range share = static_share(panels, thread, threads_);
  int first = 0;
  float* out = qkv_.data();
  for (const Matrix* w : {layer.q.get(), layer.k.get(), layer.v.get()}) {
    const int begin = std::max(share.begin - first, 0), end = std::min(share.end - first, w->panels());
    if (begin < end) kernels_.multiply(*w, begin, end, x, out, stride);
    first += w->panels();
    out += w->rows;
  }
}

// Every (task, kv head) falls to one thread, the same one each time that it is asked for.
template <class Each>
void ForwardPass::each_task(int thread, Each&& each) {
  const int count = int(tasks_.size()) * config_.kv_heads;
  for (int i = thread; i < count; i += threads_) each(tasks_[i / config_.kv_heads], i % config_.kv_heads);
}

void ForwardPass::rotate_and_store(const LayerWeights& weights, int layer, const Task& task, int head, Own& own) {
  const int dim = config_.head_dim, queries = config_.group() * dim;
  const int stride = config_.query_size() + 2 * config_.kv_size();
  for (int i = 0; i < task.rows; ++i) {
    float* const q = qkv_.data() + size_t(task.row + i) * stride + head * queries;
    float* const k = qkv_.data() + size_t(task.row + i) * stride + config_.query_size() + head * dim;
    float* const v = k + config_.kv_size();
    if (!weights.q_bias.empty()) kernels_.add(weights.q_bias.data() + head * queries, q, queries);
    if (!weights.k_bias.empty()) kernels_.add(weights.k_bias.data() + head * dim, k, dim);
    if (!weights.v_bias.empty()) kernels_.add(weights.v_bias.data() + head * dim, v, dim);
    const int position = task.session->position(task.session_row + i);
    const float* const cos = model_.rope_row(position);
    for (int h = 0; h < config_.group(); ++h)
      kernels_.rope(q + h * dim, cos, cos + dim / 2, dim, config_.rope_interleaved);
    kernels_.rope(k, cos, cos + dim / 2, dim, config_.rope_interleaved);
    kernels_.to_f16(k, own.key.data(), dim);
    kernels_.to_f16(v, own.value.data(), dim);
    task.session->store(task.session_row + i, layer, head, own.key.data(), own.value.data());
  }
}

void ForwardPass::attend(int layer, const Task& task, int head, Own& own) {
  const Session& session = *task.session;
  int last = 0;
  for (int i = 0; i < task.rows; ++i) {
    own.visible[i] = session.position(task.session_row + i) + 1;
    last = std::max(last, own.visible[i]);
  }
  const ptrdiff_t stride = config_.query_size() + 2 * config_.kv_size();
  const int offset = head * config_.group() * config_.head_dim;
  AttentionTask call{};
  call.head_dim = config_.head_dim;
  call.group = config_.group();
  call.rows = task.rows;
  call.scale = 1.0f / std::sqrt(float(config_.head_dim));
  call.queries = qkv_.data() + task.row * stride + offset;
  call.query_stride = stride;
  call.out = attended_.f32(task.row) + offset;
  call.out_stride = attended_.f32(1) - attended_.f32(0);
  call.visible = own.visible.data();
  call.shared_blocks = session.is_chain() ? (last + kPagePositions - 1) / kPagePositions : session.first_own_block();
  session.blocks(layer, head, call.shared_blocks, own.keys.data(), own.values.data());
  call.keys = own.keys.data();
  call.values = own.values.data();
  if (!session.is_chain()) gather(layer, task, head, own, call);
  call.scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(own.attention.data()) + 63) / 64 * 64);
  kernels_.attend(call);
}

// A tree's rows read the latest blocks along the path from row 0 to a leaf below them: one copy for each leaf.
void ForwardPass::gather(int layer, const Task& task, int head, Own& own, AttentionTask& call) {
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
      session.gather(leaf, layer, head, own.gathered.data() + slot * blocks * 2 * block);
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

// x += w * activations, on the columns of this thread's panels.
void ForwardPass::add_product(const Matrix& w, const Activations& x, int thread) {
  const Range share = static_share(w.panels(), thread, threads_);
  if (share.begin == share.end) return;
  kernels_.multiply(w, share.begin, share.end, x, product_.data(), config_.hidden_size);
  const int begin = share.begin * kPanelRows, end = std::min(share.end * kPanelRows, w.rows);
  for (int row = 0; row < rows_; ++row) {
    const size_t at = size_t(row) * config_.hidden_size + begin;
    kernels_.add(product_.data() + at, x_.data() + at, end - begin);
  }
}

// silu(gate) * up, panel by panel of both.
void ForwardPass::feed_forward(const LayerWeights& layer, const Activations& x, int thread) {
  constexpr int kChunk = 16;  // panels whose products for many rows stay in the second-level cache
  const Range share = static_share(layer.gate->panels(), thread, threads_);
  const int step = rows_ > 16 ? kChunk : std::max(1, share.end - share.begin);
  const ptrdiff_t stride = activated_.f32(1) - activated_.f32(0);
  for (int first = share.begin; first < share.end; first += step) {
    const int last = std::min(first + step, share.end);
    kernels_.multiply(*layer.gate, first, last, x, activated_.f32(0), stride);
    kernels_.multiply(*layer.up, first, last, x, up_.data(), config_.ffn_size);
    const int begin = first * kPanelRows, end = std::min(last * kPanelRows, config_.ffn_size);
    for (int row = 0; row < rows_; ++row) {
      float* gate = activated_.f32(row) + begin;
      kernels_.silu_multiply(gate, up_.data() + size_t(row) * config_.ffn_size + begin, gate, end - begin);
    }
  }
}

void ForwardPass::head(int thread) {
  const Activations& x = normalise(model_.weights_.output_norm, thread);
  const Matrix& w = *model_.weights_.output;
  const Range share = static_share(w.panels(), thread, threads_);
  if (share.begin < share.end) kernels_.multiply(w, share.begin, share.end, x, logits_, config_.vocab_size);
}

}  // namespace outpace
