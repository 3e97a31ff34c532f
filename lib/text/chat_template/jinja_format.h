// Python's two ways to format: '%s is %.2f' % (a, b) and '{} is {:.2f}'.format(a, b).
//
// Widths and precisions are capped (kMaxFormatWidth), so that a short template
// cannot ask for gigabytes of blanks.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

struct Args;

inline constexpr int64_t kMaxFormatWidth = 1 << 20;
inline constexpr int64_t kMaxFormatPrecision = 1000;

// `values`: a tuple for several, a dict for %(name)s, else the only value.
// `format`: a string.
Result<Value> percent_format(Meter& meter, const Value& format, const Value& values);
Result<Value> brace_format(Interpreter& in, Meter& meter, const Value& format, const Args& args);
// format(value, spec): "08.3f", ">10", ",", "x".
Result<std::string> format_value(Meter& meter, const Value& value, std::string_view spec);

}  // namespace ktx::text::jinja
