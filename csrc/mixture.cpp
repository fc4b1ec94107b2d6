#include "mixture.h"

#include <algorithm>
#include <cstring>

#include "numerics.h"
#include "shares.h"

namespace outpace {

Mixture::Own::Own(int max_rows, const ModelConfig& config)
    : in(kRowTile, config.hidden_size),
      activated(kRowTile, config.ffn_size),
      chosen(size_t(max_rows) * config.experts_used),
      places(chosen.size()),
      shares(chosen.size()),
      pairs(chosen.size()) {
  in.cols = config.hidden_size;
  activated.cols = config.ffn_size;
  units.reserve(chosen.size());
}

Mixture::Mixture(const Model& model, int max_rows, const std::vector<Range>& hidden_panels)
    : model_(model),
      config_(model.config_),
      kernels_(model.kernels_),
      pool_(*model.pool_),
      threads_(pool_.threads()),
      hidden_panels_(hidden_panels),
      ffn_panels_(panel_shares(config_.ffn_size / kPanelRows, 1, threads_)),
      pairs_(size_t(max_rows) * config_.experts_used),
      scores_(model.buffers_->take(size_t(max_rows) * config_.experts)),
      gate_(model.buffers_->take(pairs_ * config_.ffn_size)),
      up_(model.buffers_->take(pairs_ * config_.ffn_size)),
      out_(model.buffers_->take(pairs_ * config_.hidden_size)),
      ones_(config_.hidden_size, 1.0f) {
  own_.reserve(threads_);
  for (int t = 0; t < threads_; ++t) own_.emplace_back(max_rows, config_);
  const int ffn = config_.ffn_size / kPanelRows, hidden = config_.hidden_size / kPanelRows;
  for (const LayerWeights& layer : model.weights_.layers) {
    std::vector<Expert>& experts = experts_.emplace_back();
    for (int e = 0; e < config_.experts; ++e)
      experts.push_back(
          {layer.gate->view(e * ffn, ffn), layer.up->view(e * ffn, ffn), layer.down->view(e * hidden, hidden)});
    for (Own& own : own_) {
      for (const SharedMatrix& w : {layer.gate, layer.up}) own.in.want(w->format);
      own.activated.want(layer.down->format);
    }
  }
}

size_t Mixture::bytes() const {
  const size_t floats = pairs_ * (2 * size_t(config_.ffn_size) + config_.hidden_size);
  return floats * sizeof(float) + own_.size() * kRowTile * size_t(config_.hidden_size + config_.ffn_size) * 7;
}

void Mixture::run(int layer, const Activations& x, const float* factors, const Products& product, int thread) {
  Own& own = own_[thread];
  const Matrix& router = *model_.weights_.layers[layer].router;
  const Range share = static_share(router.panels(), thread, threads_);
  if (share.begin < share.end)
    kernels_.multiply(router, share.begin, share.end, x, {scores_.get(), config_.experts, factors, nullptr, product.once});
  pool_.barrier(thread);
  choose(x.rows, own);
  group(x.rows, own);
  gate_and_up(experts_[layer], x, factors, product.once, thread);
  pool_.barrier(thread);
  down(experts_[layer], product.once, thread);
  sum(x.rows, product, thread);
}

// Each row's experts, the best score first (of equals the lower index), and the softmax over those scores.
void Mixture::choose(int rows, Own& own) const {
  const int used = config_.experts_used;
  for (int row = 0; row < rows; ++row) {
    const float* const scores = scores_.get() + size_t(row) * config_.experts;
    int* const chosen = own.chosen.data() + size_t(row) * used;
    float* const shares = own.shares.data() + size_t(row) * used;
    for (int slot = 0; slot < used; ++slot) {
      int best = -1;
      for (int e = 0; e < config_.experts; ++e) {
        if (std::find(chosen, chosen + slot, e) != chosen + slot) continue;
        if (best < 0 || scores[e] > scores[best]) best = e;
      }
      chosen[slot] = best;
    }
    float total = 0.0f;
    for (int slot = 0; slot < used; ++slot) {
      shares[slot] = numerics::exp(scores[chosen[slot]] - scores[chosen[0]]);
      total += shares[slot];
    }
    for (int slot = 0; slot < used; ++slot) shares[slot] /= total;
  }
}

void Mixture::group(int rows, Own& own) const {
  const int used = config_.experts_used;
  own.units.clear();
  int pair = 0;
  for (int e = 0; e < config_.experts; ++e) {
    const int first = pair;
    for (int i = 0; i < rows * used; ++i) {
      if (own.chosen[i] != e) continue;
      own.pairs[pair] = i / used;
      own.places[i] = pair++;
    }
    for (int at = first; at < pair; at += kRowTile) own.units.push_back({e, at, std::min(kRowTile, pair - at)});
  }
}

void Mixture::gate_and_up(const std::vector<Expert>& experts, const Activations& x, const float* factors, bool once,
                          int thread) {
  Own& own = own_[thread];
  const Range share = ffn_panels_[thread];
  if (share.begin == share.end) return;
  const int ffn = config_.ffn_size, begin = share.begin * kPanelRows, size = (share.end - share.begin) * kPanelRows;
  const auto multiply = config_.gate == Gate::gelu ? kernels_.gelu_multiply : kernels_.silu_multiply;
  for (const Unit& unit : own.units) {
    own.in.rows = unit.count;
    for (int i = 0; i < unit.count; ++i) {
      const int row = own.pairs[unit.first + i];
      std::memcpy(own.in.f32(i), x.f32(row), size_t(config_.hidden_size) * sizeof(float));
      own.factors[i] = factors[row];
    }
    kernels_.quantise(own.in, 0, config_.hidden_size);
    float *const gate = gate_.get() + size_t(unit.first) * ffn, *const up = up_.get() + size_t(unit.first) * ffn;
    kernels_.multiply(experts[unit.expert].gate, share.begin, share.end, own.in,
                      {gate, ffn, own.factors, experts[unit.expert].up.panel(share.begin), once});
    kernels_.multiply(experts[unit.expert].up, share.begin, share.end, own.in, {up, ffn, own.factors, nullptr, once});
    for (int i = 0; i < unit.count; ++i) {
      float* const gated = gate + size_t(i) * ffn + begin;
      multiply(gated, up + size_t(i) * ffn + begin, gated, size);
    }
  }
}

void Mixture::down(const std::vector<Expert>& experts, bool once, int thread) {
  Own& own = own_[thread];
  const Range share = hidden_panels_[thread];
  if (share.begin == share.end) return;
  for (const Unit& unit : own.units) {
    own.activated.rows = unit.count;
    for (int i = 0; i < unit.count; ++i)
      std::memcpy(own.activated.f32(i), gate_.get() + size_t(unit.first + i) * config_.ffn_size,
                  size_t(config_.ffn_size) * sizeof(float));
    kernels_.quantise(own.activated, 0, config_.ffn_size);
    kernels_.multiply(experts[unit.expert].down, share.begin, share.end, own.activated,
                      {out_.get() + size_t(unit.first) * config_.hidden_size, config_.hidden_size, nullptr, nullptr, once});
  }
}

void Mixture::sum(int rows, const Products& product, int thread) {
  const Own& own = own_[thread];
  const int used = config_.experts_used, begin = hidden_panels_[thread].begin * kPanelRows;
  const int size = hidden_panels_[thread].end * kPanelRows - begin;
  for (int row = 0; row < rows; ++row) {
    float* const total = product.row(row) + begin;
    std::fill_n(total, size, 0.0f);
    for (int slot = row * used; slot < (row + 1) * used; ++slot) {
      float* const out = out_.get() + size_t(own.places[slot]) * config_.hidden_size + begin;
      kernels_.scale(out, own.shares[slot], ones_.data(), out, size);
      kernels_.add(out, total, size);
    }
  }
}

}  // namespace outpace
