#include "forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace outpace {

// Bytes that a core's share of the caches may hold from one pass to the next: the weights of draft heads, not of models.
constexpr size_t kCaches = size_t(32) << 20;

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
      qkv_(model.buffers_->take(size_t(kRows) * (config_.query_size() + 2 * config_.kv_size()))),
      up_(model.buffers_->take(size_t(kRows) * config_.ffn_size)),
      product_(model.buffers_->take(size_t(kRows) * config_.hidden_size)),
      squares_of_thread_(size_t(kRows) * (config_.hidden_size / kPanelRows + 1)),
      squares_(model.buffers_->take(squares_of_thread_ * threads_)),
      post_squares_(model.buffers_->take(squares_of_thread_ * threads_)),
      outgrows_caches_(model.pass_bytes() > kCaches) {
  const LayerWeights& first = model.weights_.layers.front();
  for (const LayerWeights& layer : model.weights_.layers) {
    for (const SharedMatrix& w : {layer.q, layer.k, layer.v, layer.gate, layer.up}) normed_.x.want(w->format);
    attended_.x.want(layer.out->format);
    activated_.x.want(layer.down->format);
    if (layer.router != nullptr) normed_.x.want(layer.router->format);
  }
  normed_.x.want(model.weights_.output->format);
  normed_.x.wants_f32 = normed_.x.wants_f32 || config_.experts > 0;  // which quantise the rows that they take
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
  const size_t qkv = size_t(config_.query_size()) + 2 * config_.kv_size();
  const size_t f32 = kRows * (2 * config_.hidden_size + qkv + config_.ffn_size);
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
    const size_t blocks = size_t(session->slots()) / kPagePositions + 1;  // a wide tree's may lie beyond the context
    for (Own& own : own_) {
      own.keys.resize(std::max(own.keys.size(), blocks));
      own.values.resize(own.keys.size());
    }
    row += session->staged();
  }
  lends_ = worth_lending();
}

void ForwardPass::begin(int rows) {
  rows_ = normed_.x.rows = attended_.x.rows = activated_.x.rows = rows;
  once_ = outgrows_caches_ && rows <= kRowTile;  // further tiles of rows read the same weights
}

void ForwardPass::run(const std::vector<Session*>& sessions, int first, int rows, const std::vector<int>& taps,
                      bool wants_logits, const float* inputs, const Outputs& outputs, Stretches soon) {
  begin(rows);
  inputs_ = inputs == nullptr ? nullptr : inputs + size_t(first) * config_.hidden_size;
  taps_ = &taps;
  hidden_ = taps.empty() ? nullptr : outputs.hidden.get() + size_t(first) * taps.size() * config_.hidden_size;
  logits_ = wants_logits ? outputs.logits.get() + size_t(first) * model_.output_size() : nullptr;
  plan(sessions, first);
  pool_.run([this](int thread, int) { layers(thread); }, std::move(soon));
}

void ForwardPass::run_head(const float* hidden, int rows, float* logits) {
  for (int first = 0; first < rows; first += kRows) {
    begin(std::min(kRows, rows - first));
    logits_ = logits + size_t(first) * model_.output_size();
    std::memcpy(product_.get(), hidden + size_t(first) * config_.hidden_size,
                size_t(rows_) * config_.hidden_size * sizeof(float));
    pool_.run([this](int thread, int) {
      take_columns(thread);
      head(thread);
    });
  }
}

