// Values as messages show them.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace outpace {

// A number to six digits, as %g: "0.5", "1e+20"; what std::to_string gives has all digits before the point and six after.
inline std::string shown(double value) {
  if (std::isnan(value)) return "nan";  // which has a sign that says nothing
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace outpace
