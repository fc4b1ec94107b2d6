// What followed each short sequence of tokens, and the tree of likely continuations: src/outpace/contexts.py to the
// bit, in microseconds. A context is found by a 64-bit hash of its tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace outpace {

constexpr int kContextSlots = 4;  // continuations that a context remembers
constexpr int kMostChildren = 8;  // of a node
constexpr int kMaxContextDepth = 32;
constexpr size_t kMostGrown = 256;  // nodes of a tree
constexpr int32_t kNoToken = -1;
constexpr size_t kContestants = 12;  // candidates of a place whose noise is looked at
constexpr double kLeastUnlisted = 0.001;

// How what is known of a place becomes chances; contexts.py has what the numbers mean and where they are from.
struct Chances {
  double law, noise, unlisted, familiar, rest, guide = 0.0, fade = 0.0;
};
// Where tokens are the likeliest ones, and where known noise decides.
constexpr Chances kByCounts[] = {{1.0, 0.0, 1.2, 0.77, 0.35}, {0.8, 0.55, 7.0, 0.77, 0.39}};
constexpr Chances kGuided[] = {{1.45, 0.0, 0.19, 0.85, 0.93, 1.07, 0.235}, {1.19, 1.0, 1.99, 0.91, 1.4, 2.44, 0.4}};

struct Context {
  uint64_t key = 0;
  uint32_t total = 0;
  std::array<int32_t, kContextSlots> tokens{kNoToken, kNoToken, kNoToken, kNoToken};
  std::array<uint16_t, kContextSlots> counts{};  // falling; of equals the latest first

  void count(int32_t token);
  uint32_t count_of(int32_t token) const;
};

class ContextCounts {
 public:
  explicit ContextCounts(int depth);  // longest context, in [1, kMaxContextDepth]
  ContextCounts(const ContextCounts&) = delete;
  ContextCounts& operator=(const ContextCounts&) = delete;

  // Counts tokens[first..], each after up to `depth` tokens before it.
  void feed(std::span<const int32_t> tokens, size_t first);

  // Writes the contexts of 1, 2, ... last tokens that were seen; returns how many, up to the first that was not.
  int find(std::span<const int32_t> path, std::array<const Context*, kMaxContextDepth>& found) const;

  int depth() const { return depth_; }
  size_t contexts() const { return size_; }
  size_t bytes() const;

 private:
  static constexpr size_t kBlock = 1024;
  static constexpr uint32_t kFree = UINT32_MAX;

  Context& at(size_t index) { return blocks_[index / kBlock][index % kBlock]; }
  const Context& at(size_t index) const { return blocks_[index / kBlock][index % kBlock]; }
  Context& entry(uint64_t key);
  void enlarge();

  int depth_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<Context[]>> blocks_;  // contexts never move
  std::vector<uint32_t> slots_;                     // open addressing, half full at most; which context, or kFree
};

struct ContextLayer {
  const ContextCounts* counts;
  double prior;  // weight of the shorter context's law
};

struct GrownNode {
  int32_t token;
  int32_t parent;  // -1 = root
  double prob;     // given the parent
};

// The noise that the tokens after the tail are drawn with; contexts.py has what it is used for.
struct DrawNoise {
  uint64_t seed;
  uint32_t choice, place;  // of the first token
};

// What else is known of the tail's continuations than what was counted: the law of a draft head, once it has looked.
class Guide {
 public:
  virtual ~Guide() = default;
  virtual void look() = 0;
  virtual std::span<const int32_t> likely() const = 0;  // continuations that are worth a thought
  virtual double prob(int32_t token) const = 0;         // of any
};

struct GrowthLimits {
  int depth;                       // of a path
  std::span<const double> prices;  // [most nodes] least path probability of each node
  int width;                       // children of a node
  double odds;                     // of what is listed against what is not, times those of its counts
  std::optional<DrawNoise> noise;
  Guide* guide = nullptr;
};

// The likely continuations of `tail` by falling path probability, up to the first that is not worth its price.
std::vector<GrownNode> grow(std::span<const ContextLayer> layers, std::span<const int32_t> tail,
                            const GrowthLimits& limits);

// What a tree is expected to gain, in tokens: path probabilities less the rows' prices.
double expected_gain(std::span<const GrownNode> nodes, std::span<const double> prices);

}  // namespace outpace
