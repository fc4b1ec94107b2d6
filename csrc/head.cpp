#include "head.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace outpace {
namespace {

constexpr int kSlice = 128;  // committed rows that are taken in at once
constexpr int kScored = 8;   // of which the last ones are scored together: up to here rows cost next to nothing

void require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

void check_matrix(const SharedMatrix& w, int rows, int cols, const char* name) {
  require(w != nullptr && w->rows == rows && w->cols == cols,
          std::string(name) + " must be " + std::to_string(rows) + " by " + std::to_string(cols));
}

void want(Activations& x, const Matrix& w) {
  const ActivationKind kind = format_info(w.format).activation;
  x.wants_32 = x.wants_32 || kind == ActivationKind::int8_32;
  x.wants_256 = x.wants_256 || kind == ActivationKind::int8_256;
}

// A row is read many times a draft: compiled for each instruction set; without contraction all give the same bits.
#if defined(OUTPACE_X86_64) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__)
#define OUTPACE_ALL_LANES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define OUTPACE_ALL_LANES
#endif

// 2^x for x <= 0, by a polynomial between whole powers; plain operations that a compiler can do on all lanes.
inline float power_of_two(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = std::max(x, -126.0f);
  const float shifted = x + kShift;
  const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift);
  const float f = x - (shifted - kShift);
  const float p = 1.0f + f * (0.69314718f + f * (0.24022651f + f * (0.05550411f + f * 0.00961813f)));
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (whole << 23));
}

// This thread's columns, in whole blocks of what is wanted.
void quantise_share(const Kernels& kernels, Activations& x, int thread, int threads) {
  const int unit = x.wants_256 ? kSuperBlock : kBlock;
  const Range units = static_share(x.cols / unit, thread, threads);
  if (units.begin < units.end) kernels.quantise(x, units.begin * unit, units.end * unit);
}

// The most probable nodes, each worth its price. A path is never more probable than its beginning, so their parents are
// among them.
std::vector<TreeNode> best_of(const std::vector<TreeNode>& found, const std::vector<float>& prices) {
  std::vector<int32_t> order(found.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return found[a].probability > found[b].probability; });
  size_t kept = 0;
  while (kept < std::min(order.size(), prices.size()) && found[order[kept]].probability >= prices[kept]) ++kept;
  order.resize(kept);
  std::sort(order.begin(), order.end());
  std::vector<int32_t> number(found.size(), -1);
  std::vector<TreeNode> out;
  for (const int32_t node : order) {
    number[node] = int32_t(out.size());
    const int32_t parent = found[node].parent;
    out.push_back({found[node].token, parent < 0 ? -1 : number[parent], found[node].probability});
  }
  return out;
}

// What a first level reads.
Stretches stretches_of(const Model& layer, const HeadWeights& weights) {
  std::vector<Stretch> all;
  for (const SharedMatrix& w : {weights.fuse, weights.embed}) {
    if (w != nullptr) all.push_back({w->data.get(), w->bytes()});
  }
  const std::vector<Stretch> of_layer = layer.pass_stretches();
  all.insert(all.end(), of_layer.begin(), of_layer.end());
  return std::make_shared<const std::vector<Stretch>>(std::move(all));
}

}  // namespace

