// Attention: the reference against softmax in double precision, every instruction set against the reference, and a
// row's bits against the company it is computed in.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "attention.h"
#include "check.h"
#include "kernels/kernels.h"
#include "numerics.h"

namespace outpace {

namespace {

using Halves = std::vector<uint16_t>;

// A cache of one kv head: `positions` keys and values in blocks; what lies past them is NaN, so that a kernel which
// reads it into a sum shows.
struct Cache {
  int head_dim, positions, blocks;
  std::vector<Halves> keys, values;

  Cache(int head_dim, int positions, uint32_t seed)
      : head_dim(head_dim), positions(positions), blocks((positions + 63) / 64) {
    const auto size = static_cast<size_t>(head_dim * kPagePositions);
    keys.assign(static_cast<size_t>(blocks), Halves(size, 0x7e00));
    values = keys;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int position = 0; position < positions; ++position) {
      for (int c = 0; c < head_dim; ++c) {
        key(position, c) = numerics::f32_to_f16(normal(random));
        value(position, c) = numerics::f32_to_f16(normal(random));
      }
    }
  }
  uint16_t& key(int position, int c) {
    return keys[static_cast<size_t>(position / 64)][static_cast<size_t>(c * 64 + position % 64)];
  }
  uint16_t& value(int position, int c) {
    return values[static_cast<size_t>(position / 64)][static_cast<size_t>(position % 64 * head_dim + c)];
  }
};

// A tree's: see AttentionTask.
struct Paths {
  int own_from = 0;
  ptrdiff_t stride = 0;
  std::vector<int> slots;
};

// Rows of queries, and how the kernels are called on them.
struct Problem {
  int head_dim, group;
  std::vector<int> visible;
  std::vector<float> queries;
  int window = 0;

  Problem(int head_dim, int group, std::vector<int> visible, uint32_t seed)
      : head_dim(head_dim), group(group), visible(std::move(visible)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    queries.resize(this->visible.size() * row_size());
    for (float& query : queries) query = normal(random);
  }
  size_t row_size() const { return static_cast<size_t>(head_dim * group); }
  int rows() const { return static_cast<int>(visible.size()); }

  Problem row(int r) const {
    Problem one = *this;
    const auto begin = queries.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(r) * row_size());
    one.visible = {visible[static_cast<size_t>(r)]};
    one.queries.assign(begin, begin + static_cast<ptrdiff_t>(row_size()));
    return one;
  }

  std::vector<float> attend(const Kernels& kernels, const Cache& cache, const Paths& paths = {}) const {
    std::vector<const uint16_t*> keys, values;
    for (int b = 0; b < cache.blocks; ++b) {
      keys.push_back(cache.keys[static_cast<size_t>(b)].data());
      values.push_back(cache.values[static_cast<size_t>(b)].data());
    }
    std::vector<float> out(queries.size(), 7.0f), scratch(attention_scratch(head_dim, group, rows()));
    kernels.attend({.head_dim = head_dim,
                    .group = group,
                    .rows = rows(),
                    .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                    .queries = queries.data(),
                    .query_stride = static_cast<ptrdiff_t>(row_size()),
                    .out = out.data(),
                    .out_stride = static_cast<ptrdiff_t>(row_size()),
                    .visible = visible.data(),
                    .window = window,
                    .keys = keys.data(),
                    .values = values.data(),
                    .paths = paths.slots.empty() ? nullptr : paths.slots.data(),
                    .path_stride = paths.stride,
                    .own_from = paths.own_from,
                    .slots = cache.positions,
                    .scratch = scratch.data()});
    return out;
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (std::isnan(x) && std::isnan(y));
  });
}

// Rows computed one at a time, joined.
std::vector<float> one_by_one(const Problem& problem, const Kernels& kernels, const Cache& cache) {
  std::vector<float> joined;
  for (int r = 0; r < problem.rows(); ++r) {
    const std::vector<float> out = problem.row(r).attend(kernels, cache);
    joined.insert(joined.end(), out.begin(), out.end());
  }
  return joined;
}

