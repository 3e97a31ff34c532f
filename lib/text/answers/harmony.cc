#include "lib/text/answers/harmony.h"

#include <algorithm>

#include "lib/text/answers/partial_match.h"
#include "lib/text/answers/tool_call_reader.h"

namespace ktx::text {
namespace {

constexpr std::string_view kRole = "assistant";
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kParagraph = "\n\n";

std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kAsciiSpace), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kAsciiSpace));
  text.remove_prefix(word.size());
  return word;
}

std::string_view recipient_in(std::string_view header) {
  while (true) {
    const std::string_view word = next_word(header);
    if (word.empty()) return "";
    if (word.starts_with(kRecipient)) return word.substr(kRecipient.size());
  }
}

}  // namespace

HarmonyParser::HarmonyParser(const std::vector<OfferedTool>& tools) {
  for (const OfferedTool& tool : tools) tools_.push_back(tool.name);
}

void HarmonyParser::begin_header(std::string_view role) {
  state_ = State::Header;
  role_ = role;
  rest_.clear();
  has_channel_ = false;
}

void HarmonyParser::begin_body(HarmonyDelta& delta) {
  std::string_view recipient = recipient_in(rest_);
  if (recipient.empty()) recipient = recipient_in(role_);
  std::string_view rest = rest_;
  const std::string_view channel = has_channel_ ? next_word(rest) : "";
  state_ = State::Body;
  body_empty_ = true;
  body_ = channel == "analysis" ? Body::Reasoning : Body::Content;
  if (recipient.empty() || recipient == kRole || recipient == "user" || recipient == "all") return;
  const bool function = recipient.starts_with(kFunctions);
  if (function) recipient.remove_prefix(kFunctions.size());
  const bool offered = std::find(tools_.begin(), tools_.end(), recipient) != tools_.end();
  if (!function && !offered) {
    body_ = Body::Reasoning;
  } else if (tools_.empty() || recipient.empty() || recipient.size() > kMaxToolNameBytes) {
    body_ = Body::Content;
  } else {
    body_ = Body::Call;
    delta.calls.push_back({true, std::string(recipient), "", ""});
  }
}

void HarmonyParser::end_body(HarmonyDelta& delta) {
  if (state_ == State::Body && body_ == Body::Call && body_empty_) show("{}", delta);
  state_ = State::Between;
}

void HarmonyParser::show(std::string_view text, HarmonyDelta& delta) {
  if (text.empty()) return;
  if (body_ == Body::Call) {
    delta.calls.push_back({false, "", "", std::string(text)});
  } else {
    const bool reasons = body_ == Body::Reasoning;
    std::string& out = reasons ? delta.reasoning : delta.content;
    bool& shown = reasons ? reasoned_ : answered_;
    if (body_empty_ && shown) out += kParagraph;
    out += text;
    shown = true;
  }
  body_empty_ = false;
}

HarmonyDelta HarmonyParser::marker(std::string_view token) {
  HarmonyDelta delta;
  if (token == kHarmonyStart) {
    end_body(delta);
    begin_header("");
  } else if (token == kHarmonyChannel) {
    // Some messages begin without <|start|>.
    if (state_ != State::Header) {
      end_body(delta);
      begin_header(kRole);
    }
    has_channel_ = true;
  } else if (token == kHarmonyMessage) {
    if (state_ == State::Between) begin_header(kRole);
    if (state_ == State::Header) begin_body(delta);
  } else if (token == kHarmonyConstrain) {
    if (state_ == State::Header) rest_ += ' ';
  } else if (token == kHarmonyEnd || token == kHarmonyReturn || token == kHarmonyCall) {
    end_body(delta);
  }
  return delta;
}

HarmonyDelta HarmonyParser::text(std::string_view text) {
  HarmonyDelta delta;
  switch (state_) {
    case State::Header:
      (has_channel_ ? rest_ : role_) += text;
      break;
    case State::Body:
      show(text, delta);
      break;
    case State::Between: {  // no header: white space, or a model that has lost its form
      const size_t word = text.find_first_not_of(kAsciiSpace);
      if (word == std::string_view::npos) break;
      begin_header(kRole);
      begin_body(delta);
      show(text.substr(word), delta);
    }
  }
  return delta;
}

HarmonyDelta HarmonyParser::finish() {
  HarmonyDelta delta;
  if (state_ == State::Header && !has_channel_ && role_.size() > kRole.size() &&
      std::string_view(role_).starts_with(kRole)) {
    // No header at all: a model that answers in plain words.
    std::string_view words = std::string_view(role_).substr(kRole.size());
    const std::string_view first = next_word(words);
    if (!first.empty() && !first.starts_with(kRecipient) && !kRecipient.starts_with(first)) {
      body_ = Body::Content;
      body_empty_ = true;
      show(std::string_view(role_).substr(kRole.size()), delta);
    }
  }
  end_body(delta);
  return delta;
}

}  // namespace ktx::text
