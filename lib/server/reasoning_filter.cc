#include "lib/server/reasoning_filter.h"

#include <algorithm>
#include <limits>

namespace ktx::server {

Status ReasoningFilter::mask(std::span<float> logits) {
  if (state_ == State::Answer) return answer_->mask(logits);
  if (state_ == State::Start) {
    const float open = logits[tokens_.open];
    KTX_TRY(answer_->mask(logits));
    logits[tokens_.open] = open;
    return {};
  }
  for (const int32_t id : tokens_.ends) logits[id] = -std::numeric_limits<float>::infinity();
  return {};
}

Result<bool> ReasoningFilter::allows(int32_t id) {
  if (state_ == State::Reasoning) {
    return std::find(tokens_.ends.begin(), tokens_.ends.end(), id) == tokens_.ends.end();
  }
  const bool answers = KTX_TRY(answer_->allows(id));
  return answers || (state_ == State::Start && id == tokens_.open);
}

void ReasoningFilter::prepare() {
  if (state_ != State::Reasoning) answer_->prepare();
}

Status ReasoningFilter::accept(int32_t id) {
  if (state_ == State::Start) {
    state_ = id == tokens_.open ? State::Reasoning : State::Answer;
    if (state_ == State::Reasoning) return {};
  }
  if (state_ == State::Answer) return answer_->accept(id);
  if (id == tokens_.close) state_ = State::Answer;
  return {};
}

}  // namespace ktx::server
