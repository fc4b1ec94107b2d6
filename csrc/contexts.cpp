#include "contexts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

#include "sampler_math.h"

namespace outpace {

namespace {

// The last step of splitmix64.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The key of a context that is one token longer, to the left.
uint64_t longer(uint64_t key, int32_t token) {
  return mixed(key * 0x9e3779b97f4a7c15u + static_cast<uint32_t>(token) + 1);
}

}  // namespace

uint32_t Context::count_of(int32_t token) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == token) return counts[i];
  }
  return 0;
}

void Context::count(int32_t token) {
  ++total;
  size_t place = 0;
  while (place < tokens.size() && tokens[place] != token && tokens[place] != kNoToken) ++place;
  if (place == tokens.size()) {
    if (--counts[--place] > 0) return;  // the least frequent one pays for a newcomer
    tokens[place] = kNoToken;
  }
  tokens[place] = token;
  ++counts[place];
  for (; place > 0 && counts[place - 1] <= counts[place]; --place) {
    std::swap(tokens[place - 1], tokens[place]);
    std::swap(counts[place - 1], counts[place]);
  }
  if (counts[0] < UINT16_MAX) return;
  total /= 2;
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i] /= 2;
    if (counts[i] == 0) tokens[i] = kNoToken;
  }
}

ContextCounts::ContextCounts(int depth) : depth_(depth), slots_(64, kFree) {
  if (depth < 1 || depth > kMaxContextDepth) {
    throw std::invalid_argument("depth must be in [1, " + std::to_string(kMaxContextDepth) + "], got " +
                                std::to_string(depth));
  }
}

void ContextCounts::feed(std::span<const int32_t> tokens, size_t first) {
  for (int32_t token : tokens) {
    if (token < 0) throw std::invalid_argument("token ids must be at least 0, got " + std::to_string(token));
  }
  for (size_t i = std::max<size_t>(first, 1); i < tokens.size(); ++i) {
    uint64_t key = 0;
    const size_t most = std::min(static_cast<size_t>(depth_), i);
    for (size_t k = 1; k <= most; ++k) {
      key = longer(key, tokens[i - k]);
      entry(key).count(tokens[i]);
    }
  }
}

Context& ContextCounts::entry(uint64_t key) {
  const size_t mask = slots_.size() - 1;
  size_t slot = key & mask;
  for (; slots_[slot] != kFree; slot = (slot + 1) & mask) {
    Context& held = at(slots_[slot]);
    if (held.key == key) return held;
  }
  if (size_ == kFree - 1) throw std::length_error("the store of contexts is full");
  if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<Context[]>(kBlock));
  slots_[slot] = static_cast<uint32_t>(size_);
  Context& fresh = at(size_++);
  fresh.key = key;
  if (2 * size_ > slots_.size()) enlarge();
  return fresh;
}

void ContextCounts::enlarge() {
  std::vector<uint32_t> larger(2 * slots_.size(), kFree);
  const size_t mask = larger.size() - 1;
  for (size_t i = 0; i < size_; ++i) {
    size_t slot = at(i).key & mask;
    while (larger[slot] != kFree) slot = (slot + 1) & mask;
    larger[slot] = static_cast<uint32_t>(i);
  }
  slots_.swap(larger);
}

int ContextCounts::find(std::span<const int32_t> path, std::array<const Context*, kMaxContextDepth>& found) const {
  const int most = static_cast<int>(std::min(static_cast<size_t>(depth_), path.size()));
  const size_t mask = slots_.size() - 1;
  std::array<uint64_t, kMaxContextDepth> keys;
  uint64_t key = 0;
  // In a large store every look-up misses the caches: all are under way before the first is waited for.
  for (int k = 0; k < most; ++k) {
    keys[static_cast<size_t>(k)] = key = longer(key, path[path.size() - 1 - static_cast<size_t>(k)]);
    __builtin_prefetch(&slots_[key & mask]);
  }
  for (int k = 0; k < most; ++k) {
    const uint32_t index = slots_[keys[static_cast<size_t>(k)] & mask];
    if (index != kFree) __builtin_prefetch(&at(index));
  }
  for (int k = 0; k < most; ++k) {
    key = keys[static_cast<size_t>(k)];
    size_t slot = key & mask;
    while (slots_[slot] != kFree && at(slots_[slot]).key != key) slot = (slot + 1) & mask;
    if (slots_[slot] == kFree) return k;
    found[static_cast<size_t>(k)] = &at(slots_[slot]);
  }
  return most;
}

size_t ContextCounts::bytes() const {
  return sizeof(*this) + blocks_.size() * kBlock * sizeof(Context) + slots_.capacity() * sizeof(uint32_t) +
         blocks_.capacity() * sizeof(blocks_[0]);
}

namespace {

struct Candidate {
  int32_t token;
  double prob;
};

struct Waiting {
  double path_probability;
  size_t pushed;
  int32_t parent;
  Candidate candidate;

  // The queue's top is the most probable, of equals the one pushed first.
  bool operator<(const Waiting& other) const {
    return path_probability != other.path_probability ? path_probability < other.path_probability
                                                      : pushed > other.pushed;
  }
};

class Tree {
 public:
  Tree(std::span<const ContextLayer> layers, std::span<const int32_t> tail, const GrowthLimits& limits)
      : layers_(layers), limits_(limits) {
    size_t longest = 0;
    for (const ContextLayer& layer : layers) longest = std::max(longest, static_cast<size_t>(layer.counts->depth()));
    tail_ = tail.subspan(tail.size() - std::min(tail.size(), longest));
  }

