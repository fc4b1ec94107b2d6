// What of a pass falls to which thread: columns that a thread computes it also normalises and quantises, so that little
// has to cross from core to core.
#pragma once

#include <vector>

#include "matrix.h"
#include "threads.h"

namespace outpace {

// The columns of `rows` rows that one thread alone reads and writes, apart from those of other threads: processors fetch
// what follows in memory what is read, and a line of another core's columns would have to be taken back from here each
// time that it is written there. `all` has room for the columns of all threads.
struct OwnColumns {
  OwnColumns(float* all, int rows, Range columns)
      : first(all + ptrdiff_t(rows) * columns.begin), stride(columns.end - columns.begin), columns(columns) {}
  float* row(int m) const { return first + m * stride; }            // [stride]
  float* whole_row(int m) const { return row(m) - columns.begin; }  // to be indexed by columns

  float* first;
  ptrdiff_t stride;
  Range columns;
};

// Rows of activations that threads write by columns and read whole.
struct SharedActivations {
  SharedActivations(int max_rows, int columns) : x(max_rows, columns) { x.cols = columns; }
  // Says which columns every thread writes, once it is known what the readers want of `x`.
  void divide(const std::vector<Range>& written_columns);
  // Columns of a block of the int8 forms (1 if there are none): what one thread must quantise.
  int unit() const { return x.wants_256 ? kSuperBlock : x.wants_32 ? kBlock : 1; }

  Activations x;
  std::vector<Range> written, quantised;  // columns by thread
  bool at_once = true;                    // every thread quantises what it has written; so `x.apart` but for wants_f32
};

// The panels of a matrix by thread. Borders are multiples of `unit` columns where that keeps the shares nearly even.
std::vector<Range> panel_shares(int panels, int unit, int threads);
// The columns that panels write.
std::vector<Range> columns_of(const std::vector<Range>& panels, int columns);

// Attention and the projections before it. A thread has some neighbouring query heads, and the kv heads whose first
// query head is among them.
struct HeadShare {
  Range heads, kv_heads;
  Range q, k, v;  // panels of the projections
};
struct HeadShares {
  HeadShares(int heads, int kv_heads, int head_dim, int threads);
  std::vector<HeadShare> threads;
  bool own_panels;  // every thread projects its own heads
  bool own_keys;    // every thread reads keys and values of its own kv heads only
  // Of two threads the second may have a head more, in a group that both share: these are its heads of that group. The
  // first can attend for some of their rows. Empty: nothing to even out.
  Range lent = {0, 0};
  int lent_rows(int rows) const {  // half a head's
    const int heads = lent.end - lent.begin;
    return heads == 0 ? 0 : (rows + heads / 2) / (2 * heads);
  }
};

}  // namespace outpace
