#include "lib/server/filters/reasoning_budget.h"

namespace ktx::server {

ReasoningBudget::ReasoningBudget(const text::Tokenizer& tokenizer, ReasoningWatch watch,
                                 const ReasoningLimit& limit,
                                 std::unique_ptr<runtime::TokenFilter> answer)
    : watch_(std::move(watch)),
      budget_(limit.tokens),
      end_(tokenizer.encode(limit.message)),
      answer_(std::move(answer)),
      all_(static_cast<size_t>(tokenizer.size() + 31) / 32),
      one_(all_.size()) {
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    all_[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
  }
  end_.insert(end_.end(), watch_.end().begin(), watch_.end().end());
  check();
}

// Whether the reasoning is to end here.
void ReasoningBudget::check() {
  if (watch_.inside() && tokens_ >= budget_ && watch_.at_boundary()) at_ = 0;
}

std::optional<int32_t> ReasoningBudget::decided() const {
  return at_ ? std::optional(end_[*at_]) : std::nullopt;
}

Result<runtime::TokenBits> ReasoningBudget::allowed() {
  if (const auto id = decided()) {
    one_.assign(one_.size(), 0);
    one_[static_cast<size_t>(*id / 32)] = 1u << (*id % 32);
    return runtime::TokenBits(one_);
  }
  return answer_ ? answer_->allowed() : runtime::TokenBits(all_);
}

void ReasoningBudget::prepare() {
  if (answer_ && !at_) answer_->prepare();
}

Status ReasoningBudget::accept(int32_t id) {
  const bool was_inside = watch_.inside();
  watch_.accept(id);
  if (at_) {
    if (++*at_ == end_.size()) at_.reset();
  } else {
    if (was_inside && watch_.inside()) ++tokens_;
    check();
  }
  return answer_ ? answer_->accept(id) : Status();
}

}  // namespace ktx::server
