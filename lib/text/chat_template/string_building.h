// Text functions that can multiply their input; they charge a meter.
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

// str.replace: at most `count` times, always when it is negative. An empty
// `from` stands before every code point and at the end. `text` and `to` are strings.
Result<Value> replace_text(Meter& meter, const Value& text, std::string_view from, const Value& to,
                           int64_t count, bool markup);

enum class Alignment { Left, Right, Center };
// `text` in `width` code points, filled up with `fill` (one code point).
Result<std::string> justify(Meter& meter, std::string_view text, int64_t width,
                            std::string_view fill, Alignment alignment);

}  // namespace ktx::text::jinja
