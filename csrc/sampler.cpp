// Selection and drawing. Tokens are ordered by logit, then by lower id; every filter but min_p keeps a prefix of that
// order, and min_p's kept set is one, too. So a filter is a search for the end of a prefix: a threshold narrows the
// row down to few candidates by the largest logits of its blocks, and a quick-select (candidates.h) finds the end.
#include "sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "candidates.h"
#include "kernels/kernels.h"
#include "sampler_passes.h"

namespace outpace {
namespace {

using sampling::NoiseKey;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kNegligible = -46;  // 2^x below 2^-45 is less than half a unit of weight, and rounds to 0

const SamplerPasses& passes() {
  static const SamplerPasses& chosen = choose_kernels().sampler();
  return chosen;
}

struct Scratch {
  std::vector<float> masked;    // a row with -inf for what its mask excludes
  std::vector<float> replaced;  // a row without +inf
  std::vector<float> maxima, sorted_maxima;
  std::vector<Candidate> candidates;
  std::vector<float> gathered;   // logits of one band of candidates
  std::vector<int64_t> weights;  // and their weights
};

// One row under one set of parameters.
class Row {
 public:
  Row(const float* row, int64_t n, const uint32_t* mask, const SamplerSettings& settings, Scratch& scratch)
      : row_(row), n_(n), settings_(settings), scratch_(scratch), log2_scale_(sampling::kLog2E / settings.temperature) {
    if (mask != nullptr) {
      scratch_.masked.resize(static_cast<size_t>(n));
      passes_.masked(row, mask, n, scratch_.masked.data());
      row_ = scratch_.masked.data();
    }
    scratch_.maxima.resize(static_cast<size_t>((n + kSamplerBlock - 1) / kSamplerBlock));
    valid_ = passes_.block_maxima(row_, n_, scratch_.maxima.data());
    if (!valid_) return;
    largest_ = *std::max_element(scratch_.maxima.begin(), scratch_.maxima.end());
    valid_ = largest_ > -kInfinity;
    if (largest_ == kInfinity) only_infinite();
  }

  bool valid() const { return valid_; }

  uint32_t argmax() const {
    const auto block = std::find(scratch_.maxima.begin(), scratch_.maxima.end(), largest_) - scratch_.maxima.begin();
    return static_cast<uint32_t>(std::find(row_ + block * kSamplerBlock, row_ + n_, largest_) - row_);
  }

  bool limits_k() const { return settings_.top_k > 0 && settings_.top_k < n_; }

  // Whether every token of positive weight survives, so that no candidates are gathered.
  bool unfiltered() const {
    return !limits_k() && settings_.top_p >= 1 && settings_.min_p <= 0;
  }

  // Leaves the survivors of the filters in the scratch's candidates, in no order, with their weights.
  void filter();

  uint32_t draw(const NoiseKey& key);
  void probs(double* out);

 private:
  // +inf is the limit of large: those tokens share the law, all others have none.
  void only_infinite() {
    scratch_.replaced.resize(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i) scratch_.replaced[static_cast<size_t>(i)] = row_[i] == kInfinity ? 0 : -kInfinity;
    row_ = scratch_.replaced.data();
    largest_ = 0;
    passes_.block_maxima(row_, n_, scratch_.maxima.data());
  }

  double below_largest(float logit) const { return static_cast<double>(logit) - static_cast<double>(largest_); }
  int64_t weight_of(float logit) const { return sampling::weight(below_largest(logit) * log2_scale_); }

  // The block's 64 logits; a short last one is padded with -inf.
  const float* whole_block(size_t block) {
    const float* logits = row_ + block * kSamplerBlock;
    if (static_cast<int64_t>(block + 1) * kSamplerBlock <= n_) return logits;
    std::fill(std::copy(logits, row_ + n_, padded_), padded_ + kSamplerBlock, -kInfinity);
    return padded_;
  }

  // A logit that no token of at least 2^exponent times the likeliest's weight is below; rounding errs to the low side.
  float logit_at(double exponent) const {
    const double logit = static_cast<double>(largest_) + exponent / log2_scale_;
    const double slack = 1e-6 * (std::abs(logit) + std::abs(static_cast<double>(largest_)));
    return static_cast<float>(std::max<double>(logit - slack, std::numeric_limits<float>::lowest()));
  }

  // What min_p, or being drawn at all, asks of a weight; and an exponent of 2 that is surely less.
  int64_t least_weight() const {
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(settings_.min_p * sampling::kUnitWeight)));
  }
  double lowest_exponent() const {
    return settings_.min_p > 0 ? std::max(kNegligible, std::log2(settings_.min_p / 2)) : kNegligible;
  }