DraftHead::DraftHead(std::shared_ptr<Model> layer, std::shared_ptr<Model> target, HeadWeights weights)
    : layer_(std::move(layer)),
      target_(std::move(target)),
      weights_(std::move(weights)),
      weights_soon_(stretches_of(*layer_, weights_)),
      hidden_(layer_->config().hidden_size),
      taps_(int(weights_.tap_norms.size()) / hidden_),
      pool_(shared_thread_pool(layer_->threads())),
      ones_(hidden_, 1.0f),
      fused_(kSlice, std::max(1, taps_) * hidden_),
      stated_(kSlice, hidden_),
      embedded_(kSlice, hidden_),
      product_(size_t(kSlice) * hidden_),
      squares_((hidden_ + kBlock - 1) / kBlock) {
  require(layer_->config().layers == 1, "a head has one layer");
  require(target_->config().hidden_size == hidden_, "the head's hidden size is not the target's");
  require(taps_ >= 1 && weights_.tap_norms.size() == size_t(taps_) * hidden_, "tap_norms must be [taps, hidden_size]");
  require(!weights_.mask.empty() && weights_.mask.size() % hidden_ == 0, "mask must be [block, hidden_size]");
  require(int(weights_.draft_ids.size()) == draft_vocab(), "draft_ids must name a token for each row of the output");
  for (const int32_t token : weights_.draft_ids) {
    require(token >= 0 && token < target_->config().vocab_size,
            "draft_ids must be tokens of the target, got " + std::to_string(token));
  }
  places_.assign(size_t(target_->config().vocab_size), -1);
  for (size_t i = 0; i < weights_.draft_ids.size(); ++i) places_[size_t(weights_.draft_ids[i])] = int32_t(i);
  check_matrix(weights_.fuse, hidden_, taps_ * hidden_, "fuse");
  check_matrix(weights_.embed, hidden_, hidden_, "embed");
  check_matrix(weights_.state, hidden_, hidden_, "state");
  fused_.cols = taps_ * hidden_;
  stated_.cols = embedded_.cols = hidden_;
  want(fused_, *weights_.fuse);
  want(embedded_, *weights_.embed);
  want(stated_, *weights_.state);
}

std::shared_ptr<HeadSession> DraftHead::open() const { return std::make_shared<HeadSession>(layer_->open()); }

size_t DraftHead::pass_bytes() const {
  return layer_->pass_bytes() + weights_.fuse->bytes() + weights_.embed->bytes();
}

void DraftHead::check(const HeadSession& session) const {
  require(!session.cache->closed() && &session.cache->cache()->busy == &layer_->cache().busy,
          "this session is closed, or of another head");
}

// out = x / sqrt(mean(x^2) + epsilon) * weight, a row.
void DraftHead::norm(const float* x, const float* weight, float* out) {
  layer_->kernels().panel_squares(x, squares_.data(), hidden_);
  float sum = 0.0f;
  for (const float part : squares_) sum += part;
  const float inverse_rms = 1.0f / std::sqrt(sum / float(hidden_) + layer_->config().norm_epsilon);
  layer_->kernels().scale(x, inverse_rms, weight, out, hidden_);
}

// Normed rows, as the activations of a product.
void DraftHead::unit_rows(const float* const* rows, int count, Activations& out) {
  out.rows = count;
  for (int i = 0; i < count; ++i) norm(rows[i], ones_.data(), out.f32(i));
}

// out = a xa + b xb, rows of hidden_.
void DraftHead::combine(const Matrix& a, Activations& xa, const Matrix* b, Activations& xb, float* out) {
  const Kernels& kernels = layer_->kernels();
  pool_->run([&](int thread, int threads) {
    quantise_share(kernels, xa, thread, threads);
    if (b != nullptr) quantise_share(kernels, xb, thread, threads);
    pool_->barrier(thread);
    const Range share = static_share(a.panels(), thread, threads);
    if (share.begin == share.end) return;
    kernels.multiply(a, share.begin, share.end, xa, {out, hidden_});
    if (b == nullptr) return;
    kernels.multiply(*b, share.begin, share.end, xb, {product_.data(), hidden_});
    const int begin = share.begin * kPanelRows, end = std::min(share.end * kPanelRows, hidden_);
    for (int row = 0; row < xa.rows; ++row)
      kernels.add(product_.data() + size_t(row) * hidden_ + begin, out + size_t(row) * hidden_ + begin, end - begin);
  });
}

void DraftHead::committed_inputs(const float* hidden, const std::vector<int32_t>& tokens, float* out) {
  const Floats embeddings = target_->embed(tokens);
  std::vector<const float*> rows;
  for (size_t first = 0; first < tokens.size(); first += kSlice) {
    const int count = int(std::min<size_t>(kSlice, tokens.size() - first));
    fused_.rows = count;
    for (int i = 0; i < count; ++i)
      for (int t = 0; t < taps_; ++t)
        norm(hidden + ((first + i) * taps_ + t) * hidden_, &weights_.tap_norms[t * hidden_],
             fused_.f32(i) + t * hidden_);
    rows.clear();
    for (int i = 0; i < count; ++i) rows.push_back(embeddings.get() + (first + i) * hidden_);
    unit_rows(rows.data(), count, embedded_);
    combine(*weights_.fuse, fused_, weights_.embed.get(), embedded_, out + first * hidden_);
  }
}

