#include "lib/text/answers/call_cursor.h"

#include <utility>

#include "lib/support/json_nesting.h"
#include "lib/text/answers/partial_match.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

// Nothing, in every way in which models write it.
constexpr std::string_view kNothing[] = {"null", "None", "\"\""};

bool begins_with_any(std::string_view text, std::span<const std::string_view> markers) {
  return std::ranges::any_of(markers, [&](std::string_view m) { return text.starts_with(m); });
}
// The text may become one of them.
bool begins_any(std::string_view text, std::span<const std::string_view> markers) {
  return std::ranges::any_of(markers, [&](std::string_view m) { return m.starts_with(text); });
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

CallState CallCursor::closer(std::string_view wanted, std::span<const std::string_view> next) {
  skip("}])");
  const std::string_view rest = text_.substr(at_);
  if (ended_ && wanted.starts_with(rest)) {
    at_ = text_.size();
    return CallState::Call;
  }
  if (begins_with_any(rest, next)) return CallState::Call;
  const CallState there = literal(wanted);
  return there == CallState::No && begins_any(rest, next) ? at_most() : there;
}

std::string_view CallCursor::to_end() {
  return text_.substr(std::exchange(at_, text_.size()));
}

CallState CallCursor::until(std::initializer_list<std::string_view> markers,
                            std::string_view& out) {
  const std::string_view rest = text_.substr(at_);
  size_t found = std::string_view::npos;
  size_t partial = 0;
  for (const std::string_view marker : markers) {
    found = std::min(found, text_.find(marker, at_));
    partial = std::max(partial, partial_match(rest, marker));
  }
  // Half a marker is no part of what stands in front of it.
  const size_t end = std::min(found, text_.size() - partial);
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

// Does the value end where its closing tag is missing?
CallState CallCursor::ends_at(const ValueTags& tags, size_t at) const {
  constexpr int kMostEnds = 3;  // of a call and its section, and one too many
  const std::string_view before = text_.substr(at_, at - at_);
  const size_t line = before.find_last_not_of(" \t");
  const bool begins_line = line != before.npos && before[line] == '\n';
  if (begins_line && text_.substr(at).starts_with(tags.next)) return CallState::Call;
  CallCursor in = *this;
  in.at_ = at;
  int ends = 0;
  for (; ends < kMostEnds; ++ends) {
    const std::string_view rest = text_.substr(in.at_);
    const auto end = std::ranges::find_if(
        tags.call_ends, [&](std::string_view marker) { return rest.starts_with(marker); });
    if (end == tags.call_ends.end()) break;
    in.at_ += end->size();
    in.space();
  }
  if (ends == 0) return CallState::No;
  if (begins_line && ends > 1) return CallState::Call;
  const std::string_view rest = text_.substr(in.at_);
  if (begins_with_any(rest, tags.call_begins)) return CallState::Call;
  if (!begins_any(rest, tags.call_ends) && !begins_any(rest, tags.call_begins)) {
    return CallState::No;
  }
  return ended_ ? CallState::Call : CallState::More;
}

CallState CallCursor::value(const ValueTags& tags, std::string_view& out) {
  for (size_t at = text_.find('<', at_); at != text_.npos; at = text_.find('<', at + 1)) {
    const bool closed = text_.substr(at).starts_with(tags.close);
    const CallState ends = closed ? CallState::Call : ends_at(tags, at);
    if (ends == CallState::More) break;
    if (ends == CallState::No) continue;
    out = text_.substr(at_, at - at_);
    if (!closed) out = out.substr(0, out.find_last_not_of(kAsciiSpace) + 1);
    at_ = closed ? at + tags.close.size() : at;
    return CallState::Call;
  }
  scan_.in_value = true;
  return at_most();
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kAsciiSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kAsciiSpace) + 1 - begin);
}

std::string_view unquoted(std::string_view name) {
  name = trimmed(name);
  const bool quoted =
      name.size() > 1 && (name[0] == '"' || name[0] == '\'') && name.back() == name[0];
  return quoted ? name.substr(1, name.size() - 2) : name;
}

nlohmann::ordered_json parse_call_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const bool fits = json_nesting(text) <= static_cast<int>(kMaxCallJsonDepth) &&
                    json_member_pairs(text) <= kMaxMemberPairs;
  return fits ? parse_json(text) : Json(Json::value_t::discarded);
}

}  // namespace ktx::text
