// The fused sampler against a sort, and at the edges of its blocks; the sanitizers watch the same runs.
#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "kernels/kernels.h"
#include "sampler_passes.h"

using namespace outpace;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr SamplerSettings kPlain{false, 1.0, 0, 1.0, 0.0};

std::vector<float> normal_row(int n, unsigned seed, bool ties) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& x : row) x = ties ? std::round(normal(random)) : normal(random);
  return row;
}

// The law by definition: weights in the order (logit, lower id), cut where the filters say.
std::vector<double> sorted_law(const std::vector<float>& row, const SamplerSettings& settings) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
  const double scale = sampling::kLog2E / settings.temperature;
  std::vector<int64_t> weights;
  for (size_t id : order) {
    weights.push_back(sampling::weight((static_cast<double>(row[id]) - static_cast<double>(row[order[0]])) * scale));
  }
  if (settings.top_k > 0) weights.resize(std::min(weights.size(), static_cast<size_t>(settings.top_k)));
  if (settings.top_p < 1) {
    const auto total = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
    const auto enough = static_cast<int64_t>(std::ceil(total * settings.top_p));
    int64_t sum = 0;
    size_t kept = 0;
    while (kept < weights.size() && sum < enough) sum += weights[kept++];
    weights.resize(kept);
  }
  for (int64_t& weight : weights) {
    if (static_cast<double>(weight) < std::ceil(settings.min_p * sampling::kUnitWeight)) weight = 0;
  }
  const auto total = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
  std::vector<double> law(row.size(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) law[order[i]] = static_cast<double>(weights[i]) / total;
  return law;
}

}  // namespace

TEST(sampler_filters_as_a_sort_would) {
  for (int n : {1, 63, 64, 65, 1000, 4097}) {
    for (bool ties : {false, true}) {
      const std::vector<float> row = normal_row(n, static_cast<unsigned>(n), ties);
      for (int64_t top_k : {0, 2, 40, 500}) {
        for (double top_p : {1.0, 0.9, 0.3}) {
          for (double min_p : {0.0, 0.1}) {
            const SamplerSettings settings{false, 0.7, top_k, top_p, min_p};
            std::vector<double> law(row.size(), -1.0);
            CHECK(token_probs(row.data(), n, nullptr, settings, law.data()));
            CHECK(law == sorted_law(row, settings));
          }
        }
      }
    }
  }
}

TEST(sampler_draws_only_what_survives) {
  const std::vector<float> row = normal_row(1001, 5, true);
  const SamplerSettings settings{false, 1.0, 30, 0.8, 0.05};
  const std::vector<double> law = sorted_law(row, settings);
  for (uint32_t place = 0; place < 300; ++place) {
    const int64_t token = draw_token(row.data(), 1001, nullptr, settings, {7, place, 0, 0});
    CHECK(token >= 0 && law[static_cast<size_t>(token)] > 0);
  }
}

TEST(sampler_greedy_takes_the_lowest_of_the_largest) {
  std::vector<float> row(200, 0.0f);
  row[70] = row[130] = 2.0f;
  CHECK_EQUAL(draw_token(row.data(), 200, nullptr, {true, 0.0, 0, 1.0, 0.0}, {1, 2, 3, 4}), 70);
}

TEST(sampler_refuses_rows_without_a_law) {
  std::vector<float> row(100, -kInf);
  CHECK_EQUAL(draw_token(row.data(), 100, nullptr, kPlain, {1, 2, 3, 4}), -1);
  row[99] = std::numeric_limits<float>::quiet_NaN();
  CHECK_EQUAL(draw_token(row.data(), 100, nullptr, kPlain, {1, 2, 3, 4}), -1);
  CHECK_EQUAL(draw_token(row.data(), 0, nullptr, kPlain, {1, 2, 3, 4}), -1);
}

TEST(sampler_passes_agree_on_every_instruction_set) {
  const SamplerPasses& a = portable_sampler_passes();
  for (const Kernels* kernels : available_kernels()) {
    const SamplerPasses& b = kernels->sampler();
    for (int n : {1, 64, 100, 1000}) {
      const std::vector<float> row = normal_row(n, 3, false);
      const float largest = *std::max_element(row.begin(), row.end());
      CHECK_EQUAL(a.total_weight(row.data(), n, largest, 1.7), b.total_weight(row.data(), n, largest, 1.7));
      for (int block = 0; block + 1 <= n / kSamplerBlock; ++block) {
        const sampling::NoiseKey key{9, static_cast<uint32_t>(n), 0, 0};
        const float* logits = row.data() + block * kSamplerBlock;
        CHECK_EQUAL(a.contenders(logits, static_cast<uint32_t>(block), key, largest, 1.7, -3.0),
                    b.contenders(logits, static_cast<uint32_t>(block), key, largest, 1.7, -3.0));
        CHECK_EQUAL(a.at_least(logits, 1.0f), b.at_least(logits, 1.0f));
      }
    }
  }
}

TEST(sampler_mask_is_minus_infinity) {
  for (const int n : {1, 31, 32, 33, 64, 100, 1001}) {
    const std::vector<float> row = normal_row(n, 5, true);
    std::vector<uint32_t> mask(static_cast<size_t>((n + 31) / 32), 0);
    std::vector<float> masked(row.size(), -kInf);
    for (size_t i = 0; i < row.size(); i += 1 + i % 7) {
      mask[i / 32] |= 1u << (i % 32);
      masked[i] = row[i];
    }
    for (const SamplerSettings& settings : {kPlain, SamplerSettings{true, 0, 0, 1, 0}, {false, 0.7, 5, 0.9, 0.01}}) {
      std::vector<double> law(row.size()), expected(row.size());
      CHECK(token_probs(row.data(), n, mask.data(), settings, law.data()));
      CHECK(token_probs(masked.data(), n, nullptr, settings, expected.data()));
      CHECK(law == expected);
      CHECK_EQUAL(draw_token(row.data(), n, mask.data(), settings, {1, 2, 3, 4}),
                  draw_token(masked.data(), n, nullptr, settings, {1, 2, 3, 4}));
    }
    std::fill(mask.begin(), mask.end(), 0u);
    CHECK_EQUAL(draw_token(row.data(), n, mask.data(), kPlain, {1, 2, 3, 4}), -1);
  }
}
