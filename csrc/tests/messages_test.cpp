// Numbers as messages show them.

#include "messages.h"

#include <limits>

#include "check.h"

namespace outpace::test {

TEST(messages_show_a_number_in_six_digits_at_most) {
  CHECK_EQUAL(shown(0.5), "0.5");
  CHECK_EQUAL(shown(-3), "-3");
  CHECK_EQUAL(shown(1e20), "1e+20");
  CHECK_EQUAL(shown(1e-46), "1e-46");
  CHECK_EQUAL(shown(0.1f), "0.1");
  CHECK_EQUAL(shown(-std::numeric_limits<double>::max()), "-1.79769e+308");
  CHECK_EQUAL(shown(std::numeric_limits<float>::infinity()), "inf");
  CHECK_EQUAL(shown(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace outpace::test