Floats DraftHead::begin(HeadSession& session, const float* hidden, const std::vector<int32_t>& tokens, int ahead) {
  const std::lock_guard lock(busy_);
  check(session);
  require(ahead >= 0 && ahead < block(), "mask rows must be fewer than the block of " + std::to_string(block()));
  const size_t width = hidden_;
  std::vector<float> x(session.inputs.begin(), session.inputs.begin() + std::min(session.inputs.size(), width));
  const size_t kept = x.size() / width;
  x.resize((kept + tokens.size()) * width);
  committed_inputs(hidden, tokens, x.data() + kept * width);
  int rows = int(x.size() / width), first = 0;
  require(rows >= 1, "a draft begins after at least one committed token");
  while (rows - first > kScored) {
    const int count = std::min(kSlice, rows - first - 1);
    layer_->prefill(session.cache, std::vector<int32_t>(count), {}, x.data() + first * width);
    first += count;
  }
  x.erase(x.begin(), x.begin() + first * width);
  rows -= first;
  session.inputs.assign(x.end() - width, x.end());
  if (ahead > 0) {
    const float* last = session.inputs.data();
    unit_rows(&last, 1, stated_);
    std::vector<float> state(width);
    combine(*weights_.state, stated_, nullptr, stated_, state.data());
    for (int i = 1; i <= ahead; ++i) {
      x.insert(x.end(), state.begin(), state.end());
      layer_->kernels().add(&weights_.mask[i * width], &*(x.end() - width), hidden_);
    }
  }
  std::vector<int32_t> parents, path;
  for (int i = 0; i < rows + ahead - 1; ++i) parents.push_back(i - 1);
  for (int i = 0; i < rows - 2; ++i) path.push_back(i);
  session.outputs = layer_->score({{session.cache, std::vector<int32_t>(rows + ahead), parents}}, {0}, x.data());
  if (rows > 1) {
    const std::lock_guard cache_lock(session.cache->cache()->busy);
    session.cache->commit(path);
  }
  target_->expect_after_taps(weights_soon_);  // who has drafted now will most likely do so again
  session.first_output = rows - 1;
  session.parents.clear();
  const Floats& logits = session.outputs.logits;
  return Floats(logits, logits.get() + size_t(rows - 1) * draft_vocab());
}

Floats DraftHead::grow(HeadSession& session, const std::vector<int32_t>& parents, const std::vector<int32_t>& tokens) {
  const std::lock_guard lock(busy_);
  check(session);
  const int nodes = int(session.parents.size()), added = int(tokens.size());
  require(!session.inputs.empty(), "a draft grows after begin()");
  require(added >= 1 && added <= kSlice && parents.size() == tokens.size(), "one parent a token, 1 to 128 of them");
  const Floats embeddings = target_->embed(tokens);
  std::vector<const float*> states, embedded;
  for (int i = 0; i < added; ++i) {
    require(parents[i] >= -1 && parents[i] < nodes,
            "a node's parent must be among the nodes before, got " + std::to_string(parents[i]));
    states.push_back(session.outputs.hidden.get() + size_t(session.first_output + parents[i] + 1) * hidden_);
    embedded.push_back(embeddings.get() + size_t(i) * hidden_);
  }
  unit_rows(states.data(), added, stated_);
  unit_rows(embedded.data(), added, embedded_);
  session.inputs.resize(size_t(1 + nodes + added) * hidden_);
  combine(*weights_.state, stated_, weights_.embed.get(), embedded_, session.inputs.data() + size_t(1 + nodes) * hidden_);
  session.parents.insert(session.parents.end(), parents.begin(), parents.end());
  session.outputs = layer_->score({{session.cache, std::vector<int32_t>(1 + nodes + added), session.parents}}, {0},
                                  session.inputs.data());
  session.first_output = 0;
  const Floats& logits = session.outputs.logits;
  return Floats(logits, logits.get() + size_t(1 + nodes) * draft_vocab());
}

