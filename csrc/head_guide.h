// A draft head as the guide of a tree that grows from counts: src/outpace/heads/guide.py in microseconds.
#pragma once

#include <optional>
#include <vector>

#include "contexts.h"
#include "head.h"

namespace outpace {

// The law after the session's last committed token. hidden, tokens: as DraftHead::begin takes them, which a look does.
// temperature: of the law, above 0. noise: what the next token will be drawn with, where that is known; the likely
// continuations are then those that it favours.
class HeadGuide : public Guide {
 public:
  HeadGuide(DraftHead& head, HeadSession& session, const float* hidden, const std::vector<int32_t>& tokens,
            double temperature, std::optional<DrawNoise> noise);

  void look() override;
  std::span<const int32_t> likely() const override { return likely_; }
  double prob(int32_t token) const override;

 private:
  void most_probable();
  void favoured();

  DraftHead& head_;
  HeadSession& session_;
  const SamplerPasses& passes_;
  const float* const hidden_;
  const std::vector<int32_t>& tokens_;
  const double temperature_;
  const std::optional<DrawNoise> noise_;
  Floats logits_;             // [draft vocabulary]
  std::vector<float> maxima_;  // of blocks of them
  float largest_ = 0;
  double sum_ = 1;            // of exp((logit - largest) / temperature)
  std::vector<int32_t> likely_;
};

}  // namespace outpace
