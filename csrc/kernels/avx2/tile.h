// A tile of activations that meets a block of weights: four rows at a time, with sixteen outputs these are eight sums in
// registers, each load of codes serves four rows and each broadcast of four activations two registers.
#pragma once

#include "kernels/avx2/lines.h"
#include "kernels/avx2/panels.h"
#include "matrix.h"

namespace outpace {
namespace {

struct Rows {  // of one tile of the activations
  const Activations& x;
  int first, count;
  Onward onward;
};

struct alignas(64) Outputs {
  __m256 acc[kRowTile][kVectors];
};

// Into how many tiles in_tiles() divides a panel's block for so many rows.
constexpr int tiles(int rows) { return rows == 1 ? 1 : (rows + 3) / 4 * 2; }

template <int R, int N, int known_rows, class Work>
[[gnu::always_inline]] inline void in_vectors(int m, Lines<known_rows>& lines, Work& work) {
  for (int v = 0; v < kVectors; v += N) {
    lines.begin_tile();
    work.template operator()<R, N>(m, v);
    lines.end_tile();
  }
}

// Calls work<R, N>(m, v) for rows m to m + R and registers v to v + N of a panel until all of both are done.
template <int known_rows, class Work>
[[gnu::always_inline]] inline void in_tiles(int rows, Lines<known_rows>& lines, Work work) {
  int m = 0;
  for (; rows - m >= 4; m += 4) in_vectors<4, 2>(m, lines, work);
  switch (rows - m) {
    case 3: return in_vectors<3, 2>(m, lines, work);
    case 2: return in_vectors<2, 2>(m, lines, work);
    case 1: return in_vectors<1, kVectors>(m, lines, work);
    default: return;
  }
}

}  // namespace
}  // namespace outpace
