// Resource limits of one rendering of a chat template. A template comes with the model file and
// is not trusted: without limits `{% for %}` over `range` in `range` would run for days and
// `'a' * 10**9` would exhaust the memory.
//
// The limits exceed the needs of the heaviest real template, on a conversation of 128 k tokens,
// by a factor of 20 or more, and end a hostile template, or a conversation that is hostile to an
// honest one, within a second.
#pragma once

#include <cstdint>

namespace ktx::text {

struct RenderLimits {
  int64_t steps = 8'000'000;                // 50 to 100 ns each
  int64_t live_bytes = int64_t{256} << 20;  // of values alive at one time
  int64_t output_bytes = int64_t{64} << 20;
  int call_depth = 60;    // macros and recursive loops within each other
  int eval_depth = 600;   // nested statements and expressions, over all calls
  int value_depth = 100;  // lists in lists
};

// A template's text: larger is refused (real ones are below 50 KB).
inline constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;
// Nesting of statements, parentheses and operators in a template's text.
inline constexpr int kMaxTemplateDepth = 200;

}  // namespace ktx::text
