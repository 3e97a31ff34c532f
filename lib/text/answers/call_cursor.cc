#include "lib/text/answers/call_cursor.h"

#include "lib/support/json_nesting.h"
#include "lib/text/answers/partial_match.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

// Nothing, in every way in which models write it.
constexpr std::string_view kNothing[] = {"null", "None", "\"\""};

}  // namespace

void CallCursor::space() {
  at_ = std::min(text_.find_first_not_of(kAsciiSpace, at_), text_.size());
}
CallState CallCursor::literal(std::string_view wanted) {
  const std::string_view rest = text_.substr(at_);
  if (rest.starts_with(wanted)) {
    at_ += wanted.size();
    return CallState::Call;
  }
  return wanted.starts_with(rest) ? at_most() : CallState::No;
}

void CallCursor::skip(std::string_view characters) {
  while (!at_end() && (characters.find(next()) != std::string_view::npos ||
                       kAsciiSpace.find(next()) != std::string_view::npos)) {
    ++at_;
  }
}

CallState CallCursor::opener(std::string_view wanted) {
  KTX_STEP(literal(wanted));
  space();
  while (stands(wanted)) {
    at_ += wanted.size();
    space();
  }
  // Half of another one, maybe.
  const std::string_view rest = text_.substr(at_);
  return !rest.empty() && wanted.starts_with(rest) ? at_most() : CallState::Call;
}

CallState CallCursor::closer(std::string_view wanted, std::string_view next) {
  skip("}])");
  const std::string_view rest = text_.substr(at_);
  if (ended_ && wanted.starts_with(rest)) {
    at_ = text_.size();
    return CallState::Call;
  }
  if (!next.empty() && rest.starts_with(next)) return CallState::Call;
  const CallState there = literal(wanted);
  return there == CallState::No && next.starts_with(rest) ? at_most() : there;
}

CallState CallCursor::until(std::string_view marker, std::string_view& out) {
  const size_t found = text_.find(marker, at_);
  const size_t end = std::min(found, text_.size());
  if (end - at_ > kMaxToolNameBytes) return CallState::No;
  if (found == std::string_view::npos) return at_most();
  out = text_.substr(at_, found - at_);
  at_ = found;
  return CallState::Call;
}

CallState CallCursor::word(std::string_view& out) {
  const size_t found = text_.find_first_of(",}] \t\r\n", at_);
  const size_t end = std::min(found, text_.size());
  if (end - at_ > kMaxToolNameBytes) return CallState::No;
  if (found == std::string_view::npos) return at_most();
  out = text_.substr(at_, found - at_);
  at_ = found;
  return CallState::Call;
}

CallState CallCursor::json(std::string_view& out, std::string_view end) {
  if (at_end()) return at_most();
  if (next() != '{' && next() != '[') return CallState::No;
  if (scan_.json_at != at_) {
    scan_.json_at = at_;
    scan_.json = {};
  }
  CallJson& json = scan_.json;
  json.read(text_.substr(at_));
  const std::string_view rest = text_.substr(at_ + json.at());
  if (json.state() != CallJson::State::Whole) {
    const bool stops = json.state() == CallJson::State::Stopped;
    const bool at_marker = stops && !end.empty() && rest.starts_with(end);
    if (!at_marker && !(ended_ && (rest.empty() || end.starts_with(rest)))) {
      return !stops || end.starts_with(rest) ? at_most() : CallState::No;
    }
    if (!json.close()) return CallState::No;
  }
  at_ += json.at();
  out = json.json();
  return CallState::Call;
}

CallState CallCursor::arguments(std::string_view& out, std::string_view end) {
  space();
  const std::string_view rest = text_.substr(at_);
  out = "{}";
  if (ended_ && rest.empty()) return CallState::Call;
  if (!end.empty() && !rest.empty() && rest.starts_with(end)) return CallState::Call;
  for (const std::string_view nothing : kNothing) {
    if (rest.starts_with(nothing)) {
      at_ += nothing.size();
      return CallState::Call;
    }
    if (!rest.empty() && nothing.starts_with(rest)) return at_most();
  }
  if (!rest.empty() && end.starts_with(rest)) return at_most();
  return json(out, end);
}

CallState CallCursor::value(std::string_view marker, std::string_view& out) {
  const size_t found = text_.find(marker, at_);
  if (found == std::string_view::npos) {
    scan_.in_value = true;
    return at_most();
  }
  out = text_.substr(at_, found - at_);
  at_ = found + marker.size();
  return CallState::Call;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kAsciiSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kAsciiSpace) + 1 - begin);
}

nlohmann::ordered_json parse_call_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const bool fits = json_nesting(text) <= static_cast<int>(kMaxCallJsonDepth) &&
                    json_member_pairs(text) <= kMaxMemberPairs;
  return fits ? parse_json(text) : Json(Json::value_t::discarded);
}

}  // namespace ktx::text
