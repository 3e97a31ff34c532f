// Converts values to text as Python prints them.
//
//   str:   abc        1.0    True    None    ['a', {'b': 1e+16}]
//   repr:  'abc'      (strings quoted and escaped, inside containers too)
//
// Undefined prints as nothing. Work and size are bounded by the meter: a small
// value may print large ([x, x] of [x, x] of …).
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

Result<std::string> to_str(Meter& meter, const Value& value);
Result<std::string> to_repr(Meter& meter, const Value& value);

std::string float_repr(double value);            // shortest that reads back: 0.1, 1e+16, inf
std::string string_repr(std::string_view text);  // quoted, \n, \x07, \u200b

// Text that grows under a meter's eye: charged while it lives.
class MeteredText {
 public:
  explicit MeteredText(Meter& meter) : meter_(meter) {}
  ~MeteredText() { meter_.live_bytes -= charged_; }
  MeteredText(const MeteredText&) = delete;
  MeteredText& operator=(const MeteredText&) = delete;

  Status append(std::string_view text, bool outside = false);
  Status append(const Value& value);  // as to_str() prints it
  // A part of a string's text.
  Status append(const StringObject& whole, std::string_view part);
  std::string take() { return std::move(text_); }
  Value take_string(bool markup = false) {
    return make_string(meter_, std::move(text_), markup, std::move(outside_));
  }

 private:
  Meter& meter_;
  std::string text_;
  TextSpans outside_;
  int64_t charged_ = 0;
};

}  // namespace ktx::text::jinja
