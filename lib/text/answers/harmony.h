// Splits a streamed answer in OpenAI's harmony form (gpt-oss) into reasoning, content and calls.
//
//   <|channel|>analysis<|message|>The user greets.<|end|>
//   <|start|>assistant<|channel|>final<|message|>Hello!<|return|>
//     -> reasoning "The user greets.", content "Hello!"
//   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
//     -> a call of f; the recipient may also stand before the channel
//
// A message is a header (role, channel, recipient) and a body. The channel `analysis` is
// reasoning; `final`, and `commentary` without a recipient, is content. Two messages of one kind
// are separated by an empty line. What a model addresses to a tool of OpenAI's own (python,
// browser.search) is reasoning: nothing runs it.
//
// Markers are control tokens, which the caller passes as such: a text that spells "<|end|>" is
// text. A header is never shown, wherever the answer breaks off; a call that breaks off keeps the
// arguments it has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/text/answers/tool_calls.h"

namespace ktx::text {

// Every token that opens or ends a part of a message, as it is written.
inline constexpr std::string_view kHarmonyStart = "<|start|>";
inline constexpr std::string_view kHarmonyChannel = "<|channel|>";
inline constexpr std::string_view kHarmonyConstrain = "<|constrain|>";
inline constexpr std::string_view kHarmonyMessage = "<|message|>";
inline constexpr std::string_view kHarmonyEnd = "<|end|>";
inline constexpr std::string_view kHarmonyReturn = "<|return|>";
inline constexpr std::string_view kHarmonyCall = "<|call|>";
// Where a prompt ends with an open message of the assistant, this opens its content.
inline constexpr std::string_view kHarmonyOpensContent = "<|channel|>final<|message|>";

struct HarmonyDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallPiece> calls;
};

// One stream; not thread-safe, copyable. Safe for any bytes and any order of markers.
class HarmonyParser {
 public:
  // `tools`: the offered ones; a call may lack "functions." if it names one of them. Without
  // any, a call is content.
  explicit HarmonyParser(const std::vector<OfferedTool>& tools);

  HarmonyDelta marker(std::string_view token);  // a control token; an unknown one says nothing
  HarmonyDelta text(std::string_view text);
  // When no more comes: what of an unfinished message is to be shown.
  HarmonyDelta finish();

  bool in_body() const { return state_ == State::Body; }
  // The content or a call has begun.
  bool in_answer() const { return in_body() && body_ != Body::Reasoning; }
  bool in_call() const { return in_body() && body_ == Body::Call; }

 private:
  enum class State { Header, Body, Between };
  enum class Body { Reasoning, Content, Call };
  void begin_header(std::string_view role);
  void begin_body(HarmonyDelta& delta);
  void end_body(HarmonyDelta& delta);
  void show(std::string_view text, HarmonyDelta& delta);

  std::vector<std::string> tools_;
  State state_ = State::Header;
  Body body_ = Body::Content;
  // What stands before and behind the channel marker of the header that is being read.
  std::string role_ = "assistant", rest_;
  bool has_channel_ = false;
  bool body_empty_ = true;
  bool reasoned_ = false, answered_ = false;  // something of that kind was shown
};

}  // namespace ktx::text