// A phase's results are handed over at its end; the hidden states stay with the thread that has their columns.
void ForwardPass::layers(int thread) {
  embed(thread);
  pool_.barrier(thread);
  take_columns(thread);
  for (int i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = model_.weights_.layers[i];
    project(layer, normalise(layer.attention_norm, thread), thread);
    attention(layer, i, thread);
    const Range ffn = ffn_panels_[thread];
    const uint8_t* const next = mixture_ != nullptr ? nullptr : layer.gate->start(ffn.begin, ffn.end);
    multiply_own(*layer.out, hand_over(attended_, thread), thread, next);
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
    std::copy(inputs_ + begin, inputs_ + end, product_.get() + begin);
    return;
  }
  for (const Task& task : tasks_)
    for (int i = std::max(0, rows.begin - task.row); i < std::min(task.rows, rows.end - task.row); ++i)
      model_.embed_row(task.session->token(task.session_row + i),
                       product_.get() + size_t(task.row + i) * config_.hidden_size);
}

OwnColumns ForwardPass::own_columns(const Floats& all, int thread) const {
  return {all.get(), kRows, normed_.written[thread]};
}

// Of the hidden states that lie row by row in `product_`.
void ForwardPass::take_columns(int thread) {
  const OwnColumns x = own_columns(x_, thread);
  for (int row = 0; row < rows_; ++row) {
    const float* const from = product_.get() + size_t(row) * config_.hidden_size;
    std::copy(from + x.columns.begin, from + x.columns.end, x.row(row));
  }
}

// Keeps the output of `layer` where it is asked for: [row][tap][hidden].
void ForwardPass::tap(int layer, int thread) {
  const size_t taps = taps_->size(), hidden = config_.hidden_size;
  const OwnColumns x = own_columns(x_, thread);
  for (size_t t = 0; t < taps; ++t) {
    if ((*taps_)[t] != layer) continue;
    for (int row = 0; row < rows_; ++row)
      std::copy_n(x.row(row), x.stride, hidden_ + (row * taps + t) * hidden + x.columns.begin);
  }
}

// A row's squares are summed panel by panel, by the thread that has computed the panel, then over the panels in order.
void ForwardPass::add_up_squares(const OwnColumns& rows, float* squares, int thread) {
  const int panels = hidden_panels_[thread].end - hidden_panels_[thread].begin;
  squares += thread * squares_of_thread_;
  for (int row = 0; row < rows_; ++row, squares += panels)
    kernels_.panel_squares(rows.row(row), squares, int(rows.stride));
}

// The root mean squares of all rows, inverted. Every thread does that for itself.
void ForwardPass::invert_rms(const float* squares, int thread) {
  for (int row = 0; row < rows_; ++row) {
    float sum = 0.0f;
    for (int t = 0; t < threads_; ++t) {
      const size_t panels = hidden_panels_[t].end - hidden_panels_[t].begin;
      const float* const of_thread = squares + t * squares_of_thread_ + row * panels;
      for (size_t panel = 0; panel < panels; ++panel) sum += of_thread[panel];
    }
    own_[thread].inverse_rms[row] = 1.0f / std::sqrt(sum / float(config_.hidden_size) + config_.norm_epsilon);
  }
}

// The hidden states times the norm's weight, quantised for the matrices that read them. Products with them are to be
// multiplied by inverse_rms: so a thread quantises its columns before it knows the others'.
const Activations& ForwardPass::normalise(const std::vector<float>& weight, int thread) {
  const OwnColumns x = own_columns(x_, thread);
  add_up_squares(x, squares_.get(), thread);
  for (int row = 0; row < rows_; ++row)
    kernels_.scale(x.row(row), 1.0f, weight.data() + x.columns.begin,
                   normed_.x.f32(row, x.columns.begin, x.columns.end), int(x.stride));
  const Activations& normed = hand_over(normed_, thread);
  invert_rms(squares_.get(), thread);
  return normed;
}

// What all threads have written, quantised and visible to all.
const Activations& ForwardPass::hand_over(SharedActivations& shared, int thread) {
  if (!shared.at_once) pool_.barrier(thread);
  kernels_.quantise(shared.x, shared.quantised[thread].begin, shared.quantised[thread].end);
  pool_.barrier(thread);
  return shared.x;
}