std::vector<double> softmax_in_double(const Problem& problem, int row, int head, Cache& cache) {
  const auto visible = static_cast<size_t>(problem.visible[static_cast<size_t>(row)]);
  const float* query = problem.queries.data() + static_cast<size_t>(row) * problem.row_size() +
                       static_cast<size_t>(head * problem.head_dim);
  std::vector<double> weights(visible, 0.0), out(static_cast<size_t>(problem.head_dim), 0.0);
  const auto window = static_cast<size_t>(problem.window);
  const size_t first = window > 0 && visible > window ? visible - window : 0;
  for (size_t j = first; j < visible; ++j) {
    for (int c = 0; c < problem.head_dim; ++c) {
      weights[j] += static_cast<double>(query[c]) * numerics::f16_to_f32(cache.key(static_cast<int>(j), c));
    }
    weights[j] = std::exp(weights[j] / std::sqrt(problem.head_dim));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t j = 0; j < visible; ++j) {
    for (int c = 0; c < problem.head_dim; ++c) {
      out[static_cast<size_t>(c)] += weights[j] / total * numerics::f16_to_f32(cache.value(static_cast<int>(j), c));
    }
  }
  return out;
}

std::vector<int> chain(int first, int rows) {
  std::vector<int> visible(static_cast<size_t>(rows));
  std::iota(visible.begin(), visible.end(), first);
  return visible;
}

const std::vector<int> kBorders = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129};

}  // namespace

TEST(attention_is_softmax_of_the_scores_times_the_values) {
  for (const int head_dim : {64, 80, 128}) {
    Cache cache(head_dim, 129, 1);
    const Problem problem(head_dim, 3, kBorders, 2);
    const std::vector<float> out = problem.attend(portable_kernels(), cache);
    for (int row = 0; row < problem.rows(); ++row) {
      for (int head = 0; head < problem.group; ++head) {
        const std::vector<double> exact = softmax_in_double(problem, row, head, cache);
        for (int c = 0; c < head_dim; ++c) {
          const float got = out[static_cast<size_t>((row * problem.group + head) * head_dim + c)];
          CHECK(std::abs(got - exact[static_cast<size_t>(c)]) < 4e-6);
        }
      }
    }
  }
}

TEST(attention_with_a_window_is_softmax_of_what_it_shows) {
  Cache cache(64, 200, 21);
  Problem problem(64, 3, {1, 7, 64, 65, 100, 128, 129, 200}, 22);
  for (const int window : {1, 2, 7, 63, 64, 65, 100, 199, 200}) {
    problem.window = window;
    const std::vector<float> out = problem.attend(portable_kernels(), cache);
    for (int row = 0; row < problem.rows(); ++row) {
      const std::vector<double> exact = softmax_in_double(problem, row, 1, cache);
      for (int c = 0; c < 64; ++c) {
        CHECK(std::abs(out[static_cast<size_t>((row * 3 + 1) * 64 + c)] - exact[static_cast<size_t>(c)]) < 4e-6);
      }
    }
  }
}

TEST(attention_with_a_window_has_the_same_bits_everywhere_and_in_any_company) {
  for (const int head_dim : {16, 80, 256}) {
    const Cache cache(head_dim, 200, 23);
    for (const int window : {1, 20, 64, 90, 128, 199}) {
      Problem problem(head_dim, 4, chain(150, 40), 24);
      problem.window = window;
      const std::vector<float> expected = one_by_one(problem, portable_kernels(), cache);
      for (const Kernels* kernels : available_kernels()) {
        CHECK(same(problem.attend(*kernels, cache), expected));
        CHECK(same(one_by_one(problem, *kernels, cache), expected));
      }
    }
  }
}

TEST(attention_as_wide_as_what_is_visible_has_no_window) {
  const Cache cache(64, 129, 25);
  Problem problem(64, 3, kBorders, 26);
  const std::vector<float> expected = problem.attend(portable_kernels(), cache);
  problem.window = 129;
  CHECK(same(problem.attend(portable_kernels(), cache), expected));
}

TEST(attention_has_the_same_bits_everywhere) {
  for (const int head_dim : {16, 64, 80, 96, 128, 256}) {
    for (const int group : {1, 2, 3, 4, 6, 7, 16}) {
      const Cache cache(head_dim, 129, 3);
      const Problem problem(head_dim, group, {129, 64, 1, 66, 128}, 4);
      const std::vector<float> expected = problem.attend(portable_kernels(), cache);
      CHECK(std::none_of(expected.begin(), expected.end(), [](float x) { return std::isnan(x); }));
      for (const Kernels* kernels : available_kernels()) {
        CHECK(same(problem.attend(*kernels, cache), expected));
      }
    }
  }
}

