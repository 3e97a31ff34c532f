// Ctrl-R: searches earlier lines for a substring.
//
//   search 'fox': Tell me a story about a fox.
//
// The search is literal, newest lines first; another Ctrl-R finds an older line. Escape, Ctrl-G
// and Ctrl-C restore the line before the search.
#pragma once

#include "tools/ktx-run/key_reader.h"
#include "tools/ktx-run/line_buffer.h"
#include "tools/ktx-run/line_history.h"
#include "tools/ktx-run/line_view.h"

namespace ktx::tools {

inline constexpr const char* kSearchKey = "\x12";

// Leaves the line that was found in `buffer`, and returns the key that ended the search: for
// the caller to handle. Without bytes: there is nothing to handle.
Key search_history(KeyReader& keys, LineView& view, const LineHistory& history, LineBuffer& buffer);

}  // namespace ktx::tools