  std::vector<GrownNode> grown() {
    const size_t most = limits_.prices.size();
    if (limits_.depth > 0 && most > 0) expand(-1, 1.0);
    while (!frontier_.empty()) {
      const Waiting best = frontier_.top();
      if (best.path_probability < limits_.prices[nodes_.size()]) break;
      frontier_.pop();
      const auto node = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({best.candidate.token, best.parent, best.candidate.prob});
      if (nodes_.size() == most) break;
      if (depth_of(node) < limits_.depth) expand(node, best.path_probability);
    }
    return std::move(nodes_);
  }

 private:
  int depth_of(int32_t node) const {
    int depth = 0;
    for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent) ++depth;
    return depth;
  }

  void expand(int32_t node, double path_probability) {
    path_.assign(tail_.begin(), tail_.end());
    const size_t start = path_.size();
    for (int32_t at = node; at >= 0; at = nodes_[static_cast<size_t>(at)].parent) {
      path_.push_back(nodes_[static_cast<size_t>(at)].token);
    }
    std::reverse(path_.begin() + static_cast<std::ptrdiff_t>(start), path_.end());
    rank();
    if (limits_.noise && candidates_.size() > kContestants) candidates_.resize(kContestants);
    const bool asks = node < 0 && limits_.guide != nullptr;
    const Chances& rule = (asks ? kGuided : kByCounts)[limits_.noise.has_value()];
    if (asks) ask(rule);
    take_chances(rule, static_cast<uint32_t>(path_.size() - start));
    const size_t width = std::min(candidates_.size(), static_cast<size_t>(limits_.width));
    for (size_t i = 0; i < width; ++i) {
      const double prob = candidates_[i].prob;
      if (path_probability * prob >= limits_.prices[nodes_.size()]) {
        frontier_.push({path_probability * prob, pushed_++, node, {candidates_[i].token, prob}});
      }
    }
  }

  // Fills candidates_ by falling probability, of equals the longest context's first.
  void rank() {
    found_.clear();
    for (const ContextLayer& layer : layers_) {
      std::array<const Context*, kMaxContextDepth> found;
      match_ = layer.counts->find(path_, found);
      for (int k = 0; k < match_; ++k) found_.push_back({found[static_cast<size_t>(k)], layer.prior});
    }
    candidates_.clear();
    for (size_t i = found_.size(); i-- > 0;) {
      for (int32_t token : found_[i].first->tokens) {
        if (token != kNoToken && !listed(token)) candidates_.push_back({token, 0.0});
      }
    }
    for (const auto& [context, prior] : found_) {
      const double total = static_cast<double>(context->total) + prior;
      for (Candidate& candidate : candidates_) {
        candidate.prob = (static_cast<double>(context->count_of(candidate.token)) + prior * candidate.prob) / total;
      }
    }
    sort();
  }

  // Adds what the guide says of the tail's continuations to what the counts say.
  void ask(const Chances& rule) {
    limits_.guide->look();
    const double weight = 1.0 / (1.0 + std::exp(rule.fade * match_ - rule.guide));
    for (const int32_t token : limits_.guide->likely()) {
      if (!listed(token)) candidates_.push_back({token, 0.0});
    }
    for (auto& [token, prob] : candidates_) prob += weight * (limits_.guide->prob(token) - prob);
    sort();
  }

  // Replaces the candidates' probabilities by their chances, `depth` tokens after the tail.
  void take_chances(const Chances& rule, uint32_t depth) {
    sampling::NoiseKey key{};
    if (limits_.noise) key = {limits_.noise->seed, limits_.noise->place + depth, 0, limits_.noise->choice << 8};
    double listed = 0.0, sum = 0.0;
    for (auto& [token, prob] : candidates_) {
      const double wait = limits_.noise ? sampling::exponential(static_cast<uint32_t>(token), key) : 1.0;
      listed += prob;
      prob = std::pow(prob, rule.law) / std::pow(wait, rule.noise);
      sum += prob;
    }
    const double unlisted = rule.unlisted * std::pow(rule.familiar, match_) *
                            std::pow(std::max(1.0 - listed, kLeastUnlisted), rule.rest);
    sum += unlisted / limits_.odds;
    for (Candidate& candidate : candidates_) candidate.prob /= sum;
    sort();
  }

  void sort() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.prob > b.prob; });
  }

  bool listed(int32_t token) const {
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return c.token == token; });
  }

  std::span<const ContextLayer> layers_;
  std::span<const int32_t> tail_;
  const GrowthLimits& limits_;
  std::vector<GrownNode> nodes_;
  std::priority_queue<Waiting> frontier_;
  size_t pushed_ = 0;
  int match_ = 0;  // tokens of the place's longest context in the last layer
  std::vector<int32_t> path_;
  std::vector<std::pair<const Context*, double>> found_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<GrownNode> grow(std::span<const ContextLayer> layers, std::span<const int32_t> tail,
                            const GrowthLimits& limits) {
  if (limits.width < 1 || limits.width > kMostChildren) {
    throw std::invalid_argument("width must be in [1, " + std::to_string(kMostChildren) + "], got " +
                                std::to_string(limits.width));
  }
  if (limits.prices.size() > kMostGrown) {
    throw std::invalid_argument("a tree has at most " + std::to_string(kMostGrown) + " nodes, got prices of " +
                                std::to_string(limits.prices.size()));
  }
  return Tree(layers, tail, limits).grown();
}

double expected_gain(std::span<const GrownNode> nodes, std::span<const double> prices) {
  std::vector<double> paths;
  double gain = 0.0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    paths.push_back(nodes[i].prob * (nodes[i].parent < 0 ? 1.0 : paths[size_t(nodes[i].parent)]));
    gain += paths[i] - prices[i];
  }
  return gain;
}

}  // namespace outpace
