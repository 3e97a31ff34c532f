// Shares of the normal distribution of mean 0 and deviation 1:
//
//   normal_quantile(0.95);       // 1.6449: 95 % of it is below
//   normal_share_below(1.6449);  // the other way
#pragma once

namespace ktx {

// `share` is above 0 and below 1. Right to 1e-12.
double normal_quantile(double share);
// Infinities are 0 and 1.
double normal_share_below(double deviations);

}  // namespace ktx
