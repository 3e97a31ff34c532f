#include "lib/server/filters/reasoning_filter.h"

#include <algorithm>

#include "lib/text/answers/partial_match.h"

namespace ktx::server {
namespace {

ReasoningTokens::EndTag end_tag(const text::Tokenizer& tokenizer, std::string_view tag) {
  ReasoningTokens::EndTag end = {tag, std::vector<std::vector<int32_t>>(tag.size())};
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string_view piece = tokenizer.piece(id);
    if (piece.empty() || tokenizer.is_eog(id)) continue;
    for (size_t said = 0; said < tag.size(); ++said) {
      const std::string_view rest = tag.substr(said);
      const size_t at = said == 0 ? piece.find(rest) : piece.starts_with(rest) ? 0 : piece.npos;
      if (at != piece.npos && !is_blank(piece.substr(at + rest.size()))) {
        end.overruns[said].push_back(id);
      }
    }
  }
  return end;
}

}  // namespace

ReasoningTokens::ReasoningTokens(const text::Tokenizer& tokenizer, const text::ReasoningTags& tags)
    : tokenizer_(tokenizer),
      tags_(tags),
      open_(tokenizer, tags.open, tags.open_token),
      answer_opens_(tags.opens_answer.size()),
      allowed_(all_but_ends(tokenizer)) {
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string_view piece = tokenizer.piece(id);
    if (piece.empty() || tokenizer.is_eog(id)) continue;
    for (size_t said = 0; said < answer_opens_.size(); ++said) {
      if (tags.opens_answer.substr(said).starts_with(piece)) answer_opens_[said].push_back(id);
    }
  }
  ends_.push_back(end_tag(tokenizer, tags.close));
  if (!tags.opens_answer.empty()) ends_.push_back(end_tag(tokenizer, tags.opens_answer));
  for (const EndTag& end : ends_) {
    for (const int32_t id : end.overruns[0]) set_token(allowed_, id, false);
  }
}

Result<runtime::TokenBits> ReasoningFilter::allowed() {
  if (state_ == State::Answer) return answer_->allowed();
  if (state_ == State::Reasoning) {
    if (said_.empty()) return runtime::TokenBits(tokens_.allowed());
    mask_.assign(tokens_.allowed().begin(), tokens_.allowed().end());
    for (const auto& [tag, overruns] : tokens_.ends()) {
      for (size_t said = 1; said < tag.size(); ++said) {
        if (!said_.ends_with(tag.substr(0, said))) continue;
        for (const int32_t id : overruns[said]) set_token(mask_, id, false);
      }
    }
    return runtime::TokenBits(mask_);
  }
  mask_.clear();
  if (state_ == State::Start) {
    const runtime::TokenBits answer = KTX_TRY(answer_->allowed());
    mask_.assign(answer.begin(), answer.end());
  }
  const bool answers = state_ == State::AnswerOpens;
  for (const int32_t id :
       answers ? tokens_.answer_opens(said_.size()) : tokens_.open().next(said_.size())) {
    set_token(mask_, id, true);
  }
  return runtime::TokenBits(mask_);
}

void ReasoningFilter::prepare() {
  if (state_ == State::Start || state_ == State::Answer) answer_->prepare();
}

// Whether the first token is the reasoning's. A part of the tag may be the answer's as well.
Result<bool> ReasoningFilter::opens(int32_t id) {
  const std::span<const int32_t> openers = tokens_.open().next(0);
  if (std::find(openers.begin(), openers.end(), id) == openers.end()) return false;
  if (openers.size() == 1 || tokens_.piece(id).starts_with(tokens_.tags().open)) return true;
  return !runtime::has_token(KTX_TRY(answer_->allowed()), id);
}

// Looks for the closing tag in what comes, and keeps what may be its begin.
void ReasoningFilter::reason(std::string_view text) {
  const std::string_view close = tokens_.tags().close, opens = tokens_.tags().opens_answer;
  said_ += text;
  const size_t closed = said_.find(close), answers = opens.empty() ? said_.npos : said_.find(opens);
  if (std::min(closed, answers) != said_.npos) {
    said_.clear();
    state_ = closed > answers || opens.empty() ? State::Answer : State::AnswerOpens;
  } else {
    said_.erase(0, said_.size() - std::max(text::partial_match(said_, close),
                                           text::partial_match(said_, opens)));
  }
}

Status ReasoningFilter::accept(int32_t id) {
  const std::string_view open = tokens_.tags().open, piece = tokens_.piece(id);
  if (state_ == State::Start) state_ = KTX_TRY(opens(id)) ? State::Opening : State::Answer;
  if (state_ == State::Answer) return answer_->accept(id);
  if (state_ == State::Reasoning) {
    reason(piece);
    return {};
  }
  if (state_ == State::AnswerOpens) {
    const std::string_view rest = tokens_.tags().opens_answer.substr(said_.size());
    if (!rest.starts_with(piece)) {
      return Error{"the token does not go on with the tag of the answer"};
    }
    said_ += piece;
    if (rest == piece) state_ = State::Answer;
    return {};
  }
  said_ += piece;
  if (!said_.starts_with(open)) {
    return open.starts_with(said_) ? Status() : Error{"the token does not go on with the tag"};
  }
  const std::string behind = said_.substr(open.size());
  said_.clear();
  state_ = State::Reasoning;
  reason(behind);
  return {};
}

Result<runtime::TokenBits> HarmonyFilter::allowed() {
  if (answers()) return answer_->allowed();
  return runtime::TokenBits(watch_.calls() ? call_ : before_);
}

void HarmonyFilter::prepare() {
  if (answers()) answer_->prepare();
}

Status HarmonyFilter::accept(int32_t id) {
  if (answers()) return answer_->accept(id);
  watch_.accept(id);
  return {};
}

}  // namespace ktx::server