// product = w * activations, on the columns of this thread, which goes on with the weights at `next`.
void ForwardPass::multiply_own(const Matrix& w, const Activations& x, int thread, const uint8_t* next) {
  const Range panels = hidden_panels_[thread];
  if (panels.begin < panels.end)
    kernels_.multiply(w, panels.begin, panels.end, x, own_product(thread, next));
}

Products ForwardPass::own_product(int thread, const uint8_t* next) const {
  const OwnColumns product = own_columns(product_, thread);
  return {product.whole_row(0), product.stride, nullptr, next, once_};
}

// x += product, normed where the model norms what it adds, on the columns of this thread.
void ForwardPass::add_product(const std::vector<float>& post_norm, int thread) {
  const OwnColumns x = own_columns(x_, thread), product = own_columns(product_, thread);
  const int width = int(x.stride);
  if (!post_norm.empty()) {
    add_up_squares(product, post_squares_.get(), thread);
    pool_.barrier(thread);
    invert_rms(post_squares_.get(), thread);
  }
  for (int row = 0; row < rows_; ++row) {
    if (!post_norm.empty())
      kernels_.scale(product.row(row), own_[thread].inverse_rms[row], post_norm.data() + x.columns.begin,
                     product.row(row), width);
    kernels_.add(product.row(row), x.row(row), width);
  }
}

void ForwardPass::feed_forward(const LayerWeights& layer, int index, int thread) {
  const Activations& x = normalise(layer.ffn_norm, thread);
  const uint8_t* const next = first_weights(index + 1, thread);
  if (mixture_ != nullptr) mixture_->run(index, x, own_[thread].inverse_rms.data(), own_product(thread, next), thread);
  else multiply_own(*layer.down, activate(layer, x, thread), thread, next);
}

// gate(x) * up(x), panel by panel of both.
const Activations& ForwardPass::activate(const LayerWeights& layer, const Activations& x, int thread) {
  constexpr int kChunk = 16;  // panels whose products for many rows stay in the second-level cache
  const auto multiply = config_.gate == Gate::gelu ? kernels_.gelu_multiply : kernels_.silu_multiply;
  const Range share = ffn_panels_[thread];
  const float* const inverse_rms = own_[thread].inverse_rms.data();
  const Range columns = activated_.written[thread];
  const OwnColumns own_up(up_.get(), kRows, columns);
  float* const own_gate = activated_.x.f32(0, columns.begin, columns.end);
  const ptrdiff_t gate_stride = activated_.x.f32_stride(columns.begin, columns.end);
  const int step = rows_ > 16 ? kChunk : std::max(1, share.end - share.begin);
  for (int first = share.begin; first < share.end; first += step) {
    const int last = std::min(first + step, share.end);
    const Range down = hidden_panels_[thread];
    const uint8_t* const next =
        last < share.end ? layer.gate->panel(last) : layer.down->start(down.begin, down.end);
    kernels_.multiply(*layer.gate, first, last, x,
                      {own_gate - columns.begin, gate_stride, inverse_rms, layer.up->panel(first), once_});
    kernels_.multiply(*layer.up, first, last, x, {own_up.whole_row(0), own_up.stride, inverse_rms, next, once_});
    const int begin = first * kPanelRows, end = std::min(last * kPanelRows, config_.ffn_size);
    for (int row = 0; row < rows_; ++row) {
      float* const gate = own_gate + row * gate_stride + begin - columns.begin;
      multiply(gate, own_up.whole_row(row) + begin, gate, end - begin);
    }
  }
  return hand_over(activated_, thread);
}

void ForwardPass::head(int thread) {
  const Activations& x = normalise(model_.weights_.output_norm, thread);
  const Range share = vocab_panels_[thread];
  if (share.begin < share.end)
    kernels_.multiply(*model_.weights_.output, share.begin, share.end, x,
                      {logits_, model_.output_size(), own_[thread].inverse_rms.data(), nullptr, once_});
}

}  // namespace outpace
