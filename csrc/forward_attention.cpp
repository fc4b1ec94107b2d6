// The half of a layer between its first norm and the output projection: queries, keys and values, and attention.
#include <algorithm>
#include <cmath>
#include <utility>

#include "forward.h"

namespace outpace {

void ForwardPass::project(const LayerWeights& layer, const Activations& x, int thread) {
  const HeadShare& share = heads_.threads[thread];
  const Projections to = projections(thread);
  const float* const inverse_rms = own_[thread].inverse_rms.data();
  const auto multiply = [&](const Matrix& w, Range panels, float* out, ptrdiff_t stride, const uint8_t* next) {
    if (panels.begin < panels.end)
      kernels_.multiply(w, panels.begin, panels.end, x, {out, stride, inverse_rms, next, once_});
  };
  const Range hidden = hidden_panels_[thread];
  multiply(*layer.k, share.k, to.k, to.kv_stride, layer.v->start(share.v.begin, share.v.end));
  multiply(*layer.v, share.v, to.v, to.kv_stride, layer.q->start(share.q.begin, share.q.end));
  multiply(*layer.q, share.q, to.q, to.q_stride, layer.out->start(hidden.begin, hidden.end));
}

// What a thread reads first in a layer, or of the output matrix after the last one.
const uint8_t* ForwardPass::first_weights(int index, int thread) const {
  const Range vocab = vocab_panels_[thread];
  if (index == config_.layers) return model_.weights_.output->start(vocab.begin, vocab.end);
  const LayerWeights& layer = model_.weights_.layers[index];
  const HeadShare& share = heads_.threads[thread];
  for (const auto& [w, panels] : {std::pair(layer.k.get(), share.k), std::pair(layer.v.get(), share.v)})
    if (panels.begin < panels.end) return w->panel(panels.begin);
  return layer.q->start(share.q.begin, share.q.end);
}

ForwardPass::Projections ForwardPass::projections(int thread) const {
  const HeadShare& share = heads_.threads[thread];
  const int queries = config_.query_size(), kv = config_.kv_size(), dim = config_.head_dim;
  float* const q = qkv_.get();
  if (!heads_.own_panels) return {q, q + queries, q + queries + kv, queries + 2 * kv, queries + 2 * kv};
  const auto columns = [&](float* all, Range heads) {
    return OwnColumns(all, kRows, {heads.begin * dim, heads.end * dim});
  };
  const OwnColumns own_q = columns(q, share.heads);
  const OwnColumns own_k = columns(q + size_t(kRows) * queries, share.kv_heads);
  const OwnColumns own_v = columns(q + size_t(kRows) * (queries + kv), share.kv_heads);
  return {own_q.whole_row(0), own_k.whole_row(0), own_v.whole_row(0), own_q.stride, own_k.stride};
}

void ForwardPass::attention(const LayerWeights& layer, int index, int thread) {
  const HeadShare& share = heads_.threads[thread];
  const int group = config_.group();
  if (!heads_.own_panels) pool_.barrier(thread);
  for (const Task& task : tasks_) {
    for (int head = share.kv_heads.begin; head < share.kv_heads.end; ++head) store(layer, index, task, head, thread);
    rotate_queries(layer, index, task, share.heads, thread);
  }
  const auto attend_groups = [&](bool whole) {
    for (const Task& task : tasks_) {
      for (Range part = share.heads; part.begin < share.heads.end; part.begin = part.end) {
        part.end = std::min(share.heads.end, (part.begin / group + 1) * group);
        if ((part.end - part.begin == group) != whole) continue;
        const bool lends = lends_ && part.begin == heads_.lent.begin;
        attend(index, lends ? task.after(heads_.lent_rows(task.rows)) : task, part, thread, thread);
      }
    }
  };
  // A group that two threads share has its keys from one of them, which has mostly stored them before the other asks.
  if (!heads_.own_keys) pool_.arrive(thread);
  attend_groups(true);
  if (!heads_.own_keys) pool_.wait(thread);
  attend_groups(false);
  if (!lends_) return;
  if (thread == 0)
    for (const Task& task : tasks_) attend(index, task.first(heads_.lent_rows(task.rows)), heads_.lent, 1, thread);
  pool_.barrier(thread);
}

// Whether evening out the threads' heads gains more than another exchange between the cores costs.
bool ForwardPass::worth_lending() const {
  constexpr double kWorth = 1.25e5;  // queries times positions times dimension: two microseconds or three
  double lent = 0.0;
  for (const Task& task : tasks_)
    lent += double(heads_.lent_rows(task.rows)) * task.session->position(task.session_row);
  return lent * (heads_.lent.end - heads_.lent.begin) * config_.head_dim >= kWorth;
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

void ForwardPass::rotate_queries(const LayerWeights& weights, int layer, const Task& task, Range heads,
                                 int thread) {
  const int dim = config_.head_dim, size = (heads.end - heads.begin) * dim;
  const Projections from = projections(thread);
  for (int i = 0; i < task.rows; ++i) {
    float* const q = from.q + (task.row + i) * from.q_stride + heads.begin * dim;
    if (!weights.q_bias.empty()) kernels_.add(weights.q_bias.data() + heads.begin * dim, q, size);
    const float* const cos = model_.rope_row(task.session->position(task.session_row + i), config_.shapes[layer].rope);
    for (int at = 0; at < size; at += dim) {
      normalise_head(weights.q_norm, q + at);
      kernels_.rope(q + at, cos, cos + dim / 2, dim, config_.rope_interleaved);
    }
  }
}

void ForwardPass::store(const LayerWeights& weights, int layer, const Task& task, int kv_head, int thread) {
  const int dim = config_.head_dim;
  const Projections from = projections(thread);
  Own& own = own_[thread];
  for (int i = 0; i < task.rows; ++i) {
    float* const k = from.k + (task.row + i) * from.kv_stride + kv_head * dim;
    float* const v = from.v + (task.row + i) * from.kv_stride + kv_head * dim;
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

// Query heads of one group, which are those of thread `owner`.
void ForwardPass::attend(int layer, const Task& task, Range heads, int owner, int thread) {
  if (task.rows == 0) return;
  const Session& session = *task.session;
  const Projections from = projections(owner);
  const Range written = attended_.written[owner];
  Own& own = own_[thread];
  const int kv_head = heads.begin / config_.group();
  for (int i = 0; i < task.rows; ++i) own.visible[i] = session.position(task.session_row + i) + 1;
  AttentionTask call{};
  call.head_dim = config_.head_dim;
  call.group = heads.end - heads.begin;
  call.rows = task.rows;
  call.scale = config_.attention_scale;
  call.queries = from.q + task.row * from.q_stride + heads.begin * config_.head_dim;
  call.query_stride = from.q_stride;
  call.out = attended_.x.f32(task.row, written.begin, written.end) + heads.begin * config_.head_dim - written.begin;
  call.out_stride = attended_.x.f32_stride(written.begin, written.end);
  call.visible = own.visible.data();
  call.window = config_.shapes[layer].window;
  call.slots = session.is_chain() ? own.visible[task.rows - 1] : session.slots();
  session.blocks(layer, kv_head, (call.slots + kPagePositions - 1) / kPagePositions, own.keys.data(), own.values.data());
  call.keys = own.keys.data();
  call.values = own.values.data();
  if (!session.is_chain()) {
    call.own_from = session.length() + 1;
    call.paths = session.path(task.session_row);
    call.path_stride = session.path_stride();
  }
  call.scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(own.attention.data()) + 63) / 64 * 64);
  kernels_.attend(call);
}

}  // namespace outpace