  // Appends the tokens whose logits lie in [from, below), or [from, inf], and returns the sum of their weights.
  int64_t gather(float from, float below);
  // Gathers bands of tokens until they reach `enough`, less tokens that are surely below 2^lowest. Returns how many
  // candidates came before the last band, if that was needed to reach it, and their sum.
  std::pair<size_t, int64_t> gather_bands(int64_t enough, double lowest);
  // What the weights of a prefix must reach for top_p: at least and at most, without the exact sum of all weights.
  std::pair<int64_t, int64_t> bounds_of_enough() const;
  int64_t exactly_enough() const {
    return enough_of(static_cast<double>(passes_.total_weight(row_, n_, largest_, log2_scale_)));
  }
  void gather_top_p();
  // The winner of those that top_p keeps, whose end need not be found: a winner is kept if those before it do not reach
  // enough; if they do, those before it contend again.
  void contest_top_p(uint64_t likeliest, const NoiseKey& noise);
  int64_t enough_of(double total) const {  // an upper end may pass the 63 bits that a true total keeps to
    return static_cast<int64_t>(std::clamp(std::ceil(total * settings_.top_p), 1.0, 0x1.fffffffffffffp62));
  }

  // Draws the token's noise and remembers it if it is the best so far.
  void contest(uint64_t key, const NoiseKey& noise);
  void contest_all(const std::vector<Candidate>& candidates, const NoiseKey& noise);

  const SamplerPasses& passes_ = passes();
  const float* row_;
  int64_t n_;
  const SamplerSettings& settings_;
  Scratch& scratch_;
  const double log2_scale_;
  float padded_[kSamplerBlock];
  float largest_ = 0;
  bool valid_ = false;
  double best_score_ = -std::numeric_limits<double>::infinity();
  uint32_t best_id_ = 0;
};

int64_t Row::gather(float from, float below) {
  std::vector<Candidate>& list = scratch_.candidates;
  std::vector<float>& gathered = scratch_.gathered;
  gathered.clear();
  const size_t first = list.size();
  for (size_t block = 0; block < scratch_.maxima.size(); ++block) {
    if (scratch_.maxima[block] < from) continue;
    const auto start = static_cast<uint32_t>(block * kSamplerBlock);
    const float* logits = whole_block(block);
    uint64_t mask = passes_.at_least(logits, from);
    if (scratch_.maxima[block] >= below) mask &= ~passes_.at_least(logits, below);
    for (; mask != 0; mask &= mask - 1) {
      const int i = std::countr_zero(mask);
      gathered.push_back(logits[i]);
      list.push_back({order_key(logits[i], start + static_cast<uint32_t>(i)), 0});
    }
  }
  scratch_.weights.resize(gathered.size());
  passes_.weights(gathered.data(), std::ssize(gathered), largest_, log2_scale_, scratch_.weights.data());
  int64_t sum = 0;
  for (size_t i = 0; i < gathered.size(); ++i) sum += list[first + i].weight = scratch_.weights[i];
  return sum;
}

std::pair<size_t, int64_t> Row::gather_bands(int64_t enough, double lowest) {
  int64_t before = 0;
  float below = kInfinity;
  // Bands of falling probability; the head of a language model's law is in the first two.
  double exponent = std::log2(static_cast<double>(enough) / sampling::kUnitWeight) - 8;
  while (true) {
    const float from = logit_at(std::max(exponent, lowest));
    const size_t first = scratch_.candidates.size();
    const int64_t sum = gather(from, below);
    if (before + sum >= enough) return {first, before};
    before += sum;
    if (exponent <= lowest) return {scratch_.candidates.size(), before};
    below = from;
    exponent -= 2;
  }
}

std::pair<int64_t, int64_t> Row::bounds_of_enough() const {
  const double sum = passes_.approximate_sum(row_, n_, largest_, log2_scale_) * sampling::kUnitWeight;
  const double slack = kSumError * sum + static_cast<double>(n_);  // every weight is rounded to an integer
  return {enough_of(sum - slack), enough_of(sum + slack)};
}

// The exact sum is needed only when the prefix differs between the ends of the interval that surely holds it; then what
// the upper end gathers holds the prefix, too.
void Row::gather_top_p() {
  std::vector<Candidate>& list = scratch_.candidates;
  const auto [least, most] = bounds_of_enough();
  const auto [first, before] = gather_bands(most, lowest_exponent());
  const bool all = first == list.size();
  if ((all ? before : before + keep_reaching(list, first, most - before)) >= least) {
    keep_reaching(list, 0, exactly_enough());
  }
}

void Row::contest_top_p(uint64_t likeliest, const NoiseKey& noise) {
  std::vector<Candidate>& list = scratch_.candidates;
  auto [least, most] = bounds_of_enough();
  list.clear();
  gather_bands(most, lowest_exponent());
  std::erase_if(list, [&](const Candidate& candidate) { return candidate.weight < least_weight(); });
  while (true) {
    contest_all(list, noise);
    const uint64_t winner = order_key(row_[best_id_], best_id_);
    int64_t before = 0;
    for (const Candidate& candidate : list) before += candidate.key > winner ? candidate.weight : 0;
    if (before >= least && before < most) least = most = exactly_enough();
    if (before < least) return;
    std::erase_if(list, [&](const Candidate& candidate) { return candidate.key <= winner; });
    best_score_ = -std::numeric_limits<double>::infinity();
    contest(likeliest, noise);
  }
}

