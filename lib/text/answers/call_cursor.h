// A cursor over the text of a tool call that may still grow. Each step returns whether the
// expected text is there (Call), may still arrive (More), or cannot (No).
//
//   KTX_STEP(in.literal("<tool_call>"));     // returns the state unless it is there
//   in.space();
//   KTX_STEP(in.json(json));
//
// Used only by the readers of formats (call_formats.h).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "lib/text/answers/tool_call_reader.h"

namespace ktx::text {

// How a value in tags ends: with `close`; or, where that is missing, at a line that begins with
// `next`, the tag of another value, or with the tags that end both a call and its section, and at
// the tags that end a call, if nothing but the next call stands behind them.
struct ValueTags {
  std::string_view close, next;
  std::span<const std::string_view> call_ends, call_begins;
};

class CallCursor {
 public:
  CallCursor(std::string_view text, bool ended, CallScan& scan)
      : text_(text), ended_(ended), scan_(scan) {}

  size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  CallState at_most() const { return ended_ ? CallState::No : CallState::More; }
  char next() const { return text_[at_]; }
  bool stands(std::string_view text) const { return text_.substr(at_).starts_with(text); }

  void space();
  CallState literal(std::string_view wanted);
  // Goes behind all of these, and white space.
  void skip(std::string_view characters);
  // A marker that may come twice.
  CallState opener(std::string_view wanted);
  // A closing marker, behind closing brackets that nothing opened; a text that ends where it
  // should stand will do, and one where one of `next` stands in its place.
  CallState closer(std::string_view wanted, std::span<const std::string_view> next = {});
  // What stands in front of the first of `markers`, and not the marker itself.
  CallState until(std::initializer_list<std::string_view> markers, std::string_view& out);
  CallState until(std::string_view marker, std::string_view& out) { return until({marker}, out); }
  // All that is left.
  std::string_view to_end();
  // What stands in front of a blank, a comma or a closing bracket: a number, true, false, null.
  CallState word(std::string_view& out);
  // A JSON object or array, mended. Where `end` stands, brackets may be missing.
  CallState json(std::string_view& out, std::string_view end = "");
  // The same of arguments, of which none, or null, are {}.
  CallState arguments(std::string_view& out, std::string_view end);
  // The part of that JSON that is known.
  std::string_view json_so_far() const { return scan_.json.json(); }
  // What stands in front of `marker`, of any length; goes behind the marker.
  CallState value(std::string_view marker, std::string_view& out);
  // The same of a value in tags, whose closing one may be missing.
  CallState value(const ValueTags& tags, std::string_view& out);

 private:
  CallState ends_at(const ValueTags& tags, size_t at) const;

  std::string_view text_;
  size_t at_ = 0;
  bool ended_;
  CallScan& scan_;
};

// Returns from the enclosing function unless the step is there.
#define KTX_STEP(step)                                                          \
  do {                                                                          \
    if (const CallState state = (step); state != CallState::Call) return state; \
  } while (false)

std::string_view trimmed(std::string_view text);
// A name, trimmed, without the quotes that some models put around it.
std::string_view unquoted(std::string_view name);

// Discarded where it is no JSON, or nested deeper than we may go.
nlohmann::ordered_json parse_call_json(std::string_view text);

}  // namespace ktx::text
