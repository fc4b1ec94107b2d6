// Sixteen partial sums and the tree that adds them up.
#pragma once

namespace outpace::portable {

constexpr int kLanes = 16;

// The reduction tree of every sum over lanes: lane i and lane i + 8, then + 4, + 2, + 1.
static inline float sum_of_lanes(float (&lanes)[kLanes]) {
  for (int step = kLanes / 2; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

}  // namespace outpace::portable
