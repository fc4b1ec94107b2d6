// Candidates of a filter, and the ends of prefixes of their order: by logit, then by lower id.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace outpace {

// A token as one number, larger = earlier in the order. The weight is filled in when a sum needs it.
struct Candidate {
  uint64_t key;
  int64_t weight;
  friend bool operator>(const Candidate& a, const Candidate& b) { return a.key > b.key; }
};

inline uint64_t order_key(float logit, uint32_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 becomes 0, which it ties with
  const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~id);
}
inline uint32_t id_of(uint64_t key) { return ~static_cast<uint32_t>(key); }
inline float logit_of(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered >> 31 ? ordered & 0x7FFFFFFFu : ~ordered);
}

// Leaves the first k of the order, in no order.
void keep_largest(std::vector<Candidate>& list, int64_t k);

// Of candidates [first, end), which all come after those before, keeps the fewest that reach `enough`, or all if they
// do not. Returns the sum of [first, end) as kept but for its last.
int64_t keep_reaching(std::vector<Candidate>& list, size_t first, int64_t enough);

}  // namespace outpace
