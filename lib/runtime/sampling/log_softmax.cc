#include "lib/runtime/sampling/log_softmax.h"

#include <cmath>

#include "lib/runtime/sampling/sampler.h"

namespace ktx::runtime {

Result<LogSoftmax> log_softmax(std::span<const float> logits) {
  LogSoftmax softmax;
  softmax.best = KTX_TRY(best_token(logits));
  softmax.top = logits[static_cast<size_t>(softmax.best)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - softmax.top);
  softmax.log_sum = std::log(sum);
  return softmax;
}

}  // namespace ktx::runtime