void Row::filter() {
  std::vector<Candidate>& list = scratch_.candidates;
  list.clear();
  if (limits_k()) {
    // Tokens too unlikely to be drawn may be missing from the k largest: their weight is 0.
    float from = logit_at(kNegligible);
    if (settings_.top_k <= static_cast<int64_t>(scratch_.maxima.size())) {
      scratch_.sorted_maxima = scratch_.maxima;  // k blocks reach this, so k tokens do
      const auto kth = scratch_.sorted_maxima.begin() + settings_.top_k - 1;
      std::nth_element(scratch_.sorted_maxima.begin(), kth, scratch_.sorted_maxima.end(), std::greater<>());
      from = std::max(from, *kth);
    }
    gather(from, kInfinity);
    keep_largest(list, settings_.top_k);
    int64_t total = 0;
    for (const Candidate& candidate : list) total += candidate.weight;
    if (settings_.top_p < 1) keep_reaching(list, 0, enough_of(static_cast<double>(total)));
  } else if (settings_.top_p < 1) {
    gather_top_p();
  } else {
    gather(logit_at(lowest_exponent()), kInfinity);
  }
  std::erase_if(list, [&](const Candidate& candidate) { return candidate.weight < least_weight(); });
}

void Row::contest(uint64_t key, const NoiseKey& noise) {
  const uint32_t id = id_of(key);
  const double x = below_largest(logit_of(key)) / settings_.temperature;
  const double score = x + -sampling::log(sampling::exponential(id, noise));
  if (score > best_score_ || (score == best_score_ && id < best_id_)) {
    best_score_ = score;
    best_id_ = id;
  }
}

void Row::contest_all(const std::vector<Candidate>& candidates, const NoiseKey& noise) {
  float logits[kSamplerBlock];
  uint32_t ids[kSamplerBlock] = {};
  for (size_t first = 0; first < candidates.size(); first += kSamplerBlock) {
    const size_t count = std::min<size_t>(kSamplerBlock, candidates.size() - first);
    std::fill(logits + count, logits + kSamplerBlock, -kInfinity);
    for (size_t i = 0; i < count; ++i) {
      logits[i] = logit_of(candidates[first + i].key);
      ids[i] = id_of(candidates[first + i].key);
    }
    uint64_t mask = passes_.contenders_among(logits, ids, noise, largest_, log2_scale_, best_score_);
    for (; mask != 0; mask &= mask - 1) {
      contest(candidates[first + static_cast<size_t>(std::countr_zero(mask))].key, noise);
    }
  }
}

uint32_t Row::draw(const NoiseKey& key) {
  const uint32_t first = argmax();
  const uint64_t likeliest = order_key(row_[first], first);
  contest(likeliest, key);
  if (!unfiltered()) {
    if (limits_k() || settings_.top_p >= 1) {
      filter();
      contest_all(scratch_.candidates, key);
    } else {
      contest_top_p(likeliest, key);
    }
    return best_id_;
  }
  const float reachable = logit_at(kNegligible);
  for (size_t block = 0; block < scratch_.maxima.size(); ++block) {
    if (scratch_.maxima[block] < reachable) continue;
    const auto start = static_cast<uint32_t>(block * kSamplerBlock);
    const float* logits = whole_block(block);
    uint64_t mask =
        passes_.contenders(logits, static_cast<uint32_t>(block), key, largest_, log2_scale_, best_score_);
    for (; mask != 0; mask &= mask - 1) {
      const int i = std::countr_zero(mask);
      if (weight_of(logits[i]) > 0) contest(order_key(logits[i], start + static_cast<uint32_t>(i)), key);
    }
  }
  return best_id_;
}

void Row::probs(double* out) {
  if (!unfiltered()) {
    filter();
    int64_t total = 0;
    for (const Candidate& candidate : scratch_.candidates) total += candidate.weight;
    std::fill(out, out + n_, 0.0);
    for (const Candidate& candidate : scratch_.candidates) {
      out[id_of(candidate.key)] = static_cast<double>(candidate.weight) / static_cast<double>(total);
    }
    return;
  }
  const int64_t total = passes_.total_weight(row_, n_, largest_, log2_scale_);
  passes_.divided_weights(row_, n_, largest_, log2_scale_, static_cast<double>(total), out);
}

}  // namespace

static Scratch& scratch_of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

int64_t draw_token(const float* row, int64_t n, const uint32_t* mask, const SamplerSettings& settings,
                   const sampling::NoiseKey& key) {
  if (n < 1 || n > kMaxVocab) return -1;
  Row view(row, n, mask, settings, scratch_of_thread());
  if (!view.valid()) return -1;
  return settings.greedy ? view.argmax() : view.draw(key);
}

bool token_probs(const float* row, int64_t n, const uint32_t* mask, const SamplerSettings& settings, double* out) {
  if (n < 1 || n > kMaxVocab) return false;
  Row view(row, n, mask, settings, scratch_of_thread());
  if (!view.valid()) return false;
  if (settings.greedy) {
    std::fill(out, out + n, 0.0);
    out[view.argmax()] = 1.0;
  } else {
    view.probs(out);
  }
  return true;
}

}  // namespace outpace
