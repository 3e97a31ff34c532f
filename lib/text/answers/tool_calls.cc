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

std::vector<std::string> tool_call_format_names() {
  std::vector<std::string> names;
  for (const FormatRow& row : kNamedFormats) {
    if (names.empty() || names.back() != row.name) names.emplace_back(row.name);
  }
  return names;
}

ToolCallFormat detect_tool_call_format(std::string_view chat_template) {
  for (const FormatRow& row : kNamedFormats) {
    if (contains(chat_template, row.marker)) return row.format;
  }
  return ToolCallFormat::None;
}

void ToolCallParser::show(ToolCallDelta& delta, size_t bytes) {
  delta.text += std::string_view(held_).substr(0, bytes);
  held_.erase(0, bytes);
}

// Looks for the begin of a call; what cannot belong to one is shown.
ToolCallParser::Step ToolCallParser::find_opener(ToolCallDelta& delta, bool ended) {
  const std::string_view text = held_;
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
  const size_t end = std::min(found, ended ? text.size() : text.size() - partial);
  // White space in front of a call is dropped, so it waits for what follows.
  const size_t solid = text.substr(0, end).find_last_not_of(kAsciiSpace) + 1;
  if (found == std::string_view::npos) {
    show(delta, ended ? end : solid);
    return Step::Wait;
  }
  show(delta, solid);
  call_at_ = found - solid;
  in_call_ = true;
  begun_ = false;
  scan_ = {};
  return Step::Again;
}

// Gives out what is new of a call that has begun. Returns its bytes so far.
size_t ToolCallParser::stream_call(ToolCallDelta& delta, const CallRead& read) {
  ToolCallPiece piece;
  if (!begun_) {
    begun_ = piece.begins = true;
    piece.name = read.name;
    piece.id = read.id;
    arguments_at_ = read.json_at;
    arguments_sent_ = 0;
    arguments_scan_ = {};
  }
  size_t bytes = read.bytes;
  if (arguments_at_ != std::string::npos) {
    const std::string_view text = std::string_view(held_).substr(call_at_ + arguments_at_);
    const size_t reach = reach_of_json(text, arguments_scan_).bytes;
    piece.arguments = text.substr(arguments_sent_, reach - arguments_sent_);
    bytes = arguments_at_ + reach;
  } else {
    const std::string& all =
        read.state == CallState::Call ? read.calls[0].arguments : read.arguments;
    if (all.size() > arguments_sent_) piece.arguments = all.substr(arguments_sent_);
  }
  arguments_sent_ += piece.arguments.size();
  if (piece.begins || !piece.arguments.empty()) delta.pieces.push_back(std::move(piece));
  return bytes;
}

ToolCallParser::Step ToolCallParser::read_call(ToolCallDelta& delta, bool ended) {
  const std::string_view text = std::string_view(held_).substr(call_at_);
  CallRead read = read_tool_call(format_, text, ended, tools_, scan_);
  const bool streamed = stream_ && (begun_ || read.begun);
  size_t streamed_bytes = 0;
  if (streamed) streamed_bytes = stream_call(delta, read);
  if (read.state == CallState::More) return Step::Wait;
  in_call_ = false;
  if (read.state == CallState::Call) {
    held_.erase(0, call_at_ + read.bytes);
    for (ToolCall& call : read.calls) {
      if (!stream_)
        delta.calls.push_back(std::move(call));
      else if (!streamed)
        delta.pieces.push_back({true, call.name, call.id, call.arguments});
    }
    behind_call_ = true;
    return Step::Again;
  }
  if (streamed) {
    // It broke off. At the end of the text what is left of it says nothing.
    held_.erase(0, ended ? held_.size() : call_at_ + streamed_bytes);
    behind_call_ = true;
    return Step::Again;
  }
  // Not a call: its first character is text, and the search goes on behind it.
  show(delta, call_at_ + 1);
  return Step::Again;
}

// Drops white space and closing markers behind a call.
ToolCallParser::Step ToolCallParser::leave_calls() {
  held_.erase(0, std::min(held_.find_first_not_of(kAsciiSpace), held_.size()));
  if (held_.empty()) return Step::Wait;
  for (const std::string_view trailer : call_trailers(format_)) {
    if (held_.starts_with(trailer)) {
      held_.erase(0, trailer.size());
      return Step::Again;
    }
    if (trailer.starts_with(held_)) return Step::Wait;
  }
  behind_call_ = false;
  at_begin_ = true;
  return Step::Again;
}

ToolCallParser::Step ToolCallParser::advance(ToolCallDelta& delta, bool ended) {
  if (in_call_) return read_call(delta, ended);
  if (behind_call_) return leave_calls();
  if (held_.empty()) return Step::Wait;
  return find_opener(delta, ended);
}

ToolCallDelta ToolCallParser::add(std::string_view text) {
  ToolCallDelta delta;
  if (format_ == ToolCallFormat::None) {
    delta.text = text;
    return delta;
  }
  held_ += text;
  while (advance(delta, false) == Step::Again) {
  }
  return delta;
}

ToolCallDelta ToolCallParser::finish() {
  ToolCallDelta delta;
  while (advance(delta, true) == Step::Again) {
  }
  delta.text += held_;  // a closing marker that was cut off
  held_.clear();
  return delta;
}

}  // namespace ktx::text
