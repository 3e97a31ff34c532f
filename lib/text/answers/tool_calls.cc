#include "lib/text/answers/tool_calls.h"

#include <algorithm>

#include "lib/text/answers/partial_match.h"
#include "lib/text/answers/tool_call_reader.h"

namespace ktx::text {
namespace {

struct FormatRow {
  ToolCallFormat format;
  std::string_view name;
  std::string_view marker;  // a template that writes it has this format
};
constexpr FormatRow kNamedFormats[] = {
#define KTX_TOOL_CALL_FORMAT(format, name, marker) {ToolCallFormat::format, name, marker},
#include "lib/text/answers/tool_call_formats.def"
};

// The object that `json` begins with, as far as it is there.
std::string_view object_in(std::string_view json, ObjectScan& scan) {
  while (!scan.whole && scan.at < json.size()) {
    scan.place.step(json[scan.at++]);
    scan.whole = scan.place.depth == 0;
  }
  return json.substr(0, scan.at);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::string_view format_name(ToolCallFormat format) {
  for (const FormatRow& row : kNamedFormats) {
    if (row.format == format) return row.name;
  }
  return "none";
}

std::optional<ToolCallFormat> format_from_name(std::string_view name) {
  if (name == "none") return ToolCallFormat::None;
  for (const FormatRow& row : kNamedFormats) {
    if (row.name == name) return row.format;
  }
  return std::nullopt;
}

std::vector<std::string> tool_call_format_names() {
  std::vector<std::string> names;
  for (const FormatRow& row : kNamedFormats) {
    if (names.empty() || names.back() != row.name) names.emplace_back(row.name);
  }
  return names;
}

ToolCallFormat detect_tool_call_format(std::string_view chat_template) {
  for (const FormatRow& row : kNamedFormats) {
    if (!row.marker.empty() && contains(chat_template, row.marker)) return row.format;
  }
  return ToolCallFormat::None;
}

void ToolCallParser::show(ToolCallDelta& delta, size_t bytes) {
  if (bytes == 0) return;
  if (calls_alone_) {
    held_.erase(0, bytes);
    return;
  }
  if (has_shown_) delta.text += gap_;
  gap_.clear();
  has_shown_ = true;
  delta.text += std::string_view(held_).substr(0, bytes);
  held_.erase(0, bytes);
}

// Looks for the begin of a call; what cannot belong to one is shown.
ToolCallParser::Step ToolCallParser::find_opener(ToolCallDelta& delta, End end) {
  if (or_format_ && has_shown_) {
    show(delta, held_.size());
    return Step::Wait;
  }
  const std::string_view text = held_;
  const bool ended = end != End::Open;
  size_t found = std::string_view::npos;
  size_t partial = 0;
  for (const std::string_view opener : call_openers(format_)) {
    found = std::min(found, text.find(opener));
    partial = std::max(partial, partial_match(text, opener));
  }
  if (at_begin_) {
    const size_t word = text.find_first_not_of(kAsciiSpace);
    if (word == std::string_view::npos && !ended) return Step::Wait;
    at_begin_ = false;
    if (format_ == ToolCallFormat::Llama3 && word < found && text[word] == '{') found = word;
  }
  if (or_format_ && !calls_alone_) {
    if (found != text.find_first_not_of(kAsciiSpace)) found = std::string_view::npos;
    calls_alone_ = found != std::string_view::npos && text[found] != '{';
  }
  const size_t last = std::min(found, end == End::Ended ? text.size() : text.size() - partial);
  // White space in front of a call may be dropped, so it waits for what follows.
  const size_t solid = text.substr(0, last).find_last_not_of(kAsciiSpace) + 1;
  if (found == std::string_view::npos) {
    show(delta, ended && last == text.size() ? last : solid);
    if (ended) held_.clear();
    return Step::Wait;
  }
  show(delta, solid);
  begin_call(found - solid);
  return Step::Again;
}

void ToolCallParser::begin_call(size_t at) {
  call_at_ = at;
  place_ = Place::Call;
  begun_ = in_tags_ = false;
  call_ = {};
  scan_ = {};
}

void ToolCallParser::say(ToolCallDelta& delta, ToolCallPiece piece) {
  if (piece.begins) call_ = {piece.name, "", piece.id};
  call_.arguments += piece.arguments;
  if (stream_ && (piece.begins || !piece.arguments.empty())) {
    delta.pieces.push_back(std::move(piece));
  }
}

// What is new of a call that has begun.
void ToolCallParser::say_more(ToolCallDelta& delta, const CallRead& read) {
  ToolCallPiece piece;
  if (!begun_) {
    begun_ = piece.begins = true;
    piece.name = read.name;
    piece.id = read.id;
    arguments_at_ = read.json_at;
    arguments_scan_ = {};
    call_ = {};
  }
  std::string_view all =
      read.state == CallState::Call ? read.calls[0].arguments : std::string_view(read.arguments);
  if (arguments_at_ != std::string::npos) {
    all = object_in(std::string_view(scan_.json.json()).substr(arguments_at_), arguments_scan_);
  }
  if (all.size() > call_.arguments.size()) piece.arguments = all.substr(call_.arguments.size());
  say(delta, std::move(piece));
}

// A call that is not streamed is emitted here.
void ToolCallParser::end_call(ToolCallDelta& delta) {
  calls_alone_ = or_format_;
  if (!stream_) delta.calls.push_back(std::move(call_));
  call_ = {};
}

ToolCallParser::Step ToolCallParser::read_call(ToolCallDelta& delta, End end) {
  const std::string_view text = std::string_view(held_).substr(call_at_);
  CallRead read = read_tool_call(format_, text, end == End::Ended, tools_, scan_);
  const bool begun = begun_ || read.begun;
  if (begun) say_more(delta, read);
  if (read.state == CallState::More && end == End::Open) return Step::Wait;
  if (read.state == CallState::Call) {
    in_tags_ = !text.substr(0, read.bytes).ends_with(call_end(format_));
    gap_ += std::string_view(held_).substr(0, call_at_);
    held_.erase(0, call_at_ + read.bytes);
    for (ToolCall& call : read.calls) {
      if (!begun) say(delta, {true, call.name, call.id, call.arguments});
      end_call(delta);
    }
    place_ = Place::BehindCall;
    return Step::Again;
  }
  CallScan fresh;
  const bool breaks_off =
      end != End::Open &&
      read_tool_call(format_, text, false, tools_, fresh).state == CallState::More;
  if (begun) {
    const bool in_json = scan_.json_at != std::string::npos;
    const size_t read_bytes = in_json ? scan_.json_at + scan_.json.at() : read.bytes;
    const size_t bytes = std::clamp<size_t>(read_bytes, 1, text.size());
    end_call(delta);
    gap_ += std::string_view(held_).substr(0, call_at_);
    held_.erase(0, breaks_off ? held_.size() : call_at_ + bytes);
    place_ = Place::BrokenCall;
    return Step::Again;
  }
  if (breaks_off) {
    held_.clear();  // the begin of a call that never came
    return Step::Wait;
  }
  // Not a call: its first character is text, and the search goes on behind it.
  place_ = Place::Text;
  show(delta, call_at_ + 1);
  return Step::Again;
}

// Drops what is left of a call, up to where one of its form ends or another one begins.
ToolCallParser::Step ToolCallParser::leave_broken_call(End end) {
  const std::string_view text = held_, last = call_end(format_);
  size_t next = last.empty() ? text.npos : text.find(last);
  if (next != text.npos) next += last.size();
  size_t partial = last.size();
  for (const std::string_view opener : call_openers(format_)) {
    next = std::min(next, text.find(opener));
    partial = std::max(partial, opener.size());
  }
  if (next == text.npos) {
    held_.erase(0, end == End::Open ? text.size() - std::min(text.size(), partial) : text.size());
    return Step::Wait;
  }
  held_.erase(0, next);
  place_ = Place::BehindCall;
  return Step::Again;
}

// Drops closing markers behind a call. White space is kept for a text that may follow.
ToolCallParser::Step ToolCallParser::leave_calls() {
  const size_t space = std::min(held_.find_first_not_of(kAsciiSpace), held_.size());
  gap_ += std::string_view(held_).substr(0, space);
  held_.erase(0, space);
  if (held_.empty()) return Step::Wait;
  // Several within one pair of tags.
  if (format_ == ToolCallFormat::Hermes && in_tags_ && held_[0] == '{') {
    begin_call(0);
    return Step::Again;
  }
  for (const std::string_view trailer : call_trailers(format_)) {
    if (held_.starts_with(trailer)) {
      held_.erase(0, trailer.size());
      in_tags_ = false;
      return Step::Again;
    }
  }
  for (const std::string_view trailer : call_trailers(format_)) {
    if (trailer.starts_with(held_)) return Step::Wait;
  }
  place_ = Place::Text;
  at_begin_ = true;
  return Step::Again;
}

ToolCallParser::Step ToolCallParser::advance(ToolCallDelta& delta, End end) {
  switch (place_) {
    case Place::Call:
      return read_call(delta, end);
    case Place::BrokenCall:
      return leave_broken_call(end);
    case Place::BehindCall:
      return leave_calls();
    case Place::Text:
      break;
  }
  return held_.empty() ? Step::Wait : find_opener(delta, end);
}

ToolCallDelta ToolCallParser::add(std::string_view text) {
  ToolCallDelta delta;
  if (format_ == ToolCallFormat::None) {
    delta.text = text;
    return delta;
  }
  held_ += text;
  while (advance(delta, End::Open) == Step::Again) {
  }
  return delta;
}

ToolCallDelta ToolCallParser::finish(bool cut) {
  ToolCallDelta delta;
  while (advance(delta, cut ? End::Cut : End::Ended) == Step::Again) {
  }
  held_.clear();  // half of a closing marker
  return delta;
}

}  // namespace ktx::text
