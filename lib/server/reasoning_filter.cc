#include "lib/server/reasoning_filter.h"

#include <algorithm>

namespace ktx::server {

std::vector<uint32_t> all_but_ends(const text::Tokenizer& tokenizer) {
  std::vector<uint32_t> bits(static_cast<size_t>(tokenizer.size() + 31) / 32);
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_eog(id)) bits[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
  }
  return bits;
}

Result<runtime::TokenBits> ReasoningFilter::allowed() {
  if (state_ == State::Reasoning) return runtime::TokenBits(tokens_.allowed);
  const runtime::TokenBits answer = KTX_TRY(answer_->allowed());
  if (state_ == State::Answer) return answer;
  start_.assign(answer.begin(), answer.end());
  start_.resize(std::max(start_.size(), static_cast<size_t>(tokens_.open / 32 + 1)));
  start_[static_cast<size_t>(tokens_.open / 32)] |= 1u << (tokens_.open % 32);
  return runtime::TokenBits(start_);
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

Result<runtime::TokenBits> HarmonyFilter::allowed() {
  return watch_.answers() ? answer_->allowed() : runtime::TokenBits(before_);
}

void HarmonyFilter::prepare() {
  if (watch_.answers()) answer_->prepare();
}

Status HarmonyFilter::accept(int32_t id) {
  if (watch_.answers()) return answer_->accept(id);
  watch_.accept(id);
  return {};
}

}  // namespace ktx::server