std::vector<TreeNode> DraftHead::tree(HeadSession& session, const float* logits, const TreeShape& shape) {
  require(shape.width >= 1 && shape.width <= draft_vocab() && shape.beam >= 1 && shape.depth >= 1 &&
              !shape.prices.empty(),
          "a tree has at least one level, node, continuation and path");
  const float cheapest = *std::min_element(shape.prices.begin(), shape.prices.end());
  std::vector<TreeNode> found;
  std::vector<int32_t> grown;  // a found node's number among the session's nodes, or -1
  std::vector<Candidate> top(shape.width);
  const auto more = [&](const TreeNode& a, const TreeNode& b) { return a.probability > b.probability; };
  const auto look = [&](const float* row, int parent, float probability) {
    top_tokens(row, draft_vocab(), shape.width, top.data());
    for (const Candidate& next : top) {
      const float path = probability * next.probability;
      if (path < cheapest) break;
      found.push_back({weights_.draft_ids[next.place], parent, path});
      grown.push_back(-1);
    }
  };
  look(logits, -1, 1.0f);
  size_t level = 0;  // where the latest one begins
  int staged = 0;
  for (int depth = 1; depth < shape.depth; ++depth) {
    std::vector<int32_t> beam(found.size() - level);
    for (size_t i = 0; i < beam.size(); ++i) beam[i] = int32_t(level + i);
    std::stable_sort(beam.begin(), beam.end(), [&](int a, int b) { return more(found[a], found[b]); });
    if (beam.empty() || found[beam[0]].probability < shape.worth_a_pass) break;
    if (int(beam.size()) > shape.beam) beam.resize(shape.beam);
    std::vector<int32_t> parents, tokens;
    for (const int32_t node : beam) {
      parents.push_back(found[node].parent < 0 ? -1 : grown[found[node].parent]);
      tokens.push_back(found[node].token);
      grown[node] = staged++;
    }
    const Floats rows = grow(session, parents, tokens);
    level = found.size();
    for (size_t i = 0; i < beam.size(); ++i)
      look(rows.get() + i * draft_vocab(), beam[i], found[beam[i]].probability);
  }
  return best_of(found, shape.prices);
}

OUTPACE_ALL_LANES void top_tokens(const float* logits, int columns, int count, Candidate* out) {
  require(count >= 1 && count <= columns, "top must be in [1, " + std::to_string(columns) + "], got " + std::to_string(count));
  constexpr int kLanes = 16;
  constexpr float kLog2E = 1.44269504f;
  const int whole = columns / kLanes * kLanes;
  float largest[kLanes];
  std::fill_n(largest, kLanes, logits[0]);
  for (int i = 0; i < whole; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) largest[lane] = std::max(largest[lane], logits[i + lane]);
  float top = *std::max_element(largest, largest + kLanes);
  for (int i = whole; i < columns; ++i) top = std::max(top, logits[i]);
  float sums[kLanes] = {};
  for (int i = 0; i < whole; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += power_of_two((logits[i + lane] - top) * kLog2E);
  float sum = 0;
  for (const float part : sums) sum += part;
  for (int i = whole; i < columns; ++i) sum += power_of_two((logits[i] - top) * kLog2E);
  // Only a block whose largest logit beats the last one kept is looked at closely.
  int kept = 0;
  const auto insert = [&](int place) {
    if (kept == count && !(logits[place] > logits[out[count - 1].place])) return;
    int at = kept < count ? kept++ : count - 1;
    for (; at > 0 && logits[place] > logits[out[at - 1].place]; --at) out[at] = out[at - 1];
    out[at].place = place;
  };
  for (int i = 0; i < whole; i += kLanes) {
    bool any = kept < count;
    const float last = kept == count ? logits[out[count - 1].place] : 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) any |= logits[i + lane] > last;
    if (!any) continue;
    for (int lane = 0; lane < kLanes; ++lane) insert(i + lane);
  }
  for (int i = whole; i < columns; ++i) insert(i);
  for (int i = 0; i < count; ++i) out[i].probability = power_of_two((logits[out[i].place] - top) * kLog2E) / sum;
}

}  // namespace outpace
