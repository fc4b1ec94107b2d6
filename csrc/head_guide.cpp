#include "head_guide.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "sampler_passes.h"

namespace outpace {
namespace {

constexpr int kLikely = 8;  // continuations that are worth a thought
// Tokens less probable than this share of the likeliest are not thought of, whatever the noise says of them.
constexpr double kLeastShare = 1e-3;

}  // namespace

HeadGuide::HeadGuide(DraftHead& head, HeadSession& session, const float* hidden, const std::vector<int32_t>& tokens,
                     double temperature, std::optional<DrawNoise> noise)
    : head_(head),
      session_(session),
      passes_(head.kernels().sampler()),
      hidden_(hidden),
      tokens_(tokens),
      temperature_(temperature),
      noise_(std::move(noise)) {}

void HeadGuide::look() {
  logits_ = head_.begin(session_, hidden_, tokens_, 0);
  const int size = head_.draft_vocab();
  maxima_.resize(size_t(size + kSamplerBlock - 1) / kSamplerBlock);
  passes_.block_maxima(logits_.get(), size, maxima_.data());
  largest_ = *std::max_element(maxima_.begin(), maxima_.end());
  sum_ = passes_.approximate_sum(logits_.get(), size, largest_, sampling::kLog2E / temperature_);
  noise_ ? favoured() : most_probable();
}

void HeadGuide::most_probable() {
  Candidate top[kLikely];
  const int count = std::min(kLikely, head_.draft_vocab());
  top_tokens(logits_.get(), head_.draft_vocab(), count, top);
  for (int i = 0; i < count; ++i) likely_.push_back(head_.draft_ids()[size_t(top[i].place)]);
}

// Those that would be drawn, were the head's law the target's: the largest sums of logit and Gumbel noise.
void HeadGuide::favoured() {
  const auto& [seed, choice, place] = *noise_;
  const sampling::NoiseKey key{seed, place, 0, choice << 8};
  const float least = largest_ + float(std::log(kLeastShare) * temperature_);
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<double, int32_t>> best;  // falling
  float logits[kSamplerBlock];
  uint32_t ids[kSamplerBlock];
  int held = 0;
  const auto contest = [&] {
    for (int i = held; i < kSamplerBlock; ++i) logits[i] = kNone, ids[i] = 0;
    const double bound = best.size() < kLikely ? double(kNone) : best.back().first;
    uint64_t mask = passes_.contenders_among(logits, ids, key, largest_, sampling::kLog2E / temperature_, bound);
    for (; mask != 0; mask &= mask - 1) {
      const int i = std::countr_zero(mask);
      if (i >= held) break;
      const double noise = -sampling::log(sampling::exponential(ids[i], key));
      const double score = double(logits[i] - largest_) / temperature_ + noise;
      if (best.size() == kLikely && score <= best.back().first) continue;
      if (best.size() == kLikely) best.pop_back();
      const auto after = std::find_if(best.begin(), best.end(), [&](const auto& one) { return one.first < score; });
      best.insert(after, {score, int32_t(ids[i])});
    }
    held = 0;
  };
  const int size = head_.draft_vocab();
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < least) continue;
    const int end = std::min(size, int(block + 1) * kSamplerBlock);
    for (int i = int(block) * kSamplerBlock; i < end; ++i) {
      if (logits_[i] < least) continue;
      logits[held] = logits_[i];
      ids[held++] = uint32_t(head_.draft_ids()[size_t(i)]);
      if (held == kSamplerBlock) contest();
    }
  }
  if (held > 0) contest();
  for (const auto& [score, token] : best) likely_.push_back(token);
}

double HeadGuide::prob(int32_t token) const {
  const int place = head_.place_of(token);
  return place < 0 ? 0.0 : std::exp(double(logits_[place] - largest_) / temperature_) / sum_;
}

}  // namespace outpace
