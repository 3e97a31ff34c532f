#include "lib/text/answers/call_cursor.h"

#include "lib/support/json_nesting.h"
#include "lib/text/answers/partial_match.h"

namespace ktx::text {
namespace {

constexpr int kMaxJsonDepth = 100;
constexpr std::string_view kJsonOutsideStrings = " \t\r\n,:0123456789+-.eEtrufalsn";

// Goes on from scan.at to the bracket that closes the first one; scan.at is left there.
JsonReach scan_brackets(std::string_view text, JsonScan& scan) {
  for (; scan.at < text.size(); ++scan.at) {
    const char c = text[scan.at];
    if (scan.escaped) {
      scan.escaped = false;
    } else if (scan.in_string) {
      if (c == '\\') scan.escaped = true;
      if (c == '"') scan.in_string = false;
    } else if (c == '"') {
      scan.in_string = true;
    } else if (c == '{' || c == '[') {
      if (++scan.depth > kMaxJsonDepth) return {scan.at, false, true};
    } else if (c == '}' || c == ']') {
      --scan.depth;
    } else if (kJsonOutsideStrings.find(c) == std::string_view::npos) {
      return {scan.at, false, true};  // at once, so that nothing long is held back in vain
    }
    if (scan.depth == 0) return {scan.at + 1, true, false};
  }
  return {scan.at, false, false};
}

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

CallState CallCursor::closer(std::string_view wanted) {
  space();
  const std::string_view rest = text_.substr(at_);
  if (ended_ && wanted.starts_with(rest)) {
    at_ = text_.size();
    return CallState::Call;
  }
  return literal(wanted);
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

CallState CallCursor::json(std::string_view& out) {
  if (at_end()) return at_most();
  const size_t begin = at_;
  if (next() != '{' && next() != '[') return CallState::No;
  if (scan_.at < begin) scan_ = {.at = begin};
  if (scan_.at == begin || scan_.depth > 0) {  // else found at an earlier call
    const JsonReach reach = scan_brackets(text_, scan_);
    if (reach.broken) return CallState::No;
    if (!reach.whole) return at_most();
  }
  at_ = scan_.at + 1;
  out = text_.substr(begin, at_ - begin);
  return CallState::Call;
}

CallState CallCursor::value(std::string_view marker, std::string_view& out) {
  const size_t found = text_.find(marker, at_);
  if (found == std::string_view::npos) {
    scan_.in_string = true;
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
  const bool fits =
      json_nesting(text) <= kMaxJsonDepth && json_member_pairs(text) <= kMaxMemberPairs;
  return fits ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
}

JsonReach reach_of_json(std::string_view text, JsonScan& scan) {
  if (scan.at > 0 && scan.depth == 0) return {scan.at + 1, true, false};
  return scan_brackets(text, scan);
}

}  // namespace ktx::text
