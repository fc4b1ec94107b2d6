#include "shares.h"

#include <algorithm>

namespace outpace {
namespace {

std::vector<Range> even_shares(int count, int threads) {
  std::vector<Range> shares;
  for (int t = 0; t < threads; ++t) shares.push_back(static_share(count, t, threads));
  return shares;
}

int panels_for(int columns) { return (columns + kPanelRows - 1) / kPanelRows; }

int length(Range range) { return range.end - range.begin; }

// The part of `range` that falls into [begin, begin + size), counted from there.
Range part(Range range, int begin, int size) {
  const int first = std::clamp(range.begin - begin, 0, size);
  return {first, std::max(first, std::min(range.end - begin, size))};
}

}  // namespace

void SharedActivations::divide(const std::vector<Range>& written_columns) {
  written = quantised = written_columns;
  const int size = unit(), units = (x.cols + size - 1) / size, threads = int(written.size());
  at_once = std::all_of(written.begin(), written.end(), [&](Range r) { return r.begin % size == 0; });
  x.apart = at_once && !x.wants_f32;
  if (at_once) return;
  for (int t = 0; t < threads; ++t) {
    const Range share = static_share(units, t, threads);
    quantised[t] = {share.begin * size, std::min(share.end * size, x.cols)};
  }
}

std::vector<Range> panel_shares(int panels, int unit, int threads) {
  // How much longer than the average the longest share may be: less than what a second exchange between cores takes.
  constexpr double kUnevenness = 1.06;
  const int step = std::max(1, unit / kPanelRows);
  std::vector<Range> shares = even_shares((panels + step - 1) / step, threads);
  int longest = 0;
  for (Range& share : shares) {
    share = {share.begin * step, std::min(share.end * step, panels)};
    longest = std::max(longest, length(share));
  }
  return longest * threads <= kUnevenness * panels ? shares : even_shares(panels, threads);
}

std::vector<Range> columns_of(const std::vector<Range>& panels, int columns) {
  std::vector<Range> out;
  for (const Range& share : panels)
    out.push_back({std::min(share.begin * kPanelRows, columns), std::min(share.end * kPanelRows, columns)});
  return out;
}

HeadShares::HeadShares(int heads, int kv_heads, int head_dim, int count) : own_keys(true) {
  constexpr double kUnevenness = 1.1;  // of the projections, a sixth of a layer
  const int group = heads / kv_heads;
  const int q = panels_for(heads * head_dim), kv = panels_for(kv_heads * head_dim), all = q + 2 * kv;
  int longest = 0;
  for (int t = 0; t < count; ++t) {
    HeadShare share;
    share.heads = static_share(heads, t, count);
    share.kv_heads = {(share.heads.begin + group - 1) / group, (share.heads.end + group - 1) / group};
    own_keys = own_keys && (length(share.heads) == 0 || share.heads.begin % group == 0);
    const int panels = head_dim / kPanelRows;
    share.q = {share.heads.begin * panels, share.heads.end * panels};
    share.k = share.v = {share.kv_heads.begin * panels, share.kv_heads.end * panels};
    longest = std::max(longest, length(share.q) + 2 * length(share.k));
    threads.push_back(share);
  }
  if (count == 2 && !own_keys && length(threads[0].heads) < length(threads[1].heads)) {
    const int begin = threads[1].heads.begin;
    lent = {begin, (begin / group + 1) * group};
  }
  own_panels = head_dim % kPanelRows == 0 && longest * count <= kUnevenness * all;
  if (own_panels) return;
  for (int t = 0; t < count; ++t) {
    const Range share = static_share(all, t, count);
    threads[t].q = part(share, 0, q);
    threads[t].k = part(share, q, kv);
    threads[t].v = part(share, q + kv, kv);
  }
}

}  // namespace outpace
