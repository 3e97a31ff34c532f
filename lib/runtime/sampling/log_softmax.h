// ln p of tokens by their logits, in double precision.
//
//   const LogSoftmax softmax = KTX_TRY(log_softmax(logits));
//   softmax.logprob(logits[id])
#pragma once

#include <cstdint>
#include <span>

#include "lib/support/result.h"

namespace ktx::runtime {

struct LogSoftmax {
  int32_t best = 0;    // the likeliest token, of equals the lowest
  double top = 0;      // its logit
  double log_sum = 0;  // ln of the sum of e^(logit - top)

  double logprob(double logit) const { return logit - top - log_sum; }
};

// Fails as best_token() does: a logit is NaN or +infinity, or all are -infinity.
Result<LogSoftmax> log_softmax(std::span<const float> logits);

}  // namespace ktx::runtime
