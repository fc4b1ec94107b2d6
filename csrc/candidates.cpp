#include "candidates.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>

namespace outpace {

void keep_largest(std::vector<Candidate>& list, int64_t k) {
  if (static_cast<int64_t>(list.size()) <= k) return;
  std::nth_element(list.begin(), list.begin() + k, list.end(), std::greater<>());
  list.resize(static_cast<size_t>(k));
}

// Narrows the search by one histogram of 256 equal steps of the logit, a pass and a partition instead of a select.
// `range` is all of the list that may hold the end of the prefix; those before it are kept and sum to `before`.
static void narrow(std::span<Candidate>& range, int64_t& before, int64_t enough) {
  const auto [most, least] = std::minmax_element(range.begin(), range.end(), std::greater<>());
  const float low = logit_of(least->key), scale = 255.0f / (logit_of(most->key) - low);
  const auto bucket = [&](const Candidate& c) { return static_cast<size_t>((logit_of(c.key) - low) * scale); };
  if (!(scale < std::numeric_limits<float>::infinity())) return;
  std::array<int64_t, 256> sums{};
  for (const Candidate& candidate : range) sums[bucket(candidate)] += candidate.weight;
  size_t last = 255;
  while (last > 0 && before + sums[last] < enough) before += sums[last--];
  const auto middle = std::partition(range.begin(), range.end(), [&](const auto& c) { return bucket(c) > last; });
  const auto end = std::partition(middle, range.end(), [&](const auto& c) { return bucket(c) == last; });
  range = {middle, end};
}

int64_t keep_reaching(std::vector<Candidate>& list, size_t first, int64_t enough) {
  std::span<Candidate> range(list.begin() + static_cast<ptrdiff_t>(first), list.end());
  int64_t before = 0;
  if (range.size() > 1024) narrow(range, before, enough);
  while (range.size() > 1) {
    const size_t half = range.size() / 2;
    std::nth_element(range.begin(), range.begin() + static_cast<ptrdiff_t>(half), range.end(), std::greater<>());
    int64_t upper = 0;
    for (const Candidate& candidate : range.first(half)) upper += candidate.weight;
    if (before + upper >= enough) {
      range = range.first(half);
    } else {
      before += upper;
      range = range.subspan(half);
    }
  }
  list.resize(static_cast<size_t>(range.data() + range.size() - list.data()));
  return before;
}

}  // namespace outpace
