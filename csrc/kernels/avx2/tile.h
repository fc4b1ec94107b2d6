// A tile of activations that meets a block of weights: four rows at a time, with sixteen outputs these are eight sums in
// registers, each load of codes serves four rows and each broadcast of four activations two registers.
#pragma once

#include "kernels/ahead.h"
#include "kernels/avx2/panels.h"
#include "matrix.h"

namespace outpace {
namespace {

struct Rows {  // of one tile of the activations
  const Activations& x;
  int first, count;
};

struct alignas(64) Outputs {
  __m256 acc[kRowTile][kVectors];
};

constexpr int kRowsAtOnce = 4;

constexpr int parts(int rows) { return (rows + kRowsAtOnce - 1) / kRowsAtOnce; }

// Calls work<R, N>(m, v) for rows m to m + R and registers v to v + N of a panel, until all of both are done; asks for
// memory ahead parts(rows) times.
template <class Work>
[[gnu::always_inline]] inline void in_parts(int rows, Ahead& ahead, Work work) {
  int m = 0;
  for (; rows - m >= 4; m += 4) {
    ahead.ask_some();
    for (int v = 0; v < kVectors; v += 2) work.template operator()<4, 2>(m, v);
  }
  if (m == rows) return;
  ahead.ask_some();
  switch (rows - m) {
    case 3:
      for (int v = 0; v < kVectors; v += 2) work.template operator()<3, 2>(m, v);
      break;
    case 2:
      for (int v = 0; v < kVectors; v += 2) work.template operator()<2, 2>(m, v);
      break;
    default: work.template operator()<1, 4>(m, 0);
  }
}

}  // namespace
}  // namespace outpace