TEST(attention_of_a_row_does_not_depend_on_the_other_rows) {
  for (const Kernels* kernels : available_kernels()) {
    for (const int group : {1, 3, 6}) {
      for (const int first : {1, 57, 60, 64, 121}) {
        const Cache cache(64, first + 8, 5);
        const Problem problem(64, group, chain(first, 9), 6);
        CHECK(same(problem.attend(*kernels, cache), one_by_one(problem, *kernels, cache)));
      }
    }
    const Cache cache(64, 129, 7);
    const Problem borders(64, 3, kBorders, 8);
    CHECK(same(borders.attend(*kernels, cache), one_by_one(borders, *kernels, cache)));
  }
}

TEST(attention_of_a_prefill_slice_is_that_of_its_rows) {
  const Cache cache(64, 200, 9);
  for (const Kernels* kernels : available_kernels()) {
    const Problem problem(64, 3, chain(1, 200), 10);  // more queries than one pass serves
    CHECK(same(problem.attend(*kernels, cache), one_by_one(problem, *kernels, cache)));
  }
}

TEST(attention_of_a_tree_path_is_that_of_the_chain) {
  std::mt19937 random(11);
  for (const int rows : {2, 5, 9, 80, 130}) {
    for (const int before : {4, 50, 61, 62, 63, 64, 99, 127}) {
      // Row 0 lies in the slot `before`, row r, which follows an earlier one, in the slot before + r.
      Cache cache(64, before + rows, 12);
      Paths paths{before + 1, rows - 1, std::vector<int>(static_cast<size_t>(rows * (rows - 1)))};
      std::vector<int> visible = {before + 1};
      for (int row = 1; row < rows; ++row) {
        const int latest = rows > 9 ? row - 1 : 0;  // deep trees, and wide ones
        const int above = std::uniform_int_distribution(std::max(0, latest - 2), row - 1)(random);
        const int depth = visible[static_cast<size_t>(above)] - before;
        const auto path = paths.slots.begin() + row * (rows - 1);
        std::copy_n(paths.slots.begin() + above * (rows - 1), depth - 1, path);
        path[depth - 1] = before + row;
        visible.push_back(before + depth + 1);
      }
      Problem problem(64, 3, visible, 13);
      problem.window = before % 2 == 0 ? 30 : 0;
      std::vector<float> chains;
      for (int row = 0; row < rows; ++row) {
        Cache chain = cache;
        for (int at = before + 1; at < visible[static_cast<size_t>(row)]; ++at) {
          for (int c = 0; c < 64; ++c) {
            const int slot = paths.slots[static_cast<size_t>(row * (rows - 1) + at - before - 1)];
            chain.key(at, c) = cache.key(slot, c);
            chain.value(at, c) = cache.value(slot, c);
          }
        }
        const std::vector<float> out = problem.row(row).attend(portable_kernels(), chain);
        chains.insert(chains.end(), out.begin(), out.end());
      }
      for (const Kernels* kernels : available_kernels()) CHECK(same(problem.attend(*kernels, cache, paths), chains));
    }
  }
}

TEST(attention_of_extreme_scores_stays_finite) {
  Cache cache(64, 130, 14);
  Problem problem(64, 3, {130, 65}, 15);
  for (float& query : problem.queries) query *= 1e4f;  // one weight is 1, the others underflow
  const std::vector<float> expected = problem.attend(portable_kernels(), cache);
  CHECK(std::all_of(expected.begin(), expected.end(), [](float x) { return std::isfinite(x); }));
  for (const Kernels* kernels : available_kernels()) {
    CHECK(same(problem.attend(*kernels, cache), expected));
  }
}

TEST(attention_of_weights_that_are_barely_normal_has_the_same_bits_everywhere) {
  const Cache cache(64, 192, 27);
  for (const float factor : {4.0f, 6.0f, 8.0f, 10.0f, 14.0f}) {  // scores some 60 to 200 below the largest one
    Problem problem(64, 3, {192, 191, 190}, 28);
    for (float& query : problem.queries) query *= factor;
    const std::vector<float> expected = problem.attend(portable_kernels(), cache);
    for (const Kernels* kernels : available_kernels()) {
      CHECK(same(problem.attend(*kernels, cache), expected));
    }
  }
}

TEST(attention_shows_a_nan_in_every_kernel) {
  Cache cache(64, 70, 16);
  cache.key(3, 5) = 0x7e00;
  const Problem problem(64, 3, {70, 3}, 17);
  for (const Kernels* kernels : available_kernels()) {
    const std::vector<float> out = problem.attend(*kernels, cache);
    CHECK(std::all_of(out.begin(), out.begin() + 192, [](float x) { return std::isnan(x); }));
    CHECK(std::all_of(out.begin() + 192, out.end(), [](float x) { return std::isfinite(x); }));
  }
}

}  // namespace outpace
