// Who computes what: every column once, in shares as even as promised.

#include <array>

#include "check.h"
#include "formats.h"
#include "shares.h"

namespace outpace::test {

static void check_covers(const std::vector<Range>& shares, int count) {
  int end = 0;
  for (const Range& share : shares) {
    CHECK_EQUAL(share.begin, end);
    CHECK(share.end >= share.begin);
    end = share.end;
  }
  CHECK_EQUAL(end, count);
}

TEST(shares_of_panels_end_at_whole_units_where_that_is_even_enough) {
  for (const int threads : {1, 2, 3, 4, 7, 16}) {
    for (const int panels : {1, 2, 18, 28, 48, 152, 280}) {
      for (const int unit : {1, 32, 256}) {
        const std::vector<Range> shares = panel_shares(panels, unit, threads);
        check_covers(shares, panels);
        check_covers(columns_of(shares, panels * kPanelRows - 5), panels * kPanelRows - 5);
      }
    }
  }
  CHECK_EQUAL(panel_shares(280, 256, 2)[0].end, 136);
  CHECK_EQUAL(panel_shares(280, 256, 16)[0].end, 17);  // three units against two would be too uneven
}

TEST(shares_quantise_at_once_what_ends_at_whole_blocks) {
  SharedActivations x(1, 1536);
  x.x.wants_32 = true;
  x.divide({{0, 640}, {640, 1536}});
  CHECK(x.at_once);
  x.x.wants_256 = true;
  x.divide({{0, 640}, {640, 1536}});
  CHECK(!x.at_once);
  CHECK_EQUAL(x.written[0].end, 640);
  CHECK_EQUAL(x.quantised[0].end, 768);
  check_covers(x.quantised, 1536);
}

TEST(shares_of_rows_lie_apart_unless_others_read_their_f32) {
  SharedActivations x(4, 128);
  x.x.want(Format::q8_0);
  x.divide({{0, 64}, {64, 128}});
  CHECK(x.x.apart);
  CHECK_EQUAL(x.x.f32(1, 64, 128) - x.x.f32(0, 64, 128), 64);
  CHECK_EQUAL(x.x.f32(0, 64, 128) - x.x.f32(3, 0, 64), 64);
  x.x.want(Format::f16);
  x.divide({{0, 64}, {64, 128}});
  CHECK(!x.x.apart);
  CHECK_EQUAL(x.x.f32(1, 64, 128) - x.x.f32(1), 64);
  float all[4 * 96];
  const OwnColumns own(all, 4, {32, 96});
  CHECK_EQUAL(own.row(0) - all, 4 * 32);
  CHECK_EQUAL(own.row(3) + 64 - all, 4 * 96);
  CHECK_EQUAL(own.whole_row(2) + 32, own.row(2));
}

TEST(shares_of_heads_project_their_own_panels_where_that_is_even_enough) {
  for (const int threads : {1, 2, 3, 4, 8, 20}) {
    for (const auto& [heads, kv_heads, dim] : {std::array{9, 3, 64}, {12, 2, 128}, {14, 2, 64}, {4, 2, 16}, {8, 8, 80}}) {
      const HeadShares shares(heads, kv_heads, dim, threads);
      const auto all = [&](auto part) {
        std::vector<Range> ranges;
        for (const HeadShare& share : shares.threads) ranges.push_back(part(share));
        return ranges;
      };
      const int q = (heads * dim + kPanelRows - 1) / kPanelRows, kv = (kv_heads * dim + kPanelRows - 1) / kPanelRows;
      check_covers(all([](const HeadShare& s) { return s.heads; }), heads);
      check_covers(all([](const HeadShare& s) { return s.kv_heads; }), kv_heads);
      check_covers(all([](const HeadShare& s) { return s.q; }), q);
      check_covers(all([](const HeadShare& s) { return s.k; }), kv);
      check_covers(all([](const HeadShare& s) { return s.v; }), kv);
    }
  }
  const HeadShares embedded(9, 3, 64, 2);
  CHECK(embedded.own_panels && !embedded.own_keys);
  CHECK_EQUAL(embedded.threads[0].heads.end, 4);
  CHECK_EQUAL(embedded.threads[0].kv_heads.end, 2);
  CHECK_EQUAL(embedded.lent.begin, 4);
  CHECK_EQUAL(embedded.lent.end, 6);
  CHECK_EQUAL(embedded.lent_rows(1), 0);
  CHECK_EQUAL(embedded.lent_rows(8), 2);  // four queries of 40, of which the other thread has 32
  CHECK_EQUAL(HeadShares(12, 2, 128, 2).lent_rows(8), 0);
  CHECK_EQUAL(HeadShares(9, 3, 64, 3).lent_rows(8), 0);
  CHECK(HeadShares(12, 2, 128, 2).own_panels && HeadShares(12, 2, 128, 2).own_keys);
  CHECK(!HeadShares(12, 2, 128, 4).own_panels);
}

}  // namespace outpace::test
