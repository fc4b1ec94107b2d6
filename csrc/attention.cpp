#include "attention.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "messages.h"
#include "numerics.h"

namespace outpace {

RotaryTable::RotaryTable(double theta, int head_dim, const float* divisors) {
  if (!(theta > 1.0) || !std::isfinite(theta)) {
    throw std::invalid_argument("theta must be a finite number above 1, got " + shown(theta));
  }
  if (head_dim < 2 || head_dim % 2 != 0) {
    throw std::invalid_argument("head_dim must be even and positive, got " + std::to_string(head_dim));
  }
  const double log_theta = numerics::log(theta);
  for (int i = 0; i < head_dim / 2; ++i) {
    const double divisor = divisors == nullptr ? 1.0 : static_cast<double>(divisors[i]);
    if (!(divisor > 0.0)) {
      throw std::invalid_argument("divisors must be positive, got " + shown(divisor));
    }
    frequencies_.push_back(numerics::exp(-2.0 * i / head_dim * log_theta) / divisor);
  }
}

void RotaryTable::fill(int position, float* cos, float* sin) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const numerics::SinCos angle = numerics::sin_cos(position * frequencies_[i]);
    cos[i] = static_cast<float>(angle.cos);
    sin[i] = static_cast<float>(angle.sin);
  }
}

}  // namespace outpace
