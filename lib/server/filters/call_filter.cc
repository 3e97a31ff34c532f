#include "lib/server/filters/call_filter.h"

#include <algorithm>

#include "lib/text/answers/tool_call_reader.h"

namespace ktx::server {

CallTokens::CallTokens(const text::Tokenizer& tokenizer, text::ToolCallFormat format,
                       const std::optional<text::ReasoningTags>& tags)
    : tokenizer_(tokenizer), all_(all_tokens(tokenizer)) {
  for (const std::string_view marker : text::call_openers(format)) {
    markers_.emplace_back(tokenizer, marker, marker);
  }
  if (tags && !tags->closes_answer.empty()) {
    const std::string marker = std::string(tags->closes_answer) + std::string(tags->opens_calls);
    markers_.emplace_back(tokenizer, marker, marker);
  }
}

Result<runtime::TokenBits> CallFilter::allowed() {
  if (calls_) return runtime::TokenBits(tokens_.all());
  if (said_.empty()) return answer_->allowed();
  mask_.clear();
  if (answers_) {
    const runtime::TokenBits answer = KTX_TRY(answer_->allowed());
    mask_.assign(answer.begin(), answer.end());
  }
  for (size_t i = 0; i < said_.size(); ++i) {
    if (!said_[i]) continue;
    for (const int32_t id : tokens_.markers()[i].next(*said_[i])) set_token(mask_, id, true);
  }
  return runtime::TokenBits(mask_);
}

void CallFilter::prepare() {
  if (answers_ && !calls_) answer_->prepare();
}

// Follows the markers; false: none goes on with this token. In front of them may be white space.
bool CallFilter::say(int32_t id, bool blank) {
  bool any = false;
  for (size_t i = 0; i < said_.size(); ++i) {
    if (!said_[i] || (blank && *said_[i] == 0)) continue;
    const MarkerTokens& marker = tokens_.markers()[i];
    const auto next = marker.next(*said_[i]);
    if (std::find(next.begin(), next.end(), id) == next.end()) {
      said_[i].reset();
      continue;
    }
    *said_[i] += tokens_.piece(id).size();
    calls_ = calls_ || *said_[i] >= marker.text().size();
    any = true;
  }
  return any;
}

Status CallFilter::accept(int32_t id) {
  if (calls_) return {};
  if (said_.empty()) return answer_->accept(id);
  const bool answers = answers_ && runtime::has_token(KTX_TRY(answer_->allowed()), id);
  const bool blank = answers && is_blank(tokens_.piece(id));
  const bool marks = say(id, blank);
  if (std::none_of(said_.begin(), said_.end(), [](const auto& said) { return said.has_value(); })) {
    said_.clear();
  }
  if (!answers && !marks) return Error{"the token goes on with no call and no answer"};
  answers_ = answers;
  return answers ? answer_->accept(id) : Status();
}

}  // namespace ktx::server
