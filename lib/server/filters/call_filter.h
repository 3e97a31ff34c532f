// Lets a model call a tool where else its answer follows a format.
//
//   <tool_call>{"name": "weather", …}    the marker of a call, at the begin; behind it anything
//   {"city": "Paris"}                    else the grammar of the format
//
// Kimi-K3 closes its response, an empty one, in front of a call.
//
// Where the begin of the text may be either, both stay possible. For forms of calls that begin
// with a marker; bare calls are a part of the grammar (text::CallForm).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lib/server/filters/marker_tokens.h"
#include "lib/text/answers/reasoning.h"
#include "lib/text/answers/tool_calls.h"

namespace ktx::server {

// What the markers of a model's calls mean for its tokens. Immutable.
class CallTokens {
 public:
  // `tags`: of the model's reasoning, for what it closes in front of calls.
  CallTokens(const text::Tokenizer& tokenizer, text::ToolCallFormat format,
             const std::optional<text::ReasoningTags>& tags = std::nullopt);

  std::span<const MarkerTokens> markers() const { return markers_; }
  std::span<const uint32_t> all() const { return all_; }
  std::string_view piece(int32_t id) const { return tokenizer_.piece(id); }

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<MarkerTokens> markers_;
  std::vector<uint32_t> all_;
};

class CallFilter final : public runtime::TokenFilter {
 public:
  // `tokens` must outlive the filter.
  CallFilter(const CallTokens& tokens, std::unique_ptr<runtime::TokenFilter> answer)
      : tokens_(tokens), said_(tokens.markers().size(), 0), answer_(std::move(answer)) {}

  Result<runtime::TokenBits> allowed() override;
  Status accept(int32_t id) override;
  void prepare() override;

 private:
  bool say(int32_t id, bool blank);

  const CallTokens& tokens_;
  bool calls_ = false;                       // a marker is whole
  bool answers_ = true;                      // the text so far may be an answer
  std::vector<std::optional<size_t>> said_;  // of each marker, as long as it may come
  const std::unique_ptr<runtime::TokenFilter> answer_;
  std::vector<uint32_t> mask_;
};

}  // namespace ktx::server
