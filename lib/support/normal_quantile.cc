#include "lib/support/normal_quantile.h"

#include <cmath>
#include <numbers>

namespace ktx {

double normal_share_below(double deviations) {
  return 0.5 * std::erfc(-deviations / std::numbers::sqrt2);
}

// By halves: beyond 40 deviations a double has no share left.
double normal_quantile(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (normal_share_below(middle) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace ktx
