// Shares of the streams of attend_streams: the same few numbers for every instruction set.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/ops/step_attrs.h"

namespace ktx::kernels {
namespace {

class StreamShares {
 public:
  // Adds the next stream, by its mean square and its product with the score.
  void add(double mean_square, double product, double eps) {
    logits_[count_++] = product / std::sqrt(mean_square + eps);
  }
  void finish() {
    double largest = logits_[0], sum = 0;
    for (int32_t s = 1; s < count_; ++s) largest = logits_[s] > largest ? logits_[s] : largest;
    for (int32_t s = 0; s < count_; ++s) sum += logits_[s] = std::exp(logits_[s] - largest);
    for (int32_t s = 0; s < count_; ++s) shares_[s] = static_cast<float>(logits_[s] / sum);
  }
  float of(int32_t stream) const { return shares_[stream]; }

 private:
  double logits_[kMaxStreams];
  float shares_[kMaxStreams];
  int32_t count_ = 0;
};

}  // namespace
}  // namespace ktx::kernels
